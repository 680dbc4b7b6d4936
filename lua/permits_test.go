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
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/lua"
)

func TestPermitScripts(t *testing.T) {
	for name, script := range map[string]string{"acquire": lua.Acquire(), "renew": lua.Renew(), "release": lua.Release()} {
		assert.Empty(t, placeholders.FindAllString(script, -1), name)
		for _, word := range []string{"function", "tostring", "unpack", "cjson"} {
			assert.NotContains(t, script, word, name)
		}
		clock := 1
		if name == "release" {
			clock = 0
		}
		assert.Equal(t, clock, strings.Count(script, "'TIME'"), "%s reads the clock once", name)
		assert.Equal(t, clock, strings.Count(script, "'PEXPIRE'"), "%s leaves no key without an expiry", name)
	}
	board := lua.Board()
	assert.Empty(t, placeholders.FindAllString(board, -1))
	assert.Equal(t, 1, strings.Count(board, "'PEXPIRE'"), "no board is left without an expiry")
	assert.Equal(t, lua.Acquire(), lua.Acquire(), "one text, so that a server keeps one script")
}

// sortedSet is the server as a permit script sees it, which is stricter than Redis about
// numbers. A case prints the reply and the expiry, or "-" where none was set.
//
//nolint:dupword // in Lua, an end follows an end
const sortedSet = `
local members, expires
local function whole(n)
  assert(type(n) ~= 'number' or n % 1 == 0)
  assert(not math.type or type(n) ~= 'number' or math.type(n) == 'integer')
  return n + 0
end
local function within(score, low, high)
  if low ~= '-inf' then
    assert(string.sub(low, 1, 1) == '(')
    if score <= tonumber(string.sub(low, 2)) then return false end
  end
  return high == '+inf' or score <= tonumber(high)
end
local function sorted(low, high)
  local out = {}
  for member, score in pairs(members) do
    if within(score, low, high) then out[#out + 1] = member end
  end
  table.sort(out, function(a, b)
    if members[a] ~= members[b] then return members[a] < members[b] end
    return a < b
  end)
  return out
end
local function scored(names, first, count)
  local out = {}
  for i = first, math.min(#names, first + count - 1) do
    out[#out + 1] = names[i]
    out[#out + 1] = string.format('%.17g', members[names[i]])
  end
  return out
end
local commands = {
  ZCARD = function()
    local n = 0
    for _ in pairs(members) do n = n + 1 end
    return n
  end,
  ZCOUNT = function(low, high) return #sorted(low, high) end,
  ZADD = function(score, member)
    assert(type(score) == 'string' and tonumber(score) > 0)
    members[member] = tonumber(score)
  end,
  ZSCORE = function(member) return members[member] and string.format('%.17g', members[member]) or false end,
  ZREM = function(member)
    local known = members[member] and 1 or 0
    members[member] = nil
    return known
  end,
  ZREMRANGEBYSCORE = function(low, high)
    for _, member in ipairs(sorted(low, high)) do members[member] = nil end
  end,
  ZRANGEBYSCORE = function(low, high, with, limit, offset, count)
    local names = sorted(low, high)
    if not with then return names end
    assert(with == 'WITHSCORES' and limit == 'LIMIT' and whole(offset) >= 0)
    return scored(names, whole(offset) + 1, whole(count))
  end,
  ZRANGE = function(first, last, with)
    assert(first == -1 and last == -1 and with == 'WITHSCORES')
    local names = sorted('-inf', '+inf')
    return scored(names, math.max(1, #names), 1)
  end,
  PEXPIRE = function(ttl)
    assert(ttl >= 1)
    expires = whole(ttl)
  end,
}
local function command(name, key, ...)
  if name == 'TIME' then return time end
  assert(key == KEYS[1])
  return commands[name](...)
end
redis = { call = command, pcall = command }
KEYS = { 'k' }
members = {}
for _, case in ipairs(cases) do
  expires, time, ARGV = '-', case[2], case[3]
  local reply = scripts[case[1]]()
  for i, n in ipairs(reply) do reply[i] = string.format('%.0f', n) end
  print(table.concat(reply, ' ') .. '|' .. (expires == '-' and expires or string.format('%.0f', expires)))
end
`

// permitCase is one call of a script, and what the in-process store said to the same.
type permitCase struct {
	script string
	forced bool
	now    int64
	args   []string
	permit core.Permit
	want   core.Result
	lost   []int64 // the reply of renew, without the time
}

// The permit scripts give the same answers under plain Lua 5.1 and 5.4: those of the
// in-process store.
func TestPermitScriptsUnderPlainLua(t *testing.T) {
	cases := permitCases(t, rand.New(rand.NewPCG(1, 0)), 10_000) //nolint:gosec // the same each time
	for _, interpreter := range []string{"lua5.1", "lua5.4"} {
		t.Run(interpreter, func(t *testing.T) {
			program, err := exec.LookPath(interpreter)
			if err != nil {
				if os.Getenv("WEIR_REQUIRE_REDIS") == "1" {
					t.Fatalf("%s is required but not on the PATH; install Debian's package of that name", interpreter)
				}
				t.Skipf("%s is not on the PATH; install Debian's package of that name", interpreter)
			}
			var b strings.Builder
			b.WriteString("scripts = {}\n")
			for name, script := range map[string]string{"acquire": lua.Acquire(), "renew": lua.Renew(), "release": lua.Release()} {
				fmt.Fprintf(&b, "scripts.%s = function()\n%s\nend\n", name, script)
			}
			b.WriteString("cases = {}\n")
			for _, c := range cases {
				fmt.Fprintf(&b, "cases[#cases + 1] = {'%s', {'%d', '%06d'}, {'%s'}}\n", c.script, c.now/1e6, c.now%1e6, strings.Join(c.args, "', '"))
			}
			file := filepath.Join(t.TempDir(), "cases.lua")
			require.NoError(t, os.WriteFile(file, []byte(b.String()+sortedSet), 0o600))
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

func permitCases(t *testing.T, r *rand.Rand, n int) (cases []permitCase) {
	m, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	now := int64(1_800_000_000_000_000)
	for range n {
		now = max(1, now+[]int64{0, 0, 1, 1000, 300_000, 333_333, 1_000_000, -400_000, -3_600_000_000, 3_600_000_000}[r.IntN(10)])
		policy, err := core.NewPolicy("permits", core.PolicyOptions{}, core.Limit{
			Algorithm: core.Concurrent, Burst: []int64{1, 2, 5, 20}[r.IntN(4)],
			Lease: []time.Duration{time.Second, time.Second, time.Second, 100*time.Millisecond + time.Microsecond}[r.IntN(4)],
		})
		require.NoError(t, err)
		permit := func() core.Permit {
			return core.Permit{
				Policy: policy, Key: "k", ID: strconv.Itoa(r.IntN(12)), Now: now,
				Weight: []int64{1, 1, 1, 2, 3, 6, 21, math.MaxInt64}[r.IntN(8)],
			}
		}
		c := permitCase{permit: permit(), now: now, forced: r.IntN(2) == 0}
		head := c.permit.Params()
		if !c.forced {
			head[2] = 0
		}
		args := func(p core.Permit) { c.args = append(c.args, p.ID, strconv.FormatInt(p.Weight, 10)) }
		if c.script = []string{"acquire", "acquire", "acquire", "renew", "release"}[r.IntN(5)]; c.script != "release" {
			for _, n := range head {
				c.args = append(c.args, strconv.FormatInt(n, 10))
			}
		}
		switch c.script {
		case "acquire":
			args(c.permit)
			c.want, err = m.Acquire(t.Context(), c.permit)
			require.NoError(t, err)
		case "renew":
			for range 1 + r.IntN(4) {
				p := permit()
				args(p)
				lost, err := m.Renew(t.Context(), []core.Permit{p})
				require.NoError(t, err)
				c.lost = append(c.lost, int64(1-len(lost)))
			}
		default:
			all := []core.Permit{c.permit}
			for r.IntN(2) == 0 {
				all = append(all, permit())
			}
			for _, p := range all {
				c.args = append(c.args, p.ID)
			}
			require.NoError(t, m.Release(t.Context(), all))
		}
		cases = append(cases, c)
	}
	return cases
}

// check compares what a script printed with what the store said.
func (c permitCase) check(t *testing.T, line string) {
	t.Helper()
	text, expiry, _ := strings.Cut(line, "|")
	var reply []int64
	for word := range strings.FieldsSeq(text) {
		n, err := strconv.ParseInt(word, 10, 64)
		require.NoError(t, err, line)
		reply = append(reply, n)
	}
	written := false
	switch c.script {
	case "acquire":
		got, err := c.permit.Explain(reply)
		require.NoError(t, err, line)
		require.Equal(t, c.want, got, "%v: %s", c.args, line)
		written = got.Allowed()
	case "renew":
		require.Equal(t, c.now, reply[0])
		require.Equal(t, c.lost, reply[1:], "%v: %s", c.args, line)
		for _, held := range c.lost {
			written = written || held == 1
		}
	default:
		require.Len(t, reply, len(c.args), line)
	}
	if written || expiry != "-" {
		_, lease, _ := c.permit.Policy.Concurrent()
		milliseconds := (lease + time.Millisecond - 1).Milliseconds()
		if c.forced {
			milliseconds += 86_400_000
		}
		require.Equal(t, strconv.FormatInt(milliseconds, 10), expiry, line)
	}
}
