package storetest

import (
	"context"
	crand "crypto/rand"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

// ExercisePermits demands of a store what [core.PermitStore] promises. Each test has a
// store of its own from newStore and keys of its own.
func ExercisePermits(t *testing.T, newStore func(*testing.T) core.PermitStore) {
	for _, test := range []struct {
		name string
		run  func(*permits)
	}{
		{"as many as there are", asManyAsThereAre},
		{"by its id alone", byIDAlone},
		{"acquired again", acquiredAgain},
		{"weights", permitWeights},
		{"leases end", leasesEnd},
		{"renewed", renewed},
		{"clock steps back", permitClockStepsBack},
		{"changed numbers", changedPermits},
		{"waiting as told admits", waitingForPermits},
		{"keys and policies apart", permitsApart},
		{"mistakes", permitMistakes},
		{"who has left", permitCallerLeft},
		{"by the store's clock", permitsByStoreClock},
		{"many at once", manyPermits},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.run(&permits{T: t, store: newStore(t), key: crand.Text()})
		})
	}
}

// permits is a store under test and a key.
type permits struct {
	*testing.T
	store core.PermitStore
	key   string
}

// permitPolicy is a policy that has permits and nothing else.
func permitPolicy(n int64, lease time.Duration) core.Policy {
	p, err := core.NewPolicy("permits", core.Options{}, core.Limit{Algorithm: core.Concurrent, Burst: n, Lease: lease})
	if err != nil {
		panic(err)
	}
	return p
}

func (s *permits) permit(p core.Policy, id string, weight, at int64) core.Permit {
	return core.Permit{Policy: p, Key: s.key, ID: id, Weight: weight, Now: Epoch + at}
}

func (s *permits) acquire(p core.Permit) core.Result {
	s.Helper()
	res, err := s.store.Acquire(s.Context(), p)
	require.NoError(s, err)
	return res
}

func (s *permits) release(p core.Permit) {
	s.Helper()
	require.NoError(s, s.store.Release(s.Context(), p))
}

// renew answers which ids are lost.
func (s *permits) renew(all ...core.Permit) (lost []string) {
	s.Helper()
	gone, err := s.store.Renew(s.Context(), all)
	require.NoError(s, err)
	for _, p := range gone {
		require.Contains(s, all, p, "what is lost is returned as it was given")
		lost = append(lost, p.ID)
	}
	return lost
}

// expect demands a whole Result of one limit of permits.
func (s *permits) expect(want core.Result, got core.Result, at int64) {
	s.Helper()
	want.At = Epoch + at
	want.Each[0] = core.LimitResult{
		Remaining: want.Remaining, RetryAfter: want.RetryAfter, ResetAfter: want.ResetAfter,
		Refused: !want.Allowed(), Never: want.Outcome == core.Never,
	}
	require.Equal(s, want, got)
}

const us = time.Microsecond

func asManyAsThereAre(s *permits) {
	one := permitPolicy(1, time.Second)
	s.expect(core.Result{Outcome: core.AtLimit, Taken: 1, Limit: 1, ResetAfter: time.Second}, s.acquire(s.permit(one, "a", 1, 0)), 0)
	s.expect(core.Result{Outcome: core.Refused, Limit: 1, RetryAfter: time.Second, ResetAfter: time.Second}, s.acquire(s.permit(one, "b", 0, 0)), 0)
	s.release(s.permit(one, "a", 1, 0))

	three := permitPolicy(3, time.Second)
	s.expect(core.Result{Outcome: core.Admitted, Taken: 1, Limit: 3, Remaining: 2, ResetAfter: time.Second}, s.acquire(s.permit(three, "a", 1, 0)), 0)
	s.expect(core.Result{Outcome: core.Admitted, Taken: 1, Limit: 3, Remaining: 1, ResetAfter: time.Second}, s.acquire(s.permit(three, "b", 0, 100)), 100)
	s.expect(core.Result{Outcome: core.AtLimit, Taken: 1, Limit: 3, ResetAfter: time.Second}, s.acquire(s.permit(three, "c", 1, 300)), 300)
	s.expect(core.Result{Outcome: core.Refused, Limit: 3, RetryAfter: time.Second - 400*us, ResetAfter: time.Second - 100*us}, s.acquire(s.permit(three, "d", 1, 400)), 400)
	s.release(s.permit(three, "b", 1, 400))
	s.expect(core.Result{Outcome: core.AtLimit, Taken: 1, Limit: 3, ResetAfter: time.Second}, s.acquire(s.permit(three, "d", 1, 400)), 400)
}

// byIDAlone is about releases that come twice or late.
func byIDAlone(s *permits) {
	p := permitPolicy(2, time.Second)
	s.release(s.permit(p, "unknown", 1, 0))
	s.acquire(s.permit(p, "a", 1, 0))
	s.acquire(s.permit(p, "b", 1, 0))
	s.release(s.permit(p, "a", 7, 0))
	s.release(s.permit(p, "a", 1, 0))
	s.release(s.permit(p, "unknown", 1, 0))
	require.Zero(s, s.acquire(s.permit(p, "c", 1, 0)).Remaining, "a place that was given back twice is one place")
	require.Equal(s, core.Refused, s.acquire(s.permit(p, "d", 1, 0)).Outcome)

	s.acquire(s.permit(p, "e", 1, second))
	s.acquire(s.permit(p, "f", 1, second))
	s.release(s.permit(p, "b", 1, second)) // whose lease has ended
	s.release(s.permit(p, "c", 1, second))
	require.Equal(s, core.Refused, s.acquire(s.permit(p, "g", 1, second)).Outcome, "a late release is nobody else's")
}

// acquiredAgain is about an id that is held, after a reply was lost.
func acquiredAgain(s *permits) {
	p := permitPolicy(2, time.Second)
	s.acquire(s.permit(p, "a", 1, 0))
	s.expect(core.Result{Outcome: core.Admitted, Taken: 1, Limit: 2, Remaining: 1, ResetAfter: time.Second}, s.acquire(s.permit(p, "a", 1, 400_000)), 400_000)
	s.acquire(s.permit(p, "b", 1, 500_000))
	s.expect(core.Result{Outcome: core.AtLimit, Taken: 1, Limit: 2, ResetAfter: time.Second}, s.acquire(s.permit(p, "a", 1, 600_000)), 600_000)
	s.expect(core.Result{Outcome: core.Refused, Limit: 2, RetryAfter: 500 * time.Millisecond, ResetAfter: 600 * time.Millisecond},
		s.acquire(s.permit(p, "c", 1, second)), second)
}

func permitWeights(s *permits) {
	p := permitPolicy(5, time.Second)
	s.expect(core.Result{Outcome: core.Admitted, Taken: 3, Limit: 5, Remaining: 2, ResetAfter: time.Second}, s.acquire(s.permit(p, "a", 3, 0)), 0)
	s.expect(core.Result{Outcome: core.Refused, Limit: 5, Remaining: 2, RetryAfter: time.Second, ResetAfter: time.Second}, s.acquire(s.permit(p, "b", 3, 0)), 0)
	for _, weight := range []int64{6, math.MaxInt64} {
		s.expect(core.Result{Outcome: core.Never, Limit: 5, Remaining: 2, ResetAfter: time.Second}, s.acquire(s.permit(p, "b", weight, 0)), 0)
	}
	s.expect(core.Result{Outcome: core.AtLimit, Taken: 2, Limit: 5, ResetAfter: time.Second}, s.acquire(s.permit(p, "b", 2, 300)), 300)
	// With another weight it is as if it held none, but it never loses what it has.
	s.expect(core.Result{Outcome: core.Refused, Limit: 5, RetryAfter: time.Second - 400*us, ResetAfter: time.Second - 100*us}, s.acquire(s.permit(p, "b", 3, 400)), 400)
	s.expect(core.Result{Outcome: core.Refused, Limit: 5, RetryAfter: time.Second - 100*us, ResetAfter: time.Second - 100*us}, s.acquire(s.permit(p, "a", 4, 400)), 400)
	s.expect(core.Result{Outcome: core.Never, Limit: 5, ResetAfter: time.Second - 100*us}, s.acquire(s.permit(p, "a", 6, 400)), 400)
	s.expect(core.Result{Outcome: core.Admitted, Taken: 1, Limit: 5, Remaining: 2, ResetAfter: time.Second}, s.acquire(s.permit(p, "a", 1, 500)), 500)
	s.expect(core.Result{Outcome: core.AtLimit, Taken: 3, Limit: 5, ResetAfter: time.Second}, s.acquire(s.permit(p, "a", 3, 600)), 600)
	s.release(s.permit(p, "a", 1, 600))
	s.expect(core.Result{Outcome: core.AtLimit, Taken: 3, Limit: 5, ResetAfter: time.Second}, s.acquire(s.permit(p, "c", 3, 700)), 700)

	// There is room for two once the second of three leases has ended.
	q := permitPolicy(3, time.Second).Named("weights")
	for i, id := range []string{"a", "b", "c"} {
		s.acquire(s.permit(q, id, 1, int64(i)*100))
	}
	s.expect(core.Result{Outcome: core.Refused, Limit: 3, RetryAfter: time.Second - 200*us, ResetAfter: time.Second - 100*us}, s.acquire(s.permit(q, "d", 2, 300)), 300)
	// Its own lease makes no room.
	s.expect(core.Result{Outcome: core.Refused, Limit: 3, RetryAfter: time.Second - 100*us, ResetAfter: time.Second - 100*us}, s.acquire(s.permit(q, "a", 3, 300)), 300)
	s.expect(core.Result{Outcome: core.Refused, Limit: 3, RetryAfter: time.Second - 300*us, ResetAfter: time.Second - 100*us}, s.acquire(s.permit(q, "c", 2, 300)), 300)

	most := permitPolicy(core.MaxPermits, time.Second).Named("most")
	const heavy = core.MaxPermitWeight
	s.expect(core.Result{Outcome: core.Never, Limit: core.MaxPermits, Remaining: core.MaxPermits}, s.acquire(s.permit(most, "a", heavy+1, 0)), 0)
	s.expect(core.Result{Outcome: core.Admitted, Taken: heavy, Limit: core.MaxPermits, Remaining: core.MaxPermits - heavy, ResetAfter: time.Second}, s.acquire(s.permit(most, "a", heavy, 0)), 0)
	s.release(s.permit(most, "a", 1, 0))
	s.expect(core.Result{Outcome: core.Admitted, Taken: 1, Limit: core.MaxPermits, Remaining: core.MaxPermits - 1, ResetAfter: time.Second}, s.acquire(s.permit(most, "b", 1, 0)), 0)
}

// leasesEnd is about a holder that has crashed.
func leasesEnd(s *permits) {
	p := permitPolicy(2, time.Second)
	s.acquire(s.permit(p, "a", 2, 0))
	require.Equal(s, core.Refused, s.acquire(s.permit(p, "b", 1, second-1)).Outcome)
	s.expect(core.Result{Outcome: core.Admitted, Taken: 1, Limit: 2, Remaining: 1, ResetAfter: time.Second}, s.acquire(s.permit(p, "b", 1, second)), second)
	s.expect(core.Result{Outcome: core.Never, Limit: 2, Remaining: 2}, s.acquire(s.permit(p, "c", 3, 5*second)), 5*second)
}

func renewed(s *permits) {
	p := permitPolicy(2, time.Second)
	a, b := s.permit(p, "a", 1, 0), s.permit(p, "b", 1, 0)
	at := func(p core.Permit, at int64) core.Permit { p.Now = Epoch + at; return p }
	require.Empty(s, s.renew())
	s.acquire(a)
	s.acquire(b)
	require.Empty(s, s.renew(at(a, 600_000)))
	require.Equal(s, core.Refused, s.acquire(s.permit(p, "c", 2, 1_500_000)).Outcome, "it was renewed")
	s.acquire(s.permit(p, "c", 1, 1_500_000))
	require.Equal(s, []string{"b"}, s.renew(at(a, 1_500_000), at(b, 1_500_000)), "the place has been given to another")
	require.Empty(s, s.renew(at(a, 1_500_000)), "what is lost takes nothing with it")
	s.release(s.permit(p, "c", 1, 1_500_000))
	require.Empty(s, s.renew(at(b, 1_500_000)), "there is room again")
	require.Equal(s, core.Refused, s.acquire(s.permit(p, "d", 1, 1_500_000)).Outcome)
	require.Empty(s, s.renew(at(b, 3*second), at(a, 3*second)), "all have ended, and nobody came")
	require.Equal(s, core.Refused, s.acquire(s.permit(p, "d", 1, 3*second)).Outcome)

	// It keeps its weight, and where there is room for some, those come first that are
	// named first.
	q := permitPolicy(4, time.Second).Named("renewed")
	s.acquire(s.permit(q, "heavy", 3, 0))
	require.Empty(s, s.renew(s.permit(q, "heavy", 1, 100)))
	require.EqualValues(s, 1, s.acquire(s.permit(q, "x", 2, 100)).Remaining)
	require.Equal(s, []string{"x"}, s.renew(s.permit(q, "y", 1, 200), s.permit(q, "x", 1, 200), s.permit(q, "heavy", 3, 200)))

	// Many permits, of several keys and policies.
	var all []core.Permit
	wide := permitPolicy(300, time.Second).Named("wide")
	for i := range 400 {
		x := s.permit(wide, fmt.Sprint("id", i), 1, 0)
		x.Key += fmt.Sprint(i % 3)
		s.acquire(x)
		all = append(all, at(x, 500))
	}
	narrow := permitPolicy(1, time.Second).Named("narrow")
	s.acquire(s.permit(narrow, "other", 1, 500))
	all = slices.Insert(all, 77, s.permit(narrow, "lost", 1, 500))
	require.Equal(s, []string{"lost"}, s.renew(all...))
}

// permitClockStepsBack is about leases that end too far in the future.
func permitClockStepsBack(s *permits) {
	p := permitPolicy(1, time.Second)
	s.acquire(s.permit(p, "a", 1, hour))
	s.expect(core.Result{Outcome: core.Refused, Limit: 1, RetryAfter: time.Second, ResetAfter: time.Second}, s.acquire(s.permit(p, "b", 1, 0)), 0)
	s.expect(core.Result{Outcome: core.Refused, Limit: 1, RetryAfter: 1 * us, ResetAfter: 1 * us}, s.acquire(s.permit(p, "b", 1, second-1)), second-1)
	require.True(s, s.acquire(s.permit(p, "b", 1, second)).Allowed(), "it was cut, not only told so")
	require.Equal(s, []string{"a"}, s.renew(s.permit(p, "a", 1, -hour)))
	require.True(s, s.acquire(s.permit(p, "a", 1, -hour+second)).Allowed())
}

func changedPermits(s *permits) {
	many, few := permitPolicy(4, time.Second), permitPolicy(2, time.Second)
	for i := range 4 {
		s.acquire(s.permit(many, fmt.Sprint(i), 1, int64(i)*100))
	}
	// Two leases must end, and one more.
	s.expect(core.Result{Outcome: core.Refused, Limit: 2, RetryAfter: time.Second - 200*us, ResetAfter: time.Second - 100*us}, s.acquire(s.permit(few, "x", 1, 400)), 400)
	require.Empty(s, s.renew(s.permit(few, "3", 1, 400), s.permit(few, "2", 1, 400)), "what is held stays held")
	s.expect(core.Result{Outcome: core.AtLimit, Taken: 1, Limit: 2, ResetAfter: time.Second}, s.acquire(s.permit(few, "3", 1, 400)), 400)
	require.True(s, s.acquire(s.permit(many.Named("permits"), "x", 1, second)).Allowed())

	short := permitPolicy(1, 100*time.Millisecond).Named("lease")
	long := permitPolicy(1, time.Hour).Named("lease")
	s.acquire(s.permit(long, "a", 1, 0))
	s.expect(core.Result{Outcome: core.Refused, Limit: 1, RetryAfter: 100 * time.Millisecond, ResetAfter: 100 * time.Millisecond}, s.acquire(s.permit(short, "b", 1, 0)), 0)
	require.True(s, s.acquire(s.permit(short, "b", 1, 100_000)).Allowed())

	s.acquire(s.permit(many.Named("heavy"), "a", 4, 0))
	s.expect(core.Result{Outcome: core.AtLimit, Taken: 4, Limit: 2, ResetAfter: time.Second}, s.acquire(s.permit(few.Named("heavy"), "a", 4, 100)), 100)
	s.expect(core.Result{Outcome: core.Never, Limit: 2, ResetAfter: time.Second}, s.acquire(s.permit(few.Named("heavy"), "a", 5, 100)), 100)
}

// waitingForPermits demands that whoever waits as told is admitted, and not before.
func waitingForPermits(s *permits) {
	p := permitPolicy(7, time.Second)
	rng := rand.New(rand.NewPCG(1, 0)) //nolint:gosec // the same each time
	at := int64(0)
	for i := range 200 {
		at += rng.Int64N(200_000)
		res := s.acquire(s.permit(p, fmt.Sprint(i), 1+rng.Int64N(7), at))
		if res.Outcome != core.Refused {
			continue
		}
		weight := 1 + rng.Int64N(7)
		first := s.acquire(s.permit(p, "again", weight, at))
		if first.Outcome != core.Refused {
			continue
		}
		wait := first.RetryAfter.Microseconds()
		require.Equal(s, core.Refused, s.acquire(s.permit(p, "again", weight, at+wait-1)).Outcome)
		require.True(s, s.acquire(s.permit(p, "again", weight, at+wait)).Allowed())
		at += wait
	}
}

func permitsApart(s *permits) {
	one := permitPolicy(1, time.Second)
	require.True(s, s.acquire(s.permit(one, "a", 1, 0)).Allowed())
	require.True(s, s.acquire(s.permit(one.Named("other"), "a", 1, 0)).Allowed())
	other := s.permit(one, "a", 1, 0)
	other.Key += "2"
	require.True(s, s.acquire(other).Allowed())
	s.release(other)
	require.Equal(s, core.Refused, s.acquire(s.permit(one, "b", 1, 0)).Outcome)
	for _, id := range []string{"a:b", "\u00e4 b", strings.Repeat("x", 128), "1", "("} {
		x := s.permit(one, id, 1, 0)
		x.Key += id
		require.True(s, s.acquire(x).Allowed(), "%q", id)
		require.Empty(s, s.renew(x))
		s.release(x)
		require.True(s, s.acquire(s.permitLike(x, "next")).Allowed(), "%q", id)
	}
}

func (*permits) permitLike(p core.Permit, id string) core.Permit { p.ID = id; return p }

func permitMistakes(s *permits) {
	p := permitPolicy(1, time.Second)
	good := s.permit(p, "a", 1, 0)
	for name, change := range map[string]func(*core.Permit){
		"no policy":         func(p *core.Permit) { p.Policy = core.Policy{} },
		"no permits":        func(p *core.Permit) { p.Policy = core.MustParse("permits: 1/1s") },
		"no key":            func(p *core.Permit) { p.Key = "" },
		"no id":             func(p *core.Permit) { p.ID = "" },
		"an id with #":      func(p *core.Permit) { p.ID = "a#1" },
		"a long id":         func(p *core.Permit) { p.ID = strings.Repeat("x", 129) },
		"an id that breaks": func(p *core.Permit) { p.ID = "a\n" },
		"less than nothing": func(p *core.Permit) { p.Weight = -1 },
		"before the epoch":  func(p *core.Permit) { p.Now = -1 },
		"too late":          func(p *core.Permit) { p.Now = 1<<52 + 1 },
	} {
		bad := good
		change(&bad)
		res, err := s.store.Acquire(s.Context(), bad)
		require.Error(s, err, name)
		require.Zero(s, res, name)
		lost, err := s.store.Renew(s.Context(), []core.Permit{good, bad})
		require.Error(s, err, name)
		require.Empty(s, lost, name)
		require.Error(s, s.store.Release(s.Context(), bad), name)
	}
	require.True(s, s.acquire(s.permit(p, "b", 1, 0)).Allowed(), "a mistake changes nothing")
}

func permitCallerLeft(s *permits) {
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	p := permitPolicy(1, time.Second)
	a := s.permit(p, "a", 1, 0)
	_, err := s.store.Acquire(ctx, a)
	require.ErrorIs(s, err, context.Canceled)
	require.True(s, s.acquire(s.permit(p, "b", 1, 0)).Allowed(), "who has left takes nothing")
	_, err = s.store.Renew(ctx, []core.Permit{a})
	require.ErrorIs(s, err, context.Canceled)
	require.ErrorIs(s, s.store.Release(ctx, s.permit(p, "b", 1, 0)), context.Canceled)
	require.Equal(s, core.Refused, s.acquire(a).Outcome)
}

// permitsByStoreClock looks at the present, which tests with a forced clock do not.
func permitsByStoreClock(s *permits) {
	p := permitPolicy(1, time.Hour)
	a := core.Permit{Policy: p, Key: s.key, ID: "a"}
	res := s.acquire(a)
	require.Equal(s, core.AtLimit, res.Outcome)
	require.WithinDuration(s, time.Now(), time.UnixMicro(res.At), 10*time.Second)
	b := a
	b.ID = "b"
	res = s.acquire(b)
	require.Equal(s, core.Refused, res.Outcome)
	require.InDelta(s, time.Hour, res.RetryAfter, float64(10*time.Second))
	require.Empty(s, s.renew(a))
	s.release(a)
	require.Equal(s, core.AtLimit, s.acquire(b).Outcome)
	s.release(b)
}

// manyPermits acquires from many goroutines.
func manyPermits(s *permits) {
	const n, callers, rounds = 7, 32, 20
	p := permitPolicy(n, time.Hour)
	var held, most atomic.Int64
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for r := range rounds {
				x := core.Permit{Policy: p, Key: s.key, ID: fmt.Sprint(c, "-", r)}
				res, err := s.store.Acquire(s.Context(), x)
				if !assert.NoError(s, err) || !res.Allowed() {
					continue
				}
				now := held.Add(1)
				for raised := false; !raised; {
					m := most.Load()
					raised = now <= m || most.CompareAndSwap(m, now)
				}
				held.Add(-1)
				assert.NoError(s, s.store.Release(s.Context(), x))
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(s, most.Load(), int64(n))
	require.EqualValues(s, n-1, s.acquire(core.Permit{Policy: p, Key: s.key, ID: "last"}).Remaining, "all were given back")
	s.release(core.Permit{Policy: p, Key: s.key, ID: "last"})
}

// ComparePermits runs the same random operations against two stores under one forced
// clock and fails at the first difference in any field of a Result, in what is lost, or
// in whether there was an error. Weights, the number of permits and leases change, and
// the clock steps in both directions. The same seed gives the same operations.
func ComparePermits(t testing.TB, a, b core.PermitStore, seed uint64, operations int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // what is wanted is the same numbers for the same seed
	prefix, now, hint := crand.Text(), int64(Epoch), int64(0)
	var history []string
	policies := make([]core.Policy, 12)
	for i := range policies {
		policies[i] = permitPolicy(pick(rng, 1, 1, 2, 3, 5, 20, 1+rng.Int64N(100)),
			pick(rng, core.MinLease, time.Second, time.Second, 7*time.Second+3*us, core.MaxLease)).Named(fmt.Sprint("compare", i%4))
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
			what = fmt.Sprintf("release %v %s %s", p.Policy, p.Key, p.ID)
			erra, errb = a.Release(t.Context(), p), b.Release(t.Context(), p)
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
