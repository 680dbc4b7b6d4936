package storetest

import (
	"time"

	"github.com/stretchr/testify/assert"

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
