package core

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"
)

// LateError is the error of a [Store.Take] that has ended while its answer was still under way, because the caller
// has left or its time was over. The answer may come later: then the store calls Answer. The caller of Take calls
// Then to have it, as a [Limiter] does to give back what is of no use any more. A store need not use LateError;
// without it, what was charged for such a Take stays charged.
type LateError struct {
	// Err is the context's error, or a [*StoreError] whose Executed is true.
	Err error

	mu       sync.Mutex
	answered bool
	res      Result
	err      error
	then     func(Result, error)
}

// Error implements error.
func (e *LateError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *LateError) Unwrap() error { return e.Err }

// Answer says what Take would have returned, when the store knows. It is called once at most.
func (e *LateError) Answer(res Result, err error) {
	e.mu.Lock()
	e.answered, e.res, e.err = true, res, err
	then := e.then
	e.mu.Unlock()
	if then != nil {
		then(res, err)
	}
}

// Then calls f with the answer: at once if that has come already, otherwise when it comes, in the goroutine of the
// store, which f must not hold up. If no answer comes, f is not called. Then is called once at most.
func (e *LateError) Then(f func(Result, error)) {
	e.mu.Lock()
	e.then = f
	answered := e.answered
	e.mu.Unlock()
	if answered {
		f(e.res, e.err)
	}
}

// wait returns the error of the answer, or that of the take if none comes before ctx ends.
func (e *LateError) wait(ctx context.Context) error {
	answer := make(chan error, 1)
	e.Then(func(_ Result, err error) { answer <- err })
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return e.Err
	}
}

// lateCharge is a charge that the store may have made for a decision that it did not answer in time. As much of it
// stands as the policy's fail word has admitted, less what was given back since: nothing, if that has refused, or the
// caller has left. If the answer never comes, the charge is never known, and nothing of it is given back.
type lateCharge struct {
	engine *engine
	policy Policy
	key    string
	owes   bool          // to the store what that has not charged, because the fallback has admitted it
	weighs time.Duration // how long that is

	mu      sync.Mutex
	used    int64  // units that were admitted and not given back
	known   bool   // what the store has charged
	receipt Result // of that
	stands  int64  // how many units of it are not given back
}

// await sees to it that of what the store charges for a take that it did not answer in time as much stands as res, the
// answer of the fail word, has admitted. If late is nil, that will not be known.
func (e *engine) await(late *LateError, t *Take, res *Result) {
	if t.Cost == 0 || late == nil && (res.Taken == 0 || res.charged() != inFallback) {
		return
	}
	c := &lateCharge{engine: e, policy: t.Policy, key: strings.Clone(t.Key), used: res.Taken} // the key may be a part of a request
	if res.charged() == inFallback {
		c.owes, c.weighs = true, t.Policy.p.weighs(res)
	}
	if res.Taken > 0 {
		res.setLate(c)
	}
	if late != nil {
		late.Then(c.answered)
	}
}

// answered is called when the store has said what it has charged.
func (c *lateCharge) answered(res Result, err error) {
	var failed *StoreError
	if err != nil && (!errors.As(err, &failed) || failed.Executed) {
		return
	}
	c.mu.Lock()
	c.known, c.receipt = true, res
	c.stands = min(c.used, res.Taken)
	back, owed := res.Taken-c.stands, c.used-c.stands
	if c.owes && owed > 0 { // before anybody may find it known, and take off the ledger what is given back of it
		c.engine.ledger.add(c.policy.ledgerKey(c.key), owed, c.weighs)
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
	r := Refund{Policy: c.policy, Key: c.key, Receipt: c.receipt, Units: units}
	if turn := c.receipt.Delay; turn > 0 && units == c.receipt.Taken {
		c.engine.waiters.put(&r, time.Now().Add(turn))
		return
	}
	c.engine.giveBack(r)
}
