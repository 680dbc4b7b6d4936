// Package schematest holds the published JSON Schema of documents to what core/policies reads. It stands in this module
// so that no user of weir gets the library of schemas.
package schematest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core/policies"
)

// published compiles the schema.
func published(t *testing.T) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(policies.Schema()))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("policies.schema.json", document))
	schema, err := compiler.Compile("policies.schema.json")
	require.NoError(t, err)
	return schema
}

// valid returns what the schema says of a text, which is JSON.
func valid(schema *jsonschema.Schema, text []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

func object(n int, value string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"n%d":%s`, i, value)
	}
	return "{" + b.String() + "}"
}

// The schema and the code agree, but for what only the code can say.
func TestSchemaAndCodeAgree(t *testing.T) {
	t.Parallel()
	const (
		both = iota // accept it
		none
		schemaAlone
	)
	schema := published(t)
	policy := func(p string) string { return `{"format":1,"policies":{"api":` + p + `}}` }
	long := func(n int) string { return strings.Repeat("x", n) }
	for text, who := range map[string]int{
		`{"format":1,"policies":{}}`: both,
		`{"format":1,"app":"pay","generation":1,"revision":9223372036854775807,"policies":{"api":{}}}`:        both,
		`{"format":1,"app":"*","policies":{}}`:                                                                both,
		policy(`{"text":"200/1m; shadow","tiers":{"pro":"5000/1m","free":"unlimited","ä ö":"1/1s"}}`):         both,
		policy(`{"keys":{"user=7":"blocked","user=8":"unlimited","user=9":"5/1m"},"apps":["shop","a.b-c_"]}`): both,
		policy(`{"tiers":{},"keys":{},"apps":[]}`):                                                            both,
		policy(`{"tiers":{"` + long(128) + `":"1/1s"},"keys":{"` + long(512) + `":"1/1s"}}`):                  both,
		policy(`{"tiers":` + object(1000, `"1/1s"`) + `}`):                                                    both,
		policy(`{"text":"1/1s` + strings.Repeat(" ", 1020) + `"}`):                                            both,

		`[]`: none, `null`: none, `{}`: none, `{"policies":{}}`: none, `{"format":1}`: none, `{"format":2,"policies":{}}`: none,
		`{"format":"1","policies":{}}`: none, `{"format":1,"policies":[]}`: none, `{"format":1,"policies":null}`: none,
		`{"format":1,"policies":{},"redis":"x"}`: none, `{"format":1,"Policies":{}}`: none, `{"format":1,"app":7,"policies":{}}`: none,
		`{"format":1,"app":"a b","policies":{}}`: none, `{"format":1,"app":"","policies":{}}`: none, `{"format":1,"app":"` + long(65) + `","policies":{}}`: none,
		`{"format":1,"generation":1,"policies":{}}`: none, `{"format":1,"revision":1,"policies":{}}`: none,
		`{"format":1,"generation":0,"revision":1,"policies":{}}`:                   none,
		`{"format":1,"generation":1,"revision":1.5,"policies":{}}`:                 none,
		`{"format":1,"generation":1,"revision":-1,"policies":{}}`:                  none,
		`{"format":1,"generation":1,"revision":9223372036854775808,"policies":{}}`: none,
		`{"format":1,"policies":{"..":{}}}`:                                        none, `{"format":1,"app":".","policies":{}}`: none,
		`{"format":1,"policies":{"a b":{}}}`:                 none,
		`{"format":1,"policies":` + object(1001, `{}`) + `}`: none,
		policy(`null`):                                               none,
		policy(`"5/1m"`):                                             none,
		policy(`{"limit":1}`):                                        none,
		policy(`{"text":100}`):                                       none,
		policy(`{"text":""}`):                                        none,
		policy(`{"text":"unlimited"}`):                               none,
		policy(`{"text":"blocked"}`):                                 none,
		policy(`{"text":"` + long(1025) + `"}`):                      none,
		policy(`{"tiers":[]}`):                                       none,
		policy(`{"tiers":{"":"1/1s"}}`):                              none,
		policy(`{"tiers":{"a":"blocked"}}`):                          none,
		policy(`{"tiers":{"a":null}}`):                               none,
		policy(`{"tiers":{"a\n":"1/1s"}}`):                           none,
		policy(`{"tiers":{"` + long(129) + `":"1/1s"}}`):             none,
		policy(`{"tiers":` + object(1001, `"1/1s"`) + `}`):           none,
		policy(`{"keys":{"` + long(513) + `":"1/1s"}}`):              none,
		policy(`{"keys":{"a\u0085":"1/1s"}}`):                        none,
		policy(`{"keys":{"a\u007f":"1/1s"}}`):                        none,
		policy(`{"keys":{"\ufffd":"1/1s"}}`):                         none,
		policy(`{"keys":` + object(1001, `"1/1s"`) + `}`):            none,
		policy(`{"apps":{}}`):                                        none,
		policy(`{"apps":["*"]}`):                                     none,
		policy(`{"apps":["a","a"]}`):                                 none,
		policy(`{"apps":[` + strings.Repeat(`"a",`, 1000) + `"a"]}`): none,

		// What only the code can say.
		policy(`{"text":"5 per minute"}`):                               schemaAlone, // the grammar
		policy(`{"text":"login: 5/1m"}`):                                schemaAlone, // another policy's name
		policy(`{"keys":{"user=7":"forbidden"}}`):                       schemaAlone,
		`{"format":1,"policies":{"api":{},"API":{}}}`:                   schemaAlone, // upper and lower case
		policy(`{"tiers":{"pro":"1/1s","Pro":"2/1s"}}`):                 schemaAlone,
		policy(`{"text":"1/1s","text":"2/1s"}`):                         schemaAlone, // a name twice
		`{"format":1,"app":"pay","policies":{"a":{"apps":["pay"]}}}`:    schemaAlone, // its owner
		`{"format":1.0,"policies":{}}`:                                  schemaAlone, // a number in other digits
		`{"format":1,"generation":1e0,"revision":1,"policies":{}}`:      schemaAlone,
		policy(`{"tiers":{"` + strings.Repeat("ä", 128) + `":"1/1s"}}`): schemaAlone, // 256 bytes
	} {
		_, mistake := policies.Decode([]byte(text))
		other := valid(schema, []byte(text))
		assert.Equal(t, who == both, mistake == nil, "the code: %.200s: %v", text, mistake)
		assert.Equal(t, who != none, other == nil, "the schema: %.200s: %v", text, other)
	}
}

// What the code accepts the schema accepts, of documents that were made at random and then spoiled.
func TestSchemaAcceptsWhatTheCodeAccepts(t *testing.T) {
	t.Parallel()
	schema := published(t)
	text := rapid.SampledFrom([]string{"5/1m", "200/1m; shadow", "9/1s", "20/1s, 1000/1h; fail closed", "1/1d", "2/1d", "unlimited", "blocked", "5", ""})
	good := rapid.StringMatching(`[A-Za-z0-9_.-]{1,20}`)
	name := rapid.OneOf(good, good, good, good, rapid.StringMatching(`[A-Za-z0-9_.-]{0,66}`), rapid.String())
	texts := rapid.MapOfN(name, text, 0, 3)
	document := rapid.Custom(func(t *rapid.T) map[string]any {
		d := map[string]any{"format": rapid.SampledFrom([]int{1, 1, 1, 1, 1, 1, 1, 2}).Draw(t, "format")}
		if rapid.Bool().Draw(t, "app") {
			d["app"] = name.Draw(t, "app")
		}
		for i, field := range []string{"generation", "revision"} {
			switch rapid.SampledFrom([]string{"as one", "as one", "as one", "none", "any"}).Draw(t, field) {
			case "as one":
				d[field] = 1 + i
			case "any":
				d[field] = rapid.Int64().Draw(t, field)
			}
		}
		all := map[string]any{}
		for _, n := range rapid.SliceOfN(name, 0, 3).Draw(t, "names") {
			p := map[string]any{}
			if rapid.Bool().Draw(t, "text") {
				p["text"] = text.Draw(t, "text")
			}
			if rapid.Bool().Draw(t, "tiers") {
				p["tiers"] = texts.Draw(t, "tiers")
			}
			if rapid.Bool().Draw(t, "keys") {
				p["keys"] = texts.Draw(t, "keys")
			}
			if rapid.Bool().Draw(t, "apps") {
				p["apps"] = rapid.SliceOfN(name, 0, 3).Draw(t, "apps")
			}
			all[n] = p
		}
		d["policies"] = all
		return d
	})
	checked, accepted := 0, 0
	check := func(t *rapid.T) {
		data, err := json.Marshal(document.Draw(t, "document"))
		require.NoError(t, err)
		if rapid.IntRange(0, 9).Draw(t, "spoil") == 0 {
			at := rapid.IntRange(0, len(data)-1).Draw(t, "at")
			data[at] = rapid.Byte().Draw(t, "byte")
		}
		checked++
		if _, err := policies.Decode(data); err == nil {
			accepted++
			require.NoError(t, valid(schema, data), "%s", data)
		}
	}
	for range 20 { // rapid checks a hundred, fewer in short tests
		rapid.Check(t, check)
	}
	assert.Greater(t, accepted, checked/20, "too few were accepted to say anything")
}
