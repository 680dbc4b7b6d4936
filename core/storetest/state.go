package storetest

import (
	"context"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

// state demands that a store shows what it keeps, and changes nothing by that.
func state(s *subject) {
	store, ok := s.store.(core.StateStore)
	if !ok {
		s.Skip("it is no StateStore")
	}
	look := func(t core.Take) core.State {
		s.Helper()
		before, err := store.State(s.Context(), t)
		require.NoError(s, err)
		again, err := store.State(s.Context(), t)
		require.NoError(s, err)
		require.Equal(s, before, again)
		require.Equal(s, t.Now, before.At)
		return before
	}
	for _, text := range append(tens(), mix) {
		p := policy(text)
		unused := look(s.of(p, "a", 0, 1))
		require.Empty(s, unused.Text, "%v", p)
		s.admit(p, "a", 0, 3)
		shown := look(s.of(p, "a", second, 5))
		require.NotEmpty(s, shown.Text, "%v", p)
		assert.Equal(s, unused.Name, shown.Name)
		assert.EqualValues(s, 3, p.Spec().InUse(shown.Text, Epoch)[0], "%v", p)
		// Step decides on it as the store does.
		t := s.of(p, "a", second, 5)
		want, _, _ := p.Spec().Step(shown.Text, t)
		got := s.do(t)
		require.True(s, want.Equal(got), "%v: %v, and not %v", p, got, want)
		// A state that lies ahead of the clock is shown as it is, and corrected by the next decision only.
		ahead, back := look(s.of(p, "a", 0, 1)), s.of(p, "a", -hour, 1)
		assert.Equal(s, ahead.Text, look(back).Text, "%v", p)
	}
	p := policy("10/10s")
	own := core.Take{Policy: p, Key: s.prefix + "own", Cost: 1}
	res := s.do(own)
	shown, err := store.State(s.Context(), own)
	require.NoError(s, err)
	assert.GreaterOrEqual(s, shown.At, res.At, "the store's clock")
	assert.Less(s, time.Duration(shown.At-res.At)*time.Microsecond, time.Hour)

	gone, leave := context.WithCancel(s.Context())
	leave()
	_, err = store.State(gone, own)
	require.ErrorIs(s, err, context.Canceled)
	for _, wrong := range []core.Take{{}, {Policy: p}, {Policy: p, Key: "a", Cost: -1}, {Policy: p, Key: "a", Now: -1}} {
		_, err = store.State(s.Context(), wrong)
		require.Error(s, err)
	}
}

// permitState demands that a store shows the permits that it has granted.
func permitState(s *permits) {
	store, ok := s.store.(core.StateStore)
	if !ok {
		s.Skip("it is no StateStore")
	}
	p := permitPolicy(5, 10*time.Second)
	t := core.Take{Policy: p, Key: s.key, Now: Epoch}
	look := func() []int64 {
		s.Helper()
		shown, err := store.State(s.Context(), t)
		require.NoError(s, err)
		require.Empty(s, shown.Text)
		require.Equal(s, int64(Epoch), shown.At)
		return shown.Leases
	}
	require.Empty(s, look())
	for i, permit := range []core.Permit{{ID: "a", Now: Epoch}, {ID: "b", Weight: 3, Now: Epoch + second}} {
		permit.Policy, permit.Key = p, s.key
		res, err := s.store.Acquire(s.Context(), permit)
		require.NoError(s, err)
		require.True(s, res.Allowed(), i)
	}
	const first, later = Epoch + 10*second, Epoch + 11*second
	require.Equal(s, []int64{first, later, later, later}, look(), "one for each place, the earliest first")
	require.NoError(s, s.store.Release(s.Context(), []core.Permit{{Policy: p, Key: s.key, ID: "b"}}))
	require.Equal(s, []int64{first}, look())
	_, err := store.State(s.Context(), core.Take{Policy: p, Key: ""})
	require.Error(s, err)
}
