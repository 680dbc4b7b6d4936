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
	// Never: the cost is larger than the burst, so that waiting cannot help.
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
	// Taken is how many units were charged: the cost if admitted, else 0.
	Taken int64
	// Limit is the burst of the tightest limit, in units. It is 0 where nothing
	// was counted, because a policy that fails open let the request pass.
	Limit int64
	// Remaining is how many units would be admitted right after this decision.
	Remaining int64
	// RetryAfter is the wait after which the same cost is admitted if nobody
	// else comes: the longest of the limits that refused. It is 0 unless
	// Outcome is Refused.
	RetryAfter time.Duration
	// ResetAfter is the time until the tightest limit is as if unused.
	ResetAfter time.Duration
	// At is the store's clock when it decided, in microseconds since the epoch.
	// With Taken it is the receipt that Refund asks for.
	At int64
	// Each has one entry for each limit, in the order of [Policy.Limits].
	Each [MaxLimits]LimitResult
}

// LimitResult is one limit's part in a [Result]. If the policy as a whole refused,
// nothing was charged to a limit that would have admitted.
type LimitResult struct {
	// Remaining is how many units this limit would admit now.
	Remaining int64
	// RetryAfter is the wait after which the same cost fits, if Refused.
	RetryAfter time.Duration
	// ResetAfter is the time until this limit is as if unused.
	ResetAfter time.Duration
	// Refused tells that the cost does not fit.
	Refused bool
	// Never tells that it never will.
	Never bool
}

// Allowed tells whether the request was admitted.
func (r Result) Allowed() bool { return r.Outcome == Admitted || r.Outcome == AtLimit }

// explain is where a Result is made, whoever decided: from the state of each
// limit, after the charge if admitted and before it if not.
func (p *policy) explain(state []int64, now, cost int64, admitted bool) Result {
	res := Result{At: now, Outcome: Admitted}
	if admitted {
		res.Taken = cost
	}
	tightest := 0
	for i, a := range p.algorithms {
		n := a.Words()
		fits := admitted || a.Admits(state[:n], now, cost)
		each := limitResult(a.Explain(state[:n], now, cost, !fits))
		res.Each[i], state = each, state[n:]
		if each.Refused {
			if res.RetryAfter = max(res.RetryAfter, each.RetryAfter); each.Never || res.Outcome == Never {
				res.Outcome = Never
			} else {
				res.Outcome = Refused
			}
		}
		if i > 0 && each.tighter(res.Each[tightest]) {
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
	return res
}

func limitResult(a algo.Answer) LimitResult {
	return LimitResult{
		Remaining:  a.Remaining,
		RetryAfter: time.Duration(a.Retry) * time.Microsecond,
		ResetAfter: time.Duration(a.Reset) * time.Microsecond,
		Refused:    a.Refused,
		Never:      a.Never,
	}
}

func (l LimitResult) tighter(than LimitResult) bool {
	switch {
	case l.Refused != than.Refused:
		return l.Refused
	case l.Remaining != than.Remaining:
		return l.Remaining < than.Remaining
	default:
		return l.ResetAfter > than.ResetAfter
	}
}
