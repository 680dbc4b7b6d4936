package lua_test

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/storetest"
	"github.com/weir-go/weir/lua"
)

// takesStub is a server for the script takes, and a loop over the flights: a line each, of
// the kinds, the time, the keys and, after "|", the arguments. A key has its name, "=" and
// what is stored: a text in hexadecimal, "none", "hash" for another type, or "noget" and
// "noset" for what it must not do. A flight prints the reply, and of each key its name,
// text and expiry, in the order in which they were first written.
const takesStub = `
local time, stored, written, order
local function get(key)
  local held = stored[key]
  if held == 'noget' then return { err = 'NOPERM no GET' } end
  if held == 'hash' then return { err = 'WRONGTYPE Operation against a key' } end
  if held == 'none' or held == 'noset' then return false end
  return held
end
local function command(name, key, value, px, ttl, ...)
  if name == 'TIME' then return time end
  if name == 'MGET' then
    local keys, texts = { key, value, px, ttl, ... }, {}
    assert(#keys == #KEYS and #keys > 1)
    for i, key in ipairs(keys) do
      texts[i] = get(key)
      if texts[i] and texts[i].err then
        if stored[key] == 'noget' then return texts[i] end
        texts[i] = false -- as a server does
      end -- of an error
    end
    return texts
  end -- MGET
  local held = stored[key]
  assert(held)
  if name == 'GET' then return get(key) end
  assert(name == 'SET' and px == 'PX' and held ~= 'noget')
  assert(type(value) == 'string' and type(ttl) == 'string' and string.find(ttl, '^[1-9]%d*$'))
  if held == 'noset' then return { err = 'NOPERM no SET' } end
  if not written[key] then order[#order + 1] = key end
  stored[key], written[key] = value, ttl
  return { ok = 'OK' }
end
redis = { pcall = command, call = function(name) assert(name == 'TIME') return time end }
local function character(code) return string.char(tonumber(code, 16)) end
for line in io.lines(arg[1]) do
  local words = {}
  for word in string.gmatch(line, '%S+') do words[#words + 1] = word end
  KEYS, ARGV, stored, written, order = {}, {}, {}, {}, {}
  time = { words[2], words[3] }
  local i = 4
  while words[i] ~= '|' do
    local key, text = string.match(words[i], '^(%w+)=(.*)$')
    KEYS[#KEYS + 1] = key
    if string.sub(text, 1, 1) == '0' then text = string.gsub(string.sub(text, 2), '%x%x', character) end
    stored[key] = text
    i = i + 1
  end
  for j = i + 1, #words do ARGV[j - i] = words[j] end
  local reply = scripts[words[1]]()
  if reply.err then
    print('error ' .. reply.err)
  else
    for k, n in ipairs(reply) do reply[k] = string.format('%.0f', n) end
    local out = table.concat(reply, ' ') .. '|'
    for _, key in ipairs(order) do out = out .. key .. '=' .. stored[key] .. ' ' .. written[key] .. '|' end
    print(out)
  end -- of a flight
end
`

// flight is one run of the script takes.
type flight struct {
	take   core.Take // of each call
	keys   []string
	counts []int
	texts  map[string]string // by key: hexadecimal, or what takesStub says
	guess  int64
	forced bool
}

func textWord(text []byte) string {
	if text == nil {
		return "none"
	}
	return "0" + hex.EncodeToString(text)
}

func (f flight) line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d %06d", f.take.Policy.Spec().Kinds(), f.take.Now/1e6, f.take.Now%1e6)
	for _, key := range f.keys {
		fmt.Fprintf(&b, " %s=%s", key, f.texts[key])
	}
	params := f.take.Policy.Spec().TakeArgs(f.take, f.guess)
	if f.forced {
		params = append(params, f.take.Now)
	} else {
		params = append(params, 0)
	}
	for _, n := range f.counts {
		params = append(params, int64(n))
	}
	for n := len(f.counts); n > 0 && params[len(params)-1] == 1; n-- {
		params = params[:len(params)-1]
	}
	if len(params) == len(f.take.Policy.Spec().TakeArgs(f.take, f.guess))+1 {
		for len(params) > 0 && params[len(params)-1] == 0 {
			params = params[:len(params)-1]
		}
	}
	b.WriteString(" |")
	for _, n := range params {
		b.WriteString(" " + strconv.FormatInt(n, 10))
	}
	return b.String() + "\n"
}

// answer is the answer to a call; nil if nothing was decided.
type answer *core.Result

// wants has the answers of single calls, in order, and the text that they would leave stored.
func (f flight) wants(t *testing.T) (answers []answer, stored map[string]string) {
	t.Helper()
	texts, stored := map[string][]byte{}, map[string]string{}
	together := len(f.keys) > 1 && !slices.ContainsFunc(f.keys, func(key string) bool { return f.texts[key] == "noget" })
	for key, word := range f.texts {
		switch word[0] {
		case '0':
			text, err := hex.DecodeString(word[1:])
			require.NoError(t, err)
			texts[key] = text
		case 'h':
			if !together { // or else a key of another type looks like none
				texts[key] = []byte("?") // as good as garbage
			}
		}
	}
	for i, key := range f.keys {
		before := len(answers)
		for range f.counts[i] {
			res, next, ttl := f.take.Policy.Spec().Step(texts[key], f.take)
			if ttl > 0 && f.texts[key] == "noset" || f.texts[key] == "noget" {
				for len(answers) < before+f.counts[i] { // merged calls share it
					answers = append(answers, nil)
				}
				break
			}
			answers = append(answers, &res)
			if ttl > 0 {
				milliseconds := ttl.Milliseconds()
				if f.forced {
					milliseconds += 86_400_000
				}
				texts[key], stored[key] = next, fmt.Sprintf("%s %d", next, milliseconds)
			}
		}
	}
	return answers, stored
}

// check compares what a script printed with what single calls would have done.
func (f flight) check(t *testing.T, line string) {
	t.Helper()
	defer func() { // written out only if it must be
		if t.Failed() {
			t.Logf("%v cost %d ahead %v at %d, guessed %+d: counts %d\n%sprinted %q",
				f.take.Policy, f.take.Cost, f.take.Wait, f.take.Now, f.guess-f.take.Now, f.counts, f.line(), line)
		}
	}()
	answers, stored := f.wants(t)
	if strings.HasPrefix(line, "error ") {
		require.Contains(t, line, "NOPERM")
		for _, a := range answers {
			require.Nil(t, a)
		}
		return
	}
	parts := strings.Split(line, "|")
	var reply []int64
	for word := range strings.FieldsSeq(parts[0]) {
		n, err := strconv.ParseInt(word, 10, 64)
		require.NoError(t, err)
		reply = append(reply, n)
	}
	written := map[string]string{}
	for _, part := range parts[1:] {
		if key, text, ok := strings.Cut(part, "="); ok {
			written[key] = text
		}
	}
	nth := 0
	again, err := f.take.Policy.Spec().ExplainEach(f.take, reply, f.counts, func(key, call int, res *core.Result, _ []int64) {
		require.Less(t, nth, len(answers))
		want := answers[nth]
		if nth++; want == nil || res == nil {
			require.True(t, want == nil && res == nil, "key %d call %d: %+v, want %+v", key, call, res, want)
			return
		}
		if !res.Equal(*want) {
			require.Equal(t, *want, *res, "key %d call %d", key, call)
			require.Fail(t, "the receipts differ")
		}
	})
	require.NoError(t, err)
	if again > 0 {
		require.True(t, f.take.Policy.Spec().Calendar())
		require.NotEqual(t, f.take.Policy.Spec().TakeArgs(f.take, f.take.Now), f.take.Policy.Spec().TakeArgs(f.take, f.guess))
		require.Equal(t, f.take.Now, again)
		require.Empty(t, written)
		return
	}
	require.Len(t, answers, nth)
	require.Equal(t, stored, written)
}

// flights are of recorded takes, each with the texts of others.
func flights(cases []portabilityCase, rng *rand.Rand) (out []flight) {
	byShape := map[string][][]byte{}
	for _, c := range cases {
		shape := c.take.Policy.Spec().Shape()
		byShape[shape] = append(byShape[shape], c.text)
	}
	for _, c := range cases {
		if c.take.AtMost || c.units > 0 {
			continue
		}
		f := flight{take: c.take, guess: c.guess, forced: c.forced, texts: map[string]string{}}
		if rng.IntN(4) > 0 {
			f.guess = f.take.Now
		}
		others := byShape[c.take.Policy.Spec().Shape()]
		for k := range 1 + rng.IntN(5) {
			key, text := fmt.Sprint("k", k), textWord(c.text)
			switch rng.IntN(16) {
			case 0:
				text = "hash"
			case 1:
				text = "noget"
			case 2:
				text = "noset"
			case 3:
				text = "none"
			case 4, 5, 6, 7:
				text = textWord(others[rng.IntN(len(others))])
			case 8:
				if other := cases[rng.IntN(len(cases))].text; !unread.Match(other) {
					text = textWord(other)
				}
			}
			f.texts[key] = text
			f.keys = append(f.keys, key)
		}
		merging := rng.IntN(3) > 0
		for range f.keys {
			n := 1
			if merging {
				n = []int{1, 2, 3, 4, 1 + rng.IntN(20), 1 + rng.IntN(20), 1 + rng.IntN(200)}[rng.IntN(7)]
			}
			f.counts = append(f.counts, n)
		}
		out = append(out, f)
	}
	return out
}

// One call for many keys and many calls decides as single calls do, one after the other:
// all fields of their results, and what is stored.
func TestTakesUnderPlainLua(t *testing.T) {
	const seed = 2
	each := hurried(1200, 100)
	var cases []portabilityCase
	for _, a := range storetest.Algorithms() {
		cases = append(cases, record(t, seed, each, a)...)
	}
	cases = append(cases, record(t, seed, 2*each)...)
	all := flights(cases, rand.New(rand.NewPCG(seed, 3))) //nolint:gosec // the same each time
	for _, interpreter := range []string{"lua5.1", "lua5.4"} {
		t.Run(interpreter, func(t *testing.T) {
			t.Parallel()
			runFlights(t, interpreter, all)
		})
	}
	assert.Greater(t, len(all), 3*each)
}

// How many calls fit is worked out in parts, where a rate does not come out even in
// microseconds, and beyond what one floating-point division can tell.
func TestTakesAtTheEdge(t *testing.T) {
	var all []flight
	for _, text := range []string{"1000003/366d burst 2000", "999983/1h burst 2000", "104729/1ms burst 2000", "3/1s burst 2000"} {
		take := core.Take{Policy: core.MustParse(text), Key: "k", Cost: 1, Now: storetest.Epoch}
		args := take.Policy.Spec().TakeArgs(take, 0)
		l := args[6] + 1
		charge, bound := args[0]*l+args[3], args[1]*l+args[4]
		for q := range int64(200) {
			for off := range int64(3) {
				calls := 1 + q*7
				level := bound - calls*charge + off - 1
				held := fmt.Sprintf("%d+%d", storetest.Epoch+level/l, level%l)
				all = append(all, flight{take: take, keys: []string{"k"}, counts: []int{int(calls) + 2}, texts: map[string]string{"k": textWord([]byte(held))}})
			}
		}
	}
	for _, interpreter := range []string{"lua5.1", "lua5.4"} {
		t.Run(interpreter, func(t *testing.T) {
			t.Parallel()
			runFlights(t, interpreter, all)
		})
	}
}

// A log whose broken part is found between the calls of a key is left as it is, for single
// calls to heal: an answer for all of the calls could not say what happened.
func TestTakesOfBrokenLogs(t *testing.T) {
	take := core.Take{Policy: core.MustParse("9/1ms sliding-log"), Key: "k", Cost: 4, Now: storetest.Epoch + 10}
	for _, c := range []struct {
		counts []int
		want   string
	}{
		{[]int{1, 1}, "@10 9 @10 0 @0 9 @10 0 @0|a=x@10,9,@0,1,x,1,4 1|b=x@10,9,@0,1,x,1,4 1|"},
		{[]int{2, 1}, "@10 -9007199254740992 9 @10 0 @0|b=x@10,9,@0,1,x,1,4 1|"},
		{[]int{1, 9}, "@10 9 @10 0 @0 -9007199254740992|a=x@10,9,@0,1,x,1,4 1|"},
		{[]int{2, 2}, "@10 -9007199254740992 -9007199254740992|"},
	} {
		text := textWord([]byte(withInstants("x@9,5,@0,1,x")))
		f := flight{take: take, keys: []string{"a", "b"}, counts: c.counts, texts: map[string]string{"a": text, "b": text}, guess: take.Now}
		for _, interpreter := range []string{"lua5.1", "lua5.4"} {
			assert.Equal(t, []string{withInstants(c.want)}, fly(t, interpreter, []flight{f}), "%s %d", interpreter, c.counts)
		}
	}
}

func runFlights(t *testing.T, interpreter string, all []flight) {
	t.Helper()
	for i, line := range fly(t, interpreter, all) {
		all[i].check(t, line)
	}
}

// fly runs flights under an interpreter, and returns what it prints.
func fly(t *testing.T, interpreter string, all []flight) []string {
	t.Helper()
	var program, lines strings.Builder
	program.WriteString("scripts = {}\n")
	seen := map[string]bool{}
	for _, f := range all {
		lines.WriteString(f.line())
		if kinds := f.take.Policy.Spec().Kinds(); !seen[kinds] {
			seen[kinds] = true
			script, err := lua.Takes(kinds)
			require.NoError(t, err)
			fmt.Fprintf(&program, "scripts['%s'] = function()\n%s\nend\n", kinds, script)
		}
	}
	program.WriteString(takesStub)
	out := run(t, interpreter, program.String(), lines.String())
	require.Len(t, out, len(all))
	return out
}
