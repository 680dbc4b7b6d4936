package core

import (
	"errors"
	"fmt"
	"time"
)

// Take asks a [Store] for one decision.
type Take struct {
	// Policy is the policy to decide by.
	Policy Policy
	// Key is the user, tenant or job that is counted: any text but the empty one. Policies of different names never
	// share a key's state. It stands in the store in plain text, and so in Redis for everybody who may read there: hash
	// what nobody should see, or set redisstore.Options.HashKeys.
	Key string
	// Cost is the number of units that the request takes. 0 peeks: nothing is charged and nothing is stored. A cost that
	// can never fit, above burst and debt together, is answered with Never: 11 units of 10/1s.
	Cost int64
	// AtMost takes as many units as there are, from none to Cost; Result.Taken has their number. With 10/1s and 8 used, a
	// Cost of 5 takes 2.
	// It is refused if there is none. With a Cost of 0 it takes none, and only looks whether
	// there is one.
	AtMost bool
	// Debt lets AtMost also take what the policy allows as debt, even if the key is in debt
	// already. It is for units that were used before they are charged. Result.Delay then says
	// how long it takes until the key is out of debt so far that the units would have been
	// admitted. A limit without debt gives what there is.
	Debt bool
	// Wait is the longest time that the caller would wait for its turn. The units may be reserved that far ahead, up to
	// the policy's PolicyOptions.Wait; Result.Delay is then the time to wait. 0 means now or not at all.
	Wait time.Duration
	// Now forces the clock, in microseconds since the epoch, for tests and
	// simulation. 0 means the store's clock. State written under a forced clock
	// must be read under one.
	Now int64
}

// maxNow keeps every instant that a decision computes inside the 53 bits that Lua
// computes exactly.
const maxNow = 1 << 52

// Validate returns what is wrong with t: a policy that is zero or has permits alone, an
// empty key, a negative cost or wait, a time out of range, AtMost together with a Wait, and
// Debt without AtMost. Every store calls it first and changes nothing if it fails.
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

// ValidateState is Validate for [StateStore], which also looks at policies that have permits alone.
func (t *Take) ValidateState() error {
	if t.Policy.p == nil || len(t.Policy.p.algorithms) > 0 {
		return t.Validate()
	}
	p := Permit{Policy: t.Policy, Key: t.Key, ID: "state", Now: t.Now}
	return p.Validate()
}
