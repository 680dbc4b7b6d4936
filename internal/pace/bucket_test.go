package pace

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// story lets a bucket learn one answer a step, each to one request that took 10 ms.
func story(every time.Duration, answers ...Quota) (b bucket, now instant) {
	now = time.Second
	for i, q := range answers {
		b.learn(uint64(i+1), now-10*time.Millisecond, now, false, q) //nolint:gosec // small
		now += every
	}
	return b, now - every
}

// left is an answer with so much left of 100 per 10 s.
func left(remaining, reset int64) Quota {
	return Quota{Limit: 100, Window: 10 * time.Second, Remaining: remaining, Reset: seconds(reset), More: true}
}

func TestKinds(t *testing.T) {
	s := time.Second
	tests := map[string]struct {
		every   time.Duration
		answers []Quota
		want    kind
	}{
		"the first answers":          {s, []Quota{left(99, 10), left(98, 9), left(97, 8)}, unknown},
		"others use it too":          {s, []Quota{left(99, 10), left(80, 9), left(60, 8)}, unknown},
		"a reset":                    {s, []Quota{left(20, 2), left(19, 1), left(18, 1), left(99, 10)}, window},
		"a reset after a long pause": {9 * s, []Quota{left(20, 2), left(99, 10)}, window},
		"a reset of which others have used a part": {
			s, []Quota{left(20, 2), left(19, 1), left(18, 1), left(80, 10)}, window,
		},
		"all there because nobody came": {20 * s, []Quota{left(20, 8), left(99, 1)}, unknown},
		"no reset when it was due":      {s, []Quota{left(20, 2), left(19, 1), left(18, 1), left(19, 1)}, flow},
		"some came back before it": {
			100 * time.Millisecond, slices.Repeat([]Quota{left(20, 9)}, 8), flow,
		},
		"answers in any order": {
			time.Millisecond, []Quota{left(99, 10), left(95, 10), left(97, 10), left(94, 10), left(96, 10), left(93, 10)}, unknown,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b, _ := story(tt.every, tt.answers...)
			require.Equal(t, tt.want, b.kind)
		})
	}
}

// The pace of a window, of a limit that flows, and of what is not known yet.
func TestNext(t *testing.T) {
	s, ms := time.Second, time.Millisecond
	gap := func(b *bucket, underWay int, now instant) time.Duration {
		return (b.next(now, underWay, now) - now).Round(ms)
	}

	b, now := story(s, left(51, 10)) // one of 51 stays
	require.Equal(t, 200*ms, gap(&b, 0, now))
	require.Equal(t, 250*ms, gap(&b, 10, now))
	require.Equal(t, 10*s, gap(&b, 51, now), "until the reset")
	require.InDelta(t, 101*ms, gap(&b, 0, now+10*s), float64(ms), "the next window is even")

	b, now = story(s, left(20, 2), left(19, 1), left(18, 1), left(99, 10)) // alone: one more, so that it ends in time
	require.Equal(t, 100*ms, gap(&b, 0, now))
	require.Equal(t, 10*s, gap(&b, 99, now))

	var answers []Quota
	for range 200 {
		answers = append(answers, left(3, 1)) // ten a second come back
	}
	b, now = story(100*ms, answers...)
	require.Equal(t, flow, b.kind)
	require.InDelta(t, 100*ms, gap(&b, 0, now), 15*float64(ms))
	require.Equal(t, 1.0, b.share())
	fuller := b
	fuller.remaining = 50
	require.Less(t, gap(&fuller, 0, now), 50*ms)
	empty := b
	empty.remaining, empty.more = 0, now+s
	require.Equal(t, s, gap(&empty, 0, now), "until there are more")
}

// Four processes that share a limit each see what the others send.
func TestShare(t *testing.T) {
	var answers []Quota
	for i := range 20 {
		answers = append(answers, left(int64(96-4*i), 10)) // three others
	}
	b, now := story(400*time.Millisecond, answers...)
	require.InDelta(t, 0.25, b.share(), 0.01)
	require.InDelta(t, -7.5, b.drift(), 0.1)
	// 20 are left, and 2.4 s: 8 a second, of which a fourth is for this process, and a little more, to become equal.
	require.InDelta(t, float64(400*time.Millisecond), float64(b.next(now, 0, now)-now), float64(150*time.Millisecond))
}

// Requests that were under way together, which the server has counted in another order, are no reason to believe anything.
func TestOvertaken(t *testing.T) {
	b, now := story(time.Second, left(50, 9))
	for i, remaining := range []int64{47, 48, 49, 46} { // the first was counted last
		now += time.Millisecond
		b.learn(uint64(2+i), now-100*time.Millisecond, now, false, left(remaining, 9)) //nolint:gosec // small
		require.Equal(t, min(47, remaining), b.remaining)
	}
	require.Equal(t, unknown, b.kind)
	require.InDelta(t, 1, b.share(), 0.01)
	require.InDelta(t, 0, b.back, 0.01)
}

// Another limit under the same name is learnt anew.
func TestAnotherLimit(t *testing.T) {
	b, now := story(time.Second, left(20, 2), left(19, 1), left(18, 1), left(99, 10))
	require.Equal(t, window, b.kind)
	b.learn(9, now, now+time.Second, false, Quota{Limit: 10, Window: 5 * time.Second, Remaining: 9, Reset: 5 * time.Second})
	require.Equal(t, unknown, b.kind)
	require.Equal(t, int64(10), b.limit)
	require.Equal(t, 5*time.Second, b.window)
}
