package storetest

import (
	crand "crypto/rand"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

// ComparePermits runs the same random operations against two stores under one forced
// clock and fails at the first difference in any field of a Result, in what is lost, or
// in whether there was an error. Weights, the number of permits, leases and epochs change,
// and the clock steps in both directions. The same seed gives the same operations.
func ComparePermits(t testing.TB, a, b core.PermitStore, seed uint64, operations int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // what is wanted is the same numbers for the same seed
	prefix, now, hint := crand.Text(), int64(Epoch), int64(0)
	var history []string
	policies := make([]core.Policy, 12)
	for i := range policies {
		policies[i] = permitPolicy(pick(rng, 1, 1, 2, 3, 5, 20, 1+rng.Int64N(100)),
			pick(rng, 100*time.Millisecond, time.Second, time.Second, 7*time.Second+3*us, 24*time.Hour)).Named(fmt.Sprint("compare", i%4))
		if i%4 == 0 {
			policies[i] = inEpoch(policies[i], rng.IntN(3))
		}
	}
	for i := range operations {
		switch n := rng.IntN(100); {
		case n < 45:
		case n < 65 && hint > 0:
			now += hint - 1 + rng.Int64N(3)
		case n < 90:
			now += rng.Int64N(second / 5)
		case n < 95:
			now += rng.Int64N(10 * second)
		case n < 98:
			now -= rng.Int64N(3 * second)
		default:
			now = Epoch + rng.Int64N(48*hour) - 24*hour
		}
		permit := func() core.Permit {
			policy := pick(rng, policies...)
			n, _, _ := policy.Concurrent()
			return core.Permit{
				Policy: policy, Key: prefix + fmt.Sprint(rng.IntN(2)), ID: fmt.Sprint("id", rng.IntN(12)),
				Weight: pick(rng, 0, 1, 1, 1, 1, 2, 3, n, n+1, 1+rng.Int64N(n), math.MaxInt64), Now: now,
			}
		}
		p := permit()
		var ra, rb any
		var erra, errb error
		var what string
		switch n := rng.IntN(10); {
		case n < 6:
			var x, y core.Result
			what = fmt.Sprintf("acquire %v %s %s weight %d at %+d", p.Policy, p.Key, p.ID, p.Weight, now-Epoch)
			x, erra = a.Acquire(t.Context(), p)
			y, errb = b.Acquire(t.Context(), p)
			ra, rb, hint = x, y, pick(rng, x.RetryAfter, x.ResetAfter).Microseconds()
		case n < 8:
			all := make([]core.Permit, rng.IntN(5))
			for j := range all {
				all[j] = permit()
				all[j].Policy = p.Policy // one number and lease for each name
				what += fmt.Sprintf("; renew %v %s %s weight %d at %+d", all[j].Policy, all[j].Key, all[j].ID, all[j].Weight, now-Epoch)
			}
			var x, y []core.Permit
			x, erra = a.Renew(t.Context(), all)
			y, errb = b.Renew(t.Context(), all)
			ra, rb = inOrder(x), inOrder(y)
		default:
			all := []core.Permit{p}
			for rng.IntN(2) == 0 {
				all = append(all, permit())
			}
			for _, p := range all {
				what += fmt.Sprintf("; release %v %s %s", p.Policy, p.Key, p.ID)
			}
			erra, errb = a.Release(t.Context(), all), b.Release(t.Context(), all)
		}
		if history = append(history, what); len(history) > shown {
			history = history[1:]
		}
		require.Equal(t, ra, rb, "operation %d of ComparePermits(t, a, b, %d, %d) differs; the last ones were:\n%s", i, seed, operations, strings.Join(history, "\n"))
		require.Equal(t, erra == nil, errb == nil, "a: %v\nb: %v\n%s", erra, errb, what)
	}
}

// inOrder makes a text of permits whose order does not matter.
func inOrder(all []core.Permit) string {
	lines := make([]string, len(all))
	for i, p := range all {
		lines[i] = fmt.Sprint(p.Policy.Name(), p.Policy, p.Key, p.ID, p.Weight)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
