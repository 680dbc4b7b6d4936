package core

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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
	mu      sync.Mutex
	closed  bool
	waiting map[*waiter]struct{}
	under   sync.WaitGroup
}

// waiter is one of them.
type waiter struct {
	turn  time.Time
	leave func()
	left  bool
	sent  chan struct{} // is closed when it is sent away
}

func newWaiters() *waiters { return &waiters{waiting: map[*waiter]struct{}{}} }

// sleep is like the function for one who may be sent away. leave is called if it does
// not wait to the end.
func (w *waiters) sleep(ctx context.Context, d time.Duration, leave func()) error {
	x := &waiter{turn: time.Now().Add(d), leave: leave, sent: make(chan struct{})}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		leave()
		return errClosed
	}
	w.waiting[x] = struct{}{}
	w.under.Add(1)
	w.mu.Unlock()
	defer w.under.Done()

	err := sleep(ctx, d, x.sent)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiting, x)
	switch {
	case x.left: // though its turn may have come at the same moment
		return errClosed
	case err != nil:
		leave()
	}
	return err
}

// close sends all of them away, and returns when they have left. They leave from the
// end of the queue, because only the last in line gets anything back.
func (w *waiters) close() {
	w.mu.Lock()
	w.closed = true
	all := slices.SortedFunc(maps.Keys(w.waiting), func(x, y *waiter) int { return y.turn.Compare(x.turn) })
	for _, x := range all {
		if !x.left {
			x.left = true
			x.leave()
			close(x.sent)
		}
	}
	w.mu.Unlock()
	w.under.Wait()
}
