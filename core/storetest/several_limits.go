package storetest

import (
	"context"
	"fmt"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// manyAtOnce demands of a store that decides about many takes at once that each is decided by itself.
func manyAtOnce(s *subject) {
	store, ok := s.store.(core.ManyStore)
	if !ok {
		s.Skip("it is no ManyStore")
	}
	var takes []core.Take
	for i := range 60 { // of the first policy, each of ten keys comes three times, and of the others each key once
		p := policy("2/10s")
		switch {
		case i >= 40:
			p = policy("10/10s sliding-log, 7/10s fixed-window")
		case i >= 30:
			p = policy("10/1d fixed-window calendar Europe/Berlin")
		}
		key := i
		if i < 30 {
			key = i % 10
		}
		t := s.of(p, fmt.Sprint(p, key), 0, 1)
		if i >= 50 {
			t.Cost, t.AtMost = 9, true
		}
		takes = append(takes, t)
	}
	wrong := append(append([]core.Take{}, takes...), s.of(policy("2/10s"), "k", 0, -1))
	_, err := store.TakeMany(s.Context(), wrong)
	require.Error(s, err, "a mistake, with which nothing is decided")
	gone, leave := context.WithCancel(s.Context())
	leave()
	_, err = store.TakeMany(gone, takes)
	require.ErrorIs(s, err, context.Canceled)
	none, err := store.TakeMany(s.Context(), nil)
	require.NoError(s, err)
	require.Empty(s, none)

	all, err := store.TakeMany(s.Context(), takes)
	require.NoError(s, err)
	require.Len(s, all, len(takes))
	taken := map[string]int64{}
	for i, res := range all {
		taken[takes[i].Key] += res.Taken
		want := int64(1)
		switch {
		case i >= 50:
			want = 7
		case i < 30 && !res.Allowed():
			want = 0
		}
		require.Equal(s, want, res.Taken, "number %d", i)
	}
	for _, t := range takes[:10] {
		require.EqualValues(s, 2, taken[t.Key], "of three, two")
	}

	// What is recalled is a refusal, and neither takes nor decides anything else.
	own := core.Take{Policy: policy("3/1h"), Key: s.prefix + "recalled", Cost: 3}
	for i := range 6 {
		if res, ok := store.Recall(own); ok {
			require.False(s, res.Allowed())
			require.Positive(s, i, "nobody has come")
		}
		res := s.do(own)
		require.Equal(s, i == 0, res.Allowed())
		peek := own
		peek.Cost = 0
		_, ok := store.Recall(peek)
		require.False(s, ok, "a peek is never refused")
	}
	_, ok = store.Recall(core.Take{})
	require.False(s, ok)
}
