package storetest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

func refund(s *subject) {
	var res core.Result
	for _, text := range tens() {
		p := policy(text)
		res = s.admit(p, text, 0, 10)
		s.refund(p, text, 0, res, 0)
		s.remains(0, p, text, 0)
		if queues(s, p) {
			s.refund(p, text, 0, res, 4) // a part of the line cannot leave
			s.remains(0, p, text, 0)
			s.refund(p, text, 0, res, 10)
		} else {
			s.refund(p, text, 0, res, 4)
			s.remains(4, p, text, 0)
			s.refund(p, text, 0, res, 6)
		}
		s.remains(10, p, text, 0)
		assert.Zero(s, s.take(p, text, 0, 0).ResetAfter, "%s: it is as if unused", text)

		s.refund(p, text, 0, res, 10)
		s.admit(p, text, 0, 10)
		s.refuse(p, text, 0, 1) // a refund never becomes a credit
		s.refund(p, text+" nobody", 0, res, 10)
		s.admit(p, text+" nobody", 0, 10)
		s.refuse(p, text+" nobody", 0, 1)

		// What was counted later stays.
		key := text + " later"
		res = s.admit(p, key, 0, 4)
		s.admit(p, key, 1, 6)
		s.refund(p, key, 1, res, 4)
		assert.LessOrEqual(s, s.take(p, key, 1, 0).Remaining, int64(4), text)
	}

	// Of 3/1s a unit drains in 333333 1/3 us: what is given back is exact.
	three := policy("3/1s")
	res = s.admit(three, "b", 0, 1)
	s.refund(three, "b", 333333, res, 1)
	assert.Zero(s, s.take(three, "b", 333333, 0).ResetAfter)
	res = s.admit(three, "c", 0, 1)
	s.admit(three, "c", 0, 1)
	s.refund(three, "c", 0, res, 1)
	assert.Equal(s, 333334*time.Microsecond, s.take(three, "c", 0, 0).ResetAfter)
	s.refund(three, "c", 333334, res, 1) // weighs nothing any more
	assert.Zero(s, s.take(three, "c", 333334, 0).ResetAfter)

	// Each limit gets back what it still counts.
	two := policy("10/10s, 100/1000s")
	res = s.admit(two, "d", 0, 10)
	s.refund(two, "d", 5*second, res, 10)
	after := s.take(two, "d", 5*second, 0)
	assert.Equal(s, [2]int64{10, 100}, [2]int64{after.Each(0).Remaining, after.Each(1).Remaining})
	p := policy(mix)
	res = s.admit(p, "e", 0, 4)
	s.refund(p, "e", 100_000, res, 3) // half of the four have drained from the meter
	assert.Equal(s, [3]int64{19, 999, 4}, remainings(s.take(p, "e", 100_000, 0)))
}

// refundBound: giving back "at most what is in use" would admit 20 at one instant.
func refundBound(s *subject) {
	for _, text := range tens() {
		p := policy(text)
		first := s.admit(p, text, 0, 10)
		later := first.ResetAfter.Microseconds()
		s.admit(p, text, later, 10)
		s.refund(p, text, later, first, 10)
		s.refuse(p, text, later, 1)
	}
	p := policy("10/10s")
	first := s.admit(p, "a", 0, 10)
	s.admit(p, "a", 10*second, 10)
	s.refund(p, "a", 10*second, first, 10)
	s.refuse(p, "a", 10*second, 1)

	first = s.admit(p, "b", 0, 10)
	s.admit(p, "b", 4*second, 4)
	s.refund(p, "b", 4*second, first, 10)
	s.remains(6, p, "b", 4*second)
}

// refundWindow: what is given back while a window lasts is as if it had not been taken.
func refundWindow(s *subject) {
	for _, text := range tens() {
		p := policy(text)
		if !returnsByWindow(s, p) {
			continue
		}
		given := map[int64]core.Result{}
		for at := int64(0); at < 8*second; at += second {
			res := s.admit(p, text, at, 1)
			if i := at / second; i == 2 || i == 3 || i == 5 {
				given[i] = res
			} else {
				s.admit(p, text+" fewer", at, 1)
			}
		}
		for _, i := range []int64{3, 5, 2} {
			s.refund(p, text, 8*second, given[i], 1)
		}
		for at := int64(8 * second); at < 30*second; at += second / 2 {
			want, got := s.take(p, text+" fewer", at, 0), s.take(p, text, at, 0)
			assert.Equal(s, want, got, "%s at %d", text, at)
		}
	}
}

// credit gives back what is in use, whoever has taken it and whenever, the latest first, and nothing more.
func credit(s *subject) {
	for _, text := range tens() {
		p := policy(text)
		s.credit(p, text, 0, 5) // of nothing
		s.remains(10, p, text, 0)
		res := s.admit(p, text, 0, 10)
		s.credit(p, text, 0, 4)
		s.remains(4, p, text, 0)
		s.admit(p, text, 0, 4)
		s.refuse(p, text, 0, 1)
		s.credit(p, text, 0, 0)
		s.refuse(p, text, 0, 1)
		s.credit(p, text, 0, math.MaxInt64)
		s.remains(10, p, text, 0)
		assert.Zero(s, s.take(p, text, 0, 0).ResetAfter, "%s: it is as if unused", text)
		s.refund(p, text, 0, res, 10) // whose units are back already
		s.admit(p, text, 0, 10)
		s.refuse(p, text, 0, 1)

		if !returnsByWindow(s, p) {
			continue
		}
		for at := int64(0); at < 8*second; at += second {
			s.admit(p, text+" all", at, 1)
			if at < 3*second {
				s.admit(p, text+" first", at, 1)
			}
		}
		s.credit(p, text+" all", 8*second, 5)
		for at := int64(8 * second); at < 30*second; at += second / 2 {
			want, got := s.take(p, text+" first", at, 0), s.take(p, text+" all", at, 0)
			assert.Equal(s, want, got, "%s at %d", text, at)
		}
	}

	// What is owed is forgiven first, and what was reserved counts as in use.
	for _, text := range []string{"10/10s debt 5", "10/10s token-bucket debt 5"} {
		p := policy(text)
		s.afterwards(p, text, 0, 15)
		s.credit(p, text, 0, 7)
		s.remains(2, p, text, 0)
	}
	for _, text := range []string{"10/10s; wait 10s", "10/10s token-bucket; wait 10s"} {
		p := policy(text)
		s.exhaust(p, text, 10*time.Second)
		s.credit(p, text, 0, 13)
		s.remains(3, p, text, 0)
		s.credit(p, text, 0, math.MaxInt64)
		s.remains(10, p, text, 0)
	}

	// The units that may be in use at all need not fit 64 bits.
	for _, text := range []string{"2147483647/1ms burst 2147483647; wait 366d", "1/366d burst 71", "2147483647/1ms leaky-bucket"} {
		p := policy(text)
		s.admit(p, text, 0, 3)
		s.credit(p, text, 0, 1)
		s.remains(p.Limits()[0].Burst-2, p, text, 0)
		s.credit(p, text, 0, math.MaxInt64)
		s.remains(p.Limits()[0].Burst, p, text, 0)
	}

	// Of 3/1s a unit drains in 333333 1/3 us.
	three := policy("3/1s")
	s.admit(three, "a", 0, 3)
	s.credit(three, "a", 0, 1)
	assert.Equal(s, 666667*time.Microsecond, s.take(three, "a", 0, 0).ResetAfter)

	// What the window before has of a sliding-counter gives back what it still weighs.
	counter := policy("10/10s sliding-counter")
	s.admit(counter, "a", 0, 8)
	s.admit(counter, "a", 15*second, 2)
	s.remains(4, counter, "a", 15*second)
	s.credit(counter, "a", 15*second, 6)
	s.remains(8, counter, "a", 15*second)

	// Each limit gets back what it has in use.
	p := policy(mix)
	s.admit(p, "b", 0, 4)
	s.credit(p, "b", 100_000, 3) // two of the four have drained from the meter
	assert.Equal(s, [3]int64{20, 999, 4}, remainings(s.take(p, "b", 100_000, 0)))

	// Other numbers that share the state are credited, too.
	s.admit(policy("10/10s fixed-window"), "c", 0, 10)
	s.credit(policy("20/10s fixed-window"), "c", 0, 3)
	s.remains(3, policy("10/10s fixed-window"), "c", 0)
}

// creditBound demands that no more is admitted than the limit allows and the credits give back.
func creditBound(s *subject) {
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same each time
	for _, text := range tens() {
		p := policy(text)
		taken, credits, now, most := int64(0), int64(0), int64(0), int64(10)
		for range 200 {
			if rng.IntN(3) == 0 {
				now += rng.Int64N(5 * second)
				most = 20 + now/second // a full burst or window at each end
			}
			taken += s.atMost(p, text, now, 1+rng.Int64N(12)).Taken
			if rng.IntN(3) == 0 {
				n := rng.Int64N(6)
				s.credit(p, text, now, n)
				credits += n
			}
			require.LessOrEqual(s, taken, most+credits, "%s at %d", text, now)
		}
		require.Greater(s, taken, credits, text)
	}
}

// refundChanged: a charge weighs by the numbers under which it was made, and never more
// than there is.
func refundChanged(s *subject) {
	was := policy("10/1s")
	// A unit has become dearer: what weighed as much as four is as much as two.
	res := s.admit(was, "dearer", 0, 4)
	slower := policy("5/1s")
	s.admit(slower, "dearer", 0, 3)
	s.refund(slower, "dearer", 0, res, 4)
	s.remains(2, slower, "dearer", 0)
	s.refund(slower, "dearer", 0, s.admit(slower, "dearer", 0, 2), 1)
	s.remains(1, slower, "dearer", 0)

	// A smaller bucket is another one, and gets nothing of what was taken from the larger.
	smaller := policy("10/1s burst 5")
	res = s.admit(was, "smaller", 0, 10)
	s.admit(smaller, "smaller", 0, 5)
	s.refund(smaller, "smaller", 0, res, 10)
	s.remains(0, smaller, "smaller", 0)
	s.refund(was, "smaller", 0, res, 10)
	s.remains(10, was, "smaller", 0)

	// A window gives back all that a higher limit has counted in it.
	for _, kind := range []string{"fixed-window", "sliding-window", "sliding-counter", "sliding-log"} {
		res = s.admit(policy("10/10s "+kind), "lowered "+kind, 0, 10)
		s.refund(policy("2/10s "+kind), "lowered "+kind, 0, res, 9)
		s.remains(1, policy("2/10s "+kind), "lowered "+kind, 0)
	}

	// Tokens are tokens, and debts are paid with all of them.
	tokens := policy("10/10s token-bucket debt 4")
	res = s.admit(tokens, "tokens", 0, 10)
	s.admit(tokens, "tokens", 0, 4)
	fewer := policy("10/20s token-bucket burst 6 debt 4")
	s.refund(fewer, "tokens", 0, res, 10)
	s.remains(6, fewer, "tokens", 0)

	// Windows give back units, as many as they have.
	for _, kind := range []string{"fixed-window", "fixed-window aligned", "sliding-window", "sliding-counter", "sliding-log"} {
		for _, to := range []string{"20/10s ", "5/10s ", "20/40s "} {
			key, more := kind+" "+to, policy(to+kind)
			res = s.admit(policy("10/10s "+kind), key, 0, 4)
			s.refund(more, key, 0, res, 4)
			assert.Zero(s, s.take(more, key, 0, 0).ResetAfter, "%v", more)
		}
	}
	// A part of a window has moved with the period.
	for _, kind := range []string{"sliding-window", "sliding-counter"} {
		for _, to := range []string{"10/7s ", "10/33s "} {
			key, other := kind+" "+to, policy(to+kind)
			res = s.admit(policy("10/10s "+kind), key, 5*second, 4)
			s.refund(other, key, 6*second, res, 4)
			s.remains(10, other, key, 6*second)
		}
	}

	// A receipt from another shape is of another state, where others have the units.
	two := policy("10/10s, 100/1000s")
	res = s.admit(policy("10/10s"), "shape", 0, 10)
	s.admit(two, "shape", 0, 10)
	s.refund(two, "shape", 0, res, 10)
	s.refuse(two, "shape", 0, 1)
	// From the same shape each limit gets back by its own numbers.
	res = s.admit(two, "numbers", 0, 10)
	other := policy("20/10s, 50/1000s")
	s.refund(other, "numbers", 0, res, 10)
	after := s.take(other, "numbers", 0, 0)
	assert.Equal(s, [2]int64{20, 50}, [2]int64{after.Each(0).Remaining, after.Each(1).Remaining})
}

// refundSteppedBack: what a step back of the clock has moved still comes back.
func refundSteppedBack(s *subject) {
	for _, a := range Algorithms() {
		p := policy("10/10s " + a.String())
		if queues(s, p) {
			continue // a full queue has been cut, and nobody knows who is the last in it
		}
		for _, back := range []int64{1, second} {
			key := fmt.Sprint(a, back)
			res := s.admit(p, key, 0, 10)
			s.refuse(p, key, -back, 10)
			s.refund(p, key, -back, res, 10)
			s.remains(10, p, key, -back)
		}
	}
	// A window before this one gives back what it still weighs.
	p := policy("10/10s sliding-counter")
	res := s.admit(p, "before", 9*second, 8)
	s.remains(6, p, "before", 15*second)
	s.refund(p, "before", 15*second, res, 4)
	s.remains(8, p, "before", 15*second)
}
