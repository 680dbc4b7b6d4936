package redisstore

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// started makes times monotonic: a clock that steps back must not keep a breaker from opening.
var started = time.Now()

// moment is an instant that many goroutines read while it changes. The zero value is before all others.
type moment struct{ nanos atomic.Int64 } // since started

func (m *moment) set(t time.Time) { m.nanos.Store(int64(t.Sub(started))) }

// since returns the time from started until the moment, or 0 for the zero value.
func (m *moment) since() time.Duration { return time.Duration(m.nanos.Load()) }

// after reports whether the moment is later than t.
func (m *moment) after(t time.Time) bool {
	nanos := m.nanos.Load()
	return nanos != 0 && time.Duration(nanos) > t.Sub(started)
}

// ago returns how much time has passed since then.
func (m *moment) ago() time.Duration {
	nanos := m.nanos.Load()
	if nanos == 0 {
		return math.MaxInt64
	}
	return time.Since(started) - time.Duration(nanos)
}

// deadline is the context of a flight. It does not end when a caller leaves: the reply would be lost, and the connection
// with it.
//
// Its clock is used again by another flight if this one was answered, because making one costs as much as the rest of a
// call.
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

// clocks are stopped ones.
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
