package lua_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/storetest"
	"github.com/weir-go/weir/internal/race"
)

// stub is the server as a script sees it, and a loop over the cases: a line each, of the
// script, the stored text in hexadecimal, the time and the arguments. A case prints the
// reply, the text that was stored and its expiry, or "-" where nothing was.
const stub = `
local stored, written, time
local function command(name, key, value, px, ttl)
  if name == 'TIME' then return time end
  assert(key == KEYS[1])
  if name == 'GET' then return stored end
  assert(name == 'SET' and px == 'PX' and written == '-')
  assert(type(value) == 'string' and ttl >= 1 and ttl % 1 == 0)
  if math.type then assert(math.type(ttl) == 'integer') end
  written = value .. ' ' .. string.format('%.0f', ttl)
end
redis = { call = command, pcall = command }
KEYS = { 'k' }
local function character(code) return string.char(tonumber(code, 16)) end
for line in io.lines(arg[1]) do
  local words = {}
  for word in string.gmatch(line, '%S+') do words[#words + 1] = word end
  ARGV = {}
  for i = 5, #words do ARGV[i - 4] = words[i] end
  stored, written, time = false, '-', { words[3], words[4] }
  if words[2] ~= 'none' then stored = string.gsub(string.sub(words[2], 2), '%x%x', character) end
  local reply = scripts[words[1]]()
  for i, n in ipairs(reply) do reply[i] = string.format('%.0f', n) end
  print(table.concat(reply, ' ') .. '|' .. written)
end
`

// The scripts give the same answers under plain Lua 5.1, which is Redis's, and 5.4,
// which is Dragonfly's: those of the Go functions, also for garbage in the state and
// for the extremes of every number.
func TestScriptsUnderPlainLua(t *testing.T) {
	const seed = 1
	each := hurried(5000, 200)
	var cases []portabilityCase
	for _, a := range storetest.Algorithms() {
		cases = append(cases, record(t, seed, each, a)...)
	}
	cases = append(cases, record(t, seed, 2*each)...)
	for _, interpreter := range []string{"lua5.1", "lua5.4"} {
		t.Run(interpreter, func(t *testing.T) {
			t.Parallel()
			var program, lines strings.Builder
			program.WriteString("scripts = {}\n")
			seen := map[string]bool{}
			for _, c := range cases {
				lines.WriteString(c.line())
				name, kinds := c.script()
				if id := name + kinds; !seen[id] {
					seen[id] = true
					script, err := operations[name](kinds)
					require.NoError(t, err)
					fmt.Fprintf(&program, "scripts['%s'] = function()\n%s\nend\n", id, script)
				}
			}
			program.WriteString(stub)
			out := run(t, interpreter, program.String(), lines.String())
			require.Len(t, out, len(cases))
			refusedGuesses := 0
			for i, c := range cases {
				if c.check(t, out[i]) {
					refusedGuesses++
				}
			}
			assert.Positive(t, refusedGuesses)
		})
	}
}

// hurried is n, or less under the race detector: that is slow, and nothing here is concurrent.
func hurried(n, less int) int {
	if race.Enabled {
		return less
	}
	return n
}

// Every mix of up to four kinds compiles: Lua knows at most 200 local variables.
func TestEveryMixCompiles(t *testing.T) {
	var letters []byte
	for _, a := range storetest.Algorithms() {
		letters = append(letters, core.MustParse("1/1s "+a.String()).Spec().Kinds()...)
	}
	var program strings.Builder
	program.WriteString("local compile = loadstring or load\n")
	n, most := 0, hurried(core.MaxLimits, 2)
	var mix func(kinds string, from []byte)
	mix = func(kinds string, from []byte) {
		for i, letter := range from {
			longer := kinds + string(letter)
			for name, compose := range operations {
				script, err := compose(longer)
				require.NoError(t, err)
				fmt.Fprintf(&program, "assert(compile([==[%s]==], '%s %s'))\n", script, name, longer)
				n++
			}
			if len(longer) < most {
				mix(longer, from[i:])
			}
		}
	}
	mix("", letters)
	// Of k kinds there are (k+i)!/(k-1)!/(i+1)! unordered mixes of i+1.
	want, mixes := 0, 1
	for i := range most {
		mixes = mixes * (len(letters) + i) / (i + 1)
		want += mixes
	}
	require.Equal(t, len(operations)*want, n)
	for _, interpreter := range []string{"lua5.1", "lua5.4"} {
		t.Run(interpreter, func(t *testing.T) {
			t.Parallel()
			run(t, interpreter, program.String(), "")
		})
	}
}

// run runs a program on lines of input, and returns the lines that it prints.
func run(t *testing.T, interpreter, program, input string) []string {
	t.Helper()
	path, err := exec.LookPath(interpreter)
	if err != nil {
		if os.Getenv("WEIR_REQUIRE_REDIS") == "1" {
			t.Fatalf("%s is required but not on the PATH; install Debian's package of that name", interpreter)
		}
		t.Skipf("%s is not on the PATH; install Debian's package of that name", interpreter)
	}
	dir := t.TempDir()
	file, data := filepath.Join(dir, "program.lua"), filepath.Join(dir, "input")
	require.NoError(t, os.WriteFile(file, []byte(program), 0o600))
	require.NoError(t, os.WriteFile(data, []byte(input), 0o600))
	out, err := exec.CommandContext(t.Context(), path, file, data).CombinedOutput()
	require.NoError(t, err, "%.2000s", out)
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

// portabilityCase is one run of a script.
type portabilityCase struct {
	take    core.Take
	receipt core.Result // of a refund
	units   int64       // 0: it is a take
	credit  bool        // of the units, without a receipt
	text    []byte      // stored; nil: nothing
	forced  bool        // the time is an argument, else the server's
	guess   int64       // of the server's clock
}

// recorder notes the operations on a store as cases, and each now and then with other
// text than what is stored.
type recorder struct {
	*storetest.ReferenceStore
	rng   *rand.Rand
	cases []portabilityCase
}

// record runs random operations on a recorder.
func record(t *testing.T, seed uint64, operations int, algorithms ...core.Algorithm) []portabilityCase {
	t.Helper()
	r := &recorder{ReferenceStore: storetest.Reference(), rng: rand.New(rand.NewPCG(seed, 1))} //nolint:gosec // the same each time
	storetest.Compare(t, r, storetest.Reference(), seed, operations, algorithms...)
	return r.cases
}

func (r *recorder) Take(ctx context.Context, t core.Take) (core.Result, error) {
	if t.Validate() == nil {
		r.note(portabilityCase{take: t})
	}
	return r.ReferenceStore.Take(ctx, t)
}

func (r *recorder) Refund(ctx context.Context, refunds []core.Refund) error {
	for _, x := range refunds {
		if x.Validate() == nil && x.Units > 0 {
			t := core.Take{Policy: x.Policy, Key: x.Key, Now: x.Now}
			r.note(portabilityCase{take: t, receipt: x.Receipt, units: x.Units, credit: x.Credit})
		}
	}
	return r.ReferenceStore.Refund(ctx, refunds)
}

func (r *recorder) note(c portabilityCase) {
	const day = 86_400_000_000
	c.text = r.Text(c.take.Policy, c.take.Key)
	c.forced = r.rng.IntN(2) == 0
	c.guess = c.take.Now
	if r.rng.IntN(5) == 0 {
		c.guess = max(1, c.guess+[]int64{-1, 1, -day / 24, day / 24, -day, day, -31 * day, 31 * day, -70 * day, 70 * day}[r.rng.IntN(10)])
	}
	r.cases = append(r.cases, c)
	if r.rng.IntN(4) == 0 {
		if c.text = r.garbage(c.text, c.take.Now); !unread.Match(c.text) {
			r.cases = append(r.cases, c)
		}
	}
}

// unread is a log of more than one entry. What is wrong with it the script finds out
// when it comes there: see TestBrokenLogs.
var unread = regexp.MustCompile(`(^|;)x[1-9]\d*,[1-9]\d*,[1-9]\d*,[1-9]\d*[^\d;]`)

// garbage is text that no script has written, or another one, or at another time: text that
// is nearly right finds more than noise.
func (r *recorder) garbage(text []byte, now int64) []byte {
	rng := r.rng
	number := func() string {
		return []string{
			"", "0", "00", "1", "-1", "1.5", "1e15", "inf", "nan", "0x10", " 1", "9007199254740991", "9007199254740992", "99999999999999999999",
			strconv.FormatInt(now, 10), strconv.FormatInt(now+rng.Int64N(1<<51)-1<<40, 10), strconv.FormatInt(rng.Int64N(1<<53), 10),
			strconv.FormatInt(now+rng.Int64N(2_000_001)-1_000_000, 10), strconv.FormatInt(rng.Int64N(1<<32), 10), strconv.Itoa(rng.IntN(100)),
		}[rng.IntN(20)]
	}
	text = slices.Clone(text)
	switch rng.IntN(6) {
	case 5: // a log of one entry
		time, units := number(), number()
		return fmt.Appendf(nil, "x%s,%s,%s,%s", time, units, time, units)
	case 0: // other numbers in the same form
		var b []byte
		for i := 0; i < len(text); {
			j := i
			for j < len(text) && '0' <= text[j] && text[j] <= '9' {
				j++
			}
			switch {
			case j == i:
				b = append(b, text[i])
				j++
			case rng.IntN(2) == 0:
				b = append(b, number()...)
			default:
				b = append(b, text[i:j]...)
			}
			i = j
		}
		return b
	case 1: // of any kind
		var b strings.Builder
		for range rng.IntN(4) {
			b.WriteString([]string{"", ";", "t", "f", "w", "d", "x", "l", "g"}[rng.IntN(9)])
			b.WriteString(number())
			for range rng.IntN(4) {
				b.WriteString([]string{",", "-", "+", ":", ";", ",,", " "}[rng.IntN(7)])
				b.WriteString(number())
			}
		}
		return []byte(b.String())
	case 2: // one byte less
		if len(text) > 0 {
			i := rng.IntN(len(text))
			return slices.Delete(text, i, i+1)
		}
		return []byte("x")
	case 3: // one byte more
		return slices.Insert(text, rng.IntN(len(text)+1), ";,-+0 19tfwdxlg\x00\n%"[rng.IntN(18)])
	default: // another byte
		if len(text) > 0 {
			text[rng.IntN(len(text))] = ";,-+0 19tfwdxlg\x00\n%"[rng.IntN(18)]
		}
		return text
	}
}

// script is the one that the case is for.
func (c portabilityCase) script() (name, kinds string) {
	name = "take"
	switch {
	case c.units > 0 && c.credit:
		name = "credit"
	case c.units > 0:
		name = "refund"
	case c.take.AtMost:
		name = "upto"
	}
	return name, c.take.Policy.Spec().Kinds()
}

func (c portabilityCase) params(guess int64) []int64 {
	if c.units > 0 {
		return c.take.Policy.Spec().RefundArgs(core.Refund{Receipt: c.receipt, Units: c.units, Credit: c.credit}, guess)
	}
	return c.take.Policy.Spec().TakeArgs(c.take, guess)
}

// line is the case as the program reads it.
func (c portabilityCase) line() string {
	text := "none"
	if c.text != nil {
		text = "=" + hex.EncodeToString(c.text)
	}
	name, kinds := c.script()
	var args []string
	for _, n := range c.params(c.guess) {
		args = append(args, strconv.FormatInt(n, 10))
	}
	if c.forced {
		args = append(args, strconv.FormatInt(c.take.Now, 10))
	} else if name == "take" {
		for len(args) > 0 && args[len(args)-1] == "0" {
			args = args[:len(args)-1]
		}
	}
	return fmt.Sprintf("%s%s %s %d %06d %s\n", name, kinds, text, c.take.Now/1e6, c.take.Now%1e6, strings.Join(args, " "))
}

// check compares what a script printed with what the Go functions say. It reports whether
// the script refused the guess of its clock.
func (c portabilityCase) check(t *testing.T, line string) (otherWindow bool) {
	t.Helper()
	defer func() { // written out only if it must be
		if t.Failed() {
			t.Logf("%v of %d: cost %d at most %v with debt %v ahead %v, refund of %d; of %q at %d, guessed %+d\nprinted %q",
				c.take.Policy, c.params(c.guess), c.take.Cost, c.take.AtMost, c.take.Debt, c.take.Wait, c.units, c.text, c.take.Now, c.guess-c.take.Now, line)
		}
	}()
	reply, written, _ := strings.Cut(line, "|")
	var numbers []int64
	for word := range strings.FieldsSeq(reply) {
		n, err := strconv.ParseInt(word, 10, 64)
		require.NoError(t, err)
		numbers = append(numbers, n)
	}
	const farther = 65 * 86_400_000_000 // than any window and the next
	if distance := max(c.guess-c.take.Now, c.take.Now-c.guess); len(numbers) == 1 || c.take.Policy.Spec().Calendar() && distance > farther {
		require.Equal(t, []int64{c.take.Now}, numbers)
		require.Equal(t, "-", written)
		require.True(t, c.take.Policy.Spec().Calendar())
		require.NotEqual(t, c.params(c.take.Now), c.params(c.guess))
		if c.units == 0 {
			res, again, err := c.take.Policy.Spec().Explain(c.take, numbers)
			require.NoError(t, err)
			require.True(t, again)
			require.Equal(t, c.take.Now, res.At)
		}
		return true
	}
	var next []byte
	var ttl time.Duration
	if c.units > 0 {
		next, ttl = c.take.Policy.Spec().StepRefund(c.text, core.Refund{Key: c.take.Key, Receipt: c.receipt, Units: c.units, Credit: c.credit, Now: c.take.Now})
		require.Equal(t, []int64{c.take.Now, 1}, numbers)
	} else {
		var want core.Result
		want, next, ttl = c.take.Policy.Spec().Step(c.text, c.take)
		got, _, err := c.take.Policy.Spec().Explain(c.take, numbers)
		require.NoError(t, err)
		if !want.Equal(got) {
			require.Equal(t, want, got)
			require.Fail(t, "the receipts differ")
		}
	}
	stored := "-"
	if ttl > 0 {
		milliseconds := ttl.Milliseconds()
		if c.forced {
			milliseconds += 86_400_000
		}
		stored = fmt.Sprintf("%s %d", next, milliseconds)
	}
	if stored != written {
		require.Equal(t, stored, written)
	}
	return false
}
