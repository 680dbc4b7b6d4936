package storetest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

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
