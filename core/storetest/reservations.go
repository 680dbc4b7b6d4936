package storetest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

// Callers that reserve get their turns in the order of arrival.
func reservations(s *subject) {
	wants := map[string][]int64{ // the turns of single units after a burst of two
		"2/1s; wait 3s":                      {500000, 1000000, 1500000, 2000000, 2500000, 3000000},
		"2/1s token-bucket; wait 3s":         {1000000, 1000000, 2000000, 2000000, 3000000, 3000000},
		"2/1s debt 1; wait 3s":               {0, 500000, 1000000, 1500000, 2000000, 2500000, 3000000},
		"2/1s, 2/3s token-bucket; wait 3s":   {3000000, 3000000},
		"2/1s, 100/1d token-bucket; wait 3s": {500000, 1000000, 1500000, 2000000, 2500000, 3000000},
	}
	for _, a := range Algorithms() {
		p, err := core.Parse("2/1s " + a.String() + "; wait 3s")
		if err != nil {
			continue
		}
		if _, ok := wants[p.String()]; !ok {
			wants[p.String()] = nil
		}
	}
	for text, want := range wants {
		p := policy(text)
		assert.Zero(s, s.reserve(p, text, 0, 2, time.Minute).Delay, text)
		var turns []int64
		res := s.reserve(p, text, 0, 1, time.Minute) // no more than the policy allows
		for ; res.Allowed(); res = s.reserve(p, text, 0, 1, time.Minute) {
			require.Equal(s, int64(1), res.Taken, text)
			require.Less(s, len(turns), 100, "%s: there is no end", text)
			turns = append(turns, res.Delay.Microseconds())
		}
		if want == nil { // in order, and as far ahead as the policy allows
			require.NotEmpty(s, turns, text)
			assert.IsNonDecreasing(s, turns, text)
			assert.LessOrEqual(s, turns[len(turns)-1], int64(3*second), text)
		} else {
			assert.Equal(s, want, turns, text)
		}
		assert.Equal(s, core.Refused, res.Outcome, text)

		// After RetryAfter the same take is admitted.
		for _, ahead := range []time.Duration{0, time.Second, 2500 * time.Millisecond, time.Minute} {
			key := fmt.Sprint(text, ahead)
			s.exhaust(p, key, time.Minute)
			refused := s.reserve(p, key, 0, 1, ahead)
			require.Positive(s, refused.RetryAfter, "%s: %v ahead", text, ahead)
			early := s.reserve(p, key, refused.RetryAfter.Microseconds()-1, 1, ahead)
			assert.Equal(s, time.Microsecond, early.RetryAfter, "%s: %v ahead, 1 us too early", text, ahead)
			again := s.reserve(p, key, refused.RetryAfter.Microseconds(), 1, ahead)
			require.True(s, again.Allowed(), "%s: %v ahead", text, ahead)
			assert.Equal(s, min(ahead, 3*time.Second), again.Delay, "%s: %v ahead", text, ahead)
		}
		assert.Equal(s, core.Never, s.reserve(p, text, 0, 4, time.Minute).Outcome, text)
	}
	// The numbers of a policy hold, whatever is asked.
	p := policy("2/1s")
	s.admit(p, "none", 0, 2)
	assert.Equal(s, 500*time.Millisecond, s.reserve(p, "none", 0, 1, time.Hour).RetryAfter)
}

// A caller that leaves gives its turn back if nobody is behind, and moves nobody.
func cancelledReservations(s *subject) {
	for text, step := range map[string]int64{
		"2/1s burst 1; wait 1m":                 500000,
		"1/500ms token-bucket burst 1; wait 1m": 500000,
	} {
		p := policy(text)
		s.admit(p, text, 0, 1)
		var queue []core.Result
		for i := range int64(4) {
			queue = append(queue, s.reserve(p, text, 0, 1, time.Minute))
			require.Equal(s, (i+1)*step, queue[i].Delay.Microseconds(), text)
		}
		s.refund(p, text, 100, queue[1], 1) // two are behind
		next := s.reserve(p, text, 100, 1, time.Minute)
		assert.Equal(s, 5*step, 100+next.Delay.Microseconds(), "%s: whoever is behind keeps its turn", text)
		s.refund(p, text, 100, next, 1)
		s.refund(p, text, 100, queue[3], 1) // the last leaves, and then the one that is last now
		s.refund(p, text, 100, queue[2], 1)
		next = s.reserve(p, text, 100, 1, time.Minute)
		assert.Equal(s, 3*step, 100+next.Delay.Microseconds(), text)
	}
}

// A queue drips at its rate, and a caller that leaves it moves nobody.
func queue(s *subject) {
	p := policy("10/1s leaky-bucket burst 5")
	var line []core.Result
	for i := range int64(5) {
		line = append(line, s.admit(p, "a", 0, 1))
		assert.Equal(s, i*100_000, line[i].Delay.Microseconds())
	}
	s.refuse(p, "a", 0, 1)
	s.refund(p, "a", 0, line[1], 1)
	s.refuse(p, "a", 0, 1) // three are behind the one who left
	s.refund(p, "a", 0, line[4], 1)
	assert.Equal(s, 400*time.Millisecond, s.admit(p, "a", 0, 1).Delay)
	assert.Equal(s, 450*time.Millisecond, s.admit(p, "a", 150_000, 1).Delay+100*time.Millisecond, "the line has moved on")
}
