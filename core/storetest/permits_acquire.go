package storetest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

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

// waitingForPermits demands that a caller that waits as told is admitted, and not before.
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
