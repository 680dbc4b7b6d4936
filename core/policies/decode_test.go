package policies_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/policies"
)

// example is the document of testdata/document.json.
func example() *policies.Document {
	return &policies.Document{
		App:     "pay",
		Version: policies.Version{Generation: 1, Revision: 17},
		Policies: map[string]policies.Policy{
			"api": {
				Text:  "200/1m; shadow",
				Tiers: map[string]string{"pro": "5000/1m", "free": "unlimited", `big "B"`: "9000/1m"},
				Keys:  map[string]string{"user=7": "blocked", `header=X-Account:a\b`: "unlimited", "user=ä/1": "7/1s, 100/1h"},
			},
			"login":      {Text: "5/1m"},
			"only.tiers": {Tiers: map[string]string{"pro": "1/1s"}},
			"code":       {},
		},
	}
}

// The bytes of format 1 are frozen: the digests of several versions of weir are compared. If this test fails, the
// format needs another number.
func TestEncodeIsFrozen(t *testing.T) {
	t.Parallel()
	golden, err := os.ReadFile("testdata/document.json")
	require.NoError(t, err)
	data, err := example().Encode()
	require.NoError(t, err)
	assert.Equal(t, string(golden), string(data))
	d, err := policies.Decode(golden)
	require.NoError(t, err)
	assert.Equal(t, example(), d)
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	many := func(n int, of string) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteString(",")
			}
			fmt.Fprintf(&b, of, i)
		}
		return b.String()
	}
	for name, c := range map[string]struct {
		text string
		want []string // one for each mistake
	}{
		"nothing":           {``, []string{"1:1: the document ends within a value"}},
		"cut off":           {`{"format":1,"policies":{`, []string{"1:25: the document ends within a value"}},
		"not JSON":          {"{\"format\":1,\n \"policies\": x}", []string{"2:14: this is not JSON"}},
		"a comma too many":  {`{"format":1,"policies":{},}`, []string{"1:27: this is not JSON"}},
		"two documents":     {`{"format":1,"policies":{}} {}`, []string{"1:28: something follows the end"}},
		"not UTF-8":         {"{\"format\":1,\n\"policies\":{\"\xff\":{}}}", []string{"2:14: these bytes are not UTF-8"}},
		"a list":            {`[]`, []string{`1:1: found a list: give an object with the fields of a document`}},
		"too deep":          {`{"format":1,"policies":{"a":{"tiers":{"b":{"c":{}}}}}}`, []string{"1:48: there are more than 5 brackets"}},
		"brackets":          {strings.Repeat("[", 1000) + strings.Repeat("]", 1000), []string{"1:6: there are more than 5 brackets"}},
		"no format":         {`{"policies":{}}`, []string{`1:1: a document has no field "format"; add "format": 1`}},
		"no policies":       {`{"format":1}`, []string{`1:1: a document has no field "policies"; add "policies": {}`}},
		"null":              {`{"format":1,"policies":null}`, []string{"1:24: policies: found null: give an object of policies"}},
		"a later format":    {`{"format":2,"polices":{},"signature":"x"}`, []string{"1:11: format: format 2 is of a later version of weir: this one reads format 1; update it"}},
		"format as text":    {`{"format":"1","policies":{}}`, []string{`1:11: format: found the text "1": give the number 1`}},
		"format 1.0":        {`{"format":1.0,"policies":{}}`, []string{`1:11: format: found 1.0: give 1`}},
		"format 1e0":        {`{"format":1e0,"policies":{}}`, []string{`1:11: format: found 1e0: give 1`}},
		"format -1":         {`{"format":-1,"policies":{}}`, []string{`1:11: format: found -1: give 1`}},
		"revision 1.5":      {`{"format":1,"generation":1,"revision":1.5,"policies":{}}`, []string{`1:39: revision: found 1.5: give a number from 1 on`}},
		"revision 0":        {`{"format":1,"generation":1,"revision":0,"policies":{}}`, []string{`1:39: revision: found 0: give a number from 1 on`}},
		"revision too long": {`{"format":1,"generation":1,"revision":9223372036854775808,"policies":{}}`, []string{`revision: found 9223372036854775808: give`}},
		"half a version":    {`{"format":1,"revision":7,"policies":{}}`, []string{"a document has both a generation and a revision, or neither"}},
		"an app":            {`{"format":1,"app":"p y","policies":{}}`, []string{`1:19: app: the name "p y" of an app: give 1 to 64 letters`}},
		"unknown fields": {`{"format":1,"redis_url":"redis://x","policies":{"a":{"algorithm":"gcra"}}}`, []string{
			`1:13: redis_url: there is no such field: a document has "format", "app", "generation", "revision", "policies"`,
			`1:54: policies.a.algorithm: there is no such field: a policy has "text", "tiers", "keys", "apps"`,
		}},
		"a field in another case": {`{"format":1,"Policies":{}}`, []string{`1:1: a document has no field "policies"`, `1:13: Policies: there is no such field`}},
		"a number for a text":     {`{"format":1,"policies":{"a":{"text":100}}}`, []string{`1:37: policies.a.text: found the number 100: give a text such as "100/1m", in quotes`}},
		"an empty text":           {`{"format":1,"policies":{"a":{"text":""}}}`, []string{`policies.a.text: the text is empty; leave the field out`}},
		"an app of two dots":      {`{"format":1,"app":"..","policies":{}}`, []string{`1:19: app: the name ".." of an app`}},
		"a policy of a dot":       {`{"format":1,"policies":{".":{}}}`, []string{`1:25: policies["."]: the name "." of a policy`}},
		"a policy's name":         {`{"format":1,"policies":{"a b":{}}}`, []string{`1:25: policies["a b"]: the name "a b" of a policy`}},
		"a text's name":           {`{"format":1,"policies":{"a":{"text":"b: 5/1m"}}}`, []string{`the text names the policy "b", but stands at "a"; leave the name out`}},
		"all mistakes": {`{"format":1,"policies":{
			"a":{"text":"5/1x","tiers":{"pro":"5/0s burst 0"}},
			"b":{"text":"0/1s, 5/0s","keys":{"user=7":"forbidden","user=8":true}}}}`, []string{
			`2:16: policies.a.text: "5/1x": at offset 3, found "x": expected a unit right after the number`,
			`2:38: policies.a.tiers.pro: "5/0s burst 0"`,
			`3:16: policies.b.text: "0/1s, 5/0s": limit 1`,
			`3:16: policies.b.text: "0/1s, 5/0s": limit 2`,
			`3:46: policies.b.keys["user=7"]: "forbidden": at offset 0`,
			`3:67: policies.b.keys["user=8"]: found true: give a text`,
		}},
		"unlimited":         {`{"format":1,"policies":{"a":{"text":"unlimited"}}}`, []string{`policies.a.text: only a tier or a key can be "unlimited"`}},
		"a blocked tier":    {`{"format":1,"policies":{"a":{"tiers":{"b":"blocked"}}}}`, []string{`policies.a.tiers.b: only a key can be "blocked"`}},
		"an empty tier":     {`{"format":1,"policies":{"a":{"tiers":{"":"1/1s"}}}}`, []string{`policies.a.tiers[""]: the name has 0 bytes; give 1 to 128`}},
		"a control":         {`{"format":1,"policies":{"a":{"keys":{"user=\n":"1/1s"}}}}`, []string{`policies.a.keys["user=\n"]: the name has 6 bytes; give 1 to 512, without control characters`}},
		"half a character":  {`{"format":1,"policies":{"a":{"keys":{"\ud800":"1/1s"}}}}`, []string{`without control characters`}},
		"a long tier":       {`{"format":1,"policies":{"a":{"tiers":{"` + strings.Repeat("t", 129) + `":"1/1s"}}}}`, []string{`the name has 129 bytes; give 1 to 128`}},
		"a long key":        {`{"format":1,"policies":{"a":{"keys":{"` + strings.Repeat("t", 513) + `":"1/1s"}}}}`, []string{`the name has 513 bytes; give 1 to 512`}},
		"a long text":       {`{"format":1,"policies":{"a":{"text":"1/1s` + strings.Repeat(" ", 1021) + `"}}}`, []string{`the text has 1025 bytes; give at most 1024`}},
		"too many policies": {`{"format":1,"policies":{` + many(1001, `"p%d":{}`) + `}}`, []string{`policies: there are 1001 policies; give at most 1000`}},
		"too many tiers":    {`{"format":1,"policies":{"a":{"tiers":{` + many(1001, `"p%d":"1/1s"`) + `}}}}`, []string{`policies.a.tiers: there are 1001 tiers; give at most 1000`}},
		"too many keys":     {`{"format":1,"policies":{"a":{"keys":{` + many(1001, `"p%d":"1/1s"`) + `}}}}`, []string{`policies.a.keys: there are 1001 keys; give at most 1000`}},
		"too many apps":     {`{"format":1,"policies":{"a":{"apps":[` + many(1001, `"p%d"`) + `]}}}`, []string{`policies.a.apps: there are 1001 apps; give at most 1000`}},
		"apps": {`{"format":1,"app":"pay","policies":{"a":{"apps":["shop","shop",7,"*","pay"]}}}`, []string{
			`policies.a.apps: "pay" owns the policy; leave it out`,
			`policies.a.apps[1]: "shop" stands here twice; leave one out`,
			`policies.a.apps[2]: found the number 7: give the name of an app, such as "billing"`,
			`policies.a.apps[3]: the name "*" of an app: give 1 to 64 letters`,
		}},
		"too large": {strings.Repeat(" ", policies.MaxSize+1), []string{"the document has 262145 bytes; give at most 262144"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := policies.Decode([]byte(c.text))
			assert.Nil(t, d)
			var mistakes policies.Mistakes
			require.ErrorAs(t, err, &mistakes)
			var all []string
			for _, m := range mistakes {
				all = append(all, m.Error())
			}
			require.Len(t, mistakes, len(c.want), "%s", strings.Join(all, "\n"))
			for i, want := range c.want {
				assert.Contains(t, mistakes[i].Error(), want)
			}
		})
	}
}

// A name that stands twice in one object is refused, also in another case, where encoding/json takes the last. Keys are
// exact: user=Ab and user=ab are two people.
func TestNamesTwice(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"format":1,"format":1,"policies":{}}`:                                         `1:13: format: this name stands here twice`,
		`{"format":1,"policies":{},"policies":{"a":{}}}`:                                `1:27: policies: this name stands here twice`,
		`{"format":1,"policies":{"a":{"text":"1/1s","text":"2/1s"}}}`:                   `1:44: policies.a.text: this name stands here twice`,
		`{"format":1,"policies":{"a":{"text":"1/1s","Text":"2/1s"}}}`:                   `1:44: policies.a.Text: this name stands here twice`,
		`{"format":1,"policies":{"a":{"text":"1/1s","\u0074ext":"2/1s"}}}`:              `1:44: policies.a.text: this name stands here twice`,
		`{"format":1,"policies":{"login":{},"Login":{}}}`:                               `1:36: policies.Login: this name stands here twice; leave one out (upper and lower case are the same)`,
		`{"format":1,"policies":{"a":{"tiers":{"straße":"1/1s","STRAẞE":"2/1s"}}}}`:     `this name stands here twice`,
		`{"format":1,"policies":{"a":{"tiers":{"k":"1/1s","\u212a":"2/1s"}}}}`:          `this name stands here twice`,
		`{"format":1,"policies":{"a":{"keys":{"user=ab":"1/1s","user=ab":"blocked"}}}}`: `1:55: policies.a.keys["user=ab"]: this name stands here twice; leave one out`,
	} {
		_, err := policies.Decode([]byte(text))
		require.Error(t, err, text)
		assert.Contains(t, err.Error(), want, text)
	}
	d, err := policies.Decode([]byte(`{"format":1,"policies":{"a":{"keys":{"user=ab":"1/1s","user=Ab":"blocked"}}}}`))
	require.NoError(t, err)
	assert.Len(t, d.Policies["a"].Keys, 2)
	_, err = (&policies.Document{Policies: map[string]policies.Policy{"api": {}, "API": {}}}).Encode()
	assert.ErrorContains(t, err, "this name stands here twice")
}

// A document has numbers and nothing else: no connection, no script, no file, no program.
func TestNoConnectionsInDocuments(t *testing.T) {
	t.Parallel()
	for _, field := range []string{"redis", "redis_url", "url", "server", "store", "file", "script", "lua", "handler", "enabled", "signature"} {
		for _, text := range []string{
			`{"format":1,"policies":{},%q:"redis://127.0.0.1:6379"}`,
			`{"format":1,"policies":{"a":{%q:"redis://127.0.0.1:6379"}}}`,
		} {
			_, err := policies.Decode(fmt.Appendf(nil, text, field))
			assert.ErrorContains(t, err, "there is no such field")
		}
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 312 {
		fmt.Fprintf(&b, `,"p%d":{"text":"x"}`, i)
	}
	_, err := policies.Decode([]byte(`{"format":1,"policies":{"p":{}` + b.String() + `}}`))
	require.Error(t, err)
	lines := strings.Split(err.Error(), "\n")
	assert.Len(t, lines, 101)
	assert.Equal(t, "and 212 more", lines[100])
	var syntax *core.SyntaxError
	assert.ErrorAs(t, err, &syntax)
	var mistakes policies.Mistakes
	require.ErrorAs(t, err, &mistakes)
	assert.Len(t, mistakes, 312)
	assert.Contains(t, mistakes.In("pay.yaml")[0].Error(), `pay.yaml:1:45: policies.p0.text: "x": at offset 0, found "x": expected`)
	assert.Empty(t, mistakes[0].File)
}

func TestDecodePolicy(t *testing.T) {
	t.Parallel()
	p, err := policies.DecodePolicy([]byte(`{"text":"api: 200/1m","keys":{"user=7":"blocked"},"apps":["shop","billing"]}`), "api")
	require.NoError(t, err)
	assert.Equal(t, policies.Policy{
		Text: "api: 200/1m", Keys: map[string]string{"user=7": "blocked"}, Apps: []string{"billing", "shop"},
	}, p)
	data, err := p.Encode()
	require.NoError(t, err)
	assert.Equal(t, `{"text":"api: 200/1m","keys":{"user=7":"blocked"},"apps":["billing","shop"]}`, string(data))
	_, err = policies.DecodePolicy([]byte(`{"text":"login: 200/1m","limit":7}`), "api")
	require.Error(t, err)
	assert.Equal(t, `1:9: text: "login: 200/1m": the text names the policy "login", but stands at "api"; leave the name out`+"\n"+
		`1:25: limit: there is no such field: a policy has "text", "tiers", "keys", "apps"`, err.Error())
}

func TestVersion(t *testing.T) {
	t.Parallel()
	for _, v := range []policies.Version{{}, {Generation: 1, Revision: 1}, {Generation: 3, Revision: 17}} {
		again, err := policies.ParseVersion(v.String())
		require.NoError(t, err)
		assert.Equal(t, v, again)
	}
	assert.Equal(t, "3.17", policies.Version{Generation: 3, Revision: 17}.String())
	for _, text := range []string{"3", "3.", ".1", "3.0", "0.1", "03.1", "3.17.1", "-1.1", "+3.1", "3.1 ", "a.b"} {
		_, err := policies.ParseVersion(text)
		assert.Error(t, err, text)
	}
	assert.Equal(t, -1, policies.Version{Generation: 1, Revision: 9}.Compare(policies.Version{Generation: 2, Revision: 1}))
	assert.Equal(t, +1, policies.Version{Generation: 1, Revision: 9}.Compare(policies.Version{Generation: 1, Revision: 8}))
}

// aPolicy draws texts that the grammar accepts.
var aText = rapid.SampledFrom([]string{
	"5/1m", "200/1m burst 20; shadow", "20/1s, 1000/1h; fail closed", "10 concurrent lease 10s", "5/1d fixed-window calendar UTC",
	"  9/1s ", "10/1s burst 1; wait 2s", "100/1h sliding-log",
})

// aDocument draws documents that can be used.
func aDocument(t *rapid.T) *policies.Document {
	texts := func(name *rapid.Generator[string], words ...string) *rapid.Generator[map[string]string] {
		text := rapid.OneOf(aText, rapid.SampledFrom(append(words, "1/1s")))
		return rapid.Custom(func(t *rapid.T) map[string]string {
			m := rapid.MapOfN(name, text, 0, 4).Draw(t, "texts")
			lower := map[string]bool{}
			for k := range m {
				if lower[strings.ToLower(k)] {
					delete(m, k)
				}
				lower[strings.ToLower(k)] = true
			}
			if len(m) == 0 {
				return nil
			}
			return m
		})
	}
	d := &policies.Document{
		App:      rapid.SampledFrom([]string{"", "pay", "bill.pay-2_x", policies.AllApps}).Draw(t, "app"),
		Policies: map[string]policies.Policy{},
	}
	if rapid.Bool().Draw(t, "version") {
		d.Version = policies.Version{
			Generation: rapid.Int64Range(1, 1<<62).Draw(t, "generation"), Revision: rapid.Int64Range(1, 1<<62).Draw(t, "revision"),
		}
	}
	for _, name := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9_-][a-z0-9_.-]{0,63}`), 0, 5, rapid.ID[string]).Draw(t, "names") {
		p := policies.Policy{
			Tiers: texts(rapid.StringMatching(`[a-z "\\/<>&ß中.]{1,40}`), "unlimited").Draw(t, "tiers"),
			Keys:  texts(rapid.StringMatching(`[a-z]{1,8}=[a-z0-9%:&"\\ é]{1,40}`), "unlimited", "blocked").Draw(t, "keys"),
		}
		if rapid.Bool().Draw(t, "text") {
			p.Text = aText.Draw(t, "text")
		}
		if apps := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c-d"}), 0, 3, rapid.ID[string]).Draw(t, "apps"); len(apps) > 0 {
			p.Apps = apps
		}
		d.Policies[name] = p
	}
	return d
}

// A program reads a published document whatever its texts say: one that only a later version knows spoils no other.
func TestDecodePublished(t *testing.T) {
	t.Parallel()
	data := []byte(`{"format":1,"policies":{"a":{"text":"5/1m; later 7"},"b":{"text":"5/1m"}}}`)
	_, err := policies.Decode(data)
	require.Error(t, err)
	d, err := policies.DecodePublished(data)
	require.NoError(t, err)
	assert.Equal(t, "5/1m; later 7", d.Policies["a"].Text)
	for _, text := range []string{
		`{"format":1,"policies":{"a":{"text":""}}}`, `{"format":1,"policies":{"a":{},"A":{}}}`, `{"format":2,"policies":{}}`, `{"format":1,"policies":{"a":{"redis":"x"}}}`,
	} {
		_, err := policies.DecodePublished([]byte(text))
		assert.Error(t, err, text)
	}
}

// What is encoded is read back; the bytes are JSON, and the same whatever the order of the names and whatever stands
// between them.
func TestEncodeThenDecode(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := aDocument(t)
		require.NoError(t, d.Check())
		data, err := d.Encode()
		require.NoError(t, err)
		require.True(t, json.Valid(data), "%s", data)
		again, err := policies.Decode(data)
		require.NoError(t, err)
		twice, err := again.Encode()
		require.NoError(t, err)
		require.Equal(t, string(data), string(twice))
		for name, p := range d.Policies {
			q := again.Policies[name]
			require.ElementsMatch(t, p.Apps, q.Apps)
			p.Apps, q.Apps = nil, nil
			require.Equal(t, p, q)
		}
		require.Equal(t, d.App, again.App)
		require.Equal(t, d.Version, again.Version)
		require.Len(t, again.Policies, len(d.Policies))

		var anything map[string]any // whose order is another one
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.UseNumber()
		require.NoError(t, decoder.Decode(&anything))
		other, err := json.MarshalIndent(anything, " ", "\t")
		require.NoError(t, err)
		again, err = policies.Decode(other)
		require.NoError(t, err)
		twice, err = again.Encode()
		require.NoError(t, err)
		require.Equal(t, string(data), string(twice))
	})
}

func TestEncodeRefuses(t *testing.T) {
	t.Parallel()
	big := &policies.Document{App: "pay", Policies: map[string]policies.Policy{}}
	for i := range 300 {
		big.Policies[fmt.Sprintf("p%d", i)] = policies.Policy{Text: strings.Repeat("1/1s,", 200) + "1/1s"}
	}
	_, err := big.Encode()
	assert.ErrorContains(t, err, "at most 262144 travel")
	for name, d := range map[string]*policies.Document{
		"app":      {App: "p y"},
		"version":  {Version: policies.Version{Generation: 1}},
		"negative": {Version: policies.Version{Generation: -1, Revision: 1}},
		"policy":   {Policies: map[string]policies.Policy{"": {}}},
		"tier":     {Policies: map[string]policies.Policy{"a": {Tiers: map[string]string{"\x00": "1/1s"}}}},
		"key":      {Policies: map[string]policies.Policy{"a": {Keys: map[string]string{"\xff": "1/1s"}}}},
		"text":     {Policies: map[string]policies.Policy{"a": {Text: "\xff"}}},
		"empty":    {Policies: map[string]policies.Policy{"a": {Tiers: map[string]string{"b": ""}}}},
	} {
		_, err := d.Encode()
		assert.Error(t, err, name)
		assert.Error(t, d.Check(), name)
	}
	d := &policies.Document{Policies: map[string]policies.Policy{"a": {Text: "5 per minute"}}}
	_, err = d.Encode()
	require.NoError(t, err, "the texts are not read")
	assert.ErrorContains(t, d.Check(), `policies.a.text: "5 per minute": at offset`)
}

// Whatever bytes a document has, it is refused with a place, or it is JSON and what it says is read back.
func FuzzDecode(f *testing.F) {
	golden, err := os.ReadFile("testdata/document.json")
	require.NoError(f, err)
	for _, seed := range []string{
		string(golden), `{"format":1,"policies":{}}`, `{"format":1,"policies":{"a":{"apps":["b"],"text":"5/1m"}}}`, `{"format":1,"policies":{"a":null}}`,
		"{\"format\":1,\n\"policies\":{\"a\":{\"keys\":{\"\\ud83d\\ude00\":\"blocked\"}}}}", "[[[[[[[", "{\"a\":\xff}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := policies.Decode(data)
		if err != nil {
			var mistakes policies.Mistakes
			if d != nil || !errors.As(err, &mistakes) || len(mistakes) == 0 || err.Error() == "" {
				t.Fatalf("%v, %v", d, err)
			}
			return
		}
		if !json.Valid(data) {
			t.Fatal("it is not JSON")
		}
		encoded, err := d.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := policies.Decode(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if !assert.ObjectsAreEqual(d, again) {
			t.Fatalf("%v, then %v", d, again)
		}
	})
}

func TestSet(t *testing.T) {
	t.Parallel()
	d := example()
	s := d.Set()
	assert.Equal(t, &follow.Set{
		Revision: "1.17",
		Policies: map[string]string{"api": "200/1m; shadow", "login": "5/1m", "only.tiers": "", "code": ""},
		Tiers:    map[string]map[string]string{"api": d.Policies["api"].Tiers, "only.tiers": {"pro": "1/1s"}},
		Keys:     map[string]map[string]string{"api": d.Policies["api"].Keys},
	}, s)
	d.Policies["api"].Keys["user=8"] = "blocked"
	assert.Len(t, s.Keys["api"], 3, "it shares nothing")
}
