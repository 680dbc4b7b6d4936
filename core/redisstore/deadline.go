package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// deadline is the context of one call: it ends after the store's deadline or the
// caller's, whichever is earlier, and has the caller's values. It does not end when
// the caller leaves before that: within so short a time nobody gains by it, and
// the reply would be lost.
//
// It is used again for another call if this one was answered, because making a
// context with a timer costs as much as the rest of a call together. A client has
// no business with a context once its command is answered.
type deadline struct {
	parent context.Context //nolint:containedctx // it is a context itself
	at     time.Time
	own    bool // the deadline is the store's, not the caller's
	done   chan struct{}
	timer  *time.Timer
	ended  atomic.Bool
}

var deadlines sync.Pool

func newDeadline(parent context.Context, limit time.Duration) *deadline {
	d, reused := deadlines.Get().(*deadline)
	if !reused {
		d = &deadline{done: make(chan struct{})}
	}
	d.parent, d.at, d.own = parent, time.Now().Add(limit), true
	if at, ok := parent.Deadline(); ok && at.Before(d.at) {
		d.at, d.own, limit = at, false, time.Until(at)
	}
	if reused {
		d.timer.Reset(limit)
	} else {
		d.timer = time.AfterFunc(limit, d.end)
	}
	return d
}

func (d *deadline) end() {
	d.ended.Store(true)
	close(d.done)
}

// stop frees the timer. answered tells that nobody holds the context any more.
func (d *deadline) stop(answered bool) {
	if d.timer.Stop() && answered {
		d.parent = context.Background() //nolint:forbidigo // nobody's values are kept meanwhile
		deadlines.Put(d)
	}
}

// parentEnded tells whether it was the caller who ended the call.
func (d *deadline) parentEnded() bool {
	return d.parent.Err() != nil || !d.own && !time.Now().Before(d.at)
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
