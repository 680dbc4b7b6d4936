package enforce

import (
	"context"
	"errors"
	"slices"

	"github.com/weir-go/weir/core"
)

// maxNumbers bounds how many numbers of one policy are known at once, by which a key may have states of its own. Those
// that were not prepared for the longest time give way.
const maxNumbers = 256

// know notes the numbers of p, for [Limiter.Reset]: one policy for each state that a key may have under its name.
func (e *engine) know(p core.Policy) {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := slices.DeleteFunc(e.known[p.Name()], func(q core.Policy) bool { return sharesState(p, q) })
	if len(known) == maxNumbers {
		known = slices.Delete(known, 0, 1)
	}
	e.known[p.Name()] = append(known, p)
}

// reset forgets a key, in the store and in the fallback, under all numbers of the policy that are known.
func (e *engine) reset(ctx context.Context, p core.Policy, key string) error {
	err := e.store.Reset(ctx, p, key)
	e.waiters.forget(p, key)
	err = errors.Join(err, e.resetInFallback(ctx, p, key))
	e.mu.Lock()
	known := slices.Clone(e.known[p.Name()])
	e.mu.Unlock()
	done := map[string]bool{shape(p): true, "": true}
	for _, q := range known {
		if err == nil && !done[shape(q)] {
			err = e.store.Reset(ctx, q, key)
		}
		done[shape(q)] = true
		if !sharesState(q, p) {
			err = errors.Join(err, e.resetInFallback(ctx, q, key))
		}
	}
	return err
}

// resetInFallback forgets what the fallback has counted, and what the store is to be charged for it.
func (e *engine) resetInFallback(ctx context.Context, p core.Policy, key string) error {
	if !e.remote() || !hasRates(p) {
		return nil
	}
	if err := e.fallback().Reset(ctx, p.Local(), key); err != nil {
		return err
	}
	e.ledger.Collect(ledgerKeyOf(p, key))
	return nil
}

// toCharged makes r a refund under the numbers by which it was charged, if these count in another state than the
// numbers that are given.
func toCharged(r *core.Refund) {
	made := r.Receipt.Policy()
	if !made.IsZero() && !r.Policy.IsZero() && made != r.Policy && made.Name() == r.Policy.Name() && !sharesState(r.Policy, made) {
		r.Policy = made
	}
}
