package storetest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

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

// permitEpochs demands that another epoch has all permits, and that what is held from before goes on beside it.
func permitEpochs(s *permits) {
	before := permitPolicy(2, time.Second)
	after := inEpoch(before, 1)
	require.True(s, s.acquire(s.permit(before, "a", 2, 0)).Allowed())
	require.True(s, s.acquire(s.permit(after, "b", 2, 0)).Allowed(), "a new epoch has all permits")
	require.False(s, s.acquire(s.permit(after, "c", 1, 0)).Allowed())
	require.False(s, s.acquire(s.permit(inEpoch(before, 0), "c", 1, 0)).Allowed(), "epoch 0 is that of a policy without one")
	require.Empty(s, s.renew(s.permit(before, "a", 2, 500_000), s.permit(after, "b", 2, 500_000)), "both go on")
	s.release(s.permit(after, "a", 2, 500_000)) // of an id that this epoch does not know
	require.False(s, s.acquire(s.permit(before, "d", 1, second)).Allowed())
	s.release(s.permit(before, "a", 2, second))
	require.True(s, s.acquire(s.permit(before, "d", 1, second)).Allowed())
	require.False(s, s.acquire(s.permit(after, "d", 1, second)).Allowed())
	require.True(s, s.acquire(s.permit(inEpoch(before, 2), "d", 2, second)).Allowed())
}
