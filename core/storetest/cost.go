package storetest

import (
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

func cost(s *subject) {
	for _, text := range tens() {
		p := policy(text)
		s.admit(p, text, 0, 6)
		res := s.refuse(p, text, 0, 5)
		assert.Equal(s, int64(4), res.Remaining, "%s: a refusal charges nothing", text)
		assert.Equal(s, core.AtLimit, s.admit(p, text, 0, 4).Outcome)
		res = s.refuse(p, text, 0, 3)
		s.refuse(p, text, res.RetryAfter.Microseconds()-1, 3)
		s.admit(p, text, res.RetryAfter.Microseconds(), 3)
	}
}

func peek(s *subject) {
	for _, text := range tens() {
		p := policy(text)
		s.remains(10, p, text, 0)
		full := s.admit(p, text, 0, 10)
		for range 20 {
			s.remains(0, p, text, 0)
		}
		// A peek that finds the key unused must not say so to the store: if the
		// clock steps back, the charge is still there.
		s.remains(10, p, text, full.ResetAfter.Microseconds())
		s.remains(0, p, text, 0)
	}
	p := policy("10/10s")
	s.admit(p, "drains", 0, 10)
	s.remains(1, p, "drains", 1*second)
	s.remains(10, p, "drains", 20*second)
	s.remains(3, p, "drains", 3*second)
}

func never(s *subject) {
	for _, text := range append([]string{"8/10s burst 6 debt 4", "8/10s token-bucket burst 6 debt 4"}, tens()...) {
		p := policy(text)
		free := p.Limits()[0].Burst
		for _, cost := range []int64{11, 1 << 31, 1<<63 - 1} {
			res := s.refuse(p, text, 0, cost)
			assert.Equal(s, core.Never, res.Outcome, text)
			assert.Zero(s, res.RetryAfter, "%s: waiting cannot help", text)
			assert.True(s, res.Each(0).Never, text)
			s.remains(free, p, text, 0)
		}
		s.admit(p, text, 0, 10)
	}
}

func whatThereIs(s *subject) {
	for _, text := range append([]string{"10/10s debt 5", "10/10s token-bucket debt 5", "10/10s; wait 1m", "10/10s token-bucket; wait 1m"}, tens()...) {
		p := policy(text)
		s.admit(p, text, 0, 7)
		res := s.atMost(p, text, 0, 5)
		assert.Equal(s, int64(3), res.Taken, text)
		assert.Equal(s, core.AtLimit, res.Outcome, text)
		assert.Zero(s, res.Remaining, text)
		if !queues(s, p) {
			assert.Zero(s, res.Delay, text)
		}
		empty := s.atMost(p, text, 0, 5)
		assert.Equal(s, core.Refused, empty.Outcome, "%s: there is nothing, and nothing is borrowed", text)
		assert.Zero(s, empty.Taken, text)
		retry := empty.RetryAfter.Microseconds()
		require.Positive(s, retry, text)
		assert.Equal(s, time.Microsecond, s.atMost(p, text, retry-1, 5).RetryAfter, text)
		assert.Positive(s, s.atMost(p, text, retry, 5).Taken, text)

		key := text + " all"
		assert.Equal(s, int64(10), s.atMost(p, key, 0, 0).Remaining, "%s: none at most is a peek", text)
		res = s.atMost(p, key, 0, 4)
		assert.Equal(s, [2]int64{4, 6}, [2]int64{res.Taken, res.Remaining}, text)
		res = s.atMost(p, key, 0, 1<<63-1)
		assert.Equal(s, int64(6), res.Taken, text)
		s.refund(p, key, 0, res, 6, 6)
		s.remains(6, p, key, 0)
	}
	p := policy(mix)
	res := s.atMost(p, "mix", 0, 12)
	assert.Equal(s, int64(5), res.Taken, "the least of all limits")
	assert.Equal(s, [3]int64{15, 995, 0}, remainings(res))
	assert.Equal(s, core.Refused, s.atMost(p, "mix", 0, 12).Outcome)
	s.remains(0, p, "mix", 0)
}
