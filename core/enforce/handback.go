package enforce

import (
	"context"
	"errors"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/internal/ledger"
)

// owe notes what the fallback has admitted, to be handed back to the store.
func (e *engine) owe(t *core.Take, res *core.Result) {
	if res.Taken > 0 {
		e.ledger.Add(ledgerKeyOf(t.Policy, t.Key), res.Taken, weighs(res))
	}
}

// ledgerKeyOf returns the ledger's Key for a key of p. Other numbers of p that share its state have the same.
func ledgerKeyOf(p core.Policy, key string) ledger.Key { return ledger.KeyOf(p.Name(), shape(p), key) }

// handBack charges to the store, in the background, what this process has admitted without it for the key of t. The
// store has just answered for that key: a store that still hangs might lose the charge, which cannot be sent twice.
// Units that do not weigh any more in the fallback are left out.
func (e *engine) handBack(t *core.Take) {
	units := e.ledger.Collect(ledgerKeyOf(t.Policy, t.Key))
	if units == 0 {
		return
	}
	now := core.Result{}
	if e.takeInFallback(inMemory, &core.Take{Policy: t.Policy, Key: t.Key}, &now) != nil {
		return
	}
	used, share := int64(0), t.Policy.Local()
	for i, l := range share.Limits() {
		if l.Algorithm != core.Concurrent {
			used = max(used, l.Burst-now.Each(i).Remaining)
		}
	}
	if units = min(units, used); units > 0 {
		e.background.handBacks.Add(&handBack{
			core.Take{Policy: t.Policy, Key: t.Key, Cost: units, AtMost: true}, time.Now().Add(weighs(&now)),
		})
	}
}

// sendHandBacks charges a batch to the store. Units that were surely not charged are owed again; those that may have
// been charged are not.
func (e *engine) sendHandBacks(ctx context.Context, batch []*handBack) []error {
	for i, err := range e.takeAll(ctx, len(batch), func(i int) *core.Take { return &batch[i].take }) {
		var failed *core.StoreError
		if errors.As(err, &failed) && !failed.MaybeExecuted {
			t := &batch[i].take
			e.ledger.Add(ledgerKeyOf(t.Policy, t.Key), t.Cost, time.Until(batch[i].until))
		}
	}
	return nil
}
