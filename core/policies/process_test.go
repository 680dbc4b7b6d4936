package policies_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/stats"
)

func aProcess() *policies.Process {
	return &policies.Process{
		App: "pay", ID: "0123456789abcdef", Name: "host:4711", Started: time.Unix(1700000000, 0).UTC(), Weir: "v1.2.3",
		Version: policies.Version{Generation: 1, Revision: 17}, Digest: "abc", Meaning: policies.Stale, Why: "no answer for 61s",
		Rules: []policies.RuleState{
			{
				Policy: "api", Place: "GET /orders", Key: "ip", OverLimit: "reject", Code: "100/1m", Now: "200/1m",
				Tiers: map[string]string{"pro": "5000/1m"}, Meaning: policies.Fleet, Location: stats.Location{Prefix: "pay", Hashed: true},
			},
			{Policy: "login", Meaning: policies.Unusable, Why: `at offset 3, found "x"`, Location: stats.Location{Process: true}},
		},
	}
}

func TestProcessIsReadBack(t *testing.T) {
	t.Parallel()
	for _, p := range []*policies.Process{{}, aProcess()} {
		data := p.Encode()
		require.True(t, json.Valid(data), "%s", data)
		again, err := policies.DecodeProcess(data)
		require.NoError(t, err)
		assert.Equal(t, p, again)
	}
}

// An announcement is cut rather than refused: texts first, then tiers, then rules.
func TestProcessIsCut(t *testing.T) {
	t.Parallel()
	p := aProcess()
	p.Why = strings.Repeat("ä", 1000) + "\xff"
	p.Name = "a\x00\n\xffb"
	again, err := policies.DecodeProcess(p.Encode())
	require.NoError(t, err)
	assert.Equal(t, strings.Repeat("ä", 510)+"...", again.Why)
	assert.Equal(t, "a\x00\n\uFFFDb", again.Name)
	assert.Equal(t, p.Rules, again.Rules)

	p = aProcess()
	p.Rules = p.Rules[:1]
	p.Rules[0].Tiers = map[string]string{}
	for i := range 2000 {
		p.Rules[0].Tiers[fmt.Sprint("tier", i)] = "5000/1m"
	}
	data := p.Encode()
	assert.LessOrEqual(t, len(data), policies.MaxProcessSize)
	again, err = policies.DecodeProcess(data)
	require.NoError(t, err)
	require.Len(t, again.Rules, 1)
	assert.Empty(t, again.Rules[0].Tiers)
	assert.Zero(t, again.Omitted)

	for i := range 5000 {
		p.Rules = append(p.Rules, policies.RuleState{Policy: fmt.Sprint("p", i), Now: strings.Repeat("x", i%2000)})
	}
	data = p.Encode()
	assert.LessOrEqual(t, len(data), policies.MaxProcessSize)
	again, err = policies.DecodeProcess(data)
	require.NoError(t, err)
	assert.Equal(t, 5001, again.Omitted+len(again.Rules))
	assert.Greater(t, len(again.Rules), 50)
	assert.Equal(t, "p0", again.Rules[1].Policy)
}

// Anybody who may write an announcement can write anything.
func TestDecodeProcessRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``:                                          "ends within a value",
		`{}`:                                        `an announcement has no field "format"`,
		`{"format":2,"new":1}`:                      "format 2 is of a later version",
		`{"format":1,"ip":"x"}`:                     "ip: there is no such field",
		`{"format":1,"id":7}`:                       "id: found the number 7: give a text",
		`{"format":1,"version":"1"}`:                "version: policies: the version",
		`{"format":1,"meaning":"enabled"}`:          `meaning: found "enabled": give one of the meanings, such as "fleet"`,
		`{"format":1,"started":1.5}`:                "started: found 1.5",
		`{"format":1,"rules":{}}`:                   "rules: found an object: give a list",
		`{"format":1,"rules":[{"now":null}]}`:       "rules[0].now: found null",
		`{"format":1,"rules":[{"hashed":false}]}`:   "rules[0].hashed: found false: give true, or leave it out",
		`{"format":1,"rules":[{"process":"true"}]}`: `rules[0].process: found the text "true"`,
		`{"format":1,"rules":[{"tiers":{"a":"b","a":"c"}}]}`:          "rules[0].tiers.a: this name stands here twice",
		`{"format":1,"why":"` + strings.Repeat("x", 1025) + `"}`:      "the text has 1025 bytes",
		`{"format":1,"why":"` + strings.Repeat("x", 32<<10) + `"}`:    "give at most 32768",
		`{"format":1,"rules":[` + strings.Repeat("{},", 512) + `{}]}`: "rules: there are 513 rules; give at most 512",
		`{"format":1,"rules":[` + strings.Repeat("0,", 5000) + `0]}`:  "more values than a document has",
		`{"format":1,"omitted":9223372036854775808}`:                  "omitted: found 9223372036854775808",
		`{"format":1,"rules":[{"tiers":{"a":{"b":{"c":{}}}}}]}`:       "brackets",
	} {
		p, err := policies.DecodeProcess([]byte(text))
		assert.Nil(t, p)
		assert.ErrorContains(t, err, want, text)
	}
}

// Mistakes in what anybody can write cost no more than one.
func TestDecodeProcessStopsAtTheFirstMistake(t *testing.T) {
	t.Parallel()
	_, err := policies.DecodeProcess([]byte(`{"format":1,"app":1,"x":2,"x":3,"rules":[0,{"y":4},{"now":5}]}`))
	var mistakes policies.Mistakes
	require.ErrorAs(t, err, &mistakes)
	assert.Len(t, mistakes, 1)
}

// What a process announces can be read, however many rules it has.
func TestProcessOfManyRules(t *testing.T) {
	t.Parallel()
	p := aProcess()
	p.Rules = make([]policies.RuleState, 3000)
	again, err := policies.DecodeProcess(p.Encode())
	require.NoError(t, err)
	assert.Len(t, again.Rules, 512)
	assert.Equal(t, 3000-512, again.Omitted)
}

func FuzzProcess(f *testing.F) {
	f.Add(aProcess().Encode())
	f.Add([]byte(`{"format":1,"rules":[{},{"meaning":"code"}],"omitted":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := policies.DecodeProcess(data)
		if err != nil {
			return
		}
		again, err := policies.DecodeProcess(p.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if string(again.Encode()) != string(p.Encode()) {
			t.Fatalf("%+v, then %+v", p, again)
		}
	})
}
