package core

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// ErrPermitLost is the cause with which the context of a permit's holder ends if the store has given the place to
// somebody else, or, under "fail closed", has not confirmed for a whole lease that it is still held.
var ErrPermitLost = errors.New("core: the permit is lost; somebody else may have its place")

// A permit is renewed every lease/renewals, together with others that are due within lease/together of it, and after
// a failure every lease/retries.
const (
	renewals = 3
	retries  = 10
	together = 30
)

// overtaken is when a permit of which nobody knows whether it was granted is released again: the question may still be
// on its way, on a connection that has lost a packet, and arrive after the first release.
var overtaken = [...]time.Duration{500 * time.Millisecond, 1500 * time.Millisecond, 5 * time.Second}

// maxDetached is how long a detached permit is held at most: beyond it, its holder has forgotten it.
const maxDetached = 24 * time.Hour

// holder keeps the permits that a process holds alive, each in the store that granted it, and gives them back. It
// has no goroutine of its own. Times are those of the monotonic clock.
type holder struct {
	keeper *keeper

	mu    sync.Mutex
	held  map[*hold]struct{}
	timer *time.Timer
	next  time.Time // when the timer fires; zero if it does not
	// adopted is whether the fallback has been told of what is held, since the store fails.
	adopted bool
}

func newHolder(k *keeper) *holder { return &holder{keeper: k, held: map[*hold]struct{}{}} }

// hold is one permit that is held. Its methods may be called on nil, which is none.
type hold struct {
	holder *holder
	permit Permit
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
	lapsed   bool // its lease has ended unconfirmed, and its holder runs on
	detached bool // it outlives its request
	claimed  bool // and somebody has taken care of it
	cause    error
	cancels  []context.CancelCauseFunc
}

// acquire asks the store, or the fallback, for a permit, and keeps it until it is released. Only if the Result
// admits there is a hold. p needs no ID.
//
// If it remains unknown whether the store granted the permit, it is given back.
func (h *holder) acquire(ctx context.Context, p Permit, local bool) (*hold, Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, Result{}, err
	}
	p.ID = rand.Text()
	_, lease, _ := p.Policy.Concurrent()
	store, sent := h.keeper.permits, time.Now()
	if local {
		store = h.keeper.fallback()
	}
	unknown := true // whether it was granted, as after a panic
	defer func() {
		if unknown {
			h.giveBackUnknown(&hold{holder: h, permit: p, lease: lease, local: local})
		}
	}()
	res, err := store.Acquire(ctx, p)
	if err != nil {
		failed := (*StoreError)(nil)
		unknown = errors.As(err, &failed) && failed.Executed || failed == nil && ctx.Err() != nil
		return nil, Result{}, err
	}
	unknown = false
	if !res.Allowed() {
		return nil, res, nil
	}
	x := &hold{holder: h, permit: p, lease: lease, local: local}
	x.renewed(sent)
	h.mu.Lock()
	h.held[x] = struct{}{}
	h.wake(x.due)
	adopted := h.adopted
	h.mu.Unlock()
	if adopted { // it came after all others were
		h.adoptAll([]*hold{x})
	}
	return x, res, nil
}

// renewed begins the lease anew. It counts from when the store was asked: its own begins later and ends later.
func (x *hold) renewed(sent time.Time) {
	x.due, x.ends = sent.Add(x.lease/renewals), sent.Add(x.lease)
	x.failed, x.lapsed = false, false
}

// remote reports whether a store that is not in the process has granted the permit.
func (x *hold) remote() bool { return x.holder.keeper.remote && !x.local }

// wake sees to it that tick is called at a time or before. The holder is locked.
func (h *holder) wake(at time.Time) {
	if !h.next.IsZero() && !at.Before(h.next) {
		return
	}
	h.next = at
	if d := time.Until(at); h.timer == nil {
		h.timer = time.AfterFunc(d, h.tick)
	} else {
		h.timer.Reset(d)
	}
}

// tick ends the permits that are lost, renews those that are due or will soon be, and waits for the next.
func (h *holder) tick() {
	h.mu.Lock()
	now, next := time.Now(), time.Time{}
	var due, here []*hold
	for x := range h.held {
		if !now.Before(x.ends) {
			x.lapse(now)
			if x.ended {
				continue
			}
		}
		if soon := now.Add(x.lease / together); !x.renewing && !soon.Before(x.due) {
			x.renewing = true
			if x.remote() {
				due = append(due, x)
			} else {
				here = append(here, x)
			}
		}
		if at := x.next(); next.IsZero() || at.Before(next) {
			next = at
		}
	}
	h.next = time.Time{}
	if !next.IsZero() {
		h.wake(next)
	}
	h.mu.Unlock()
	if len(due) > 0 {
		h.keeper.background.renew(due)
	}
	for _, x := range here {
		h.renewHere(x)
	}
}

// next is when there is something to do for the permit.
func (x *hold) next() time.Time {
	if !x.renewing && x.due.Before(x.ends) {
		return x.due
	}
	return x.ends
}

// lapse is what happens when a lease has ended that nobody has confirmed. Where the policy fails open or local a
// store that is gone ends nothing that runs: the permit is held on, and asked for again.
func (x *hold) lapse(now time.Time) {
	if x.remote() && x.permit.Policy.Options().Fail != FailClosed {
		x.lapsed, x.ends = true, now.Add(x.lease)
		return
	}
	x.end(ErrPermitLost)
}

// renewHere renews a permit in the process.
func (h *holder) renewHere(x *hold) {
	sent := time.Now()
	permits := h.keeper.permits
	if x.local {
		permits = h.keeper.fallback()
	}
	lost, err := permits.Renew(context.Background(), []Permit{x.permit}) //nolint:forbidigo // in memory
	h.renewed([]task{{hold: x}}, lost, []error{err}, sent)
}

// renewed is told what became of a batch of renewals.
func (h *holder) renewed(batch []task, lost []Permit, errs []error, sent time.Time) {
	ids := make(map[string]bool, len(lost))
	for i := range lost {
		ids[lost[i].ID] = true
	}
	var failed, adopted []*hold // adopted: the store counts them again
	h.mu.Lock()
	for i := range batch {
		x := batch[i].hold
		x.renewing = false
		switch {
		case x.released: // while it was renewed, which may have brought it back
			h.giveBack(x)
		case x.ended:
		case errs[i] != nil:
			failed = append(failed, x)
			x.failed = true
			x.due = time.Now().Add(x.lease / retries)
			h.wake(x.next())
		case ids[x.permit.ID] && x.failed && x.lapsed: // what outlived the store is not ended by its return
			x.due = time.Now().Add(x.lease / renewals)
			h.wake(x.next())
		case ids[x.permit.ID]:
			x.end(ErrPermitLost)
		default:
			x.renewed(sent)
			h.wake(x.due)
			if x.adopted {
				x.adopted = false
				adopted = append(adopted, x)
			}
		}
	}
	h.adopted = h.adopted && len(failed) > 0
	h.mu.Unlock()
	for _, x := range adopted {
		h.forget(x)
	}
	h.adoptAll(failed)
}

// adopt tells the fallback of all that is held in the store, once that fails: under "fail local" it counts there, too.
// Later, whatever is not renewed in the store is renewed there.
func (h *holder) adopt() {
	h.mu.Lock()
	if h.adopted {
		h.mu.Unlock()
		return
	}
	h.adopted = true
	all := slices.Collect(maps.Keys(h.held))
	h.mu.Unlock()
	h.adoptAll(all)
}

// recovered notes that the store does not fail any more.
func (h *holder) recovered() {
	h.mu.Lock()
	h.adopted = false
	h.mu.Unlock()
}

// adoptAll begins the leases of permits in the fallback. One that has no room there is held all the same.
func (h *holder) adoptAll(all []*hold) {
	for _, x := range all {
		if !x.remote() || x.permit.Policy.Options().Fail != FailLocal {
			continue
		}
		res, err := h.keeper.fallback().Acquire(context.Background(), x.permit) //nolint:forbidigo // in memory
		if err != nil || !res.Allowed() {
			continue
		}
		h.mu.Lock()
		released := x.released
		x.adopted = !released
		h.mu.Unlock()
		if released { // meanwhile
			h.forget(x)
		}
	}
}

// forget takes an adopted permit out of the fallback.
func (h *holder) forget(x *hold) {
	_ = h.keeper.fallback().Release(context.Background(), []Permit{x.permit}) //nolint:forbidigo // in memory
}

// end ends the contexts and what is done for the permit. The holder is locked.
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

// release gives the permit back, without waiting for a store that is not in the process. Only the first call
// counts.
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
	if first { // and again, if it is just being renewed, which may bring it back
		h.giveBack(x)
	}
}

// giveBack releases a permit: at once in the process, else in the background.
func (h *holder) giveBack(x *hold) {
	switch {
	case x.local:
		h.forget(x)
	case !h.keeper.remote:
		_ = h.keeper.permits.Release(context.Background(), []Permit{x.permit}) //nolint:forbidigo // in memory
	default:
		if x.adopted {
			h.forget(x)
		}
		h.keeper.background.release(x.permit, x.lease)
	}
}

// giveBackUnknown releases a permit that may have been granted, or may yet be.
func (h *holder) giveBackUnknown(x *hold) {
	h.giveBack(x)
	if !x.remote() {
		return
	}
	for _, d := range overtaken {
		if d < x.lease {
			time.AfterFunc(d, func() { h.giveBack(x) })
		}
	}
}

// detach lets the permit outlive the request, until it is claimed.
func (x *hold) detach() {
	x.holder.mu.Lock()
	x.detached = true
	x.holder.mu.Unlock()
}

// claim is a context of the permit for the code that takes care of it from now on. It ends after maxDetached.
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

// finish is told that the request is over. It releases the permit, unless that was detached: then it ends within a
// lease if nobody claims it, and at once if nobody will.
func (x *hold) finish(panicked bool) {
	if x == nil {
		return
	}
	x.holder.mu.Lock()
	detached, claimed := x.detached, x.claimed
	x.holder.mu.Unlock()
	switch {
	case !detached || panicked && !claimed:
		x.release()
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

// close gives back all that is held, whose contexts end with the cause ErrPermitLost. What is acquired later is held
// as ever.
func (h *holder) close() {
	h.mu.Lock()
	all := slices.Collect(maps.Keys(h.held))
	h.mu.Unlock()
	for _, x := range all {
		x.releaseBecause(ErrPermitLost)
	}
}
