package lua_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/storetest"
	"github.com/weir-go/weir/lua"
)

// operations are the templates, and how a script of each is composed.
var operations = map[string]func(kinds string) (script string, err error){
	"take": lua.Take, "upto": lua.UpTo, "refund": lua.Refund,
}

// mixes are the limits of policies: of every algorithm, of every two, and of some four.
func mixes() (out []core.Policy) {
	var limits []string
	for _, a := range storetest.Algorithms() {
		limits = append(limits, "1/%ds "+a.String())
	}
	limits = append(limits, "3/%ds", "2/%ds debt 3", "2/%ds token-bucket burst 5 debt 1", "4/%ds sliding-window buckets 60",
		"2/%ds fixed-window aligned", "2/1d fixed-window calendar Europe/Berlin")
	add := func(texts ...string) {
		for i, text := range texts {
			if strings.Contains(text, "%") {
				texts[i] = fmt.Sprintf(text, 1+i)
			}
		}
		if p, err := core.Parse(strings.Join(texts, ", ")); err == nil { // else one limit twice
			out = append(out, p)
		}
	}
	for i, a := range limits {
		add(a)
		for _, b := range limits[i:] {
			add(a, b)
		}
		n := len(limits)
		add(a, limits[(i+1)%n], limits[(i+2)%n], limits[(i+3)%n])
		add(a, a, a, a)
	}
	return out
}

// placeholders are what composing must leave nothing of.
var placeholders = regexp.MustCompile(`_i\b|_all\b|segments_all|ARGV_\w*|-->|--@|-- Letter`)

var indexed = regexp.MustCompile(`ARGV\[(\d+)\]`)

func TestScripts(t *testing.T) {
	seen := map[string]string{}
	for _, p := range mixes() {
		for name, compose := range operations {
			call := name + " " + p.Kinds()
			script, err := compose(p.Kinds())
			require.NoError(t, err, call)
			assert.Empty(t, placeholders.FindAllString(script, -1), call)

			var params []int64
			switch name {
			case "take":
				params = p.Params(core.Take{Cost: 1}, storetest.Epoch)
				assert.Len(t, p.Params(core.Take{}, storetest.Epoch), len(params), "a peek has no fewer")
			case "upto":
				params = p.Params(core.Take{Cost: 1, AtMost: true}, storetest.Epoch)
			case "refund":
				params = p.RefundParams(core.Result{}, 1, storetest.Epoch)
			}
			read := map[int]bool{}
			for _, m := range indexed.FindAllStringSubmatch(script, -1) {
				n, err := strconv.Atoi(m[1])
				require.NoError(t, err)
				read[n] = true
			}
			for n := range len(params) + 1 {
				// What an operation has no use for stands there so that its other
				// numbers do; the last of all is the forced time.
				assert.True(t, read[n+1] || n < len(params)-1, "%s does not read argument %d of %d", call, n+1, len(params))
			}
			for n := range read {
				assert.LessOrEqual(t, n, len(params)+1, "%s has no such argument", call)
			}
			assert.Contains(t, script, "local now, forced, write = ARGV["+strconv.Itoa(len(params)+1)+"]", "%s: the forced time comes last", call)

			assert.Equal(t, 1, strings.Count(script, "'TIME'"), "%s: the clock is read once", call)
			assert.Equal(t, 1, strings.Count(script, "'GET'"), call)
			assert.Equal(t, 1, strings.Count(script, "'SET'"), "%s: one write, with its expiry", call)
			assert.Contains(t, script, "'PX'")
			assert.NotContains(t, script, "tostring", "%s: it rounds", call)
			assert.NotContains(t, script, "function", "%s: closures are rebuilt at every call", call)
			again, err := compose(p.Kinds())
			require.NoError(t, err)
			assert.Equal(t, script, again, "one text, so that a server keeps one script")
			if other, ok := seen[script]; ok {
				assert.Equal(t, other, name+kindsAsText(p.Kinds()), "another script of the same text")
			}
			seen[script] = name + kindsAsText(p.Kinds())
		}
	}
}

// kindsAsText is the same for kinds whose scripts are the same: a queue has those of a meter.
func kindsAsText(kinds string) string { return strings.ReplaceAll(kinds, "l", "g") }

var (
	opened = regexp.MustCompile(`(?m)^--@ (\w+)$`)
	needed = regexp.MustCompile(`(?m)^ *--> (\w+)$`)
	kind   = regexp.MustCompile(`(?m)^-- Letter: (\w)$`)
	shares = regexp.MustCompile(`(?m)^-- Sections: (\w+)$`)
)

// Every algorithm has every section that a template needs, and none that nobody reads.
func TestSections(t *testing.T) {
	read := func(file string) string {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		return string(text)
	}
	names := func(re *regexp.Regexp, text string) map[string]bool {
		out := map[string]bool{}
		for _, m := range re.FindAllStringSubmatch(text, -1) {
			out[m[1]] = true
		}
		return out
	}
	want := map[string]bool{"reply": true} // which stands within a line
	for name := range operations {
		for section := range names(needed, read(name+".lua")) {
			want[section] = true
		}
	}
	for section := range names(opened, read("frame.lua")) {
		delete(want, section)
	}
	files, err := filepath.Glob("*.lua")
	require.NoError(t, err)
	var letters strings.Builder
	for _, file := range files {
		text := read(file)
		if m := kind.FindStringSubmatch(text); m != nil {
			letters.WriteString(m[1])
			if m := shares.FindStringSubmatch(text); m != nil {
				text = read(m[1] + ".lua")
			}
			assert.Equal(t, want, names(opened, text), file)
		}
	}
	var kinds strings.Builder
	for _, a := range storetest.Algorithms() {
		kinds.WriteString(core.MustParse("1/1s " + a.String()).Kinds())
	}
	assert.ElementsMatch(t, []byte(kinds.String()), []byte(letters.String()), "a file for each algorithm")
}

func TestUnknownKinds(t *testing.T) {
	for kinds, want := range map[string]string{
		"":    "lua: no limits: give one letter for each",
		"?":   `lua: no algorithm has the letter '?'`,
		"g?":  `lua: no algorithm has the letter '?'`,
		"g;g": `lua: no algorithm has the letter ';'`,
	} {
		for _, compose := range operations {
			script, err := compose(kinds)
			require.EqualError(t, err, want)
			assert.Empty(t, script)
		}
	}
}
