package storetest

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/core"
)

// Compare runs the same random operations against two stores under one forced
// clock and fails at the first difference in any field of a Result, or in whether
// there was an error, and at an answer that no store may give. Among the operations are
// takes of all kinds of cost, of what there is and ahead of time, peeks, many takes at
// once (see [OrderedStore]), refunds before and after the turn of a reservation and with the
// receipt of another policy, resets, mistakes, clock steps of up to years in both
// directions, and changed limits under an unchanged name; among the policies are those of
// up to four limits and the extremes of every number.
//
// The limits are of the algorithms given, in any mix; of all of them if none is given.
//
// The same seed gives the same operations, and a failure prints it. Keys are new
// ones in each call. Both stores must hold them all, about a hundred at once: keys
// that are not needed any more are reset.
func Compare(t testing.TB, a, b core.Store, seed uint64, operations int, algorithms ...core.Algorithm) {
	t.Helper()
	c := &comparison{
		TB: t, a: a, b: b, now: Epoch, algorithms: algorithms,
		rng: rand.New(rand.NewPCG(seed, 0)), // what is wanted is the same numbers for the same seed
	}
	if len(algorithms) == 0 {
		c.algorithms = Algorithms()
	}
	for _, algorithm := range c.algorithms {
		l := core.Limit{Algorithm: algorithm, Rate: 1, Period: time.Second}
		if !possible(core.PolicyOptions{}, l) {
			t.Fatalf("Compare: no store counts by %v", algorithm)
		}
		if possible(core.PolicyOptions{Wait: time.Second}, l) {
			c.reserving = append(c.reserving, algorithm)
		}
	}
	prefix := crand.Text() + "-"
	for i := range 6 {
		c.keys = append(c.keys, fmt.Sprint(prefix, i))
	}
	for i := range c.families {
		c.families[i] = c.family(i)
	}
	c.current, c.key = c.families[0], c.keys[0]
	for i := range operations {
		if i > 0 && i%familyLife == 0 {
			c.replace(i / familyLife)
		}
		c.step()
		if c.Failed() {
			t.Fatalf("operation %d of %s differs; the last ones with that name and key were:\n%s",
				i, called(seed, operations, algorithms), strings.Join(c.history(), "\n"))
		}
	}
}

// called is a call of Compare as a failure prints it.
func called(seed uint64, operations int, algorithms []core.Algorithm) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Compare(t, a, b, %d, %d", seed, operations)
	for _, a := range algorithms {
		fmt.Fprintf(&b, ", %v", a)
	}
	return b.String() + ")"
}

// comparison is one run of Compare.
type comparison struct {
	testing.TB
	a, b       core.Store
	rng        *rand.Rand
	algorithms []core.Algorithm
	reserving  []core.Algorithm // those that can
	now        int64
	keys       []string
	families   [5]*family
	hints      [3]int64 // the waits of the latest Result: the instants of interest
	log        []entry

	// Operations come in runs on one key, so that there is something in it.
	current *family
	key     string
}

// OrderedStore is a store that can decide for many takes at once, in their order. [Compare] then has it decide some of
// them so.
type OrderedStore interface {
	core.Store
	// TakeInOrder answers each take as if they came one after the other.
	TakeInOrder(ctx context.Context, takes []core.Take) ([]core.Result, error)
}

// entry is an operation that is not written out unless it must be.
type entry struct {
	name, key string
	format    string
	args      []any
}

// step does one operation, most often a take.
func (c *comparison) step() {
	if c.rng.IntN(12) == 0 {
		c.current = pick(c.rng, c.families[:]...)
	}
	if c.rng.IntN(12) == 0 {
		c.key = pick(c.rng, c.keys...)
	}
	t := core.Take{Policy: c.current.policies[0], Key: c.key}
	if c.rng.IntN(12) == 0 { // limits change now and then
		t.Policy = pick(c.rng, c.current.policies...)
	}
	c.tick(t.Policy)
	t.Now = c.now
	switch n := c.rng.IntN(200); {
	case n < 3:
		c.reset(t)
	case n < 27 && len(c.current.receipts) > 0:
		c.refund()
	case n < 31:
		c.mistake(t)
	case n < 35:
		c.many(t)
	case n < 43:
		c.credit(t)
	default:
		c.ask(&t)
		c.noteTake(t)
		ra, rb := c.both(t)
		c.answer(t, ra, rb)
	}
}

func (c *comparison) noteTake(t core.Take) {
	if t.AtMost {
		c.note(t, "take %v at %+d up to %d, with debt %v", t.Policy, t.Now-Epoch, t.Cost, t.Debt)
	} else {
		c.note(t, "take %v at %+d cost %d ahead %v", t.Policy, t.Now-Epoch, t.Cost, t.Wait)
	}
}

// answer compares what t was answered.
func (c *comparison) answer(t core.Take, ra, rb core.Result) {
	if wrong := cmp.Or(impossible(t, ra), impossible(t, rb)); wrong != "" {
		c.Errorf("an answer is impossible, %s:\n a: %+v\n b: %+v", wrong, ra, rb)
		return // with a receipt that nothing can be done with
	}
	if !ra.Equal(rb) {
		c.Errorf("the answers differ:\n a: %+v\n b: %+v", ra, rb)
	}
	c.hints = [3]int64{ra.RetryAfter.Microseconds(), ra.ResetAfter.Microseconds(), ra.Delay.Microseconds()}
	if ra.Taken > 0 {
		if c.current.receipts = append(c.current.receipts, receipt{t, ra}); len(c.current.receipts) > 20 {
			c.current.receipts = c.current.receipts[1:]
		}
	}
}

func (c *comparison) both(t core.Take) (ra, rb core.Result) {
	ra, erra := c.a.Take(c.Context(), t)
	rb, errb := c.b.Take(c.Context(), t)
	c.same(erra, errb)
	return ra, rb
}

func (c *comparison) takeMany(s core.Store, takes []core.Take) ([]core.Result, error) {
	if s, ok := s.(OrderedStore); ok {
		return s.TakeInOrder(c.Context(), takes)
	}
	results := make([]core.Result, len(takes))
	for i, t := range takes {
		var err error
		if results[i], err = s.Take(c.Context(), t); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// impossible returns what no Result of t may have, or "".
func impossible(t core.Take, r core.Result) string {
	if wait := min(r.RetryAfter, r.ResetAfter, r.Delay); wait < 0 {
		return fmt.Sprintf("a wait of %v", wait)
	}
	if r.Taken < 0 || r.Taken > t.Cost {
		return fmt.Sprintf("%d taken at a cost of %d", r.Taken, t.Cost)
	}
	if r.Remaining < 0 || r.Remaining > r.Limit {
		return fmt.Sprintf("%d remaining of %d", r.Remaining, r.Limit)
	}
	for i, l := range t.Policy.Limits() {
		each := r.Each(i)
		if wait := min(each.RetryAfter, each.ResetAfter, each.Delay); wait < 0 {
			return fmt.Sprintf("a wait of %v for limit %d", wait, i+1)
		}
		if each.Remaining < 0 || each.Remaining > l.Burst {
			return fmt.Sprintf("%d remaining of %d at limit %d", each.Remaining, l.Burst, i+1)
		}
		if r.Taken > l.Burst+l.Debt {
			return fmt.Sprintf("%d taken of limit %d, which admits %d", r.Taken, i+1, l.Burst+l.Debt)
		}
	}
	return ""
}

func (c *comparison) same(a, b error) {
	if (a == nil) != (b == nil) {
		c.Errorf("one of them fails:\n a: %v\n b: %v", a, b)
	}
}

// refund gives back some of an earlier charge, the latest more often, and most often
// under the policy that was charged.
func (c *comparison) refund() {
	r := pick(c.rng, c.current.receipts...)
	if c.rng.IntN(2) == 0 {
		r = c.current.receipts[len(c.current.receipts)-1]
	}
	t := r.take
	if t.Now = c.now; c.rng.IntN(4) == 0 {
		t.Policy = pick(c.rng, c.current.policies...)
	}
	units := pick(c.rng, r.result.Taken, c.rng.Int64N(r.result.Taken+1))
	c.note(t, "refund %v at %+d: %d of %d units of %+d", t.Policy, t.Now-Epoch, units, r.result.Taken, r.result.At-Epoch)
	batch := []core.Refund{{Policy: t.Policy, Key: t.Key, Receipt: r.result, Units: units, Now: t.Now}}
	c.same(c.a.Refund(c.Context(), batch), c.b.Refund(c.Context(), batch))
	c.look(t)
}

// credit gives back units without a receipt, often more than are in use.
func (c *comparison) credit(t core.Take) {
	units := c.cost(t.Policy)
	c.note(t, "credit %v at %+d: %d units", t.Policy, t.Now-Epoch, units)
	batch := []core.Refund{{Policy: t.Policy, Key: t.Key, Units: units, Credit: true, Now: t.Now}}
	c.same(c.a.Refund(c.Context(), batch), c.b.Refund(c.Context(), batch))
	c.look(t)
}

func (c *comparison) reset(t core.Take) {
	c.note(t, "reset %v", t.Policy)
	c.same(c.a.Reset(c.Context(), t.Policy, t.Key), c.b.Reset(c.Context(), t.Policy, t.Key))
	c.look(t)
}

// mistake asks for something impossible, which must change nothing.
func (c *comparison) mistake(t core.Take) {
	bad := t
	switch c.rng.IntN(8) {
	case 0:
		bad.Cost = -1 - c.rng.Int64N(1<<62)
	case 1:
		bad.Key = ""
	case 2:
		bad.Policy = core.Policy{}
	case 3:
		bad.Now = -bad.Now
	case 4:
		bad.Wait = -1 - time.Duration(c.rng.Int64N(1<<62))
	case 5:
		bad.Cost, bad.AtMost, bad.Wait = 1, true, c.ahead()
	case 6:
		bad.Debt = true
	default:
		if len(c.current.receipts) == 0 {
			return
		}
		r := pick(c.rng, c.current.receipts...)
		units := pick(c.rng, r.result.Taken+1, math.MaxInt64, -1)
		c.note(t, "refund %v at %+d: %d of %d units", t.Policy, t.Now-Epoch, units, r.result.Taken)
		batch := []core.Refund{{Policy: t.Policy, Key: t.Key, Receipt: r.result, Units: units, Now: t.Now}}
		if a, b := c.a.Refund(c.Context(), batch), c.b.Refund(c.Context(), batch); a == nil || b == nil {
			c.Errorf("a mistake was accepted:\n a: %v\n b: %v", a, b)
		}
		c.look(t)
		return
	}
	c.note(t, "mistake %v at %d: %+v", bad.Policy, bad.Now, bad)
	if ra, rb := c.both(bad); !ra.Equal(rb) || ra.Allowed() {
		c.Errorf("a mistake was answered:\n a: %+v\n b: %+v", ra, rb)
	}
	c.look(t)
}

// look peeks where something has just changed, or should not have.
func (c *comparison) look(t core.Take) {
	t.Cost, t.AtMost, t.Debt, t.Wait = 0, false, false, 0
	ra, rb := c.both(t)
	if wrong := cmp.Or(impossible(t, ra), impossible(t, rb)); wrong != "" {
		c.Errorf("afterwards the answer to a peek is impossible, %s:\n a: %+v\n b: %+v", wrong, ra, rb)
	} else if !ra.Equal(rb) {
		c.Errorf("afterwards a peek differs:\n a: %+v\n b: %+v", ra, rb)
	}
}

// A failure shows at most shown operations, of the latest kept.
const (
	shown = 40
	kept  = 1000
)

func (c *comparison) note(t core.Take, format string, args ...any) {
	if len(c.log) == 2*kept {
		c.log = c.log[:copy(c.log, c.log[kept:])]
	}
	c.log = append(c.log, entry{t.Policy.Name(), t.Key, format, args})
}

// history returns the log of the key of the latest operation.
func (c *comparison) history() (lines []string) {
	last := c.log[len(c.log)-1]
	for _, e := range c.log {
		if e.name == last.name && e.key == last.key {
			lines = append(lines, fmt.Sprintf(e.format, e.args...))
		}
	}
	return lines[max(0, len(lines)-shown):]
}
