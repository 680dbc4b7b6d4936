package storetest

import (
	"time"

	"github.com/stretchr/testify/assert"
)

func changedNumbers(s *subject) {
	before, more, less := policy("10/10s"), policy("20/10s"), policy("2/10s")
	s.admit(before, "a", 0, 4) // unused again after 4 s
	s.remains(12, more, "a", 0)
	s.remains(1, less, "a", 0)
	s.remains(10, before, "a", 4*second)
	// A time beyond the new maximum is brought to it, and stays there.
	short := policy("2/1s")
	s.admit(before, "b", 0, 10)
	res := s.refuse(short, "b", 0, 1)
	assert.Equal(s, 500*time.Millisecond, res.RetryAfter)
	assert.Equal(s, time.Second, res.ResetAfter)
	s.admit(short, "b", second/2, 1)
	s.remains(9, before, "b", second/2) // what was clamped does not come back
	// A count stays a count, and is brought to the new maximum.
	for _, kind := range []string{
		"fixed-window", "fixed-window aligned", "sliding-window", "sliding-window buckets 60", "sliding-counter", "sliding-log",
	} {
		s.admit(policy("10/10s "+kind), kind, 0, 4)
		s.remains(16, policy("20/10s "+kind), kind, 0)
		s.remains(36, policy("40/20s "+kind), kind, 0)
		s.remains(0, policy("2/10s "+kind), kind, 0)
		s.remains(8, policy("10/10s "+kind), kind, 0)
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
	// Another zone, or another unit, brings the end of the window to its own.
	s.admit(policy("10/1d fixed-window calendar UTC"), "zone", 0, 4) // at 8 in the morning
	res = s.take(policy("10/1d fixed-window calendar Asia/Kolkata"), "zone", 0, 0)
	assert.Equal(s, int64(6), res.Remaining)
	assert.Equal(s, 10*time.Hour+30*time.Minute, res.ResetAfter)
	assert.Equal(s, time.Minute, s.take(policy("10/1m fixed-window calendar UTC"), "zone", 0, 0).ResetAfter)
	// A remainder in parts of another rate counts as less than a microsecond.
	s.admit(policy("7/1s"), "c", 0, 1) // 142857 1/7 us
	assert.Equal(s, 142858*time.Microsecond, s.take(policy("1/1s"), "c", 0, 0).ResetAfter)
}
