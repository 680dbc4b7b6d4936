package sfv_test

import (
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard/internal/sfv"
)

// A list is taken apart into the texts of its members and of their parameters, or refused as a whole.
func TestReadList(t *testing.T) {
	for text, want := range map[string][][]string{
		``:                                 {},
		`"a"`:                              {{`"a"`}},
		`"a";r=1;t=2, "b" , "c";q`:         {{`"a";r=1;t=2`, "r=1", "t=2"}, {`"b"`}, {`"c";q`, "q="}},
		`"a,b;c";  pk=:aGk=:;x="1, \";2"`:  {{`"a,b;c";  pk=:aGk=:;x="1, \";2"`, `pk=:aGk=:`, `x="1, \";2"`}},
		`"a";d=%"e;f"`:                     {{`"a";d=%"e;f"`, `d=%"e;f"`}},
		`a`:                                nil,
		`"a",`:                             nil,
		`"a" "b"`:                          nil,
		`"a`:                               nil,
		`"a";R=1`:                          nil,
		`"a";=1`:                           nil,
		`"a";r=`:                           nil,
		`"a";9=1`:                          nil,
		`limit=100, remaining=50, reset=5`: nil,
		`"` + strings.Repeat("a", 16<<10):  nil,
	} {
		list, ok := sfv.ReadList(text)
		require.Equal(t, want != nil, ok, text)
		got := [][]string{}
		for _, m := range list {
			parts := []string{m.Text}
			for p := range m.Params() {
				assert.Equal(t, byte(';'), m.Text[p.Begin])
				parts = append(parts, p.Key+"="+p.Value)
				assert.True(t, strings.HasSuffix(m.Text[:p.End], p.Value), text)
			}
			got = append(got, parts)
		}
		if want != nil {
			assert.Equal(t, want, got, text)
		}
	}
}

// Names come from policies, which have no quotes, but a String can have them.
func FuzzString(f *testing.F) {
	f.Add(`default`)
	f.Add(`a"b\c`)
	f.Add("\r\n\x00é")
	f.Fuzz(func(t *testing.T, s string) {
		item, err := httpsfv.UnmarshalItem([]string{sfv.String(s)})
		require.NoError(t, err)
		want := strings.Map(func(r rune) rune { return r }, s)
		for _, c := range []byte(s) {
			if c < 0x20 || c > 0x7e {
				return
			}
		}
		assert.Equal(t, want, item.Value)
	})
}
