package storetest

import (
	"fmt"

	"github.com/stretchr/testify/assert"
)

// refundChanged: a charge weighs by the numbers under which it was made, and never more
// than there is.
func refundChanged(s *subject) {
	was := policy("10/1s")
	// Time has become dearer: what was a second is a tenth of a unit.
	res := s.admit(was, "dearer", 0, 10)
	slower := policy("10/100s")
	s.admit(slower, "dearer", 0, 9)
	s.refund(slower, "dearer", 0, res, 10, 10)
	s.admit(slower, "dearer", 0, 1)
	s.refuse(slower, "dearer", 0, 1)

	// A smaller bucket gives back all that it holds.
	smaller := policy("10/1s burst 5")
	res = s.admit(was, "smaller", 0, 10)
	s.refund(smaller, "smaller", 0, res, 10, 10)
	assert.Zero(s, s.take(smaller, "smaller", 0, 0).ResetAfter)
	res = s.admit(was, "smaller, later", 0, 10)
	s.refund(smaller, "smaller, later", second/2, res, 10, 10)
	s.remains(5, smaller, "smaller, later", second/2)
	s.refuse(smaller, "smaller, later", second/2, 6)

	// Tokens are tokens, and debts are paid with all of them.
	tokens := policy("10/10s token-bucket debt 4")
	res = s.admit(tokens, "tokens", 0, 10)
	s.admit(tokens, "tokens", 0, 4)
	fewer := policy("10/20s token-bucket burst 6 debt 4")
	s.refund(fewer, "tokens", 0, res, 10, 10)
	s.remains(6, fewer, "tokens", 0)

	// Windows give back units, as many as they have.
	for _, kind := range []string{"fixed-window", "fixed-window aligned", "sliding-window", "sliding-counter", "sliding-log"} {
		for _, to := range []string{"20/10s ", "5/10s ", "20/40s "} {
			key, more := kind+" "+to, policy(to+kind)
			res = s.admit(policy("10/10s "+kind), key, 0, 4)
			s.refund(more, key, 0, res, 4, 4)
			assert.Zero(s, s.take(more, key, 0, 0).ResetAfter, "%v", more)
		}
	}
	// A part of a window has moved with the period.
	for _, kind := range []string{"sliding-window", "sliding-counter"} {
		for _, to := range []string{"10/7s ", "10/33s "} {
			key, other := kind+" "+to, policy(to+kind)
			res = s.admit(policy("10/10s "+kind), key, 5*second, 4)
			s.refund(other, key, 6*second, res, 4, 4)
			s.remains(10, other, key, 6*second)
		}
	}

	// A receipt from another shape is of another state, where others have the units.
	two := policy("10/10s, 100/1000s")
	res = s.admit(policy("10/10s"), "shape", 0, 10)
	s.admit(two, "shape", 0, 10)
	s.refund(two, "shape", 0, res, 10, 10)
	s.refuse(two, "shape", 0, 1)
	// From the same shape each limit gets back by its own numbers.
	res = s.admit(two, "numbers", 0, 10)
	other := policy("20/10s, 50/1000s")
	s.refund(other, "numbers", 0, res, 10, 10)
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
			s.refund(p, key, -back, res, 10, 10)
			s.remains(10, p, key, -back)
		}
	}
	// A window before this one gives back what it still weighs.
	p := policy("10/10s sliding-counter")
	res := s.admit(p, "before", 9*second, 8)
	s.remains(6, p, "before", 15*second)
	s.refund(p, "before", 15*second, res, 8, 4)
	s.remains(8, p, "before", 15*second)
}
