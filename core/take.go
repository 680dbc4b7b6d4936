package core

import (
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/core/internal/algo"
)

// Take asks a [Store] for one decision.
type Take struct {
	// Policy is the policy to decide by.
	Policy Policy
	// Key says who is counted: any text but the empty one. Policies of different
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
	// Debt lets AtMost also take what the policy allows as debt, even if the key is in debt
	// already. It is for units that were used before they are charged. Result.Delay then says
	// how long it takes until the key is out of debt so far that the units would have been
	// admitted. A limit without debt gives what there is.
	Debt bool
	// Wait is how long the caller would wait for its turn. The units may be reserved that far
	// ahead, up to the policy's PolicyOptions.Wait, and Result.Delay is how long to wait.
	// 0 means now or not at all.
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

// Outcome is the decision of a store, a Limiter or a guard.
type Outcome uint8

// The outcomes of a decision. The zero Outcome refuses.
const (
	// Refused: the cost does not fit now; after RetryAfter it would.
	Refused Outcome = iota
	// Admitted: the cost fits and was charged. A peek is always admitted.
	Admitted
	// AtLimit: admitted, and it was the last unit that fits now.
	AtLimit
	// Never: the cost is larger than burst and debt, so that waiting cannot help.
	Never
)

// String returns the outcome in lower case, as it suits a label: "refused",
// "admitted", "at-limit" or "never".
func (o Outcome) String() string {
	switch o {
	case Refused:
		return "refused"
	case Admitted:
		return "admitted"
	case AtLimit:
		return "at-limit"
	case Never:
		return "never"
	default:
		return fmt.Sprintf("Outcome(%d)", uint8(o))
	}
}

// Allowed reports whether the request was admitted.
func (o Outcome) Allowed() bool { return o == Admitted || o == AtLimit }

// Result is the answer to one [Take]. The zero Result refuses.
//
// Limit, Remaining and ResetAfter come from the tightest limit: one that refused
// before one that admitted, then the one with least remaining, then the one with
// the longest reset. Always 0 <= Remaining <= Limit.
type Result struct {
	// Outcome is the decision. It is embedded for its method Allowed: a method of Result would copy the whole Result to
	// look at one byte of it.
	Outcome
	// Local reports that the store did not answer and the policy's fail word decided:
	// "local" asked the in-process store, "open" let the request pass uncounted. If the
	// in-process store decided by a share of the limits (PolicyOptions.Processes), Limit
	// is still the policy's, and the other fields are those of the share; a cost that fits
	// the policy but not the share is refused with a RetryAfter of one second, when the
	// store may be back.
	Local bool
	// charge says where the units were charged if Local does not, because a permit
	// beside them came from another store.
	charge charge
	// Taken is how many units were charged: the cost if admitted, else 0. With
	// Take.AtMost it is what there was.
	Taken int64
	// Limit is the burst of the tightest limit, in units. It is 0 where nothing
	// was counted, because a policy that fails open let the request pass.
	Limit int64
	// Remaining is how many units would be admitted right after this decision.
	Remaining int64
	// RetryAfter is the wait after which the same Take is admitted if nobody
	// else comes: the longest of the limits that refused. It is 0 unless
	// Outcome is Refused.
	RetryAfter time.Duration
	// ResetAfter is the time until the tightest limit is as if unused.
	ResetAfter time.Duration
	// Delay is how long to wait before going on, if admitted: until the turn of what
	// was reserved (Take.Wait), or until those before have left a LeakyBucket. It is
	// the longest of the limits, and counts from At. A caller that gives up must call Refund.
	Delay time.Duration
	// At is the store's clock when it decided, in microseconds since the epoch.
	// The whole Result is the receipt that Refund asks for.
	At int64
	_  [0]func() // Equal compares, not ==
	// each and more are the entries of the limits. A third and a fourth limit are rare, and
	// so is a store whose answer may come later: they take no room in most Results.
	each [2]entry
	more *more
	// policy is the one that decided: a charge weighs by the numbers under which it was made.
	policy *policy
}

// String describes r for people, as in "admitted, 9 of 10 left, reset in 1s" or
// "refused, 0 of 10 left, reset in 10s, retry in 1s".
func (r Result) String() string {
	text := fmt.Sprintf("%v, %d of %d left, reset in %v", r.Outcome, r.Remaining, r.Limit, r.ResetAfter)
	if r.RetryAfter > 0 {
		text += fmt.Sprintf(", retry in %v", r.RetryAfter)
	}
	if r.Delay > 0 {
		text += fmt.Sprintf(", delay %v", r.Delay)
	}
	if r.Local {
		text += ", without the store"
	}
	return text
}

// more has the parts of a Result that few have.
type more struct {
	each [MaxLimits - 2]entry
	late *lateCharge // what the store may have charged for it, besides what Result.charged says; or nil
}

// late returns what the store may have charged for r although it did not answer in time, or nil.
func (r *Result) late() *lateCharge {
	if r.more == nil {
		return nil
	}
	return r.more.late
}

// setLate is for a Result of which there are no copies.
func (r *Result) setLate(c *lateCharge) {
	if r.more == nil {
		r.more = new(more)
	}
	r.more.late = c
}

// charge says where units were charged, and so where a refund of them goes.
type charge uint8

const (
	asLocal    charge = iota // where Result.Local says
	inStore                  // in the store
	inFallback               // in the in-process store that decides while the store fails
	nowhere                  // not at all: a policy that failed open let the request pass
)

// LimitResult is one limit's part in a [Result]. If the policy as a whole refused,
// nothing was charged to a limit that would have admitted.
type LimitResult struct {
	// Remaining is how many units this limit would admit now.
	Remaining int64
	// RetryAfter is the wait after which the same cost fits, if Refused.
	RetryAfter time.Duration
	// ResetAfter is the time until this limit is as if unused.
	ResetAfter time.Duration
	// MoreAfter is the time until more than Remaining units fit, if nobody else comes: with 10/1s and 6 used at
	// once, 100ms, when a unit has come back. It is 0 if nothing is used, and where it is not known: where Refused,
	// which RetryAfter is about, for permits, and where other numbers have counted more on the key than the limit.
	MoreAfter time.Duration
	// Delay is the time until the turn at this limit.
	Delay time.Duration
	// Refused reports that the cost does not fit.
	Refused bool
	// Never reports that it never will.
	Never bool
}

// Each returns the part of limit i in the decision, in the order of [Policy.Limits]. That of a limit that was not asked
// is zero.
func (r Result) Each(i int) LimitResult {
	e := r.at(i)
	return LimitResult{
		Remaining: e.Remaining, ResetAfter: time.Duration(e.Reset) * time.Microsecond, MoreAfter: time.Duration(e.More) * time.Microsecond,
		RetryAfter: time.Duration(e.Retry()) * time.Microsecond, Delay: time.Duration(e.Delay()) * time.Microsecond,
		Refused: e.Refused, Never: e.Never,
	}
}

// SetEach replaces the part of limit i, for tests and for stores that make Results by themselves.
func (r *Result) SetEach(i int, l LimitResult) {
	if i >= len(r.each) { // copies of the Result share these entries
		own := new(more)
		if r.more != nil {
			*own = *r.more
		}
		r.more = own
	}
	e := r.at(i)
	e.Remaining, e.Reset, e.More = l.Remaining, l.ResetAfter.Microseconds(), l.MoreAfter.Microseconds()
	e.Refused, e.Never = l.Refused, l.Never
	if e.Wait = l.Delay.Microseconds(); l.Refused {
		e.Wait = l.RetryAfter.Microseconds()
	}
}

// Equal reports whether two Results say the same. They may not be compared by ==.
func (r Result) Equal(s Result) bool {
	if (r.more == nil) != (s.more == nil) || r.more != nil && *r.more != *s.more {
		return false
	}
	return r.Outcome == s.Outcome && r.Local == s.Local && r.charge == s.charge && r.Taken == s.Taken && r.Limit == s.Limit &&
		r.Remaining == s.Remaining && r.RetryAfter == s.RetryAfter && r.ResetAfter == s.ResetAfter && r.Delay == s.Delay &&
		r.At == s.At && r.each == s.each
}

// entry is a small LimitResult, because Results are copied from call to call.
type entry = algo.Answer

// at is the entry of limit i. It may be changed only in a Result of which there are no copies,
// and that has room for it.
func (r *Result) at(i int) *entry {
	switch {
	case i < len(r.each):
		return &r.each[i]
	case r.more != nil:
		return &r.more.each[i-len(r.each)]
	default:
		return &entry{}
	}
}

// summarize fills in what follows from the first n entries.
func (p *policy) summarize(res *Result, cost int64, n int) {
	refused, never, retry, delay := false, false, int64(0), int64(0)
	tightest, at := res.at(0), 0
	for i := range n {
		e := res.at(i)
		if e.Refused {
			refused, never, retry = true, never || e.Never, max(retry, e.Wait)
		} else {
			delay = max(delay, e.Wait)
		}
		if i > 0 && tighter(e, tightest) {
			tightest, at = e, i
		}
	}
	res.Limit, res.Remaining = p.limits[at].Burst, tightest.Remaining
	res.ResetAfter = time.Duration(tightest.Reset) * time.Microsecond
	res.Delay, res.RetryAfter = time.Duration(delay)*time.Microsecond, 0
	switch {
	case never:
		res.Outcome = Never
	case refused:
		res.Outcome, res.RetryAfter = Refused, time.Duration(retry)*time.Microsecond
	case cost > 0 && res.Remaining == 0:
		res.Outcome = AtLimit
	default:
		res.Outcome = Admitted
	}
}

// tighter reports whether a limit tells the client more than another one.
func tighter(e, than *entry) bool {
	switch {
	case e.Refused != than.Refused:
		return e.Refused
	case e.Remaining != than.Remaining:
		return e.Remaining < than.Remaining
	default:
		return e.Reset > than.Reset
	}
}

// charged returns where the units were charged.
func (r *Result) charged() charge {
	switch {
	case r.charge != asLocal:
		return r.charge
	case !r.Local:
		return inStore
	case r.At > 0:
		return inFallback
	default:
		return nowhere
	}
}
