package core

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// ErrClosed is the error of a wait that [Limiter.Close] has ended, or that began after it.
var ErrClosed = errors.New("core: the Limiter was closed while a caller waited for its turn")

// waiters are the callers that wait for their turn.
type waiters struct {
	engine *engine
	mu     sync.Mutex
	closed bool
	all    map[*waiter]struct{}
	wg     sync.WaitGroup
}

// waiter is one of them.
type waiter struct {
	turn time.Time
	took Refund
	sent chan struct{} // closed when close sends it away
}

func newWaiters(e *engine) *waiters { return &waiters{engine: e, all: map[*waiter]struct{}{}} }

// wait returns when it is the turn of what was taken. If the wait ends before, it gives that back.
func (w *waiters) wait(ctx context.Context, took Refund) error {
	x := &waiter{turn: time.Now().Add(took.Receipt.Delay), took: took, sent: make(chan struct{})}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		w.engine.giveBack(took)
		return ErrClosed
	}
	w.all[x] = struct{}{}
	w.wg.Add(1)
	w.mu.Unlock()
	defer w.wg.Done()

	var err error
	timer := time.NewTimer(took.Receipt.Delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		err = ctx.Err()
	case <-x.sent:
	}
	w.mu.Lock()
	_, counted := w.all[x]
	delete(w.all, x)
	w.mu.Unlock()
	switch {
	case !counted: // sent away, though its turn may have come at the same moment
		return ErrClosed
	case err != nil:
		w.engine.giveBack(took)
	}
	return err
}

// close ends all waits. What the callers took is given back from the end of the queue, because a reservation is given
// back only if nobody has queued behind it.
func (w *waiters) close() {
	w.mu.Lock()
	w.closed = true
	all := slices.SortedFunc(maps.Keys(w.all), func(x, y *waiter) int { return y.turn.Compare(x.turn) })
	clear(w.all)
	w.mu.Unlock()
	for _, x := range all {
		w.engine.giveBack(x.took)
		close(x.sent)
	}
	w.wg.Wait()
}
