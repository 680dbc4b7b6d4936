package lua_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/lua"
)

// placeholders are what composing must leave nothing of.
var placeholders = regexp.MustCompile(`_i\b|_all\b|segments_all|ARGV_\w*|-->|--@|-- Letter`)

func TestScripts(t *testing.T) {
	seen := map[string]bool{}
	for _, kinds := range []string{"g", "gg", "ggg", "gggg"} {
		params := len(core.MustParse(strings.Join([]string{"1/1s", "1/2s", "1/3s", "1/4s"}[:len(kinds)], ",")).Params(core.Take{Cost: 1}))
		for name, compose := range map[string]func(string) (string, error){"take": lua.Take, "refund": lua.Refund} {
			script, err := compose(kinds)
			require.NoError(t, err)
			args := params // the arguments are those of Policy.Params
			if name == "refund" {
				args++ // and the instant of the charge
			}
			assert.Empty(t, placeholders.FindAllString(script, -1), "%s %s", name, kinds)
			for i := range len(kinds) {
				assert.Contains(t, script, "local w_"+string(rune('1'+i))+",")
			}
			assert.NotContains(t, script, "l_"+string(rune('1'+len(kinds))))
			assert.Contains(t, script, "ARGV["+strconv.Itoa(args+1)+"]", "the forced time comes last")
			assert.NotContains(t, script, "ARGV["+strconv.Itoa(args+2)+"]")
			assert.Equal(t, 1, strings.Count(script, "'TIME'"), "the clock is read once")
			assert.Equal(t, 1, strings.Count(script, "'GET'"))
			assert.Equal(t, 1, strings.Count(script, "'SET'"), "one write, with its expiry")
			assert.Contains(t, script, "'PX'")
			assert.NotContains(t, script, "tostring", "it rounds")
			assert.NotContains(t, script, "function", "closures are rebuilt at every call")
			again, err := compose(kinds)
			require.NoError(t, err)
			assert.Equal(t, script, again, "one text, so that a server keeps one script")
			assert.False(t, seen[script])
			seen[script] = true
		}
	}
}

func TestUnknownKinds(t *testing.T) {
	for kinds, want := range map[string]string{
		"":    "lua: no limits: give one letter for each",
		"x":   `lua: no algorithm has the letter 'x'`,
		"gx":  `lua: no algorithm has the letter 'x'`,
		"g;g": `lua: no algorithm has the letter ';'`,
	} {
		for _, compose := range []func(string) (string, error){lua.Take, lua.Refund} {
			script, err := compose(kinds)
			require.EqualError(t, err, want)
			assert.Empty(t, script)
		}
	}
}
