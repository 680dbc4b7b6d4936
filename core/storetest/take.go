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
		res = s.atMost(p, key, 0, 4)
		assert.Equal(s, [2]int64{4, 6}, [2]int64{res.Taken, res.Remaining}, text)
		res = s.atMost(p, key, 0, 1<<63-1)
		assert.Equal(s, int64(6), res.Taken, text)
		s.refund(p, key, 0, res, 6)
		s.remains(6, p, key, 0)
	}
	p := policy(mix)
	res := s.atMost(p, "mix", 0, 12)
	assert.Equal(s, int64(5), res.Taken, "the least of all limits")
	assert.Equal(s, [3]int64{15, 995, 0}, remainings(res))
	assert.Equal(s, core.Refused, s.atMost(p, "mix", 0, 12).Outcome)
	s.remains(0, p, "mix", 0)
}

// A look says whether there is a unit, and takes none.
func whetherThereIs(s *subject) {
	for _, text := range append([]string{"10/10s debt 5", "10/10s token-bucket debt 5", "10/10s; wait 1m", "10/10s token-bucket; wait 1m"}, tens()...) {
		p := policy(text)
		free := s.atMost(p, text, 0, 0)
		assert.Equal(s, core.Admitted, free.Outcome, text)
		assert.Equal(s, [2]int64{0, 10}, [2]int64{free.Taken, free.Remaining}, text)
		s.admit(p, text, 0, 9)
		for range 3 {
			last := s.atMost(p, text, 0, 0)
			assert.Equal(s, core.Admitted, last.Outcome, text)
			assert.Equal(s, [2]int64{0, 1}, [2]int64{last.Taken, last.Remaining}, text)
		}
		s.admit(p, text, 0, 1)
		none := s.atMost(p, text, 0, 0)
		assert.Equal(s, core.Refused, none.Outcome, "%s: debt is left aside", text)
		retry := none.RetryAfter.Microseconds()
		assert.Equal(s, s.atMost(p, text, 0, 1).RetryAfter, none.RetryAfter, "%s: as if it were to be taken", text)
		assert.Equal(s, core.Refused, s.atMost(p, text, retry-1, 0).Outcome, text)
		assert.Equal(s, core.Admitted, s.atMost(p, text, retry, 0).Outcome, text)
	}
	p := policy(mix)
	s.admit(p, "mix", 0, 5)
	res := s.atMost(p, "mix", 0, 0)
	assert.Equal(s, core.Refused, res.Outcome, "no unit of one limit")
	assert.Equal(s, [3]int64{15, 995, 0}, remainings(res))
}

// What was used already is charged as far as debt goes, also to a key that is in debt.
func afterwards(s *subject) {
	for _, text := range []string{"10/10s debt 5", "10/10s token-bucket debt 5", "3/1s burst 10 debt 5", "10/10s debt 5; wait 1m", "10/10s token-bucket debt 5; wait 1m"} {
		p := policy(text)
		s.admit(p, text, 0, 8)
		assert.Equal(s, [2]int64{4, 0}, taken(s.afterwards(p, text, 0, 4)), "%s: two that there are, and two borrowed", text)
		s.refuse(p, text, 0, 1)
		second := s.afterwards(p, text, 0, 2)
		assert.Equal(s, [2]int64{2, 0}, taken(second), "%s: to who is in debt already", text)
		last := s.afterwards(p, text, 0, 9)
		assert.Equal(s, [2]int64{1, 0}, taken(last), "%s: what debt can still bear", text)
		assert.Positive(s, last.Delay, text)
		none := s.afterwards(p, text, 0, 9)
		assert.Equal(s, core.Refused, none.Outcome, text)
		assert.Zero(s, none.Taken, text)
		assert.Equal(s, core.Refused, s.afterwards(p, text, 0, 0).Outcome, "%s: a look", text)
		s.refund(p, text, 0, last, 1)
		assert.Equal(s, int64(1), s.afterwards(p, text, 0, 9).Taken, "%s: what was given back", text)
		retry := none.RetryAfter.Microseconds()
		require.Positive(s, retry, text)
		assert.Equal(s, time.Microsecond, s.afterwards(p, text, retry-1, 9).RetryAfter, text)
		assert.Positive(s, s.afterwards(p, text, retry, 1).Taken, text)

		key := text + " all"
		assert.Equal(s, int64(15), s.afterwards(p, key, 0, 1<<63-1).Taken, text)
		assert.Equal(s, core.Refused, s.afterwards(p, key, 0, 1).Outcome, text)
	}
	for _, text := range append([]string{"10/10s; wait 1m", "10/10s token-bucket; wait 1m"}, tens()...) {
		p := policy(text)
		s.admit(p, text, 0, 7)
		assert.Equal(s, int64(3), s.afterwards(p, text, 0, 5).Taken, "%s: what is left, without debt", text)
		assert.Equal(s, core.Refused, s.afterwards(p, text, 0, 5).Outcome, text)
	}
	p := policy("10/10s debt 5, 12/1m fixed-window")
	assert.Equal(s, int64(12), s.afterwards(p, "two", 0, 20).Taken, "the least of all limits")
	p = policy("10/10s debt 5, 1000/1m debt 900")
	s.admit(p, "both", 0, 15)
	assert.Equal(s, core.Refused, s.afterwards(p, "both", 0, 1).Outcome)
	res := s.afterwards(p, "both", 0, 1)
	assert.Equal(s, [2]bool{true, false}, [2]bool{res.Each(0).Refused, res.Each(1).Refused}, "only one of them can bear no more")
}

func taken(r core.Result) [2]int64 { return [2]int64{r.Taken, r.Remaining} }

func exactRetry(s *subject) {
	for _, text := range append(withOthers([]string{
		"3/1s", "7/1m burst 3", "1000003/1h burst 2", "1/1d", "2147483648/366d burst 1", "3/1s debt 2",
		"3/1s token-bucket burst 7", "1000003/1h token-bucket burst 2", "2147483648/366d token-bucket burst 1", "7/1m leaky-bucket burst 3",
		"3/1s fixed-window", "7/1m fixed-window aligned", "4294967296/366d fixed-window", "2/1mo fixed-window calendar Asia/Kolkata",
		"3/1s sliding-window", "7/10s sliding-window buckets 7", "2147483648/366d sliding-window buckets 60",
		"3/1s sliding-counter", "999983/1d sliding-counter", "2147483648/366d sliding-counter", "1000/1s sliding-log", "3/366d sliding-log",
	}, "3/1s", "7/1m", "1000/1s", "999983/1d", "2147483648/366d"), tens()...) {
		p := policy(text)
		burst := p.Limits()[0].Burst
		for i := range min(burst, 10) {
			if rest := burst - i; rest > 1 && i == 9 {
				s.admit(p, text, 0, rest)
			} else {
				s.admit(p, text, 0, 1)
			}
		}
		if debt := p.Limits()[0].Debt; debt > 0 {
			s.admit(p, text, 0, debt)
		}
		retry := s.refuse(p, text, 0, 1).RetryAfter.Microseconds()
		require.Positive(s, retry, text)
		early := s.refuse(p, text, retry-1, 1)
		assert.Equal(s, time.Microsecond, early.RetryAfter, "%s: 1 us too early", text)
		s.admit(p, text, retry, 1)
	}
}

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

func invariants(s *subject) {
	for _, text := range withOthers([]string{
		"100/1s", "3/1s burst 7", "20/1s, 50/1m", "1/1ms burst 9", "100/100ms token-bucket burst 70", "100/1s leaky-bucket", "100/100ms fixed-window",
		"100/50ms fixed-window aligned", "100/100ms sliding-window buckets 7", "100/70ms sliding-counter", "100/100ms sliding-log", mix,
	}, "100/100ms") {
		p := policy(text)
		limits := p.Limits()
		for at := int64(0); at < 300_000; at += 997 {
			cost := at % 5
			before := s.take(p, text, at, 0)
			after := s.take(p, text, at, cost)
			used := cost
			if !after.Allowed() {
				used = 0
			}
			for i, l := range limits {
				assert.GreaterOrEqual(s, after.Each(i).Remaining, int64(0), text)
				assert.LessOrEqual(s, after.Each(i).Remaining, l.Burst, text)
				assert.Equal(s, before.Each(i).Remaining-used, after.Each(i).Remaining, "remaining before minus after is the cost")
			}
			assert.LessOrEqual(s, after.Remaining, after.Limit)
			assert.Equal(s, after.Outcome == core.Refused, after.RetryAfter > 0)
		}
	}
}
