package storetest

import (
	"context"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

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

// refundBatch gives back many charges of several keys and policies in one call.
func refundBatch(s *subject) {
	const n = 150
	ps := []core.Policy{policy("10/10s"), policy("1000/1m sliding-log, 10/10s fixed-window")}
	key := func(i int) string { return fmt.Sprint("key ", i%(n/3)) }
	var batch []core.Refund
	for i := range n { // of the first policy, each key takes 6, and of the other
		p := ps[i%2]
		batch = append(batch, s.refundOf(p, key(i), 0, s.admit(p, key(i), 0, 2), int64(i%3)))
	}
	left := map[string]int64{}
	for _, r := range batch {
		at := r.Policy.Spec().Shape() + r.Key
		if _, seen := left[at]; !seen {
			left[at] = 10
		}
		left[at] -= 2 - r.Units
	}
	require.NoError(s, s.store.Refund(s.Context(), nil))
	require.NoError(s, s.store.Refund(s.Context(), batch))
	for i, r := range batch {
		s.remains(left[r.Policy.Spec().Shape()+r.Key], r.Policy, key(i), 0)
	}
}

// permitBatch renews and releases many permits of several keys in one call.
func permitBatch(s *permits) {
	const n, keys = 300, 3
	p := permitPolicy(n/keys, time.Minute)
	all := make([]core.Permit, n)
	for i := range all {
		all[i] = s.permit(p, fmt.Sprint("id ", i), 1, 0)
		all[i].Key += fmt.Sprint(i % keys)
		require.True(s, s.acquire(all[i]).Allowed())
	}
	require.Empty(s, s.renew())
	require.Empty(s, s.renew(all...))
	require.NoError(s, s.store.Release(s.Context(), nil))
	stranger := s.permit(p, "stranger", 1, 0)
	stranger.Key = all[0].Key
	batch := append([]core.Permit{all[0], stranger}, all[:n-keys]...) // one twice, and one that nobody has
	require.NoError(s, s.store.Release(s.Context(), batch))
	for i := range keys { // of each key one is still held
		probe := all[n-keys+i]
		probe.ID, probe.Weight = "probe", n/keys
		res := s.acquire(probe)
		require.False(s, res.Allowed())
		require.EqualValues(s, n/keys-1, res.Remaining)
	}
}
