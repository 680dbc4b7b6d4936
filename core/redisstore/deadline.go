package redisstore

import (
	"context"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A caller has its answer within the time that it was promised: a decision within the store's deadline, whatever the
// server does. What waits for an answer therefore gives up a little earlier, as timers are late by up to a millisecond
// on a machine that does nothing else, and a crowd takes some time to be told. Only if the process comes later than
// that, because it was stopped or had no processor, there is some time beyond: then its timers fire before it reads
// what lies in its sockets, and a reply that has arrived is to be used.
const (
	// maxLook is how long a passenger waits at most from one look about to the next.
	maxLook = time.Millisecond
	// looks is how often it looks about again if it comes too late, and inTime how often if it does not.
	looks  = 5
	inTime = 1
)

// lookEvery is how long a passenger waits from one look about to the next. limit is all the time that its caller has.
func lookEvery(limit time.Duration) time.Duration { return min(maxLook, limit/50) }

// enough is how long a passenger may wait so that its caller has the answer within limit.
func enough(limit time.Duration) time.Duration { return limit - 3*lookEvery(limit) }

// looking is when it begins to look about: early enough before that.
func looking(limit time.Duration) time.Duration { return enough(limit) - looks*lookEvery(limit) }

// lateness is by how much a flight may be late if it is sent again after its time, because the process came too late to
// send it before. It is as long as its passengers look for the answer then.
func lateness(limit time.Duration) time.Duration { return looks * lookEvery(limit) }

// missed reports whether an answer that takes a round trip would come after its caller, which has so much time left,
// has stopped waiting: what is asked all the same would be charged for nothing. A caller whose time was over before
// the process came to ask goes on looking for an answer for lateness.
func missed(left, trip, lateness time.Duration) bool {
	if left <= 0 {
		left = lateness
	}
	return trip > left
}

// starved reports whether the process came so much too late, after a time that should have taken no longer than limit,
// that what it waited for says nothing about the server: it was stopped, or has no processor.
func starved(took, limit time.Duration) bool { return took > limit+limit/4 }

// lap is how long a goroutine waits that can run.
func lap() time.Duration {
	start := time.Now()
	runtime.Gosched()
	return time.Since(start)
}

// moment is an instant that many look at while it changes. The zero value is before all others.
type moment struct{ nanos atomic.Int64 } // since started

func (m *moment) set(t time.Time) { m.nanos.Store(int64(t.Sub(started))) }

// after reports whether it is later than t.
func (m *moment) after(t time.Time) bool {
	nanos := m.nanos.Load()
	return nanos != 0 && time.Duration(nanos) > t.Sub(started)
}

// ago is how much time has passed since then.
func (m *moment) ago() time.Duration {
	nanos := m.nanos.Load()
	if nanos == 0 {
		return math.MaxInt64
	}
	return time.Since(started) - time.Duration(nanos)
}

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
