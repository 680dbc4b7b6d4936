package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Failure is the fail word of a policy: it chooses what decides while the store does
// not answer. The failure itself is never answered with a 429, which would blame the
// caller.
type Failure uint8

// The fail words.
const (
	// FailLocal, "fail local": an in-process store decides with the same policy, or with
	// a share of its limits; see PolicyOptions.Processes. Each process then counts for itself.
	// This is the default.
	FailLocal Failure = iota
	// FailOpen, "fail open": everything passes, uncounted. For limits that
	// protect nothing but comfort.
	FailOpen
	// FailClosed, "fail closed": everything is refused, with status 503. For
	// limits that must hold, such as on guessing passwords.
	FailClosed
)

// String returns the word as the grammar has it: "local", "open" or "closed".
func (f Failure) String() string {
	switch f {
	case FailLocal:
		return "local"
	case FailOpen:
		return "open"
	case FailClosed:
		return "closed"
	default:
		return fmt.Sprintf("Failure(%d)", uint8(f))
	}
}

// take asks the store, and if that fails it does what the policy's fail word says. res must be zero. Afterwards it is
// the answer, unless the policy fails closed, the caller left, or t is invalid. If the store failed, the error is a
// *StoreError even if there is an answer.
func (e *engine) take(ctx context.Context, t *Take, res *Result) (err error) {
	if e.memory != nil {
		return e.memory.take(ctx, t, res)
	}
	if *res, err = e.store.Take(ctx, *t); err == nil {
		if e.failing.Load() || e.health.failing.Load() {
			e.recovered()
		}
		if e.ledger.keys.Load() > 0 {
			e.handBack(t)
		}
		if e.mirrors && res.Taken > 0 {
			e.mirror(t, res.Taken)
		}
		return nil
	}
	*res = Result{}
	var late *LateError
	if errors.As(err, &late) {
		err = late.Err
	}
	var failed *StoreError
	if !errors.As(err, &failed) { // the caller has left
		e.await(late, t, res)
		return err
	}
	e.failed(failed, t.Policy.Options().Fail)
	switch t.Policy.Options().Fail {
	case FailOpen:
		res.Outcome, res.Local = Admitted, true
		if t.AtMost || late != nil { // all of what was asked for, which the store may charge yet
			res.Taken = t.Cost
		}
	case FailClosed:
	default:
		if local := e.takeLocally(ctx, t, res); local != nil {
			*res, err = Result{}, errors.Join(err, local)
		} else if res.Local = true; !failed.Executed {
			e.owe(t, res)
			return err
		}
	}
	if failed.Executed {
		e.await(late, t, res)
	}
	return err
}

// acquire is to permits what take is to units.
func (e *engine) acquire(ctx context.Context, p Permit) (*hold, Result, error) {
	h, res, err := e.holder.acquire(ctx, p, false)
	if err == nil {
		if e.failing.Load() || e.health.failing.Load() {
			e.recovered()
		}
		return h, res, nil
	}
	var failed *StoreError
	if !errors.As(err, &failed) {
		return nil, Result{}, err
	}
	e.failed(failed, p.Policy.Options().Fail)
	switch p.Policy.Options().Fail {
	case FailOpen:
		return nil, Result{Outcome: Admitted, Local: true}, err
	case FailClosed:
		return nil, Result{}, err
	default:
		e.holder.adopt()
		own := p
		own.Policy = p.Policy.local()
		h, res, local := e.holder.acquire(context.WithoutCancel(ctx), own, true)
		if local != nil {
			return nil, Result{}, errors.Join(err, local)
		}
		if own.Policy != p.Policy {
			p.Policy.p.permitsOfShare(&res, p.Places())
		}
		res.Local = true
		return h, res, err
	}
}

// inMemory is the context of calls in memory, which wait for nothing, and which are also made for requests that are
// over.
var inMemory = context.Background() //nolint:forbidigo // there is nothing to cut short

// giveBack gives units back: in the background if they are in a remote store.
func (e *engine) giveBack(r Refund) {
	r.toCharged()
	if r.Receipt.charged() == inStore && e.remote() {
		e.background.refund(r)
		return
	}
	_ = e.refund(inMemory, []Refund{r})
}

// charge takes units that were used already, from where r was charged: in the background if that is a remote store. It
// calls done when that has ended, however it has.
func (e *engine) charge(t Take, r *Result, done func()) {
	if at := r.charged(); e.remote() && at == inStore {
		e.background.charge(t, done)
		return
	}
	defer done()
	var res Result
	switch at := r.charged(); {
	case at == nowhere:
	case at == inFallback && e.remote():
		if e.takeLocally(inMemory, &t, &res) == nil {
			e.owe(&t, &res)
		}
	default:
		_ = e.memory.take(inMemory, &t, &res)
	}
}

// refund gives back what was charged in one store.
func (e *engine) refund(ctx context.Context, refunds []Refund) error {
	for i := range refunds {
		refunds[i].toCharged()
	}
	switch refunds[0].Receipt.charged() {
	case nowhere:
		for i := range refunds {
			if c := refunds[i].Receipt.late(); c != nil {
				c.giveBack(refunds[i].Units)
			}
		}
		return nil
	case inFallback:
		return e.refundLocally(ctx, refunds)
	default:
		return e.store.Refund(ctx, refunds)
	}
}

// takeLocally lets the fallback decide, by the policy or by a process's share of it.
func (e *engine) takeLocally(ctx context.Context, t *Take, res *Result) error {
	own := *t
	own.Policy = t.Policy.local()
	if err := e.fallback().take(context.WithoutCancel(ctx), &own, res); err != nil {
		return err
	}
	if own.Policy != t.Policy {
		t.Policy.p.ofShare(res, t.Cost)
	}
	return nil
}

// refundLocally gives back what the fallback has admitted, and takes it off what is to be handed back to the store.
func (e *engine) refundLocally(ctx context.Context, refunds []Refund) error {
	own := slices.Clone(refunds)
	for i := range own {
		own[i].Policy = own[i].Policy.local()
	}
	if err := e.fallback().Refund(ctx, own); err != nil {
		return err
	}
	for i := range refunds {
		r := &refunds[i]
		units := r.Units
		if c := r.Receipt.late(); c != nil {
			units = c.giveBack(units)
		}
		if units > 0 {
			e.ledger.sub(r.Policy.ledgerKey(r.Key), units)
		}
	}
	return nil
}
