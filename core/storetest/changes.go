package storetest

import (
	"time"

	"github.com/stretchr/testify/assert"

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
