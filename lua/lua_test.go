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
	"take": lua.Take, "takes": lua.Takes, "upto": lua.UpTo, "refund": lua.Refund, "credit": lua.Credit,
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

// placeholders must all be gone after composing.
var placeholders = regexp.MustCompile(`_i\b|_all\b|segments_all|ARG\.|TEXT\.|-->|--@|-- Letter`)

var indexed = regexp.MustCompile(`ARGV\[(\d+)\]`)

func TestScripts(t *testing.T) {
	seen := map[string]string{}
	all := mixes()
	for i := 0; i < len(all); i += hurried(1, 4) {
		p := all[i]
		for name, compose := range operations {
			call := name + " " + p.Spec().Kinds()
			script, err := compose(p.Spec().Kinds())
			require.NoError(t, err, call)
			assert.Empty(t, placeholders.FindAllString(script, -1), call)

			var params []int64
			switch name {
			case "take", "takes":
				params = p.Spec().TakeArgs(core.Take{Cost: 1}, storetest.Epoch)
				assert.Len(t, p.Spec().TakeArgs(core.Take{}, storetest.Epoch), len(params), "a peek has no fewer")
			case "upto":
				params = p.Spec().TakeArgs(core.Take{Cost: 1, AtMost: true}, storetest.Epoch)
			case "refund":
				params = p.Spec().RefundArgs(core.Refund{Units: 1}, storetest.Epoch)
			case "credit":
				params = p.Spec().RefundArgs(core.Refund{Units: 1, Credit: true}, storetest.Epoch)
			}
			read := map[int]bool{}
			for _, m := range indexed.FindAllStringSubmatch(script, -1) {
				n, err := strconv.Atoi(m[1])
				require.NoError(t, err)
				read[n] = true
			}
			for n := range len(params) + 1 {
				assert.True(t, read[n+1], "%s does not read argument %d of %d", call, n+1, len(params)) // the last is the forced time
			}
			for n := range read {
				assert.LessOrEqual(t, n, len(params)+1, "%s has no such argument", call)
			}
			assert.Contains(t, script, "local now, forced = (ARGV["+strconv.Itoa(len(params)+1)+"] or 0)", "%s: the forced time comes after the limits", call)

			assert.Equal(t, 1, strings.Count(script, "'TIME'"), "%s: the clock is read once", call)
			assert.Equal(t, 1, strings.Count(script, "'GET'"), call)
			assert.Equal(t, 1, strings.Count(script, "'SET'"), "%s: one write, with its expiry", call)
			assert.Contains(t, script, "'PX'")
			assert.NotContains(t, script, "tostring", "%s: it rounds", call)
			assert.NotContains(t, script, "function", "%s: closures are rebuilt at every call", call)
			again, err := compose(p.Spec().Kinds())
			require.NoError(t, err)
			assert.Equal(t, script, again, "one text, so that a server keeps one script")
			if other, ok := seen[script]; ok {
				assert.Equal(t, other, name+p.Spec().Kinds(), "another script of the same text")
			}
			seen[script] = name + p.Spec().Kinds()
		}
	}
}

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
	delete(want, "arguments") // which composing writes
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
		kinds.WriteString(core.MustParse("1/1s " + a.String()).Spec().Kinds())
		kinds.WriteString(core.MustParse("3/1s " + a.String()).Spec().Kinds())
	}
	for _, letter := range letters.String() {
		assert.Contains(t, kinds.String(), string(letter), "a file that nothing needs")
	}
	for _, letter := range kinds.String() {
		assert.Equal(t, 1, strings.Count(letters.String(), string(letter)), "a file for each algorithm")
	}
}

var (
	comments  = regexp.MustCompile(`--[^\n]*`)
	quoted    = regexp.MustCompile(`'[^']*'`)
	word      = regexp.MustCompile(`(^|[^.:\w])([A-Za-z_]\w*)`)
	declared  = regexp.MustCompile(`\blocal ([\w, ]+)`)
	looped    = regexp.MustCompile(`\bfor ([\w, ]+?) (?:=|in) `)
	inputs    = regexp.MustCompile(`(?m)^-- The sections? (.*) reads?\n((?:--   .*\n)+)`)
	inputName = regexp.MustCompile(`(?m)^--   (\w+)`)
)

// What the frame leaves to all sections, and what is Lua's.
var known = strings.Fields("now write s_i ARG TEXT string math table redis tonumber ipairs " +
	"and break do else elseif end false for function if in local nil not or repeat return then true until while")

// A section reads its own names, those of the frame, and what a template's header says
// that it leaves to it: never a variable that another file has without saying so.
func TestSectionsReadWhatIsDeclared(t *testing.T) {
	read := func(file string) string {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		return string(text)
	}
	left := map[string][]string{} // to a section
	for name := range operations {
		for _, m := range inputs.FindAllStringSubmatch(read(name+".lua"), -1) {
			for section := range strings.SplitSeq(m[1], " and ") {
				for _, input := range inputName.FindAllStringSubmatch(m[2], -1) {
					left[section] = append(left[section], input[1])
				}
			}
		}
	}
	require.Equal(t, map[string][]string{
		"weigh": {"taken"}, "refund": {"at", "passed"}, "times": {"n", "times"}, "costs": {"n", "times"},
	}, left)
	files, err := filepath.Glob("*.lua")
	require.NoError(t, err)
	sections := 0
	for _, file := range files {
		text := read(file)
		if !kind.MatchString(text) {
			continue
		}
		at := opened.FindAllStringSubmatchIndex(text, -1)
		for i, m := range at {
			end, name := len(text), text[m[2]:m[3]]
			if i+1 < len(at) {
				end = at[i+1][0]
			}
			body := quoted.ReplaceAllString(comments.ReplaceAllString(text[m[1]:end], ""), "''")
			names := append(append([]string{}, known...), left[name]...)
			for _, re := range []*regexp.Regexp{declared, looped} {
				for _, m := range re.FindAllStringSubmatch(body, -1) {
					names = append(names, strings.FieldsFunc(m[1], func(r rune) bool { return r == ',' || r == ' ' })...)
				}
			}
			for _, m := range word.FindAllStringSubmatch(body, -1) {
				if own := strings.HasSuffix(m[2], "_i"); !own {
					assert.Contains(t, names, m[2], "%s, section %s", file, name)
				}
			}
			sections++
		}
	}
	assert.Greater(t, sections, 50)
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
