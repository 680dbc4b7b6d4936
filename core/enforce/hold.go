package enforce

import (
	"context"
	"time"

	"github.com/weir-go/weir/core"
)

// maxDetached bounds how long a detached permit is held: beyond it, its holder has forgotten it.
const maxDetached = 24 * time.Hour

// hold is a permit that this process holds, or has held. The methods with an exported counterpart in Admission or
// Detached may be called on nil, which holds nothing.
type hold struct {
	holder *holder
	permit core.Permit
	lease  time.Duration
	origin origin

	// These belong to the holder's lock.
	state    holdState
	lapse    lapse
	user     user
	due      time.Time // when it is to be renewed
	ends     time.Time // when its lease ends unless it is renewed
	renewing bool
	adopted  bool  // the fallback counts it too
	cause    error // why it is not held any more
	cancels  []context.CancelCauseFunc
}

// holdState is a permit's life, in order.
type holdState uint8

const (
	held     holdState = iota
	lost               // somebody else may have its place; it can still be released
	released           // given back, or about to be
)

// lapse grades how far the remote store has failed to renew a permit. A renewal ends it.
type lapse uint8

const (
	renewed       lapse = iota
	renewalFailed       // the lease has not ended yet
	overdue             // the lease has ended before any renewal was answered
	lapsed              // the lease has ended, renewals have failed, and the work goes on
)

// user is the code that holds a permit.
type user uint8

const (
	theRequest user = iota
	nobodyYet       // the permit was detached, and nobody has claimed it
	aClaimant
)

// remote reports whether a store that is not in the process has granted the permit.
func (x *hold) remote() bool { return x.holder.engine.remote() && x.origin != inFallback }

// store returns the store that has granted the permit, and renews and releases it.
func (x *hold) store() core.PermitStore {
	if x.origin == inFallback {
		return x.holder.engine.fallback()
	}
	return x.holder.engine.permits
}

// beginLease begins the lease anew, from when the store was asked: the store's own lease begins later, and ends later.
func (x *hold) beginLease(sent time.Time) {
	x.due, x.ends, x.lapse = sent.Add(x.lease/renewals), sent.Add(x.lease), renewed
}

// next returns when there is something to do for the permit.
func (x *hold) next() time.Time {
	if !x.renewing && x.due.Before(x.ends) {
		return x.due
	}
	return x.ends
}

// notRenewed notes that the store did not renew the permit, and has it asked again soon.
func (x *hold) notRenewed() {
	if x.lapse == overdue || x.lapse == lapsed {
		x.lapse = lapsed
	} else {
		x.lapse = renewalFailed
	}
	x.due = time.Now().Add(x.lease / retries)
}

// leaseEnded is called when the lease has ended and the store has not confirmed another one. If the policy fails open
// or local, a store that is gone ends no work: the permit is kept, and asked for again.
func (x *hold) leaseEnded(now time.Time) {
	if !x.remote() || x.permit.Policy.Options().Fail == core.FailClosed {
		x.end(lost, ErrPermitLost)
		return
	}
	x.ends = now.Add(x.lease)
	switch x.lapse {
	case renewed, overdue:
		x.lapse = overdue
	case renewalFailed, lapsed:
		x.lapse = lapsed
	}
}

// end ends the contexts of the permit, and its renewals. The holder is locked.
func (x *hold) end(state holdState, cause error) {
	if x.state == held {
		x.cause = cause
		delete(x.holder.held, x)
		x.holder.count.add(x.permit.Policy, -int(x.permit.Places()))
		if state == lost {
			x.holder.lost++
		}
		for _, cancel := range x.cancels {
			cancel(cause)
		}
		x.cancels = nil
	}
	x.state = max(x.state, state)
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
	if x.state == held {
		x.cancels = append(x.cancels, cancel)
	} else {
		cancel(x.cause)
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
	first := x.state != released
	x.end(released, cause)
	if first { // if a renewal is under way, holder.settle releases once more
		h.giveBack(x)
	}
}

// detach lets the permit outlive the request, until it is claimed.
func (x *hold) detach() {
	x.holder.mu.Lock()
	if x.user == theRequest {
		x.user = nobodyYet
	}
	x.holder.mu.Unlock()
}

// claim returns a context for the work that holds the permit from now on. It ends after maxDetached.
func (x *hold) claim(ctx context.Context) context.Context {
	h := x.holder
	h.mu.Lock()
	if x.user != aClaimant && x.state == held {
		x.user = aClaimant
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
	switch user := x.usedBy(); {
	case user == theRequest:
		x.release()
	case user == nobodyYet && panicked:
		x.releaseBecause(ErrPermitLost)
	case user == nobodyYet:
		time.AfterFunc(x.lease, func() {
			if x.usedBy() == nobodyYet {
				x.releaseBecause(ErrPermitLost)
			}
		})
	}
}

func (x *hold) usedBy() user {
	x.holder.mu.Lock()
	defer x.holder.mu.Unlock()
	return x.user
}
