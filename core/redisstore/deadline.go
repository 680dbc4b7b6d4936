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

// clocks do not run.
var clocks = sync.Pool{New: func() any {
	c := &clock{done: make(chan struct{})}
	c.timer = time.AfterFunc(time.Hour, c.end)
	c.timer.Stop()
	return c
}}

func (c *clock) end() {
	c.ended.Store(true)
	close(c.done)
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
