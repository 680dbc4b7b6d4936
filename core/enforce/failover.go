package enforce

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weir-go/weir/core"
)

// decide asks the store, and follows the policy's fail word if that fails. res must be zero. Afterwards it is
// the answer, unless the policy fails closed, the caller left, or t is invalid. If the store failed, the error is a
// *StoreError even if there is an answer.
func (e *engine) decide(ctx context.Context, t *core.Take, res *core.Result) (err error) {
	if e.memory != nil {
		return e.memory.TakeInto(ctx, t, res)
	}
	if *res, err = e.store.Take(ctx, *t); err != nil {
		return e.decideWithout(ctx, t, res, err)
	}
	if e.failing.Load() || e.health.failing.Load() {
		e.recovered()
	}
	if !e.ledger.Empty() {
		e.handBack(t)
	}
	return nil
}

// afterAnswer is the rest of decide for one of many that the store was asked for, after it has answered, or failed with err.
func (e *engine) afterAnswer(ctx context.Context, t *core.Take, res *core.Result, err error) error {
	if err != nil {
		return e.decideWithout(ctx, t, res, err)
	}
	if e.failing.Load() || e.health.failing.Load() {
		e.recovered()
	}
	if !e.ledger.Empty() {
		e.handBack(t)
	}
	return nil
}

// decideWithout is decide for a store that has failed with err.
func (e *engine) decideWithout(ctx context.Context, t *core.Take, res *core.Result, err error) error {
	*res = core.Result{}
	var late *core.LateError
	if errors.As(err, &late) {
		err = late.Err
	}
	var failed *core.StoreError
	if !errors.As(err, &failed) { // the caller has left
		e.expectAnswer(late, t, res)
		return err
	}
	e.failed(failed, t.Policy.Options().Fail)
	switch t.Policy.Options().Fail {
	case core.FailOpen:
		res.Outcome, res.Local = core.Admitted, true
		if t.AtMost || late != nil { // all of what was asked for, which the store may charge yet
			res.Taken = t.Cost
		}
	case core.FailClosed:
	default:
		if mistake := e.takeInFallback(ctx, t, res); mistake != nil {
			*res, err = core.Result{}, errors.Join(err, mistake)
		} else if res.Local = true; !failed.MaybeExecuted {
			e.owe(t, res)
			return err
		}
	}
	if failed.MaybeExecuted {
		e.expectAnswer(late, t, res)
	}
	return err
}

// acquire does for permits what decide does for units.
func (e *engine) acquire(ctx context.Context, p core.Permit) (*hold, core.Result, error) {
	h, res, err := e.holder.acquire(ctx, p, inStore)
	if err == nil {
		if e.failing.Load() || e.health.failing.Load() {
			e.recovered()
		}
		return h, res, nil
	}
	var failed *core.StoreError
	if !errors.As(err, &failed) {
		return nil, core.Result{}, err
	}
	e.failed(failed, p.Policy.Options().Fail)
	switch p.Policy.Options().Fail {
	case core.FailOpen:
		return nil, core.Result{Outcome: core.Admitted, Local: true}, err
	case core.FailClosed:
		return nil, core.Result{}, err
	default:
		e.holder.adopt()
		own := p
		own.Policy = p.Policy.Local()
		h, res, mistake := e.holder.acquire(context.WithoutCancel(ctx), own, inFallback)
		if mistake != nil {
			return nil, core.Result{}, errors.Join(err, mistake)
		}
		res.Local = true
		return h, res, err
	}
}

// giveBack gives units back: in the background if they are in a remote store.
func (e *engine) giveBack(r *core.Refund) {
	toCharged(r)
	if e.remote() && originOf(&r.Receipt) == inStore {
		e.background.refunds.Add(&refund{*r, time.Now().Add(refundLife)})
		return
	}
	_ = e.refund(inMemory, []core.Refund{*r})
}

// charge takes units that were used already: in the background if that is in a remote store. It calls done when that
// has ended, however it has.
func (e *engine) charge(t core.Take, at origin, done func()) {
	if e.remote() && at == inStore {
		e.background.charges.Add(&charge{t, time.Now().Add(refundLife), done})
		return
	}
	defer done()
	var res core.Result
	switch {
	case at == nowhere:
	case at == inFallback && e.remote():
		if e.takeInFallback(inMemory, &t, &res) == nil {
			e.owe(&t, &res)
		}
	default:
		_ = e.memory.TakeInto(inMemory, &t, &res)
	}
}

// refund gives back what was charged in one store.
func (e *engine) refund(ctx context.Context, refunds []core.Refund) error {
	for i := range refunds {
		toCharged(&refunds[i])
	}
	switch originOf(&refunds[0].Receipt) {
	case nowhere:
		for i := range refunds {
			if c := lateChargeOf(&refunds[i].Receipt); c != nil {
				c.giveBack(refunds[i].Units)
			}
		}
		return nil
	case inFallback:
		return e.refundInFallback(ctx, refunds)
	default:
		return e.store.Refund(ctx, refunds)
	}
}

// credit gives back units of a key without a receipt: first those that the fallback has admitted and the store has not
// been charged for, and the rest in the store. If that fails, the fallback gives back the rest, too, where it decides.
func (e *engine) credit(ctx context.Context, r *core.Refund) error {
	if err := r.Validate(); err != nil {
		return err
	}
	rest := *r
	if k := ledgerKeyOf(r.Policy, r.Key); e.ledger.Owed(k) > 0 {
		used, _, _ := e.usedInFallback(r.Policy, r.Key)
		owed := e.ledger.Sub(k, min(r.Units, used))
		rest.Units -= owed
		if err := e.creditInFallback(r, owed); err != nil || rest.Units == 0 {
			return err
		}
	}
	err := e.store.Refund(ctx, []core.Refund{rest})
	var one *core.BatchError
	if errors.As(err, &one) && len(one.Errs) == 1 {
		err = one.Errs[0]
	}
	var failed *core.StoreError
	if e.remote() && errors.As(err, &failed) && r.Policy.Options().Fail == core.FailLocal {
		err = errors.Join(err, e.creditInFallback(&rest, rest.Units))
	}
	return err
}

// creditInFallback gives back units of a key by the policy or by a process's share of it.
func (e *engine) creditInFallback(r *core.Refund, units int64) error {
	own := *r
	own.Policy, own.Units = r.Policy.Local(), units
	return e.fallback().Refund(inMemory, []core.Refund{own})
}

// takeInFallback lets the fallback decide, by the policy or by a process's share of it.
func (e *engine) takeInFallback(ctx context.Context, t *core.Take, res *core.Result) error {
	own := *t
	own.Policy = t.Policy.Local()
	return e.fallback().TakeInto(context.WithoutCancel(ctx), &own, res)
}

// refundInFallback gives back what the fallback has admitted, and takes it off what is to be handed back to the store.
func (e *engine) refundInFallback(ctx context.Context, refunds []core.Refund) error {
	own := slices.Clone(refunds)
	for i := range own {
		own[i].Policy = own[i].Policy.Local()
	}
	if err := e.fallback().Refund(ctx, own); err != nil {
		return err
	}
	for i := range refunds {
		r := &refunds[i]
		units := r.Units
		if c := lateChargeOf(&r.Receipt); c != nil {
			units = c.giveBack(units)
		}
		if units > 0 {
			e.ledger.Sub(ledgerKeyOf(r.Policy, r.Key), units)
		}
	}
	return nil
}
