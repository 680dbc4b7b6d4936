package storetest

import (
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/core"
)

// tail is how many operations a failure shows.
const tail = 25

// Compare runs the same random operations against two stores under one forced
// clock and fails at the first difference in any field of a Result, or in whether
// there was an error. Among the operations are takes of all kinds of cost, peeks,
// refunds, resets, mistakes, clock steps of up to days in both directions, and
// changed limits under an unchanged name; among the policies are those of up to
// four limits and the extremes of every number.
//
// The same seed gives the same operations, and the failure tells it. Keys are new
// ones in each call. Both stores must hold them all: about a hundred.
func Compare(t testing.TB, a, b core.Store, seed uint64, operations int) {
	t.Helper()
	c := &comparison{
		TB: t, a: a, b: b, now: Epoch,
		rng: rand.New(rand.NewPCG(seed, 0)), // what is wanted is the same numbers for the same seed
	}
	prefix := crand.Text() + " "
	for i := range 6 {
		c.keys = append(c.keys, fmt.Sprint(prefix, i))
	}
	for i := range 5 {
		c.families = append(c.families, c.family(fmt.Sprint("compare", i)))
	}
	for i := range operations {
		c.step()
		if c.Failed() {
			t.Fatalf("operation %d of Compare(t, a, b, %d, %d) differs; the last ones were:\n%s",
				i, seed, operations, strings.Join(c.log, "\n"))
		}
	}
}

// comparison is one run of Compare.
type comparison struct {
	testing.TB
	a, b     core.Store
	rng      *rand.Rand
	now      int64
	keys     []string
	families [][]core.Policy // policies of one name whose numbers differ
	receipts []receipt
	hint     int64 // the latest RetryAfter or ResetAfter: the instants of interest
	log      []string
}

type receipt struct {
	family int
	take   core.Take
	result core.Result
}

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

// family is a policy and some that it may be changed to.
func (c *comparison) family(name string) []core.Policy {
	n := pick(c.rng, 1, 1, 1, 2, 3, 4)
	var out []core.Policy
	for len(out) < 3 {
		limits := make([]core.Limit, n)
		for i := range limits {
			limits[i] = c.limit()
		}
		if p, err := core.NewPolicy(name, core.Options{}, limits...); err == nil { // else too slow a drain, or one limit twice
			out = append(out, p)
		}
	}
	return out
}

func (c *comparison) limit() core.Limit {
	rng := c.rng
	return core.Limit{
		Rate:  pick(rng, 1, 2, 3, 7, 10, 60, 100, 1000, 104_251, 999_983, core.MaxRate-1, core.MaxRate, 1+rng.Int64N(20), 1+rng.Int64N(core.MaxRate)),
		Burst: pick(rng, 0, 0, 0, 1, 2, 5, 20, core.MaxRate, 1+rng.Int64N(50), 1+rng.Int64N(core.MaxRate)),
		Period: pick(rng, core.MinPeriod, 7*time.Millisecond, 999_983*time.Microsecond, time.Second, time.Second, 10*time.Second,
			time.Minute, time.Hour, 24*time.Hour, core.MaxPeriod, core.MinPeriod+time.Duration(rng.Int64N(int64(time.Hour)/1000))*time.Microsecond),
	}
}

// step does one operation, most often a take.
func (c *comparison) step() {
	c.tick()
	family := c.rng.IntN(len(c.families))
	t := core.Take{Policy: pick(c.rng, c.families[family]...), Key: pick(c.rng, c.keys...), Now: c.now}
	if c.rng.IntN(8) > 0 { // limits change now and then
		t.Policy = c.families[family][0]
	}
	switch n := c.rng.IntN(100); {
	case n < 3:
		c.reset(t)
	case n < 15 && len(c.receipts) > 0:
		c.refund(family, t)
	case n < 17:
		c.mistake(t)
	default:
		t.Cost = c.cost(t.Policy)
		c.take(family, t)
	}
}

// tick moves the clock: not at all, to where something should happen, or anywhere.
func (c *comparison) tick() {
	const day = 24 * hour
	switch n := c.rng.IntN(100); {
	case n < 40:
	case n < 60:
		c.now += max(0, c.hint-1+c.rng.Int64N(3))
	case n < 75:
		c.now += c.rng.Int64N(second / 10)
	case n < 88:
		c.now += c.rng.Int64N(10 * second)
	case n < 92:
		c.now += c.rng.Int64N(hour)
	case n < 94:
		c.now += c.rng.Int64N(5 * day)
	case n < 97:
		c.now -= c.rng.Int64N(10 * second)
	case n < 99:
		c.now -= c.rng.Int64N(2 * hour)
	default:
		c.now -= c.rng.Int64N(5 * day)
	}
	if c.now < Epoch-400*day || c.now > Epoch+400*day {
		c.now = Epoch
	}
}

func (c *comparison) cost(p core.Policy) int64 {
	burst := pick(c.rng, p.Limits()...).Burst
	return pick(c.rng, 0, 0, 1, 1, 1, 1, 2, 3, burst, max(1, burst/2), burst+1, 1+c.rng.Int64N(burst), core.MaxRate, 1<<63-1)
}

func (c *comparison) take(family int, t core.Take) {
	c.note("take %v key %s at %+d cost %d", t.Policy, t.Key, t.Now-Epoch, t.Cost)
	ra, rb := c.both(t)
	if ra != rb {
		c.Errorf("the answers differ:\n a: %+v\n b: %+v", ra, rb)
	}
	c.hint = max(ra.RetryAfter, ra.ResetAfter*time.Duration(c.rng.IntN(2))).Microseconds()
	if ra.Allowed() && t.Cost > 0 {
		if c.receipts = append(c.receipts, receipt{family, t, ra}); len(c.receipts) > 20 {
			c.receipts = c.receipts[1:]
		}
	}
}

func (c *comparison) both(t core.Take) (ra, rb core.Result) {
	ra, erra := c.a.Take(c.Context(), t)
	rb, errb := c.b.Take(c.Context(), t)
	c.same(erra, errb)
	return ra, rb
}

func (c *comparison) same(a, b error) {
	if (a == nil) != (b == nil) {
		c.Errorf("one of them fails:\n a: %v\n b: %v", a, b)
	}
}

// refund gives back some of an earlier charge, most often under the policy that
// was charged.
func (c *comparison) refund(family int, t core.Take) {
	r := pick(c.rng, c.receipts...)
	if p := t.Policy; r.family != family || c.rng.IntN(4) > 0 {
		t = r.take
	} else {
		t = r.take
		t.Policy = p
	}
	t.Now = c.now
	units := c.rng.Int64N(t.Cost + 1)
	if c.rng.IntN(2) == 0 {
		units = t.Cost
	}
	c.note("refund %v key %s at %+d: %d of %d units of %+d", t.Policy, t.Key, t.Now-Epoch, units, t.Cost, r.result.At-Epoch)
	c.same(c.a.Refund(c.Context(), t, r.result, units), c.b.Refund(c.Context(), t, r.result, units))
	c.look(t)
}

func (c *comparison) reset(t core.Take) {
	c.note("reset %v key %s", t.Policy, t.Key)
	c.same(c.a.Reset(c.Context(), t.Policy, t.Key), c.b.Reset(c.Context(), t.Policy, t.Key))
	c.look(t)
}

// mistake asks for something impossible, which must change nothing.
func (c *comparison) mistake(t core.Take) {
	bad := t
	switch c.rng.IntN(4) {
	case 0:
		bad.Cost = -1 - c.rng.Int64N(1<<62)
	case 1:
		bad.Key = ""
	case 2:
		bad.Policy = core.Policy{}
	default:
		bad.Now = -bad.Now
	}
	c.note("mistake %v key %q at %d cost %d", bad.Policy, bad.Key, bad.Now, bad.Cost)
	if ra, rb := c.both(bad); ra != rb || ra.Allowed() {
		c.Errorf("a mistake was answered:\n a: %+v\n b: %+v", ra, rb)
	}
	c.look(t)
}

// look peeks where something has just changed, or should not have.
func (c *comparison) look(t core.Take) {
	t.Cost = 0
	if ra, rb := c.both(t); ra != rb {
		c.Errorf("afterwards a peek differs:\n a: %+v\n b: %+v", ra, rb)
	}
}

func (c *comparison) note(format string, args ...any) {
	if len(c.log) == tail {
		c.log = c.log[1:]
	}
	c.log = append(c.log, fmt.Sprintf(format, args...))
}
