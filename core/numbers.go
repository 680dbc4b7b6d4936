package core

import (
	"context"
	"errors"
	"slices"
)

// maxNumbers bounds how many numbers of one policy are known at once, by which a key may have states of its own. Those
// that were not prepared for the longest time give way.
const maxNumbers = 256

// know notes the numbers of p, for [Limiter.Reset]: one policy for each state that a key may have under its name.
func (e *engine) know(p Policy) {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := slices.DeleteFunc(e.known[p.Name()], p.sharesState)
	if len(known) == maxNumbers {
		known = slices.Delete(known, 0, 1)
	}
	e.known[p.Name()] = append(known, p)
}

// sharesState reports whether the key of one name has one state under both, in the store and in the fallback.
func (p Policy) sharesState(q Policy) bool {
	return p.p.shape == q.p.shape && p.local().p.shape == q.local().p.shape // whose share may be of another number of processes
}

// reset forgets a key, in the store and in the fallback, under all numbers of the policy that are known.
func (e *engine) reset(ctx context.Context, p Policy, key string) error {
	err := e.store.Reset(ctx, p, key)
	e.waiters.forget(p, key)
	err = errors.Join(err, e.resetLocally(ctx, p, key))
	e.mu.Lock()
	known := slices.Clone(e.known[p.Name()])
	e.mu.Unlock()
	done := map[string]bool{p.p.shape: true, "": true}
	for _, q := range known {
		if err == nil && !done[q.p.shape] {
			err = e.store.Reset(ctx, q, key)
		}
		done[q.p.shape] = true
		if !q.sharesState(p) {
			err = errors.Join(err, e.resetLocally(ctx, q, key))
		}
	}
	return err
}

// resetLocally forgets what the fallback has counted, and what the store is to be charged for it.
func (e *engine) resetLocally(ctx context.Context, p Policy, key string) error {
	if !e.remote() || len(p.p.algorithms) == 0 {
		return nil
	}
	if err := e.fallback().Reset(ctx, p.local(), key); err != nil {
		return err
	}
	e.ledger.take(p.ledgerKey(key))
	return nil
}

// toCharged makes r a refund under the numbers by which it was charged, if the state that they count in is not that of
// the numbers which are given.
func (r *Refund) toCharged() {
	made := r.Receipt.policy
	if made == nil {
		return
	}
	if made.whole != nil {
		made = made.whole
	}
	if r.Policy.p != nil && made.name == r.Policy.p.name && !r.Policy.sharesState(Policy{made}) {
		r.Policy = Policy{made}
	}
}
