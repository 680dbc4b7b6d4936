package enforce

import (
	"context"
	"time"

	"github.com/weir-go/weir/core"
)

// maxDetached is how long a detached permit is held at most: beyond it, its holder has forgotten it.
const maxDetached = 24 * time.Hour

// hold is one permit that is held. Its methods may be called on nil, which is none.
type hold struct {
	holder *holder
	permit core.Permit
	lease  time.Duration
	local  bool // the fallback granted it

	// These belong to the holder's lock.
	due      time.Time // when it is to be renewed
	ends     time.Time // when its lease ends unless it is renewed
	renewing bool
	ended    bool // released or lost
	released bool
	adopted  bool // the fallback counts it too
	failed   bool // the store has failed to renew it, and not renewed it since
	lapsed   bool // its lease has ended unconfirmed, and the work goes on
	detached bool // it outlives its request
	claimed  bool // and the work that it is for has begun
	cause    error
	cancels  []context.CancelCauseFunc
}

// remote reports whether a store that is not in the process has granted the permit.
func (x *hold) remote() bool { return x.holder.engine.remote() && !x.local }

// store is what has granted the permit, and renews and releases it.
func (x *hold) store() core.PermitStore {
	if x.local {
		return x.holder.engine.fallback()
	}
	return x.holder.engine.permits
}

// renewed begins the lease anew, from when the store was asked: the store's own lease begins later, and ends later.
func (x *hold) renewed(sent time.Time) {
	x.due, x.ends = sent.Add(x.lease/renewals), sent.Add(x.lease)
	x.failed, x.lapsed = false, false
}

// next is when there is something to do for the permit.
func (x *hold) next() time.Time {
	if !x.renewing && x.due.Before(x.ends) {
		return x.due
	}
	return x.ends
}

// lapse is called when the lease has ended and the store has not confirmed another one. If the policy fails open or
// local, a store that is gone ends no work: the permit is kept, and asked for again.
func (x *hold) lapse(now time.Time) {
	if x.remote() && x.permit.Policy.Options().Fail != core.FailClosed {
		x.lapsed, x.ends = true, now.Add(x.lease)
		return
	}
	x.end(ErrPermitLost)
}

// end ends the contexts of the permit, and its renewals. The holder is locked.
func (x *hold) end(cause error) {
	if x.ended {
		return
	}
	x.ended, x.cause = true, cause
	delete(x.holder.held, x)
	for _, cancel := range x.cancels {
		cancel(cause)
	}
	x.cancels = nil
}

// attach returns a child of ctx that ends with the cause ErrPermitLost if the permit is lost, and when it is
// released.
func (x *hold) attach(ctx context.Context) context.Context {
	if x == nil {
		return ctx
	}
	ctx, cancel := context.WithCancelCause(ctx)
	x.holder.mu.Lock()
	defer x.holder.mu.Unlock()
	if x.ended {
		cancel(x.cause)
	} else {
		x.cancels = append(x.cancels, cancel)
	}
	return ctx
}

// release gives the permit back, without waiting for a remote store. Only the first call counts.
func (x *hold) release() {
	if x != nil {
		x.releaseBecause(context.Canceled)
	}
}

func (x *hold) releaseBecause(cause error) {
	h := x.holder
	h.mu.Lock()
	defer h.mu.Unlock()
	first := !x.released
	x.released = true
	x.end(cause)
	if first { // renewed gives it back again if a renewal that is under way brings it back
		h.giveBack(x)
	}
}

// detach lets the permit outlive the request, until it is claimed.
func (x *hold) detach() {
	x.holder.mu.Lock()
	x.detached = true
	x.holder.mu.Unlock()
}

// claim returns a context for the work that holds the permit from now on. It ends after maxDetached.
func (x *hold) claim(ctx context.Context) context.Context {
	h := x.holder
	h.mu.Lock()
	if !x.claimed && !x.ended {
		x.claimed = true
		forgotten := time.AfterFunc(maxDetached, func() { x.releaseBecause(ErrPermitLost) })
		x.cancels = append(x.cancels, func(error) { forgotten.Stop() })
	}
	h.mu.Unlock()
	return x.attach(ctx)
}

// finish is called when the request is over. It releases the permit unless that was detached: then the permit is
// released when a lease has passed without a claim, or at once if the handler panicked before the claim.
func (x *hold) finish(panicked bool) {
	if x == nil {
		return
	}
	x.holder.mu.Lock()
	detached, claimed := x.detached, x.claimed
	x.holder.mu.Unlock()
	switch {
	case !detached:
		x.release()
	case panicked && !claimed:
		x.releaseBecause(ErrPermitLost)
	case !claimed:
		time.AfterFunc(x.lease, x.unclaimed)
	}
}

func (x *hold) unclaimed() {
	x.holder.mu.Lock()
	claimed := x.claimed
	x.holder.mu.Unlock()
	if !claimed {
		x.releaseBecause(ErrPermitLost)
	}
}
