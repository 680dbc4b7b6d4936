package guard

import (
	"context"
	"time"

	"github.com/weir-go/weir/core/enforce"
)

// claimTime is the time, after the handler has returned, in which what is to be settled may be claimed. For permits it
// is their lease.
const claimTime = 30 * time.Second

// Detach puts off the end of a request beyond its handler, for a connection that is hijacked or a stream that is
// written after the handler has returned: its permits are held, and it is settled, when that work is over. ctx is the
// context of the request; see [FromContext]. The code that does the work calls Claim on the Detached, at its
// start. What nobody claims is given back and settled all the same: permits when a lease has passed since the handler
// returned, the rest after half a minute, and both at once if the handler panics. If there is nothing to hold or to
// settle, Detach returns nil, which may be used in the same way.
func Detach(ctx context.Context) *Detached {
	d := &Detached{inner: innermost(ctx)}
	for c := d.inner; c != nil; c = c.outer {
		if h := c.owed.detach(); h != nil {
			d.parts = append(d.parts, h)
		}
	}
	if d.parts == nil {
		return nil
	}
	return d
}

// Detached is the permits and the settling of a request whose work goes on after its handler has returned. A nil
// Detached has none.
type Detached struct {
	inner *handlerContext
	parts []*handover // of each guard around the handler
}

// Claim takes over what was detached. The context held is a child of ctx for the work, also for [Report]; it ends on
// release, and with the cause [enforce.ErrPermitLost] if the permits are lost, were not claimed in time, or have been
// held for a day. Release must be called when the work is over, and may be called more than once.
func (d *Detached) Claim(ctx context.Context) (held context.Context, release func()) {
	held, cancel := context.WithCancel(ctx)
	if d == nil {
		return held, cancel
	}
	releases := make([]func(), len(d.parts))
	for i, h := range d.parts {
		held, releases[i] = h.claim(held) //nolint:fatcontext // it ends with each of them
	}
	inner := *d.inner
	inner.Context = held
	return &inner, func() {
		defer cancel()
		callAll(releases)
	}
}

// callAll calls all of them in turn, also those after one that panics.
func callAll(functions []func()) {
	if len(functions) > 0 {
		defer callAll(functions[1:])
		functions[0]()
	}
}

// handover holds the permits and the settling of one guard until detached work is over. The lock of owed guards it.
type handover struct {
	owed    *owed
	permits []*enforce.Detached

	final             Final // how the handler has ended
	claimed, released bool
	unclaimed         *time.Timer // nil while the handler runs
}

// detach returns what the work takes over, or nil if there is nothing.
func (o *owed) detach() *handover {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.finished {
		return nil
	}
	if o.handover == nil {
		o.handover = &handover{owed: o}
		for i := range *o.dues {
			if d := (*o.dues)[i].admission.Detach(); d != nil {
				o.handover.permits = append(o.handover.permits, d)
			}
		}
	}
	return o.handover
}

// keeps notes how the handler has ended, and reports whether settling waits for the work that was detached. owed is
// locked.
func (h *handover) keeps(f Final) bool {
	if h == nil || h.released || f.Panicked && !h.claimed {
		return false
	}
	h.final = f
	if !h.claimed && h.owed.settles {
		h.unclaimed = time.AfterFunc(claimTime, h.giveUp)
	}
	return true
}

// giveUp settles what nobody has claimed.
func (h *handover) giveUp() {
	defer func() {
		if value := recover(); value != nil { // no caller is there to recover it
			h.owed.context.guard.logger().Error("weir: a rule's Settle or After panicked", "panic", value)
		}
	}()
	if h.settles(func() bool { return !h.claimed }) {
		h.owed.settle(h.final)
	}
}

// settles reports whether to settle now: once, and only if a condition holds, which is called under the lock.
func (h *handover) settles(condition func() bool) bool {
	o := h.owed
	o.mu.Lock()
	defer o.mu.Unlock()
	if !condition() || !o.finished || o.settled {
		return false
	}
	o.settled = true
	return true
}

func (h *handover) claim(ctx context.Context) (held context.Context, release func()) {
	held = ctx
	releases := make([]func(), len(h.permits))
	for i, p := range h.permits {
		held, releases[i] = p.Claim(held) //nolint:fatcontext // it ends with each of them
	}
	h.owed.mu.Lock()
	h.claimed = true
	if h.unclaimed != nil {
		h.unclaimed.Stop()
	}
	h.owed.mu.Unlock()
	return held, func() {
		settles := h.settles(func() bool { h.released = true; return true })
		for _, release := range releases {
			release()
		}
		if settles {
			h.owed.settle(h.final)
		}
	}
}
