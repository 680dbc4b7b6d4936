package storetest

import (
	crand "crypto/rand"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

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
		{"changed epoch", permitEpochs},
		{"waiting for RetryAfter admits", waitingForPermits},
		{"keys and policies apart", permitsApart},
		{"mistakes", permitMistakes},
		{"who has left", permitCallerLeft},
		{"by the store's clock", permitsByStoreClock},
		{"many at once", manyPermits},
		{"many in a batch", permitBatch},
		{"shows its permits", permitState},
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
	p, err := core.NewPolicy("permits", core.PolicyOptions{}, core.Limit{Algorithm: core.Concurrent, Burst: n, Lease: lease})
	if err != nil {
		panic(err)
	}
	return p
}

// inEpoch is p in another epoch.
func inEpoch(p core.Policy, epoch int) core.Policy {
	o := p.Options()
	o.Epoch = epoch
	p, err := core.NewPolicy(p.Name(), o, p.Limits()...)
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
	require.NoError(s, s.store.Release(s.Context(), []core.Permit{p}))
}

// renew returns which ids are lost.
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
	want.SetEach(0, core.LimitResult{
		Remaining: want.Remaining, RetryAfter: want.RetryAfter, ResetAfter: want.ResetAfter,
		Refused: !want.Allowed(), Never: want.Outcome == core.Never,
	})
	require.True(s, want.Equal(got), "want %+v, got %+v", want, got)
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

// waitingForPermits demands that a caller that waits for RetryAfter is admitted, and not before.
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

	most := permitPolicy(10_000, time.Second).Named("most")
	const heavy = core.MaxPermitWeight
	s.expect(core.Result{Outcome: core.Never, Limit: 10_000, Remaining: 10_000}, s.acquire(s.permit(most, "a", heavy+1, 0)), 0)
	s.expect(core.Result{Outcome: core.Admitted, Taken: heavy, Limit: 10_000, Remaining: 10_000 - heavy, ResetAfter: time.Second}, s.acquire(s.permit(most, "a", heavy, 0)), 0)
	s.release(s.permit(most, "a", 1, 0))
	s.expect(core.Result{Outcome: core.Admitted, Taken: 1, Limit: 10_000, Remaining: 10_000 - 1, ResetAfter: time.Second}, s.acquire(s.permit(most, "b", 1, 0)), 0)
}
