package guard

import (
	"cmp"
	"context"
	"time"

	"github.com/weir-go/weir/core"
)

// claimTime is how long after the handler has returned somebody may claim what is to be settled. Permits have their lease.
const claimTime = 30 * time.Second

// Detach lets what is owed for the request with that context outlive its handler, for a connection that is hijacked or a
// stream that is written after the handler has returned: permits are held on, and it is settled when that work is over.
// The code that does the work calls Claim on the answer, at its start. What nobody claims is given back and settled all
// the same: permits when a lease has passed since the handler returned, the rest after half a minute, and both at once if
// the handler panics. Where nothing is owed, the answer is nil, which may be used all the same.
func Detach(ctx context.Context) *Detached {
	d := &Detached{inner: innermost(ctx)}
	for c := d.inner; c != nil; c = c.outer() {
		if h := c.owed.detach(); h != nil {
			d.parts = append(d.parts, h)
		}
	}
	if d.parts == nil {
		return nil
	}
	return d
}

// Detached is what is owed for a request, by work that goes on after its handler has returned. The nil Detached owes
// nothing.
type Detached struct {
	inner *handlerContext
	parts []*handover // of each guard around the handler
}

// Claim takes care of what was detached. The context held is a child of ctx for the work, also for [Report]; it ends on
// release, and with the cause [core.ErrPermitLost] if the permits are lost, were not claimed in time, or have been held
// for a day. Release must be called when the work is over, and may be called more than once.
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
	inner.Context, inner.of = held, cmp.Or(inner.of, d.inner)
	return &inner, func() {
		for _, release := range releases {
			release()
		}
		cancel()
	}
}

// handover is what one guard is owed by work that goes on. It belongs to the lock of owed.
type handover struct {
	owed    *owed
	permits []*core.Detached

	final             Final // how the handler has ended
	claimed, released bool
	unclaimed         *time.Timer // nil while the handler runs
}

// detach hands over what is owed, or nil if nothing is.
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
		for i := range *o.debts {
			if d := (*o.debts)[i].admission.Detach(); d != nil {
				o.handover.permits = append(o.handover.permits, d)
			}
		}
	}
	return o.handover
}

// keeps is told how the handler has ended, and reports whether settling waits for the work that was detached. It is
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
		if value := recover(); value != nil { // nobody else is there to see it
			h.owed.context.guard.logger().Error("weir: a rule's Settle or After panicked", "panic", value)
		}
	}()
	if h.settles(func() bool { return !h.claimed }) {
		h.owed.settle(h.final)
	}
}

// settles reports whether it is time to settle, if a condition holds under the lock. It does so once.
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
