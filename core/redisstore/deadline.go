package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// deadline is the context of a flight. It has the caller's values. It does not end when
// the caller leaves: within so short a time nobody gains by it, and the reply would be
// lost.
//
// Its clock is used again by another flight if this one was answered, because making
// one costs as much as the rest of a call.
type deadline struct {
	parent context.Context //nolint:containedctx // it is a context itself
	at     time.Time
	limit  time.Duration // from the beginning
	// hurried is true if the caller has so little time that a healthy server may
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

// begin lets it end after limit, or when the time that the caller has left is gone,
// whichever is earlier. If a request waits for it, only three quarters of that time are
// used; the rest is for the fail word to decide in.
func (d *deadline) begin(parent context.Context, limit time.Duration, background bool) {
	now := time.Now()
	if at, ok := parent.Deadline(); ok {
		left := at.Sub(now)
		if !background {
			left = left / 4 * 3
		}
		if left < limit {
			d.hurried, limit = left < enough, left
		}
	}
	d.parent, d.at, d.limit = parent, now.Add(limit), limit
	if c, reused := clocks.Get().(*clock); reused {
		d.clock = c
		d.timer.Reset(limit)
	} else {
		c := &clock{done: make(chan struct{})}
		c.timer = time.AfterFunc(limit, c.end)
		d.clock = c
	}
}

func (c *clock) end() {
	c.ended.Store(true)
	close(c.done)
}

// stop frees the clock. answered is true if nobody waits for it any more.
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
