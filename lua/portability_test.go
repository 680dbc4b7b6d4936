package lua_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/lua"
)

// stub is what a script sees of a server, and a loop over the cases. A case prints
// the reply, the text that was stored and its expiry, or "-" where nothing was.
const stub = `
local stored, written
local function command(name, key, value, px, ttl)
  if name == 'TIME' then return time end
  assert(key == KEYS[1])
  if name == 'GET' then return stored end
  assert(name == 'SET' and px == 'PX')
  assert(type(value) == 'string' and ttl >= 1 and ttl % 1 == 0)
  if math.type then assert(math.type(ttl) == 'integer') end
  written = value .. ' ' .. string.format('%.0f', ttl)
end
redis = { call = command, pcall = command }
KEYS = { 'k' }
for _, case in ipairs(cases) do
  stored, written, time, ARGV = case[2], '-', case[3], case[4]
  local reply = scripts[case[1]]()
  for i, n in ipairs(reply) do reply[i] = string.format('%.0f', n) end
  print(table.concat(reply, ' ') .. '|' .. written)
end
`

// The scripts give the same answers under plain Lua 5.1, which is Redis's, and 5.4,
// which is Dragonfly's: those of the Go functions, also for garbage in the state and
// for the extremes of every number.
func TestScriptsUnderPlainLua(t *testing.T) {
	const perVersion, seed = 20_000, 1
	for _, interpreter := range []string{"lua5.1", "lua5.4"} {
		t.Run(interpreter, func(t *testing.T) {
			program, err := exec.LookPath(interpreter)
			if err != nil {
				if os.Getenv("WEIR_REQUIRE_REDIS") == "1" {
					t.Fatalf("%s is required but not on the PATH; install Debian's package of that name", interpreter)
				}
				t.Skipf("%s is not on the PATH; install Debian's package of that name", interpreter)
			}
			cases := portabilityCases(rand.New(rand.NewPCG(seed, 0)), perVersion) //nolint:gosec // the same each time
			file := filepath.Join(t.TempDir(), "cases.lua")
			require.NoError(t, os.WriteFile(file, []byte(luaProgram(t, cases)), 0o600))
			out, err := exec.CommandContext(t.Context(), program, file).CombinedOutput()
			require.NoError(t, err, "%.2000s", out)
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			require.Len(t, lines, len(cases))
			for i, c := range cases {
				c.check(t, lines[i])
			}
		})
	}
}

// portabilityCase is one run of a take.
type portabilityCase struct {
	take   core.Take
	text   []byte // stored; nil: nothing
	forced bool   // the time is an argument, else the server's
}

func portabilityCases(r *rand.Rand, n int) (cases []portabilityCase) {
	var policies []core.Policy
	for _, text := range []string{
		"1/1s", "3/1s", "100/1m", "7/1m burst 1000", "2147483648/1ms", "2147483647/366d burst 3", "1/1ms burst 2147483648",
		"1/366d burst 71", "2147483646/365d23h59m59s999ms burst 2147483648",
		"20/1s, 1000/1h", "3/1s, 7/1m", "1/1s, 3/1m, 7/1h, 11/1d",
	} {
		policies = append(policies, core.MustParse(text))
	}
	garbage := []string{"", "x", "-5", "1e15", "nan", "0x10", " 1", "1 ", "+", "1+", "+1", ";", ";;;", "9007199254740991", "9007199254740992", "99999999999999999999+1"}
	const start = 1_800_000_000_000_000
	for len(cases) < n {
		p := policies[r.IntN(len(policies))]
		limit := p.Limits()[0]
		now, text := int64(start), []byte(nil)
		for range 1 + r.IntN(8) { // a key's life
			costs := []int64{0, 1, 1, 1, 2, limit.Burst, limit.Burst - 1, limit.Burst + 1, 1 + r.Int64N(limit.Burst), math.MaxInt64}
			c := portabilityCase{
				take:   core.Take{Policy: p, Key: "k", Cost: max(0, costs[r.IntN(len(costs))]), Now: now},
				text:   text,
				forced: r.IntN(2) == 0,
			}
			switch r.IntN(20) {
			case 0:
				c.text = []byte(garbage[r.IntN(len(garbage))])
			case 1: // written under another rate, or another clock
				c.text = fmt.Appendf(nil, "%d+%d", now+r.Int64N(1<<51)-1<<40, r.Int64N(1<<32))
			}
			cases = append(cases, c)
			if _, next, ttl := p.Step(c.text, c.take); ttl > 0 {
				text = next
			}
			now += []int64{0, 1, 333_333, 1_000_000, limit.Period.Microseconds(), -3_600_000_000}[r.IntN(6)]
		}
	}
	return cases
}

// luaProgram is the cases as a program, with the stub around them.
func luaProgram(t *testing.T, cases []portabilityCase) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("scripts = {}\n")
	seen := map[string]bool{}
	for _, c := range cases {
		if kinds := c.take.Policy.Shape(); !seen[kinds] {
			seen[kinds] = true
			script, err := lua.Take(kinds)
			require.NoError(t, err)
			fmt.Fprintf(&b, "scripts.%s = function()\n%s\nend\n", kinds, script)
		}
	}
	b.WriteString("cases = {}\n")
	for _, c := range cases {
		text := "false"
		if c.text != nil {
			text = strconv.Quote(string(c.text))
		}
		args := make([]string, 0, 30)
		for _, n := range c.take.Policy.Params(c.take) {
			args = append(args, strconv.FormatInt(n, 10))
		}
		if c.forced {
			args = append(args, strconv.FormatInt(c.take.Now, 10))
		} else {
			for len(args) > 0 && args[len(args)-1] == "0" {
				args = args[:len(args)-1]
			}
		}
		fmt.Fprintf(&b, "cases[#cases + 1] = {'%s', %s, {'%d', '%06d'}, {'%s'}}\n",
			c.take.Policy.Shape(), text, c.take.Now/1e6, c.take.Now%1e6, strings.Join(args, "', '"))
	}
	return b.String() + stub
}

// check compares what a script printed with what the Go functions say.
func (c portabilityCase) check(t *testing.T, line string) {
	t.Helper()
	want, next, ttl := c.take.Policy.Step(c.text, c.take)
	reply, written, _ := strings.Cut(line, "|")
	var numbers []int64
	for word := range strings.FieldsSeq(reply) {
		n, err := strconv.ParseInt(word, 10, 64)
		require.NoError(t, err, line)
		numbers = append(numbers, n)
	}
	got, err := c.take.Policy.Explain(c.take, numbers)
	require.NoError(t, err, "%v of %q at %d: %s", c.take.Policy, c.text, c.take.Now, line)
	require.Equal(t, want, got, "%v of %q: %s", c.take, c.text, line)
	stored := "-"
	if ttl > 0 {
		milliseconds := ttl.Milliseconds()
		if c.forced {
			milliseconds += 86_400_000
		}
		stored = fmt.Sprintf("%s %d", next, milliseconds)
	}
	require.Equal(t, stored, written, "%v of %q", c.take, c.text)
}
