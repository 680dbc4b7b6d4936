package enforce

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/internal/later"
)

// A permit is renewed every lease/renewals, together with others that are due within lease/together of it, and after
// a failure every lease/retries.
const (
	renewals = 3
	retries  = 10
	together = 30
)

// overtaken has the delays after which a permit is released again if it is unknown whether it was granted: the question
// may still be on its way, on a connection that has lost a packet, and arrive after the first release.
var overtaken = [...]time.Duration{500 * time.Millisecond, 1500 * time.Millisecond, 5 * time.Second}

// holder keeps the permits that a process holds alive, each in the store that granted it, and gives them back. It
// has no goroutine of its own. Times are those of the monotonic clock.
type holder struct {
	engine *engine

	mu       sync.Mutex
	held     map[*hold]struct{}
	count    tally  // places of held
	lost     uint64 // permits so far
	timer    *time.Timer
	next     time.Time // when the timer fires; zero if it does not
	adopting bool      // the store fails, and the fallback counts all that is held
}

func newHolder(e *engine) *holder {
	return &holder{engine: e, held: map[*hold]struct{}{}, count: tally{}}
}

// acquire asks the store, or the fallback, for a permit, and keeps it until it is released. There is a hold only if the
// Result admits. p needs no ID.
//
// If it is unknown whether the store granted the permit, it is given back.
func (h *holder) acquire(ctx context.Context, p core.Permit, from origin) (*hold, core.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, core.Result{}, err
	}
	p.ID = rand.Text()
	_, lease, _ := p.Policy.Concurrent()
	x, sent := &hold{holder: h, permit: p, lease: lease, origin: from}, time.Now()
	unknown := true // whether it was granted; so it stays after a panic
	defer func() {
		if unknown {
			h.giveBackUnknown(x)
		}
	}()
	res, err := x.store().Acquire(ctx, p)
	if err != nil {
		var failed *core.StoreError
		ok := errors.As(err, &failed)
		unknown = ok && failed.MaybeExecuted || !ok && ctx.Err() != nil
		return nil, core.Result{}, err
	}
	unknown = false
	if !res.Allowed() {
		return nil, res, nil
	}
	x.beginLease(sent)
	h.mu.Lock()
	h.held[x] = struct{}{}
	h.count.add(p.Policy, int(p.Places()))
	h.wake(x.due)
	adopting := h.adopting
	h.mu.Unlock()
	if adopting { // it came after all others were
		h.adoptAll([]*hold{x})
	}
	return x, res, nil
}

// wake lets tick be called no later than at. The holder is locked.
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
			x.leaseEnded(now)
			if x.state != held {
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
		h.engine.background.renewals.AddAll(due)
	}
	for _, x := range here {
		h.renewHere(x)
	}
}

// renewHere renews a permit that is in the process.
func (h *holder) renewHere(x *hold) {
	sent := time.Now()
	gone, err := x.store().Renew(inMemory, []core.Permit{x.permit})
	h.settle([]*hold{x}, gone, []error{err}, sent)
}

// renew renews permits in the remote store.
func (h *holder) renew(ctx context.Context, batch []*hold) []error {
	permits, timeout := make([]core.Permit, len(batch)), later.Timeout
	for i, x := range batch {
		permits[i] = x.permit
		timeout = min(timeout, x.lease/renewals)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	sent := time.Now()
	gone, err := h.askToRenew(ctx, permits)
	h.settle(batch, gone, eachError(err, len(batch)), sent)
	return nil // a permit that was not renewed is renewed in its own time
}

func (h *holder) askToRenew(ctx context.Context, permits []core.Permit) (gone []core.Permit, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = panicked(value)
		}
	}()
	return h.engine.permits.Renew(ctx, permits)
}

// settle takes the answer to a batch of renewals.
func (h *holder) settle(batch []*hold, gone []core.Permit, errs []error, sent time.Time) {
	ids := make(map[string]bool, len(gone))
	for i := range gone {
		ids[gone[i].ID] = true
	}
	var failed, adopted []*hold // adopted: the store counts them again
	h.mu.Lock()
	for i := range batch {
		x := batch[i]
		x.renewing = false
		switch {
		case x.state == released: // while it was renewed, which may have brought it back
			h.giveBack(x)
		case x.state == lost:
		case errs != nil && errs[i] != nil:
			failed = append(failed, x)
			x.notRenewed()
			h.wake(x.next())
		case ids[x.permit.ID] && x.lapse == lapsed: // what outlived the store is not ended by its return
			x.due = time.Now().Add(x.lease / renewals)
			h.wake(x.next())
		case ids[x.permit.ID]:
			x.end(lost, ErrPermitLost)
		default:
			x.beginLease(sent)
			h.wake(x.due)
			if x.adopted {
				x.adopted = false
				adopted = append(adopted, x)
			}
		}
	}
	h.adopting = h.adopting && len(failed) > 0
	h.mu.Unlock()
	for _, x := range adopted {
		h.forget(x)
	}
	h.adoptAll(failed)
}

// adopt lets the fallback count all that is held in the store, once that fails, under "fail local". Later, permits that
// are not renewed in the store are renewed there.
func (h *holder) adopt() {
	h.mu.Lock()
	if h.adopting {
		h.mu.Unlock()
		return
	}
	h.adopting = true
	all := slices.Collect(maps.Keys(h.held))
	h.mu.Unlock()
	h.adoptAll(all)
}

// stopAdopting notes that the store does not fail any more.
func (h *holder) stopAdopting() {
	h.mu.Lock()
	h.adopting = false
	h.mu.Unlock()
}

// adoptAll begins the leases of permits in the fallback. One that has no room there is held all the same.
func (h *holder) adoptAll(all []*hold) {
	for _, x := range all {
		if !x.remote() || x.permit.Policy.Options().Fail != core.FailLocal {
			continue
		}
		res, err := h.engine.fallback().Acquire(inMemory, x.permit)
		if err != nil || !res.Allowed() {
			continue
		}
		h.mu.Lock()
		gone := x.state == released
		x.adopted = !gone
		h.mu.Unlock()
		if gone { // meanwhile
			h.forget(x)
		}
	}
}

// forget takes an adopted permit out of the fallback.
func (h *holder) forget(x *hold) {
	_ = h.engine.fallback().Release(inMemory, []core.Permit{x.permit})
}

// giveBack releases a permit: at once in the process, else in the background.
func (h *holder) giveBack(x *hold) {
	if !x.remote() {
		_ = x.store().Release(inMemory, []core.Permit{x.permit})
		return
	}
	if x.adopted {
		h.forget(x)
	}
	h.engine.background.releases.Add(&release{x.permit, time.Now().Add(x.lease)})
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

// places returns the number of places of a key that this process holds.
func (h *holder) places(p core.Policy, key string) (n int64) {
	h.each(p, key, func(x *hold) { n += x.permit.Places() })
	return n
}

// each calls f for each permit of a key that this process holds, under the lock.
func (h *holder) each(p core.Policy, key string, f func(*hold)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for x := range h.held {
		if x.permit.Key == key && x.permit.Policy.Name() == p.Name() && x.permit.Policy.Spec().PermitShape() == p.Spec().PermitShape() {
			f(x)
		}
	}
}

// withLeases adds to the leases of a key in the fallback, at now, those of the permits that the store has granted to this
// process: they begin there when the fallback first decides.
func (h *holder) withLeases(ends []int64, p core.Policy, key string, now int64) []int64 {
	h.each(p, key, func(x *hold) {
		if x.remote() && !x.adopted {
			for range x.permit.Places() {
				ends = append(ends, now+x.lease.Microseconds())
			}
		}
	})
	slices.Sort(ends)
	return ends
}
