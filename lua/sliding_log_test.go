package lua_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
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
)

// runLogs runs cases of one log under an interpreter.
func runLogs(t *testing.T, interpreter string, cases []portabilityCase) []string {
	t.Helper()
	var program, lines strings.Builder
	program.WriteString("scripts = {}\n")
	for name, compose := range operations {
		script, err := compose("x")
		require.NoError(t, err)
		fmt.Fprintf(&program, "scripts['%sx'] = function()\n%s\nend\n", name, script)
	}
	program.WriteString(stub)
	for _, c := range cases {
		lines.WriteString(c.line())
	}
	out := run(t, interpreter, program.String(), lines.String())
	require.Len(t, out, len(cases))
	return out
}

// instant stands for a time: @5 is that much after the epoch.
var instant = regexp.MustCompile(`@(\d+)`)

func withInstants(text string) string {
	return instant.ReplaceAllStringFunc(text, func(m string) string {
		n, _ := strconv.ParseInt(m[1:], 10, 64)
		return strconv.FormatInt(storetest.Epoch+n, 10)
	})
}

// A log is read from both ends and cut anywhere: each entry and what is next to it can be
// given back to, expire, lie ahead, or be what must go before the cost fits.
func TestLogsAtEachEntry(t *testing.T) {
	var cases []portabilityCase
	for _, limit := range []int64{1, 2, 3, 40, 1000} {
		policy := core.MustParse(fmt.Sprintf("%d/1h sliding-log", limit))
		take := core.Take{Policy: policy, Key: "k", Now: storetest.Epoch}
		var text []byte
		var receipts []core.Result
		for i := range min(limit, 40) {
			take.Now += (i%7+1)*(i%5+1)*(i%3*5_000_000+1) + 1
			take.Cost = 1 + i%3*limit/50
			if res, next, _ := policy.Spec().Step(text, take); res.Taken > 0 {
				text, receipts = next, append(receipts, res)
			}
		}
		newest := take.Now
		for _, lowered := range []int64{limit, (limit + 1) / 2, 1} { // ahead and behind
			take.Policy = core.MustParse(fmt.Sprintf("%d/1h sliding-log", lowered))
			for _, res := range receipts {
				for _, off := range []int64{-1, 0, 1} {
					near := res
					near.At += off
					take.Cost, take.Now = res.Taken, newest
					for units := range res.Taken {
						cases = append(cases, portabilityCase{take: take, receipt: near, units: 1 + units, text: text},
							portabilityCase{take: take, units: 1 + units*units, credit: true, text: text})
					}
					for _, take.Now = range []int64{near.At, near.At + 3_600_000_000} {
						for _, take.Cost = range []int64{0, 1, lowered / 2, lowered, lowered + 1} {
							cases = append(cases, portabilityCase{take: take, text: text})
						}
					}
				}
			}
			take.Now = newest
			for take.Cost = range min(lowered, 200) {
				cases = append(cases, portabilityCase{take: take, text: text})
			}
		}
	}
	for i := range cases {
		cases[i].guess = cases[i].take.Now
	}
	for _, interpreter := range []string{"lua5.1", "lua5.4"} {
		t.Run(interpreter, func(t *testing.T) {
			t.Parallel()
			for i, line := range runLogs(t, interpreter, cases) {
				cases[i].check(t, line)
			}
		})
	}
}

// What is wrong with a log is found out when the script comes there.
func TestBrokenLogs(t *testing.T) {
	const (
		three   = "x@9,6,@0,1" // of which follow ",5,3,4,2"
		nothing = "0 0 0 0| 1" // the log is discarded
	)
	policy := core.MustParse("6/1ms sliding-log")
	take := func(at, cost int64) portabilityCase {
		return portabilityCase{take: core.Take{Policy: policy, Key: "k", Cost: cost, Now: storetest.Epoch + at}}
	}
	refund := func(charged, units int64) portabilityCase {
		c := take(9, 0)
		c.units = units
		c.receipt, _, _ = policy.Spec().Step(nil, take(charged, 6).take)
		return c
	}
	credit := func(units int64) portabilityCase {
		c := take(9, 0)
		c.units, c.credit = units, true
		return c
	}
	table := []struct {
		name, text string
		portabilityCase
		want string
	}{
		{"nothing is wrong", three + ",5,3,4,2", take(9, 0), "6 @9 0 @0|-"},
		{"nothing is read", three + ",x", take(9, 0), "6 @9 0 @0|-"},
		{"the oldest must go", three + ",x", take(9, 1), "-7 @9 @0 @0|-"},
		{"all must go", three + ",x", take(9, 6), "-7 @9 @9 @0|-"},
		{"two must go", three + ",x", take(9, 2), "2 @9 0 @9|x@9,2,@9,2 1"},
		{"two must go, the second is too young", three + ",10,5", take(9, 2), "2 @9 0 @9|x@9,2,@9,2 1"},
		{"two must go, the second has no count", three + ",9", take(9, 2), "2 @9 0 @9|x@9,2,@9,2 1"},
		{"nothing follows", three, take(9, 0), nothing},
		{"the oldest expires", three + ",x", take(1000, 0), nothing},
		{"the second is too many", three + ",5,6,4,2", take(1000, 0), nothing},
		{"the second is too young", three + ",10,3,4,2", take(1000, 0), nothing},
		{"the second is the newest already", three + ",9,3,4,2", take(1000, 0), nothing},
		{"the second is the rest already", three + ",5,5,4,2", take(1000, 0), nothing},
		{"a long number", three + ",5,9223372036854775807,4,2", take(1000, 0), nothing},
		{"a longer one", three + ",99999999999999999999,3,4,2", take(1000, 0), nothing},
		{"the third is missing", three + ",5,3", take(1000, 0), nothing},
		{"all expire", three + ",x", take(1009, 0), "0 0 0 0|-"},
		{"ahead", three + ",5,3,x", take(4, 0), "6 @4 0 @0|x@4,6,@0,1,4,5 1"},
		{"before what is ahead", three + ",x", take(4, 0), nothing},
		{"ahead, the third is missing", three + ",5,3", take(8, 0), nothing},
		{"a charge after it", "x@9,5,@0,1,x", take(10, 1), "6 @10 0 @0|x@10,6,@0,1,x,1,1 1"},
		{"a charge to the newest", "x@9,5,@0,1,9,4", take(9, 1), "6 @9 0 @0|x@9,6,@0,1,9,5 1"},
		{"a charge to the newest, which is too many", "x@9,5,@0,1,9,5", take(9, 1), "1 @9 0 @9|x@9,1,@9,1 1"},
		{"a charge to the newest, which is no number", "x@9,5,@0,1,9,x", take(9, 1), "1 @9 0 @9|x@9,1,@9,1 1"},
		{"a charge to the newest, which is a long number", "x@9,5,@0,1,99999", take(9, 1), "1 @9 0 @9|x@9,1,@9,1 1"},
		{"a refund to the oldest", three + ",x", refund(0, 1), "1| 1"},
		{"a refund to a part of the oldest", "x@9,6,@0,2,5,4,x", refund(0, 1), "1|x@9,5,@0,1,5,4,x 1"},
		{"a refund to the second", three + ",x", refund(5, 1), "1| 1"},
		{"a refund to the second, after which nothing can be read", three + ",5,3,x", refund(5, 3), "1| 1"},
		{"a refund to the second, which is too many", three + ",5,9,4,2", refund(5, 6), "1| 1"},
		{"a refund to nobody, near the newest", "x@9,6,@0,1,9,5", refund(8, 1), "1|-"},
		{"a refund to the newest", three + ",x", refund(9, 1), "1| 1"},
		{"a refund to one near the newest", three + ",x,1,2", refund(8, 1), "1| 1"},
		{"a refund to the newest, before which nothing is read", three + ",x,4,2", refund(9, 1), "1|x@9,5,@0,1,x,4,1 1"},
		{"a credit of a part of the newest, before which nothing is read", three + ",x,4,2", credit(1), "1|x@9,5,@0,1,x,4,1 1"},
		{"a credit of the newest", three + ",x,4,2", credit(2), "1|x@5,4,@0,1,x 1"},
		{"a credit of more, before which nothing can be read", three + ",x,4,2", credit(3), "1| 1"},
		{"a credit of a newest that is none", three + ",5,3,4,x", credit(1), "1| 1"},
		{"a credit of a newest that is too many", three + ",5,3,4,6", credit(1), "1| 1"},
		{"a credit of a newest that is too far from the one before", three + ",5,3,10,2", credit(2), "1| 1"},
		{"a credit of all but the oldest, which is none of them", three + ",5,3,3,2", credit(5), "1| 1"},
		{"a credit of all but the oldest", three + ",5,3,4,2", credit(5), "1|x@0,1,@0,1 1"},
		{"a credit of a part of the oldest", "x@0,6,@0,6", credit(5), "1|x@0,1,@0,1 1"},
	}
	var cases []portabilityCase
	for _, c := range table {
		c.portabilityCase.text = []byte(withInstants(c.text))
		cases = append(cases, c.portabilityCase)
	}
	for _, interpreter := range []string{"lua5.1", "lua5.4"} {
		t.Run(interpreter, func(t *testing.T) {
			t.Parallel()
			for i, line := range runLogs(t, interpreter, cases) {
				_, got, _ := strings.Cut(line, " ") // the time is known
				assert.Equal(t, withInstants(table[i].want), got, "%s: %s", table[i].name, table[i].text)
			}
		})
	}
}

// Whatever is stored, and wherever it is broken, the script answers within the limit, and
// what it has written it can go on with; a period later nothing is left of it.
func TestBrokenLogsAnswer(t *testing.T) {
	const logs, rounds, seed = 3000, 4, 1
	for _, interpreter := range []string{"lua5.1", "lua5.4"} {
		t.Run(interpreter, func(t *testing.T) {
			t.Parallel()
			r := &recorder{rng: rand.New(rand.NewPCG(seed, 2))} //nolint:gosec // the same each time
			cases := make([]portabilityCase, logs)
			for i := range cases {
				cases[i] = r.brokenLog()
			}
			read := 0 // texts that ParseText refuses and the script goes on with
			for round := range rounds {
				for i, line := range runLogs(t, interpreter, cases) {
					c := &cases[i]
					if last := round == rounds-1; c.answers(t, line, last) && !last {
						read++
					}
					c.take.Now += []int64{0, 1, r.rng.Int64N(1000), r.rng.Int64N(1_000_000)}[r.rng.IntN(4)]
					if c.any(r.rng); round == rounds-2 {
						c.take.Now += c.take.Policy.Limits()[0].Period.Microseconds()
						c.units, c.take.Cost, c.take.AtMost = 0, 1, false
					}
				}
			}
			assert.Greater(t, read, logs/4)
		})
	}
}

// brokenLog is a case with a log that is wrong somewhere.
func (r *recorder) brokenLog() (c portabilityCase) {
	rng := r.rng
	limit := []int64{1, 2, 5, 20, 1000}[rng.IntN(5)]
	policy := core.MustParse(fmt.Sprintf("%d/1s sliding-log", limit))
	c.take = core.Take{Policy: policy, Key: "k", Now: storetest.Epoch}
	c.forced = rng.IntN(2) == 0
	for range min(2*limit, 40) {
		c.take.Cost = 1 + rng.Int64N(1+limit/10)
		c.take.Now += rng.Int64N(40_000)
		res, next, ttl := policy.Spec().Step(c.text, c.take)
		if ttl > 0 {
			c.text = next
		}
		if res.Taken > 0 && rng.IntN(4) > 0 {
			c.receipt = res
		}
	}
	for range 1 + rng.IntN(2) {
		broken := r.garbage(c.text, c.take.Now)
		switch comma := bytes.IndexByte(c.text, ','); rng.IntN(3) {
		case 0: // behind the beginning
			broken = slices.Concat(c.text[:comma], r.garbage(c.text[comma:], c.take.Now))
		case 1: // the end
			broken = c.text[:rng.IntN(len(c.text))]
		}
		if bytes.IndexByte(broken, ',') >= 0 {
			c.text = []byte(strings.NewReplacer("\n", "", " ", "", "\x00", "").Replace(string(broken))) // what can be printed
		}
	}
	c.any(rng)
	return c
}

// any makes it any operation.
func (c *portabilityCase) any(rng *rand.Rand) {
	limit := c.take.Policy.Limits()[0].Rate
	c.units, c.credit, c.take.AtMost = 0, false, rng.IntN(4) == 0
	c.take.Cost = []int64{0, 1, 1, rng.Int64N(limit + 1), limit, limit + 1}[rng.IntN(6)]
	if rng.IntN(4) == 0 && c.receipt.Taken > 0 {
		c.units = 1 + rng.Int64N(c.receipt.Taken)
		c.credit = rng.IntN(4) == 0
	}
}

// answers checks what a script printed, and stores what it wrote. It reports whether the
// script went on with a text that Step discards.
func (c *portabilityCase) answers(t *testing.T, line string, last bool) (read bool) {
	t.Helper()
	about := fmt.Sprintf("%v: cost %d at most %v, refund of %d; of %q at %d\nprinted %q",
		c.take.Policy, c.take.Cost, c.take.AtMost, c.units, c.text, c.take.Now, line)
	reply, written, _ := strings.Cut(line, "|")
	var numbers []int64
	for word := range strings.FieldsSeq(reply) {
		n, err := strconv.ParseInt(word, 10, 64)
		require.NoError(t, err, about)
		numbers = append(numbers, n)
	}
	limit := c.take.Policy.Limits()[0].Rate
	if c.units > 0 {
		require.Equal(t, []int64{c.take.Now, 1}, numbers, about)
	} else {
		res, _, err := c.take.Policy.Spec().Explain(c.take, numbers)
		require.NoError(t, err, about)
		require.True(t, 0 <= res.Remaining && res.Remaining <= limit, about)
		require.True(t, res.Allowed() || res.Taken == 0, about)
		require.True(t, res.Taken == 0 || written != "-", about)
		require.LessOrEqual(t, max(res.ResetAfter, res.RetryAfter), time.Second, about)
		want, _, _ := c.take.Policy.Spec().Step(c.text, c.take)
		read = want.Remaining+want.Taken == limit && res.Remaining+res.Taken < limit
		if last {
			require.Equal(t, want, res, about)
			require.Equal(t, limit-1, res.Remaining, about)
		}
	}
	if written == "-" {
		return read
	}
	text, ttl, _ := strings.Cut(written, " ")
	milliseconds, err := strconv.Atoi(ttl)
	require.NoError(t, err, about)
	if c.forced {
		milliseconds -= 86_400_000
	}
	require.True(t, 1 <= milliseconds && milliseconds <= 1000, about)
	if c.text = []byte(text); last {
		require.Equal(t, fmt.Sprintf("x%[1]d,1,%[1]d,1", c.take.Now), text, about)
	}
	return read
}
