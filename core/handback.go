package core

import (
	"context"
	"errors"
	"slices"
	"time"
)

// takeLocally lets the fallback decide, of the policy or of a share of it.
func (k *keeper) takeLocally(ctx context.Context, t *Take, res *Result) error {
	own := *t
	own.Policy = t.Policy.local()
	if err := k.fallback().take(context.WithoutCancel(ctx), &own, res); err != nil {
		return err
	}
	if own.Policy != t.Policy {
		t.Policy.p.ofShare(res, t.Cost)
	}
	return nil
}

// owe notes what the fallback has admitted, for the store to be told of.
func (k *keeper) owe(t *Take, res *Result) {
	if res.Taken > 0 {
		k.ledger.add(t.Policy.ledgerKey(t.Key), res.Taken, t.Policy.p.weighs(res))
	}
}

// weighs is how long it takes until nothing that was taken weighs any more, in any of the limits.
func (p *policy) weighs(res *Result) time.Duration {
	longest := int64(0)
	for i := range p.algorithms {
		longest = max(longest, res.at(i).Reset)
	}
	return time.Duration(longest) * time.Microsecond
}

// refundLocally gives back what the fallback has admitted: to it, and of what the store is to be told of.
func (k *keeper) refundLocally(ctx context.Context, refunds []Refund) error {
	own := slices.Clone(refunds)
	for i := range own {
		own[i].Policy = own[i].Policy.local()
	}
	if err := k.fallback().Refund(ctx, own); err != nil {
		return err
	}
	for i := range refunds {
		k.ledger.sub(refunds[i].Policy.ledgerKey(refunds[i].Key), refunds[i].Units)
	}
	return nil
}

// mirror counts in the fallback what the store has admitted, as far as it fits there.
func (k *keeper) mirror(t *Take, units int64) {
	if t.Policy.p.options.Fail == FailLocal {
		var res Result
		_ = k.fallback().take(inMemory, &Take{Policy: t.Policy.local(), Key: t.Key, Cost: units, AtMost: true}, &res)
	}
}

// handBack sees to it that the store is told of what this process has admitted without it for the key of t, which it has
// just answered for: before that it might swallow what cannot be sent twice. Units that do not weigh any more in the
// fallback, which never forgets any, are left out. Nobody waits for it.
func (k *keeper) handBack(t *Take) {
	units := k.ledger.take(t.Policy.ledgerKey(t.Key))
	if units == 0 {
		return
	}
	now := Result{}
	if k.takeLocally(inMemory, &Take{Policy: t.Policy, Key: t.Key}, &now) != nil {
		return
	}
	used, local := int64(0), t.Policy.local().p
	for i := range local.algorithms {
		used = max(used, local.limits[i].Burst-now.at(i).Remaining)
	}
	if units = min(units, used); units > 0 {
		k.background.handBack(Take{Policy: t.Policy, Key: t.Key, Cost: units, AtMost: true}, local.weighs(&now))
	}
}

// handedBack is told what became of hand-backs. What surely was not done is still owed. What may have been done is not
// done again.
func (k *keeper) handedBack(batch []task, errs []error) {
	for i, err := range errs {
		if failed, ok := errors.AsType[*StoreError](err); ok && !failed.Executed {
			t := batch[i].charge
			k.ledger.add(t.Policy.ledgerKey(t.Key), t.Cost, time.Until(batch[i].until))
		}
	}
}

func (p Policy) ledgerKey(key string) ledgerKey { return p.p.rows.ID(key) }
