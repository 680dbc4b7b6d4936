package enforce

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/core"
)

// lateCharge is a charge that the store may have made for a decision that it did not answer in time. As much of it
// stands as the policy's fail word has admitted, less what was given back since: nothing, if that has refused, or the
// caller has left. If the answer never comes, the charge is never known, and nothing of it is given back.
type lateCharge struct {
	engine *engine
	policy core.Policy
	key    string
	owes   bool          // to the store what that has not charged, because the fallback has admitted it
	weighs time.Duration // until what it owes weighs nothing

	asks asker

	mu      sync.Mutex
	used    int64       // units that were admitted and not given back
	known   bool        // what the store has charged
	receipt core.Result // of that
	stands  int64       // the units of it that are not given back
}

// lateChargeOf returns what the store may have charged for r although it did not answer in time, or nil.
func lateChargeOf(r *core.Result) *lateCharge {
	c, _ := r.Note().(*lateCharge)
	return c
}

// expectAnswer prepares for the late answer to a take: when it comes, as much of the store's charge stands as the fail word
// has admitted by res, and the rest is given back. If late is nil, no answer comes.
func (e *engine) expectAnswer(late *core.LateError, t *core.Take, res *core.Result) {
	if t.Cost == 0 || late == nil && (res.Taken == 0 || originOf(res) != inFallback) {
		return
	}
	key := strings.Clone(t.Key) // it may be a part of a request
	c := &lateCharge{engine: e, policy: t.Policy, key: key, used: res.Taken}
	if originOf(res) == inFallback {
		c.owes, c.weighs = true, weighs(res)
	}
	if res.Taken > 0 {
		res.SetNote(c)
	}
	if late != nil {
		if waits(t.Policy) { // the caller may have a turn
			c.asks = e.waiters.askers.add(key)
		}
		late.Then(c.answered)
	}
}

// answered takes the answer of the store.
func (c *lateCharge) answered(res core.Result, err error) {
	defer c.asks.done()
	var failed *core.StoreError
	if err != nil && (!errors.As(err, &failed) || failed.MaybeExecuted) {
		return
	}
	c.mu.Lock()
	c.known, c.receipt = true, res
	c.stands = min(c.used, res.Taken)
	back, owed := res.Taken-c.stands, c.used-c.stands
	if c.owes && owed > 0 { // before anybody may find it known, and take off the ledger what is given back of it
		c.engine.ledger.Add(ledgerKeyOf(c.policy, c.key), owed, c.weighs)
	}
	c.mu.Unlock()
	c.refund(back)
}

// giveBack gives back units that the fail word has admitted: of what the store has charged for them, now or when that
// is known. It returns how many of them the store has surely not charged.
func (c *lateCharge) giveBack(units int64) (uncharged int64) {
	c.mu.Lock()
	units = min(units, c.used)
	c.used -= units
	back := min(units, c.stands)
	c.stands -= back
	known := c.known
	c.mu.Unlock()
	if !known {
		return 0
	}
	c.refund(back)
	return units - back
}

// refund gives back units of the store's receipt. A turn that nobody waits for is that of the next caller.
func (c *lateCharge) refund(units int64) {
	if units == 0 {
		return
	}
	r := core.Refund{Policy: c.policy, Key: c.key, Receipt: c.receipt, Units: units}
	if turn := c.receipt.Delay; turn > 0 && units == c.receipt.Taken {
		c.engine.waiters.put(&r, time.Now().Add(turn), nil)
		return
	}
	c.engine.giveBack(&r)
}

// waitForAnswer returns the error of the answer, or that of the take if none comes before ctx ends.
func waitForAnswer(ctx context.Context, e *core.LateError) error {
	answer := make(chan error, 1)
	e.Then(func(_ core.Result, err error) { answer <- err })
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return e.Err
	}
}
