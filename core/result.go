package core

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/core/internal/algo"
)

// Outcome is what was decided.
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
	// Outcome is the decision. It is embedded for its method Allowed, which then looks at one byte; as a method of Result
	// it would be called with a copy of all of it.
	Outcome
	// Local reports that the store did not answer, so that the policy's fail word
	// decided: the in-process store, or nobody under "fail open". Where that decides by
	// a share of the limits (PolicyOptions.Processes), Limit is the policy's all the same,
	// and all else is the share's; a cost that fits the policy but not the share is
	// refused with a RetryAfter of one second, when the store may be back.
	Local bool
	// charge is who has the charge that a refund is for, where Local does not say so,
	// because a permit beside it came from another store.
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
	// each has the entries of the limits: two in place, and the others, which are rare,
	// apart.
	each [2]entry
	more *[MaxLimits - 2]entry
	// policy is what decided: a charge weighs by the numbers under which it was made.
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

// charge is who has a charge.
type charge uint8

const (
	asLocal    charge = iota // as Result.Local says
	inStore                  // the store
	inFallback               // the in-process store that stands in for it
	nowhere                  // nobody: a policy that failed open let it pass
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
	// Delay is the time until the turn at this limit.
	Delay time.Duration
	// Refused reports that the cost does not fit.
	Refused bool
	// Never reports that it never will.
	Never bool
}

// Each returns what limit i, in the order of [Policy.Limits], had to do with the decision. The entry of a limit that
// was not asked is zero.
func (r Result) Each(i int) LimitResult {
	e := r.at(i)
	return LimitResult{
		Remaining: e.Remaining, ResetAfter: time.Duration(e.Reset) * time.Microsecond,
		RetryAfter: time.Duration(e.Retry()) * time.Microsecond, Delay: time.Duration(e.Delay()) * time.Microsecond,
		Refused: e.Refused, Never: e.Never,
	}
}

// SetEach replaces the entry of limit i, for tests and for stores that make Results by themselves.
func (r *Result) SetEach(i int, l LimitResult) {
	if i >= len(r.each) { // those apart are not to change in copies of the Result
		own := new([MaxLimits - 2]entry)
		if r.more != nil {
			*own = *r.more
		}
		r.more = own
	}
	e := r.at(i)
	e.Remaining, e.Reset = l.Remaining, l.ResetAfter.Microseconds()
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

// entry is a LimitResult in little room, for Results are copied from call to call.
type entry = algo.Answer

// at is the entry of limit i. It may be changed only in a Result of which there are no copies,
// and that has room for it.
func (r *Result) at(i int) *entry {
	switch {
	case i < len(r.each):
		return &r.each[i]
	case r.more != nil:
		return &r.more[i-len(r.each)]
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

// OverLimitError is what [Limiter.Wait] and [Limiter.Acquire] fail with over the limit:
// the turn would come too late, or never.
type OverLimitError struct {
	// Result is the refusal. RetryAfter counts from when it was made.
	Result Result
}

// Error implements error.
func (e *OverLimitError) Error() string {
	if e.Result.Outcome == Never {
		return fmt.Sprintf("over limit: more than the %d units that it ever admits at once", e.Result.Limit)
	}
	return fmt.Sprintf("over limit: try again in %v", e.Result.RetryAfter)
}

// charged returns who has the charge.
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
