package core_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

func newLimiter(t *testing.T, s core.Store, policy string) *core.Limiter {
	l, err := core.NewLimiter(s, core.MustParse(policy))
	require.NoError(t, err)
	return l
}

func TestLimiter(t *testing.T) {
	ctx := t.Context()
	_, err := core.NewLimiter(nil, core.Policy{})
	require.EqualError(t, err, `core: NewLimiter without a policy; give one, such as core.MustParse("100/1m")`)

	l := newLimiter(t, nil, "10/1h")
	res, err := l.Allow(ctx, "alice")
	require.NoError(t, err)
	assert.Equal(t, int64(9), res.Remaining)
	res, err = l.AllowN(ctx, "alice", 9)
	require.NoError(t, err)
	assert.Equal(t, core.AtLimit, res.Outcome)
	over, err := l.Allow(ctx, "alice")
	require.NoError(t, err, "over the limit is no error")
	assert.Equal(t, core.Refused, over.Outcome)
	peek, err := l.Peek(ctx, "alice")
	require.NoError(t, err)
	assert.True(t, peek.Allowed())
	assert.Zero(t, peek.Remaining)

	require.NoError(t, l.Refund(ctx, "alice", res, 4))
	peek, err = l.Peek(ctx, "alice")
	require.NoError(t, err)
	assert.Equal(t, int64(4), peek.Remaining)
	require.Error(t, l.Refund(ctx, "alice", over, 1), "a refusal was not charged")
	require.Error(t, l.Refund(ctx, "alice", res, -1))
	require.NoError(t, l.Reset(ctx, "alice"))
	peek, err = l.Peek(ctx, "alice")
	require.NoError(t, err)
	assert.Equal(t, int64(10), peek.Remaining)

	never, err := l.AllowN(ctx, "alice", 11)
	require.NoError(t, err)
	assert.Equal(t, core.Never, never.Outcome)
	_, err = l.AllowN(ctx, "alice", -1)
	require.ErrorContains(t, err, "a cost of -1 units")
	_, err = l.Allow(ctx, "")
	require.ErrorContains(t, err, "the key is empty")
	require.ErrorContains(t, l.Reset(ctx, ""), "the key is empty")
	gone, leave := context.WithCancel(ctx)
	leave()
	_, err = l.Allow(gone, "alice")
	require.ErrorIs(t, err, context.Canceled)
}

// Limiters of one policy on one store are one limit; an unnamed policy is "default".
func TestLimiterSharesItsStore(t *testing.T) {
	store := newMemory(t, 0)
	for i, policy := range []string{"2/1h", "default: 2/1h", "default: 2/1h"} {
		res, err := newLimiter(t, store, policy).Allow(t.Context(), "alice")
		require.NoError(t, err)
		assert.Equal(t, i < 2, res.Allowed())
	}
}

// Faults 2, 12 and 18.
func TestLimiterFailWords(t *testing.T) {
	ctx := t.Context()
	for policy, want := range map[string][3]core.Outcome{
		"2/1h":              {core.Admitted, core.AtLimit, core.Refused},
		"2/1h; fail open":   {core.Admitted, core.Admitted, core.Admitted},
		"2/1h; fail closed": {core.Refused, core.Refused, core.Refused},
	} {
		store := newRemote(newMemory(t, 0))
		l := newLimiter(t, store, policy)
		store.fail(down())
		var got [3]core.Outcome
		var first core.Result
		for i := range got {
			res, err := l.Allow(ctx, "alice")
			if policy == "2/1h; fail closed" {
				var failed *core.StoreError
				require.ErrorAs(t, err, &failed)
				assert.Equal(t, core.Result{}, res)
			} else {
				require.NoError(t, err)
				assert.True(t, res.Local)
			}
			if got[i] = res.Outcome; i == 0 {
				first = res
			}
		}
		assert.Equal(t, want, got, policy)
		if policy == "2/1h; fail closed" {
			continue
		}
		// A receipt goes to the store that wrote it, also when the other is back.
		store.fail(nil)
		require.NoError(t, l.Refund(ctx, "alice", first, 1))
		assert.Empty(t, store.refunded())
		store.fail(down())
		res, err := l.Peek(ctx, "alice")
		require.NoError(t, err)
		assert.Equal(t, map[bool]int64{true: 1, false: 0}[policy == "2/1h"], res.Remaining)
		require.Error(t, l.Reset(ctx, "alice"), "only one of the two has forgotten")
		res, err = l.Peek(ctx, "alice")
		require.NoError(t, err)
		assert.Equal(t, map[bool]int64{true: 2, false: 0}[policy == "2/1h"], res.Remaining)
		store.fail(nil)
		require.NoError(t, l.Reset(ctx, "alice"))
		assert.Equal(t, 1, store.resets)
	}
}

// Where neither store can decide, both say why.
func TestLimiterFallbackFails(t *testing.T) {
	store := newRemote(newMemory(t, 0))
	store.fail(down())
	l := newLimiter(t, store, "2/1h")
	_, err := l.AllowN(t.Context(), "", 1)
	var failed *core.StoreError
	require.ErrorAs(t, err, &failed)
	require.ErrorContains(t, err, "the key is empty")
}
