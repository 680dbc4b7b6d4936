package core

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Take asks a [Store] for one decision.
type Take struct {
	// Policy is what holds.
	Policy Policy
	// Key is who is counted: any text but the empty one. Policies of different
	// names never share a key's state.
	Key string
	// Cost is how many units the request takes. 0 peeks: nothing is charged and
	// nothing is stored. A cost that can never fit, above burst and debt together,
	// is answered with Never.
	Cost int64
	// AtMost takes as many units as there are, from none to Cost: Result.Taken says how many.
	// It is refused if there is none. With a Cost of 0 it takes none, and only looks whether
	// there is one.
	AtMost bool
	// Debt lets AtMost count the debt that the policy allows, too: all that it can still bear,
	// even if the key is in debt already. It is for what was used before it is charged. Where a
	// limit has no debt, it is what there is. Result.Delay then says how long it will take until
	// the key is out of debt so far that the units would have been admitted.
	Debt bool
	// Wait is how long the caller would wait for its turn: the charge may be reserved
	// so far ahead, up to the policy's PolicyOptions.Wait, and Result.Delay is what there is
	// to wait. 0 means now or not at all.
	Wait time.Duration
	// Now forces the clock, in microseconds since the epoch, for tests and
	// simulation. 0 means the store's clock. State written under a forced clock
	// must be read under one.
	Now int64
}

// maxNow keeps every instant that a decision computes inside the 53 bits that Lua
// computes exactly.
const maxNow = 1 << 52

// Validate returns what is wrong with t: a zero policy, an empty key, a negative
// cost or wait, a time out of range, and AtMost together with a Wait. Every store calls it first and
// then, if t is wrong, changes nothing.
func (t *Take) Validate() error {
	switch {
	case t.Policy.p == nil:
		return errors.New("core: Take.Policy is zero; build one with Parse or NewPolicy")
	case t.Key == "":
		return errors.New("core: the key is empty; give one, or every caller would share one count")
	case len(t.Policy.p.algorithms) == 0:
		return fmt.Errorf("core: the policy %q has permits alone, and no units to take or to forget; use Limiter.Acquire or PermitStore.Acquire", t.Policy)
	case t.Cost < 0:
		return fmt.Errorf("core: a cost of %d units; give 0 to peek, or more", t.Cost)
	case t.Wait < 0:
		return fmt.Errorf("core: Take.Wait is %v; give the time to wait at most, or 0", t.Wait)
	case t.AtMost && t.Wait > 0:
		return errors.New("core: Take.AtMost and Wait at once; what there is now needs no wait: leave one out")
	case t.Debt && !t.AtMost:
		return errors.New("core: Take.Debt without AtMost; what is taken whole may go into debt as the policy says: leave it out")
	case t.Now < 0 || t.Now > maxNow:
		return fmt.Errorf("core: Take.Now is %d; give microseconds since the epoch, up to the year 2112, or 0 for the store's clock", t.Now)
	}
	return nil
}

// Store keeps what was counted and decides, in one atomic step for each call. Its
// methods are safe for concurrent use. Two stores come with weir: [Memory] and
// redisstore.Store; package storetest holds what any further one must fulfil,
// and [Spec.Step] makes one out of anything that can compare and swap.
//
// A method fails with the context's error if the caller has left, with a
// [*StoreError] if the store could not decide, and with another error if it was
// asked for something impossible; see [Take.Validate].
type Store interface {
	// Take decides and charges: all limits of the policy, or none.
	Take(context.Context, Take) (Result, error)
	// Refund gives units back, as far as they still weigh: of a meter, less for every
	// microsecond since the receipt; of a window, while it lasts. A reservation comes
	// back before its turn, whole, if nobody has queued behind, and else not at all: so a part
	// of what a meter took in debt, or with a delay, does not come back. It
	// never gives back more than Units, nor more than the key has in use. A charge weighs
	// by the numbers of the policy that made the receipt, whatever those of the Refund are;
	// a policy of another [Spec.Shape] has another state, and nothing to give back from
	// it. A receipt is good for its units once; that is the caller's to mind.
	//
	// The refunds of a batch are independent of each other. If some of them failed, the
	// error is a [*BatchError]; any other error means that nothing was given back.
	Refund(ctx context.Context, refunds []Refund) error
	// Reset forgets the key: it is as if unused.
	Reset(ctx context.Context, p Policy, key string) error
}

// Refund is units to give back; see [Store].
type Refund struct {
	// Policy and Key are those of the Take, the policy as it is now.
	Policy Policy
	Key    string
	// Receipt is what Take answered.
	Receipt Result
	// Units is how many of Receipt.Taken to give back.
	Units int64
	// Now forces the clock, as Take.Now does. 0 means the store's clock.
	Now int64
}

// Validate returns what is wrong with r: what is wrong with a [Take] of the same policy,
// key and time, more units than the receipt took, and a Receipt of nothing. Every store
// calls it for each refund first and then, if one is wrong, changes nothing.
func (r *Refund) Validate() error {
	t := Take{Policy: r.Policy, Key: r.Key, Now: r.Now}
	if err := t.Validate(); err != nil {
		return err
	}
	switch {
	case r.Units < 0:
		return fmt.Errorf("core: a refund of %d units; give 0 or more", r.Units)
	case r.Units > 0 && r.Receipt.Taken == 0:
		return fmt.Errorf("core: the Result (%v) took nothing; there is nothing to give back", r.Receipt.Outcome)
	case r.Units > r.Receipt.Taken:
		return fmt.Errorf("core: a refund of %d units, but the Result (%v) took %d; give at most those", r.Units, r.Receipt.Outcome, r.Receipt.Taken)
	case r.Receipt.At <= 0:
		return errors.New("core: the Result of a refund has no At; give the one that Take or Allow returned")
	}
	return nil
}

// BatchError is the failure of a part of what [Store.Refund], [PermitStore.Renew] or
// [PermitStore.Release] was asked for.
type BatchError struct {
	// Errs has the error of each entry of the batch, in order: nil where it was done.
	Errs []error
}

// Error implements error.
func (e *BatchError) Error() string {
	failed := e.Unwrap()
	if len(failed) == 0 {
		return fmt.Sprintf("core: a batch of %d, none of which failed", len(e.Errs))
	}
	return fmt.Sprintf("core: %d of a batch of %d failed, the first: %v", len(failed), len(e.Errs), failed[0])
}

// Unwrap returns the errors of the entries that failed.
func (e *BatchError) Unwrap() (failed []error) {
	for _, err := range e.Errs {
		if err != nil {
			failed = append(failed, err)
		}
	}
	return failed
}

// StoreError is a failure of the store, as opposed to a refusal. The policy's fail
// word says what happens to the request then.
type StoreError struct {
	// Class says what kind of failure it was: one of the Class constants.
	Class string
	// Executed is true if the decision may have been made and charged, as when
	// the reply was lost, and false if it surely was not.
	Executed bool
	// Err is the cause.
	Err error
}

// The classes of [StoreError]. They are few and fixed, so that they can be labels.
const (
	ClassTimeout = "timeout" // no answer within the deadline
	ClassDown    = "down"    // no connection, or a server that cannot serve now
	ClassBreaker = "breaker" // not asked, because it failed just before
	ClassBusy    = "busy"    // not asked, because this process asks for more than can travel
	ClassLost    = "lost"    // the connection broke before the answer came
	ClassOOM     = "oom"     // the server is out of memory
	ClassDenied  = "denied"  // wrong password or missing rights
	ClassReply   = "reply"   // an answer that makes no sense
	ClassOther   = "other"   // any other error of the server
)

// Error implements error.
func (e *StoreError) Error() string {
	known := "surely not executed"
	if e.Executed {
		known = "maybe executed"
	}
	return fmt.Sprintf("store failed (%s, %s): %v", e.Class, known, e.Err)
}

// Unwrap returns the cause.
func (e *StoreError) Unwrap() error { return e.Err }
