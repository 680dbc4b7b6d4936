package enforce

import (
	"container/list"
	"context"
	"errors"

	"github.com/weir-go/weir/core"
)

// maxNumbers bounds how many numbers of one policy are known at once, by which a key may have states of its own. Those
// that were not prepared for the longest time give way.
const maxNumbers = 256

// numbers are the latest numbers of one policy, one for each state.
type numbers struct {
	byState map[stateOf]*list.Element
	order   list.List // of core.Policy, the oldest first
}

func (n *numbers) add(p core.Policy) {
	state := stateFor(p)
	if known, ok := n.byState[state]; ok {
		known.Value = p
		n.order.MoveToBack(known)
		return
	}
	if oldest := n.order.Front(); n.order.Len() == maxNumbers {
		delete(n.byState, stateFor(n.order.Remove(oldest).(core.Policy))) //nolint:forcetypeassert // there is nothing else in the list
	}
	if n.byState == nil {
		n.byState = map[stateOf]*list.Element{}
	}
	n.byState[state] = n.order.PushBack(p)
}

func (n *numbers) all() (all []core.Policy) {
	for e := n.order.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(core.Policy)) //nolint:forcetypeassert // as above
	}
	return all
}

// reset forgets a key, in the store and in the fallback, under all numbers of the policy that are known.
func (n *named) reset(ctx context.Context, p core.Policy, key string) error {
	e := n.group.engine
	err := e.store.Reset(ctx, p, key)
	e.waiters.forget(p, key)
	err = errors.Join(err, e.resetInFallback(ctx, p, key))
	n.group.mu.Lock()
	known := n.all()
	n.group.mu.Unlock()
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
