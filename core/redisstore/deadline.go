package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// deadline is the context of a flight. It does not end when a caller leaves: the reply would
// be lost, and the connection with it.
//
// Its clock is used again by another flight if this one was answered, because making
// one costs as much as the rest of a call.
type deadline struct {
	parent context.Context //nolint:containedctx // it is a context itself, with that one's values
	at     time.Time
	*clock
}

// clock ends a deadline.
type clock struct {
	done  chan struct{}
	timer *time.Timer
	ended atomic.Bool
}

var clocks sync.Pool

// begin lets it end after limit.
func (d *deadline) begin(parent context.Context, now time.Time, limit time.Duration) {
	d.parent, d.at = parent, now.Add(limit)
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
