package core

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

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
	settler *settler
	mu      sync.Mutex
	closed  bool
	waiting map[*waiter]struct{}
	under   sync.WaitGroup
}

// waiter is one of them.
type waiter struct {
	turn time.Time
	took settlement
	left bool
	sent chan struct{} // is closed when it is sent away
}

func newWaiters(s *settler) *waiters {
	return &waiters{settler: s, waiting: map[*waiter]struct{}{}}
}

// sleep waits for the turn of what was taken. Who does not wait to the end gives it back.
func (w *waiters) sleep(ctx context.Context, took settlement) error {
	d := took.result.Delay
	x := &waiter{turn: time.Now().Add(d), took: took, sent: make(chan struct{})}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		w.settler.refund(took)
		return errClosed
	}
	w.waiting[x] = struct{}{}
	w.under.Add(1)
	w.mu.Unlock()
	defer w.under.Done()

	err := sleep(ctx, d, x.sent)
	w.mu.Lock()
	delete(w.waiting, x)
	left := x.left
	w.mu.Unlock()
	switch {
	case left: // though its turn may have come at the same moment
		return errClosed
	case err != nil:
		w.settler.refund(took)
	}
	return err
}

// close sends all of them away. What they took is given back one after the other, from
// the end of the queue, because only the last in line gets anything back, until ctx ends.
func (w *waiters) close(ctx context.Context) {
	w.mu.Lock()
	w.closed = true
	all := slices.SortedFunc(maps.Keys(w.waiting), func(x, y *waiter) int { return y.turn.Compare(x.turn) })
	clear(w.waiting)
	for _, x := range all {
		x.left = true
		close(x.sent)
	}
	w.mu.Unlock()
	for _, x := range all {
		if ctx.Err() != nil {
			w.settler.lost()
			break
		}
		w.settler.settle(ctx, x.took)
	}
	w.under.Wait()
}
