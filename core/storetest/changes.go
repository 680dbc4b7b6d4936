package storetest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

func changedNumbers(s *subject) {
	before, more, less := policy("10/10s"), policy("20/10s"), policy("2/10s")
	s.admit(before, "a", 0, 4) // unused again after 4 s
	s.remains(12, more, "a", 0)
	s.remains(1, less, "a", 0)
	s.remains(10, before, "a", 4*second)
	// A meter whose full bucket takes another time starts afresh, and leaves alone what there was.
	for _, kind := range []string{"", " leaky-bucket"} {
		key, was := "b"+kind, policy("10/10s"+kind)
		s.admit(was, key, 0, 10)
		for _, other := range []string{"2/1s", "10/10s burst 9", "20/10s burst 21", "1/10s burst 2"} {
			p := policy(other + kind)
			s.admit(p, key, 0, p.Limits()[0].Burst)
			s.refuse(p, key, 0, 1)
		}
		s.refuse(was, key, 0, 1)
		s.refuse(was, key, second-1, 1)
		s.admit(was, key, second, 1)
	}
	s.admit(before, "debt", 0, 10)
	s.admit(policy("10/10s debt 2"), "debt", 0, 12)
	s.admit(policy("10/10s; wait 2s"), "debt", 0, 10)
	s.refuse(policy("5/10s burst 2 debt 3"), "debt", 0, 1) // the same time
	// What was reserved far ahead keeps nobody waiting under numbers that reach less far.
	slow, fast := policy("1/1d; wait 1h"), policy("10/1s burst 1; wait 1h")
	s.admit(slow, "raised", 0, 1)
	assert.Equal(s, time.Hour, s.reserve(slow, "raised", 23*hour, 1, time.Hour).Delay)
	assert.Zero(s, s.reserve(fast, "raised", 23*hour, 1, time.Hour).Delay)
	// A count stays a count, and what is more than the new maximum is as well.
	for _, kind := range []string{
		"fixed-window", "fixed-window aligned", "sliding-window", "sliding-window buckets 60", "sliding-counter", "sliding-log",
	} {
		s.admit(policy("10/10s "+kind), kind, 0, 4)
		s.remains(16, policy("20/10s "+kind), kind, 0)
		s.remains(36, policy("40/20s "+kind), kind, 0)
		s.remains(0, policy("2/10s "+kind), kind, 0)
		s.refuse(policy("2/10s "+kind), kind, 0, 1)
		s.remains(6, policy("10/10s "+kind), kind, 0)
	}
	// Whatever a state means under other numbers, what was full has no room under less.
	for _, a := range Algorithms() {
		key := "full " + a.String()
		s.admit(policy("10/10s "+a.String()), key, 0, 10)
		s.remains(0, policy("10/10s "+a.String()), key, 0)
		s.remains(0, policy("2/10s "+a.String()), key, 0)
	}
	// Tokens stay tokens.
	s.admit(policy("10/10s token-bucket"), "tokens", 0, 4)
	s.remains(6, policy("20/10s token-bucket"), "tokens", 0)
	s.remains(2, policy("2/10s token-bucket"), "tokens", 0)
	s.remains(6, policy("10/10s token-bucket"), "tokens", 0)
	s.admit(policy("2/10s token-bucket"), "tokens", 0, 1)
	s.remains(1, policy("10/10s token-bucket"), "tokens", 0)
	// Another zone, or another unit, brings the end of the window to its own.
	s.admit(policy("10/1d fixed-window calendar UTC"), "zone", 0, 4) // at 8 in the morning
	res := s.take(policy("10/1d fixed-window calendar Asia/Kolkata"), "zone", 0, 0)
	assert.Equal(s, int64(6), res.Remaining)
	assert.Equal(s, 10*time.Hour+30*time.Minute, res.ResetAfter)
	assert.Equal(s, time.Minute, s.take(policy("10/1m fixed-window calendar UTC"), "zone", 0, 0).ResetAfter)
	// Another epoch starts afresh, whatever else stays, and leaves alone what there was.
	for _, a := range Algorithms() {
		key, was := "epoch "+a.String(), policy("10/10s "+a.String())
		s.admit(was, key, 0, 10)
		for _, epoch := range []string{"; epoch 1", "; epoch 2", "; epoch 12"} {
			p := policy(was.Limits()[0].String() + epoch)
			res := s.admit(p, key, 0, 10)
			s.refuse(p, key, 0, 1)
			s.refuse(was, key, 0, 1)
			if err := s.store.Refund(s.Context(), []core.Refund{{Policy: was, Key: s.prefix + key, Receipt: res, Units: 10, Now: Epoch}}); err != nil {
				s.Errorf("a receipt of another epoch: %v", err)
			}
			s.refuse(was, key, 0, 1)
		}
		s.refuse(policy("10/10s "+a.String()+"; epoch 0"), key, 0, 1)
	}
	// A remainder in parts of another rate counts as less than a microsecond.
	s.admit(policy("7/1s"), "c", 0, 1) // 142857 1/7 us
	assert.Equal(s, 142858*time.Microsecond, s.take(policy("1/1s"), "c", 0, 0).ResetAfter)
}

// changedPeriods: every unit that was counted keeps its time, so that no stretch of the
// new period has more than there may be.
func changedPeriods(s *subject) {
	for _, kind := range []string{"sliding-window buckets 5", "sliding-window", "sliding-log"} {
		before, longer := policy("4/10s "+kind), policy("4/20s "+kind)
		s.admit(before, kind, 0, 2)
		s.admit(before, kind, 9*second, 2)
		for at := int64(9 * second); at < 20*second; at += second / 2 {
			s.refuse(longer, kind, at, 1)
		}
		s.admit(longer, kind, 24*second, 2)
		s.refuse(longer, kind, 28*second, 1)
		s.admit(longer, kind, 36*second, 2)
		// Of a shorter period the older ones are forgotten.
		shorter := policy("4/5s " + kind)
		s.remains(2, shorter, kind, 36*second)
		s.remains(4, shorter, kind, 45*second)
	}
	// Both windows of an estimate lie in this one.
	before, longer := policy("4/10s sliding-counter"), policy("4/20s sliding-counter")
	s.admit(before, "counter", 0, 2)
	s.admit(before, "counter", 15*second, 2)
	s.refuse(longer, "counter", 19*second, 1)
	s.remains(2, longer, "counter", 30*second)
}

// renamedLimits: a limit never goes on with what another one has counted.
func renamedLimits(s *subject) {
	before, after := policy("10/1s, 20/1h"), policy("1000/2h, 20/1h")
	s.admit(before, "a", 0, 10)
	s.admit(before, "a", second, 10)
	s.admit(after, "a", second, 20) // which starts afresh
	s.refuse(after, "a", second, 1)
	s.refuse(before, "a", second, 1) // and leaves alone what was there

	// Other rates keep the counts, and so does another order in the text.
	s.admit(policy("10/1h fixed-window, 100/1d fixed-window"), "b", 0, 10)
	s.refuse(policy("100/1d fixed-window, 10/1h fixed-window"), "b", 0, 1)
	raised := s.take(policy("20/1h fixed-window, 100/1d fixed-window"), "b", 0, 0)
	assert.Equal(s, [2]int64{10, 90}, [2]int64{raised.Each(0).Remaining, raised.Each(1).Remaining})

	// Where the periods are the same as well, no number is like another's.
	s.admit(policy("1/1s burst 20, 5/1s burst 5"), "c", 0, 5)
	res := s.take(policy("5/1s burst 5, 9/1s burst 20"), "c", 0, 0)
	assert.Equal(s, core.Admitted, res.Outcome)
	assert.Equal(s, [2]int64{5, 20}, [2]int64{res.Each(0).Remaining, res.Each(1).Remaining})
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
