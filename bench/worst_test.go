package bench

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

// The limit of the search: 100 units per 10 s.
const (
	rate   = 100
	period = 10 * time.Second
)

// worst bounds the units that each algorithm lets through in less than a period: by its
// rules, and as many as the search must find at least.
var worst = []struct {
	name         string
	limit        string
	bound, found int
	departures   int // of what was admitted, if that differs
}{
	{name: "gcra", limit: "100/10s", bound: 199, found: 199},
	{name: "gcra-debt", limit: "100/10s debt 50", bound: 249, found: 249},
	{name: "token-bucket", limit: "100/10s token-bucket", bound: 200, found: 199},
	{name: "leaky-bucket", limit: "100/10s leaky-bucket", bound: 199, found: 199, departures: 100},
	{name: "fixed-window", limit: "100/10s fixed-window", bound: 200, found: 199},
	{name: "fixed-window-aligned", limit: "100/10s fixed-window aligned", bound: 200, found: 200},
	{name: "sliding-window", limit: "100/10s sliding-window", bound: 100, found: 100},
	{name: "sliding-counter", limit: "100/10s sliding-counter", bound: 200, found: 199},
	{name: "sliding-log", limit: "100/10s sliding-log", bound: 100, found: 100},
}

// No client gets more through than the rules allow, however well it times its requests.
func TestWorst(t *testing.T) {
	for _, w := range worst {
		t.Run(w.name, func(t *testing.T) {
			admitted, departed := search(t, parse(t, "w", w.limit))
			assert.GreaterOrEqual(t, admitted, w.found, "the search has become worse")
			assert.LessOrEqual(t, admitted, w.bound)
			if w.departures > 0 {
				assert.Equal(t, w.departures, departed)
			}
		})
	}
}

// BenchmarkWorst reports what the search finds. The time means nothing.
func BenchmarkWorst(b *testing.B) {
	for _, w := range worst {
		b.Run(w.name, func(b *testing.B) {
			for b.Loop() {
				admitted, departed := search(b, parse(b, "w", w.limit))
				b.ReportMetric(float64(admitted), "units")
				b.ReportMetric(float64(departed), "departing")
			}
		})
	}
}

// move is one thing that the client does, at a time since the epoch.
type move struct {
	at   time.Duration
	kind int
}

// The kinds of moves.
const (
	one     = iota // take a unit
	drain          // take what there is, and what is lent
	trickle        // drain for a period, each time that a unit comes back
	kinds
)

// search looks for the plan that gets the most units through in less than a period:
// from random plans on, each step changes one and is kept if that is no worse.
func search(t testing.TB, policy core.Policy) (admitted, departed int) {
	const restarts, steps = 20, 120
	r := rand.New(rand.NewPCG(1, 2)) // the same search each time
	for range restarts {
		plan, best := []move{randomMove(r), randomMove(r), randomMove(r)}, 0
		for range steps {
			next := change(r, plan)
			units, leaving := play(t, policy, next)
			departed = max(departed, leaving)
			if units >= best {
				plan, best = next, units
			}
		}
		admitted = max(admitted, best)
	}
	return admitted, departed
}

// randomMove is at a beginning of a twentieth of the period, or right before.
func randomMove(r *rand.Rand) move {
	at := time.Duration(1+r.IntN(60)) * period / 20
	return move{at - time.Duration(r.IntN(2))*time.Microsecond, r.IntN(kinds)}
}

func change(r *rand.Rand, plan []move) []move {
	next := slices.Clone(plan)
	switch i := r.IntN(len(next)); {
	case r.IntN(4) == 0 && len(next) < 6:
		next = append(next, randomMove(r))
	case r.IntN(4) == 0 && len(next) > 1:
		next = slices.Delete(next, i, i+1)
	default:
		next[i] = randomMove(r)
	}
	return next
}

// taken is a number of units that left together.
type taken struct {
	at    time.Duration
	units int
}

// play carries a plan out, and returns the most that were admitted, and that departed, in
// less than a period.
func play(t testing.TB, policy core.Policy, plan []move) (admitted, departed int) {
	var all []move
	for _, m := range plan {
		if m.kind != trickle {
			all = append(all, m)
			continue
		}
		for i := range rate {
			all = append(all, move{m.at + time.Duration(i)*(period/rate), drain})
		}
	}
	slices.SortStableFunc(all, func(a, b move) int { return cmp.Compare(a.at, b.at) })
	store, debt := newMemory(t, 1), policy.Limits()[0].Debt
	var in, out []taken
	take := func(at time.Duration, cost int64, atMost bool) int64 {
		res, err := store.Take(t.Context(), core.Take{
			Policy: policy, Key: "client", Cost: cost, AtMost: atMost, Now: epoch + at.Microseconds(),
		})
		require.NoError(t, err)
		if res.Taken > 0 {
			in = append(in, taken{at, int(res.Taken)})
			out = append(out, taken{at + res.Delay, int(res.Taken)})
		}
		return res.Taken
	}
	for _, m := range all {
		if m.kind == one {
			take(m.at, 1, false)
			continue
		}
		if policy.Limits()[0].Algorithm == core.LeakyBucket { // one at a time, as each has its turn
			for more := true; more; {
				more = take(m.at, 1, false) > 0
			}
			continue
		}
		take(m.at, 4*rate, true)
		if debt > 0 {
			take(m.at, debt, false)
		}
	}
	return densest(in), densest(out)
}

// densest is the most units that lie within less than a period.
func densest(all []taken) (most int) {
	sum, first := 0, 0
	for _, last := range all {
		for sum += last.units; last.at-all[first].at >= period; first++ {
			sum -= all[first].units
		}
		most = max(most, sum)
	}
	return most
}
