package enforce_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/internal/remotetest"
	"github.com/weir-go/weir/keyfunc"
)

func newLimiter(t *testing.T, s core.Store, policy string) *enforce.Limiter {
	l, err := enforce.New(s, core.MustParse(policy), enforce.Options{})
	require.NoError(t, err)
	return l
}

func TestLimiter(t *testing.T) {
	ctx := t.Context()
	_, err := enforce.New(nil, core.Policy{}, enforce.Options{})
	require.EqualError(t, err, `enforce: a Limiter without a policy; give one, such as core.MustParse("100/1m")`)

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

// noPermits is a store that keeps no permits.
type noPermits struct{ core.Store }

// A store that can only panic, or cannot do what the policy asks for, is refused at once.
func TestCheckStore(t *testing.T) {
	for want, c := range map[string]struct {
		store  core.Store
		policy string
	}{
		"enforce: Store is a nil *core.Memory; was the error of its constructor ignored?":                                             {(*core.Memory)(nil), "1/1s"},
		`enforce: the policy "5 concurrent" has permits, and enforce_test.noPermits cannot keep them; give a store that implements `:  {noPermits{}, "5 concurrent"},
		`enforce: the policy "a: 1/1s, 5 concurrent" has permits, and enforce_test.noPermits cannot keep them; give a store that imp`: {noPermits{}, "a: 1/1s, 5 concurrent"},
	} {
		p := core.MustParse(c.policy)
		_, err := enforce.New(c.store, p, enforce.Options{})
		require.ErrorContains(t, err, want)
		_, err = guard.New(guard.Config{Rule: guard.Rule{Policy: c.policy, Key: keyfunc.IP()}, Store: c.store})
		require.ErrorContains(t, err, want[max(strings.Index(want, "nil"), strings.Index(want, "cannot")):])
	}
	p := core.MustParse("5 concurrent")
	_, err := enforce.New(nil, p, enforce.Options{})
	require.NoError(t, err)
	l := newLimiter(t, nil, "5 concurrent")
	_, err = l.Allow(t.Context(), "k")
	require.ErrorContains(t, err, `the policy "default: 5 concurrent" has permits alone`)
	_, _, err = newLimiter(t, nil, "5/1s").Acquire(t.Context(), "k")
	require.ErrorContains(t, err, `the policy "default: 5/1s" has no permits; give one such as "20 concurrent"`)

	var zero core.Memory
	take := core.Take{Policy: core.MustParse("1/1s"), Key: "k", Cost: 1}
	_, err = zero.Take(t.Context(), take)
	require.EqualError(t, err, "core: a zero Memory; build one with NewMemory")
	require.Error(t, zero.Refund(t.Context(), []core.Refund{{Policy: take.Policy, Key: "k", Receipt: core.Result{At: epoch, Taken: 1}, Units: 1}}))
	require.Error(t, zero.Reset(t.Context(), take.Policy, "k"))
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

// The fail word decides where the store fails.
func TestLimiterFailWords(t *testing.T) {
	ctx := t.Context()
	for policy, want := range map[string][3]core.Outcome{
		"2/1h":              {core.Admitted, core.AtLimit, core.Refused},
		"2/1h; fail open":   {core.Admitted, core.Admitted, core.Admitted},
		"2/1h; fail closed": {core.Refused, core.Refused, core.Refused},
	} {
		store := remotetest.New(newMemory(t, 0))
		l := newLimiter(t, store, policy)
		store.Fail(down())
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
		store.Fail(nil)
		require.NoError(t, l.Refund(ctx, "alice", first, 1))
		assert.Empty(t, store.Refunded())
		store.Fail(down())
		res, err := l.Peek(ctx, "alice")
		require.NoError(t, err)
		assert.Equal(t, map[bool]int64{true: 1, false: 0}[policy == "2/1h"], res.Remaining)
		require.Error(t, l.Reset(ctx, "alice"), "only one of the two has forgotten")
		res, err = l.Peek(ctx, "alice")
		require.NoError(t, err)
		assert.Equal(t, map[bool]int64{true: 2, false: 0}[policy == "2/1h"], res.Remaining)
		store.Fail(nil)
		require.NoError(t, l.Reset(ctx, "alice"))
		assert.Equal(t, 1, store.Resets)
	}
}

// Where neither store can decide, both say why.
func TestLimiterFallbackFails(t *testing.T) {
	store := remotetest.New(newMemory(t, 0))
	store.Fail(down())
	l := newLimiter(t, store, "2/1h")
	_, err := l.AllowN(t.Context(), "", 1)
	var failed *core.StoreError
	require.ErrorAs(t, err, &failed)
	require.ErrorContains(t, err, "the key is empty")
}

// Where nobody counts, a caller that asks for as many as there are gets all.
func TestUpToFailsOpen(t *testing.T) {
	store := remotetest.New(newMemory(t, 0))
	store.Fail(down())
	l, err := enforce.New(store, core.MustParse("10/1h; fail open"), enforce.Options{})
	require.NoError(t, err)
	res, err := l.UpTo(t.Context(), "k", 5)
	require.NoError(t, err)
	assert.True(t, res.Allowed())
	assert.EqualValues(t, 5, res.Taken)
	require.NoError(t, l.Refund(t.Context(), "k", res, 5))
}

func TestAcquireOfNothing(t *testing.T) {
	l, err := enforce.New(nil, core.MustParse("2 concurrent"), enforce.Options{})
	require.NoError(t, err)
	for _, n := range []int64{0, -1} {
		_, _, err := l.AcquireN(t.Context(), "k", n)
		require.EqualError(t, err, "enforce: AcquireN of "+map[int64]string{0: "0", -1: "-1"}[n]+" permits; give 1 or more")
	}
	_, err = l.Allow(t.Context(), "k")
	require.ErrorContains(t, err, "Limiter.Acquire")
}

// askingLog is a log whose handler asks a Limiter itself, as one that ships its lines at a limited rate does.
type askingLog struct {
	slog.Handler
	limiter func() *enforce.Limiter
	lines   atomic.Int32
}

func (*askingLog) Enabled(context.Context, slog.Level) bool { return true }

func (h *askingLog) Handle(ctx context.Context, _ slog.Record) error {
	h.lines.Add(1)
	_, err := h.limiter().Allow(ctx, "log")
	return err
}

// The log of an outage may ask for decisions of the same store, and one that blocks holds up no other caller.
func TestLogOfAnOutageHoldsUpNobody(t *testing.T) {
	store := remotetest.New(newMemory(t, 0))
	var l *enforce.Limiter
	log := &askingLog{limiter: func() *enforce.Limiter { return l }}
	l, err := enforce.New(store, core.MustParse("100/1h"), enforce.Options{Log: slog.New(log)})
	require.NoError(t, err)
	store.Fail(down())
	done := make(chan error, 1)
	go func() {
		_, err := l.Allow(t.Context(), "alice")
		done <- err
	}()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		require.Fail(t, "the log waits for itself")
	}
	assert.EqualValues(t, 1, log.lines.Load())
}

// nilFallback is a store whose fallback is nil.
type nilFallback struct{ *remotetest.Remote }

func (nilFallback) Fallback() *core.Memory { return nil }

// A store that has no fallback to give is one without.
func TestLimiterNilFallback(t *testing.T) {
	store := nilFallback{remotetest.New(newMemory(t, 0))}
	l := newLimiter(t, store, "2/1h")
	store.Fail(down())
	for _, want := range []bool{true, true, false} {
		res, err := l.Allow(t.Context(), "alice")
		require.NoError(t, err)
		assert.Equal(t, want, res.Allowed())
		assert.True(t, res.Local)
	}
}

// Permits alone have no turn to wait for: Wait says so, where it would limit nothing.
func TestWaitWithPermitsAlone(t *testing.T) {
	l := newLimiter(t, nil, "ex: 2 concurrent")
	for _, key := range []string{"k", ""} {
		for _, n := range []int64{-1, 0, 1, 3} {
			require.EqualError(t, l.Wait(t.Context(), key, n),
				`enforce: the policy "ex: 2 concurrent" has permits alone, and no turn to wait for; use Limiter.Acquire`)
		}
	}
	require.NoError(t, newLimiter(t, nil, "3/1s, 2 concurrent").Wait(t.Context(), "k", 1))
}

// The error over the limit names the policy, what was asked for, and what to do.
func TestOverLimitError(t *testing.T) {
	text := func(policy string, n int64) string {
		l := newLimiter(t, nil, policy)
		var err error
		for range 3 {
			if _, _, err = l.AcquireN(t.Context(), "k", n); err != nil {
				break
			}
		}
		over := &enforce.OverLimitError{}
		require.ErrorAs(t, err, &over, policy)
		return over.Error()
	}
	assert.Equal(t, "enforce: export: 3 permits asked for, at most 2 at once; waiting cannot help", text("export: 2 concurrent", 3))
	assert.Regexp(t, `^enforce: export: all permits are taken; try again in \d`, text("export: 2 concurrent", 1))
	assert.Regexp(t, `^enforce: export: 2 permits asked for, 1 left; try again in \d`, text("export: 3 concurrent", 2))
	assert.Regexp(t, `^enforce: both: all permits are taken; try again in \d`, text("both: 100/1s, 2 concurrent", 1))
	assert.Regexp(t, `^enforce: both: over the limit; try again in \d`, text("both: 1/1m, 2 concurrent", 1))
	over := &enforce.OverLimitError{Result: core.Result{RetryAfter: time.Second}}
	assert.Equal(t, "enforce: over the limit; try again in 1s", over.Error(), "made by another package")
}
