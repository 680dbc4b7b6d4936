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
	// AtMost takes as many units as there are, from none to Cost: Result.Taken tells.
	// It is refused if there is none.
	AtMost bool
	// Ahead is how long the caller would wait for its turn: the charge may be reserved
	// so far ahead, up to the policy's Options.Ahead, and Result.Delay is what there is
	// to wait. 0 means now or not at all.
	Ahead time.Duration
	// Now forces the clock, in microseconds since the epoch, for tests and
	// simulation. 0 means the store's clock. State written under a forced clock
	// must be read under one.
	Now int64
}

// maxNow keeps every instant that a decision computes inside the 53 bits that Lua
// computes exactly.
const maxNow = 1 << 52

// Validate tells what is wrong with t: a zero policy, an empty key, a negative
// cost, a time out of range, and what excludes each other. Every store calls it first and then changes nothing.
func (t *Take) Validate() error {
	switch {
	case t.Policy.p == nil:
		return errors.New("core: Take.Policy is zero; build one with Parse or NewPolicy")
	case t.Key == "":
		return errors.New("core: the key is empty; give one, or every caller would share one count")
	case len(t.Policy.p.algorithms) == 0:
		return fmt.Errorf("core: the policy %q counts nothing, it has permits alone, which are taken by Limiter.Acquire and PermitStore.Acquire", t.Policy)
	case t.Cost < 0:
		return fmt.Errorf("core: a cost of %d units; give 0 to peek, or more", t.Cost)
	case t.Ahead < 0:
		return fmt.Errorf("core: Take.Ahead is %v; give the time to wait at most, or 0", t.Ahead)
	case t.AtMost && t.Ahead > 0:
		return errors.New("core: Take.AtMost and Ahead at once; what there is now needs no wait: leave one out")
	case t.Now < 0 || t.Now > maxNow:
		return fmt.Errorf("core: Take.Now is %d; give microseconds since the epoch, up to the year 2112, or 0 for the store's clock", t.Now)
	}
	return nil
}

// Store keeps what was counted and decides, in one atomic step for each call. Its
// methods are safe for concurrent use. Two stores come with weir: [Memory] and
// redisstore.Store; package storetest holds what any further one must fulfil,
// and [Policy.Step] makes one out of anything that can compare and swap.
//
// A method fails with the context's error if the caller has left, with a
// [*StoreError] if the store could not decide, and with another error if it was
// asked something impossible; see [Take.Validate].
type Store interface {
	// Take decides and charges: all limits of the policy, or none.
	Take(context.Context, Take) (Result, error)
	// Refund gives back units that t took, as far as they still weigh: of a meter,
	// less for every microsecond since r, the receipt; of a window, while it lasts. A
	// reservation comes back before its turn, whole, if nobody has queued behind, and
	// else not at all. It never gives back more than units, nor more than the key has
	// in use. More units than r took are an error. A receipt is good for its units
	// once; that is the caller's to mind.
	Refund(ctx context.Context, t Take, r Result, units int64) error
	// Reset forgets the key: it is as if unused.
	Reset(ctx context.Context, p Policy, key string) error
}

// ValidateRefund tells what is wrong with a call of [Store.Refund]. Every store
// calls it first and then changes nothing.
func ValidateRefund(t *Take, r Result, units int64) error {
	if err := t.Validate(); err != nil {
		return err
	}
	switch {
	case units < 0:
		return fmt.Errorf("core: a refund of %d units; give 0 or more", units)
	case units > 0 && r.Taken == 0:
		return fmt.Errorf("core: the Result (%v) took nothing; there is nothing to give back", r.Outcome)
	case units > r.Taken:
		return fmt.Errorf("core: a refund of %d units, but the Result (%v) took %d; give at most those", units, r.Outcome, r.Taken)
	case r.At <= 0:
		return errors.New("core: the Result of a refund has no At; give the one that Take or Allow returned")
	}
	return nil
}

// StoreError is a failure of the store, as opposed to a refusal. What happens to
// the request then is the policy's fail word's to say.
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
