package core

import (
	"errors"
	"time"
)

// owe notes what the fallback has admitted, to be handed back to the store.
func (e *engine) owe(t *Take, res *Result) {
	if res.Taken > 0 {
		e.ledger.add(t.Policy.ledgerKey(t.Key), res.Taken, t.Policy.p.weighs(res))
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

// mirror counts in the fallback what the store has admitted, as far as there is room.
func (e *engine) mirror(t *Take, units int64) {
	if t.Policy.p.options.Fail == FailLocal {
		var res Result
		_ = e.fallback().take(inMemory, &Take{Policy: t.Policy.local(), Key: t.Key, Cost: units, AtMost: true}, &res)
	}
}

// handBack charges to the store, in the background, what this process has admitted without it for the key of t. The
// store has just answered for that key: a store that still hangs might lose the charge, which cannot be sent twice.
// Units that do not weigh any more in the fallback are left out.
func (e *engine) handBack(t *Take) {
	units := e.ledger.take(t.Policy.ledgerKey(t.Key))
	if units == 0 {
		return
	}
	now := Result{}
	if e.takeLocally(inMemory, &Take{Policy: t.Policy, Key: t.Key}, &now) != nil {
		return
	}
	used, local := int64(0), t.Policy.local().p
	for i := range local.algorithms {
		used = max(used, local.limits[i].Burst-now.at(i).Remaining)
	}
	if units = min(units, used); units > 0 {
		e.background.handBack(Take{Policy: t.Policy, Key: t.Key, Cost: units, AtMost: true}, local.weighs(&now))
	}
}

// handedBack is told what became of a batch of hand-backs. Those that were surely not charged are owed again; those
// that may have been charged are not.
func (e *engine) handedBack(batch []task, errs []error) {
	for i, err := range errs {
		if err == nil {
			continue
		}
		var failed *StoreError
		if errors.As(err, &failed) && !failed.Executed {
			t := batch[i].charge
			e.ledger.add(t.Policy.ledgerKey(t.Key), t.Cost, time.Until(batch[i].until))
		}
	}
}

func (p Policy) ledgerKey(key string) ledgerKey { return p.p.rows.ID(key) }
