package api

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

// A name stands once in an object, in whatever case, but for keys, which are names of people.
func TestOnce(t *testing.T) {
	t.Parallel()
	for body, says := range map[string]string{
		`{}`: "", `[]`: "", `"a"`: "", `7`: "", `null`: "", ` {"a":{"a":1},"b":[{"a":1},{"a":2}]} `: "",
		`{"a":1,"a":2}`:                        "twice",
		`{"a":1,"A":2}`:                        "twice",
		`{"k":1,"\u212a":2}`:                   "twice", // the sign of Kelvin, which encoding/json takes for a k
		`{"s":1,"\u017f":2}`:                   "twice",
		`{"a":"a","b":"a"}`:                    "",
		`{"a":["a","a"]}`:                      "",
		`{"x":{"a":1},"y":{"A":1}}`:            "",
		`{"x":[{"a":1,"A":2}]}`:                "twice",
		`{"keys":{"user=a":"1","user=A":"2"}}`: "",
		`{"keys":{"user=a":"1","user=a":"2"}}`: "twice",
		`{"keys":{"x":{"a":1,"A":2}}}`:         "twice",
		`{} {}`:                                "follows",
		`{}]`:                                  "JSON",
		`{`:                                    "JSON",
		``:                                     "JSON",
		"\xff":                                 "JSON",
		strings.Repeat("[", 33):                "deep",
		strings.Repeat("[", 32) + strings.Repeat("]", 32): "",
	} {
		err := once([]byte(body))
		if says == "" {
			assert.NoError(t, err, body)
		} else {
			assert.ErrorContains(t, err, says, body)
		}
	}
}

// What is encoded has each name once; what is refused of it is too deep.
func TestOnceTakesWhatIsEncoded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var value func(depth int) any
		value = func(depth int) any {
			switch rapid.IntRange(0, 3+min(depth, 1)).Draw(t, "kind") {
			case 0:
				return rapid.String().Draw(t, "text")
			case 1:
				return rapid.Int().Draw(t, "number")
			case 2:
				return nil
			case 3:
				return rapid.SliceOfN(rapid.Bool(), 0, 3).Draw(t, "list")
			}
			out := map[string]any{}
			for _, name := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,3}`), 0, 4, rapid.ID[string]).Draw(t, "names") {
				out[name] = value(depth - 1)
			}
			return out
		}
		data, err := json.Marshal(value(4))
		assert.NoError(t, err)
		assert.NoError(t, once(data), "%s", data)
	})
}

func FuzzOnce(f *testing.F) {
	f.Add(`{"a":1,"A":2}`)
	f.Add(`{"keys":{"a":[1,{"b":null}]}}x`)
	f.Fuzz(func(t *testing.T, body string) {
		if err := once([]byte(body)); err == nil && !json.Valid([]byte(body)) {
			t.Errorf("%q is no JSON", body)
		}
	})
}
