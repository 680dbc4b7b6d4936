package storetest

import (
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/core"
)

func allOrNone(s *subject) {
	p := policy("2/1s, 3/1h, 100/1d")
	first := s.admit(p, "a", 0, 1)
	assert.Equal(s, [3]int64{1, 2, 99}, [3]int64{first.Each(0).Remaining, first.Each(1).Remaining, first.Each(2).Remaining})
	assert.Equal(s, int64(2), first.Limit)
	assert.Equal(s, int64(1), first.Remaining)
	assert.Equal(s, core.AtLimit, s.admit(p, "a", 0, 1).Outcome)
	for range 5 { // refused by the first, charged to none
		res := s.refuse(p, "a", 0, 1)
		assert.Equal(s, [3]bool{true, false, false}, [3]bool{res.Each(0).Refused, res.Each(1).Refused, res.Each(2).Refused})
		assert.Equal(s, [3]int64{0, 1, 98}, [3]int64{res.Each(0).Remaining, res.Each(1).Remaining, res.Each(2).Remaining})
		assert.Equal(s, 500*time.Millisecond, res.RetryAfter)
	}
	third := s.admit(p, "a", second/2, 1)
	assert.Equal(s, int64(3), third.Limit, "with as little remaining, the longer reset is tighter")
	res := s.refuse(p, "a", second/2, 1)
	assert.Equal(s, core.Refused, res.Outcome)
	assert.Equal(s, 1200*time.Second-500*time.Millisecond, res.RetryAfter, "the longest wait of those that refuse")
	assert.Equal(s, core.Never, s.refuse(p, "a", second/2, 3).Outcome, "never for one is never for all")
	s.admit(p, "a", 1200*second, 1)

	p = policy(mix)
	for range 5 {
		s.admit(p, "mix", 0, 1)
	}
	for range 5 {
		res := s.refuse(p, "mix", 0, 1)
		assert.Equal(s, [3]bool{false, false, true}, [3]bool{res.Each(0).Refused, res.Each(1).Refused, res.Each(2).Refused})
		assert.Equal(s, [3]int64{15, 995, 0}, remainings(res))
		assert.Equal(s, time.Minute, res.RetryAfter)
		assert.Equal(s, int64(5), res.Limit)
	}
	res = s.refuse(p, "mix", 0, 6)
	assert.Equal(s, core.Never, res.Outcome)
	s.refuse(p, "mix", 60*second-1, 1)
	assert.Equal(s, [3]int64{19, 994, 4}, remainings(s.admit(p, "mix", 60*second, 1)))
}
