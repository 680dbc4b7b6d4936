package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// deadline is the context of one call: it ends after the store's deadline, or when
// three quarters of the time that the caller has left are gone, whichever is
// earlier; the rest is for the fail word to decide in. It has the caller's values. It
// does not end when the caller leaves: within so short a time nobody gains by it, and
// the reply would be lost.
//
// Its clock is used again by another call if this one was answered, because making
// one costs as much as the rest of a call.
type deadline struct {
	parent context.Context //nolint:containedctx // it is a context itself
	at     time.Time
	// hurried tells that the caller has so little time that a healthy server may
	// not answer within it.
	hurried bool
	*clock
}

// clock ends a deadline.
type clock struct {
	done  chan struct{}
	timer *time.Timer
	ended atomic.Bool
}

var clocks sync.Pool

// enough is the time in which a healthy server answers.
const enough = 10 * time.Millisecond

func newDeadline(parent context.Context, limit time.Duration) *deadline {
	d := &deadline{parent: parent}
	now := time.Now()
	if at, ok := parent.Deadline(); ok {
		if left := at.Sub(now) / 4 * 3; left < limit {
			d.hurried, limit = left < enough, left
		}
	}
	d.at = now.Add(limit)
	if c, reused := clocks.Get().(*clock); reused {
		d.clock = c
		d.timer.Reset(limit)
	} else {
		d.clock = &clock{done: make(chan struct{})}
		d.timer = time.AfterFunc(limit, d.end)
	}
	return d
}

func (c *clock) end() {
	c.ended.Store(true)
	close(c.done)
}

// stop frees the clock. answered tells that nobody waits for it any more.
func (d *deadline) stop(answered bool) {
	if d.timer.Stop() && answered {
		clocks.Put(d.clock)
	}
}

func (d *deadline) Deadline() (time.Time, bool) { return d.at, true }
func (d *deadline) Done() <-chan struct{}       { return d.done }
func (d *deadline) Value(key any) any           { return d.parent.Value(key) }

func (d *deadline) Err() error {
	if d.ended.Load() {
		return context.DeadlineExceeded
	}
	return nil
}
