package storetest

import (
	"fmt"

	"github.com/stretchr/testify/assert"
)

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
