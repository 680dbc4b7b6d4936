package storetest

import (
	"math"
	"time"

	"github.com/weir-go/weir/core"
)

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
