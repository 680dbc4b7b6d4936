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

// Result is the answer to one [Take]. The zero Result refuses.
//
// Limit, Remaining and ResetAfter come from the tightest limit: one that refused
// before one that admitted, then the one with least remaining, then the one with
// the longest reset. Always 0 <= Remaining <= Limit.
type Result struct {
	// Outcome is the decision.
	Outcome Outcome
	// Local tells that the store did not answer, so that the policy's fail word
	// decided: the in-process store, or nobody under "fail open".
	Local bool
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
	// was reserved (Take.Ahead), or until those before have left a LeakyBucket. It is
	// the longest of the limits, and counts from At. Who gives up refunds.
	Delay time.Duration
	// At is the store's clock when it decided, in microseconds since the epoch.
	// The whole Result is the receipt that Refund asks for.
	At int64
	// Each has one entry for each limit, in the order of [Policy.Limits]. The entry of
	// a limit that was not asked is zero.
	Each [MaxLimits]LimitResult
	// charge is who has the charge that a refund is for, where Local does not tell,
	// because a permit beside it came from another store.
	charge charge
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
	// Refused tells that the cost does not fit.
	Refused bool
	// Never tells that it never will.
	Never bool
	// after is what a refund needs to know beside At and Delay: of the state after the
	// charge.
	after [2]int64
}

// Allowed tells whether the request was admitted.
func (r Result) Allowed() bool { return r.Outcome == Admitted || r.Outcome == AtLimit }

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

// receipt is what limit i needs to know of the charge in a refund.
func (r *Result) receipt(i int) algo.Receipt {
	return algo.Receipt{At: r.At, Units: r.Taken, Delay: r.Each[i].Delay.Microseconds(), Charged: r.Each[i].after}
}

// explain is where a Result is made of the state of each limit, after the charge of
// taken units if all admitted, and before it if not.
func (p *policy) explain(res *Result, state []int64, t *Take, now, taken int64, admitted bool) {
	res.At, res.Taken = now, taken
	ahead := p.ahead(t)
	for i, a := range p.algorithms {
		cost := p.cost(t, i)
		fits := admitted || a.Admits(state, now, cost, ahead)
		res.Each[i].explain(a, state, now, cost, taken, ahead, fits)
		state = state[a.Words():]
	}
	p.summarize(res, t.Cost, len(p.algorithms))
}

// cost is what must fit limit i for t to be admitted. What there is leaves debt aside:
// one unit more than can be borrowed fits if there is one.
func (p *policy) cost(t *Take, i int) int64 {
	if t.upTo() {
		return 1 + p.limits[i].Debt
	}
	return t.Cost
}

// upTo tells whether t takes what there is. A peek is a peek.
func (t *Take) upTo() bool { return t.AtMost && t.Cost > 0 }

// ahead is how far ahead t may reserve, in microseconds.
func (p *policy) ahead(t *Take) int64 { return min(t.Ahead, p.options.Ahead).Microseconds() }

// explain fills in what one limit has to say. A limit that fits where another refused
// was charged nothing.
func (l *LimitResult) explain(a algo.Algorithm, state []int64, now, cost, taken, ahead int64, fits bool) {
	if fits {
		cost = taken
	}
	answer := a.Explain(state, now, cost, ahead, !fits)
	l.Remaining = answer.Remaining
	l.RetryAfter = time.Duration(answer.Retry) * time.Microsecond
	l.ResetAfter = time.Duration(answer.Reset) * time.Microsecond
	l.Delay = time.Duration(answer.Delay) * time.Microsecond
	l.Refused, l.Never = answer.Refused, answer.Never
	l.after = answer.Charged
}

// summarize fills in what follows from the first n of Each.
func (p *policy) summarize(res *Result, cost int64, n int) {
	res.Outcome, res.RetryAfter, res.Delay = Admitted, 0, 0
	tightest := 0
	for i := range n {
		each := &res.Each[i]
		if each.Refused {
			if res.RetryAfter = max(res.RetryAfter, each.RetryAfter); each.Never || res.Outcome == Never {
				res.Outcome = Never
			} else {
				res.Outcome = Refused
			}
		}
		res.Delay = max(res.Delay, each.Delay)
		if i > 0 && each.tighter(&res.Each[tightest]) {
			tightest = i
		}
	}
	if res.Outcome == Never {
		res.RetryAfter = 0
	}
	t := &res.Each[tightest]
	res.Limit, res.Remaining, res.ResetAfter = p.limits[tightest].Burst, t.Remaining, t.ResetAfter
	if res.Outcome == Admitted && cost > 0 && res.Remaining == 0 {
		res.Outcome = AtLimit
	}
}

// combine makes one Result of the rates' and the permits' of one policy. It is a receipt
// for the rates.
func (p *policy) combine(rates, permits Result, cost int64) Result {
	res, where := rates, rates.charged()
	switch n := len(p.algorithms); {
	case rates.Limit == 0: // they failed open
		res = permits
		res.Taken = 0
	case permits.Limit > 0:
		res.Each[n] = permits.Each[n]
		p.summarize(&res, cost, len(p.limits))
	}
	res.charge, res.Local = where, rates.Local || permits.Local
	return res
}

// charged tells who has the charge.
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

func (l *LimitResult) tighter(than *LimitResult) bool {
	switch {
	case l.Refused != than.Refused:
		return l.Refused
	case l.Remaining != than.Remaining:
		return l.Remaining < than.Remaining
	default:
		return l.ResetAfter > than.ResetAfter
	}
}
