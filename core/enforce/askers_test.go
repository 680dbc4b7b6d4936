package enforce_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
)

// stoppable is a store outside the process. The answer to the next take after stop is under way until the test lets it
// go on.
type stoppable struct {
	*core.Memory
	local *core.Memory // the fallback

	mu   sync.Mutex
	held chan struct{}
}

func newStoppable(t *testing.T) *stoppable {
	t.Helper()
	return &stoppable{Memory: newMemory(t, 0), local: newMemory(t, 0)}
}

func (s *stoppable) Fallback() *core.Memory { return s.local }

func (s *stoppable) stop() (goOn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make(chan struct{})
	s.held = held
	return func() { close(held) }
}

// Take is late if its caller leaves while the answer is under way, as that of a redisstore.Store.
func (s *stoppable) Take(ctx context.Context, t core.Take) (core.Result, error) {
	res, err := s.Memory.Take(ctx, t)
	s.mu.Lock()
	held := s.held
	s.held = nil
	s.mu.Unlock()
	if held == nil {
		return res, err
	}
	select {
	case <-held:
		return res, err
	case <-ctx.Done():
		late := &core.LateError{Err: ctx.Err()}
		go func() {
			<-held
			late.Answer(res, err)
		}()
		return core.Result{}, late
	}
}

// A caller that is stopped with a turn which is not in the line yet loses nobody else's: those that leave meanwhile give
// theirs back when the later one is known. Wherever it is stopped, and whether it stays or leaves, the store has all back.
func TestCallerThatIsStopped(t *testing.T) {
	const policy = "10/1s burst 1; wait 1h"
	ask := enforce.Ask{Key: "k", Cost: 1, Wait: time.Hour}
	for name, stopped := range map[string]func(t *testing.T, s *stoppable, l *enforce.Limiter, ctx context.Context) (goOn func()){
		"before its answer": func(_ *testing.T, s *stoppable, l *enforce.Limiter, ctx context.Context) func() {
			goOn := s.stop()
			go func() { _ = l.Wait(context.WithoutCancel(ctx), "k", 1) }()
			return goOn
		},
		"before its answer, and leaves": func(_ *testing.T, s *stoppable, l *enforce.Limiter, ctx context.Context) func() {
			goOn := s.stop()
			go func() { _ = l.Wait(ctx, "k", 1) }()
			return goOn
		},
		"before it waits": func(t *testing.T, _ *stoppable, l *enforce.Limiter, ctx context.Context) func() {
			var a enforce.Admission
			require.NoError(t, l.Begin(ctx, ask, &a))
			return func() { assert.ErrorIs(t, a.Wait(ctx), context.Canceled) }
		},
		"before it gives back": func(t *testing.T, _ *stoppable, l *enforce.Limiter, ctx context.Context) func() {
			var a enforce.Admission
			require.NoError(t, l.Begin(ctx, ask, &a))
			return func() { a.GiveBack(1) }
		},
		"with a turn that was free": func(t *testing.T, _ *stoppable, l *enforce.Limiter, ctx context.Context) func() {
			mine, leave := context.WithCancel(ctx)
			go func() { _ = l.Wait(mine, "k", 1) }()
			synctest.Wait()
			leave()
			synctest.Wait()
			var a enforce.Admission
			require.NoError(t, l.Begin(ctx, ask, &a))
			return func() { assert.ErrorIs(t, a.Wait(ctx), context.Canceled) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStoppable(t)
				l := newLimiter(t, s, policy)
				ctx, leave := context.WithCancel(t.Context())
				queue := func(n int) {
					for range n {
						go func() { _ = l.Wait(ctx, "k", 1) }()
						synctest.Wait()
					}
				}
				queue(300)
				goOn := stopped(t, s, l, ctx)
				synctest.Wait()
				queue(300)
				leave()
				advance(300 * ms) // much longer than turns are free for
				goOn()
				advance(700 * ms)
				res, err := s.Memory.Take(t.Context(), core.Take{Policy: l.Policy(), Key: "k", Cost: 1, Wait: time.Hour})
				require.NoError(t, err)
				assert.Less(t, res.Delay, time.Second, "of a minute that they had queued")
				require.NoError(t, l.Close())
			})
		})
	}
}

// Nobody waits for a caller that was stopped for seconds: those that leave give back without it.
func TestCallerThatIsStoppedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		l := newLimiter(t, s, "10/1s burst 1; wait 1h")
		_, err := l.Allow(t.Context(), "k")
		require.NoError(t, err)
		gone := s.stop() // and never comes back
		go func() { _ = l.Wait(t.Context(), "k", 1) }()
		synctest.Wait()
		ctx, leave := context.WithCancel(t.Context())
		for range 300 {
			go func() { _ = l.Wait(ctx, "k", 1) }()
			synctest.Wait()
		}
		leave()
		advance(8 * time.Second)
		res, err := s.Memory.Take(t.Context(), core.Take{Policy: l.Policy(), Key: "k"})
		require.NoError(t, err)
		assert.Less(t, res.ResetAfter, time.Second)
		gone()
		synctest.Wait()
		require.NoError(t, l.Close())
	})
}

// Close waits a moment for callers that have an answer of which it does not know, and then gives all back.
func TestCloseBesideACallerThatIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		l := newLimiter(t, s, "10/1s burst 1; wait 1h")
		for range 300 {
			go func() { _ = l.Wait(t.Context(), "k", 1) }()
			synctest.Wait()
		}
		goOn := s.stop()
		answer := make(chan error, 1)
		go func() { answer <- l.Wait(context.WithoutCancel(t.Context()), "k", 1) }()
		synctest.Wait()
		go func() {
			<-time.After(20 * ms)
			goOn()
		}()
		require.NoError(t, l.Close())
		require.ErrorIs(t, <-answer, enforce.ErrClosed)
		synctest.Wait()
		res, err := s.Memory.Take(t.Context(), core.Take{Policy: l.Policy(), Key: "k"})
		require.NoError(t, err)
		assert.Less(t, res.ResetAfter, time.Second)
	})
}

// Nobody waits for a caller that never waits itself, because its limit is tried out.
func TestTrialKeepsNoTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		l := newLimiter(t, s, "10/1s burst 1; wait 1h")
		var a enforce.Admission
		for range 2 {
			a = enforce.Admission{}
			require.NoError(t, l.Begin(t.Context(), enforce.Ask{Key: "k", Cost: 1, Wait: time.Hour, Trial: true}, &a))
		}
		require.Equal(t, 100*ms, a.Result.Delay)
		ctx, leave := context.WithCancel(t.Context())
		for range 300 {
			go func() { _ = l.Wait(ctx, "k", 1) }()
			synctest.Wait()
		}
		leave()
		advance(time.Second)
		res, err := s.Memory.Take(t.Context(), core.Take{Policy: l.Policy(), Key: "k"})
		require.NoError(t, err)
		assert.Less(t, res.ResetAfter, time.Second)
	})
}
