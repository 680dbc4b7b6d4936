package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// OverLimitError is what [Limiter.Wait] and [Limiter.Acquire] fail with over the limit:
// the turn would come too late, or never.
type OverLimitError struct {
	// Result is the refusal. RetryAfter counts from when it was made.
	Result Result
}

// Error implements error.
func (e *OverLimitError) Error() string {
	if e.Result.Outcome == Never {
		return fmt.Sprintf("over limit: more than the %d units that it ever admits at once", e.Result.Limit)
	}
	return fmt.Sprintf("over limit: try again in %v", e.Result.RetryAfter)
}

// sleep waits for d, but not longer than for ctx or for closed, which may be nil. It
// answers the context's error, or errClosed.
func sleep(ctx context.Context, d time.Duration, closed <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-closed:
		return errClosed
	}
}

var errClosed = errors.New("core: the Guard was closed while a request waited for its turn")

// waiters are the requests that wait for their turn.
type waiters struct {
	mu     sync.Mutex
	closed bool
	quit   chan struct{}
	under  sync.WaitGroup
}

func newWaiters() *waiters { return &waiters{quit: make(chan struct{})} }

// sleep is like the function for one who may be sent away.
func (w *waiters) sleep(ctx context.Context, d time.Duration, leave func()) (err error) {
	w.mu.Lock()
	closed := w.closed
	if !closed {
		w.under.Add(1)
	}
	w.mu.Unlock()
	if closed {
		leave()
		return errClosed
	}
	defer w.under.Done()
	if err = sleep(ctx, d, w.quit); err != nil {
		leave()
	}
	return err
}

// close sends all of them away, and returns when they have left.
func (w *waiters) close() {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.quit)
	}
	w.mu.Unlock()
	w.under.Wait()
}
