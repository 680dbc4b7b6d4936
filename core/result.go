package core

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/weir-go/weir/core/internal/algo"
)

// Outcome is the decision of a store, a Limiter or a guard. Ask its method Allowed: two outcomes admit and two refuse,
// so that a comparison with one of them is wrong for another.
type Outcome uint8

// The outcomes of a decision. The zero Outcome refuses. Ask [Outcome.Allowed], and never compare with Admitted or
// Refused alone: AtLimit is admitted, too, and Never is refused, too.
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

// Result is the answer to one [Take]. Its method Allowed reports whether the request was admitted. If not, it may come
// back after RetryAfter, unless Outcome is [Never]. The zero Result refuses.
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
	// Remembered reports that the store has refused without asking its server, because it remembers that the server has
	// refused a moment ago: redisstore.Options.DenyCache.
	Remembered bool
	// Taken is the number of units that were charged: the cost if admitted, else 0. With Take.AtMost it is the part
	// of the cost that there was: with 10/1s and 8 used, 2 of the 5 that were asked for.
	Taken int64
	// Limit is the burst of the tightest limit, in units: 20 for 10/1s burst 20. It is 0 where nothing was counted,
	// because a policy that fails open let the request pass.
	Limit int64
	// Remaining is the number of units that would be admitted right after this decision. With 10/1s, after 6 units at
	// once, Remaining is 4.
	Remaining int64
	// RetryAfter is the wait after which the same Take is admitted if nobody else comes: the longest of the limits that
	// refused. With 10/1s and all 10 used at once, it is 100ms for one unit and 300ms for three. It is 0 unless Outcome
	// is Refused.
	RetryAfter time.Duration
	// ResetAfter is the time until the tightest limit is as if unused. With 10/1s, after 6 units at once, it is 600ms.
	ResetAfter time.Duration
	// Delay is the time to wait before going on, if admitted: until the turn of what was reserved (Take.Wait), or until
	// those before have left a LeakyBucket. With "10/1s burst 1; wait 1s", the third of three callers at once has a Delay
	// of 200ms. It is the longest of the limits, and counts from At. A caller that gives up must call Refund.
	Delay time.Duration
	// At is the store's clock when it decided, in microseconds since the epoch.
	// The whole Result is the receipt that Refund asks for.
	At int64
	_  [0]func() // Equal compares, not ==
	// each and more are the entries of the limits. A third and a fourth limit are rare, and
	// so is a store whose answer may come later: they take no room in most Results.
	each [2]algo.Answer
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
	if r.Remembered {
		text += ", remembered"
	}
	return text
}

// LogValue implements [slog.LogValuer]: a Result is a group of attributes such as weir.outcome and weir.remaining, named
// like those of metrics and traces. Durations and flags that are zero are left out. As the value of an attribute without
// a name, as in slog.Any("", res), the group's attributes are those of the line.
func (r Result) LogValue() slog.Value {
	attrs := append(make([]slog.Attr, 0, 9), slog.String("weir.outcome", r.Outcome.String()))
	if r.Taken > 0 {
		attrs = append(attrs, slog.Int64("weir.units.taken", r.Taken))
	}
	if r.Limit > 0 {
		attrs = append(attrs, slog.Int64("weir.limit", r.Limit), slog.Int64("weir.remaining", r.Remaining), slog.Duration("weir.reset_after", r.ResetAfter))
	}
	if r.RetryAfter > 0 {
		attrs = append(attrs, slog.Duration("weir.retry_after", r.RetryAfter))
	}
	if r.Delay > 0 {
		attrs = append(attrs, slog.Duration("weir.delay", r.Delay))
	}
	if r.Local {
		attrs = append(attrs, slog.Bool("weir.local", true))
	}
	if r.Remembered {
		attrs = append(attrs, slog.Bool("weir.remembered", true))
	}
	return slog.GroupValue(attrs...)
}

// more has the parts of a Result that few have.
type more struct {
	each [MaxLimits - 2]algo.Answer
	note any
}

// Note returns what SetNote has kept in r, or nil.
func (r *Result) Note() any {
	if r.more == nil {
		return nil
	}
	return r.more.note
}

// SetNote keeps a note in r and in later copies of it, for what stands around a store: a Limiter notes there a charge
// whose answer is still under way. Two notes must be comparable by ==.
func (r *Result) SetNote(note any) {
	own := new(more)
	if r.more != nil {
		*own = *r.more
	}
	own.note, r.more = note, own
}

// Policy returns the policy that decided, or the zero Policy if none did. If a process's share of a policy decided,
// that is the whole policy; see [PolicyOptions].
func (r *Result) Policy() Policy {
	if r.policy != nil && r.policy.whole != nil {
		return Policy{r.policy.whole}
	}
	return Policy{r.policy}
}

// LimitResult is one limit's part in a [Result]. If the policy as a whole refused,
// nothing was charged to a limit that would have admitted.
type LimitResult struct {
	// Remaining is the number of units that this limit would admit now.
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
func (r *Result) Each(i int) LimitResult {
	if i >= len(r.each) && r.more == nil {
		return LimitResult{}
	}
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
	return r.Outcome == s.Outcome && r.Local == s.Local && r.Remembered == s.Remembered && r.Taken == s.Taken && r.Limit == s.Limit &&
		r.Remaining == s.Remaining && r.RetryAfter == s.RetryAfter && r.ResetAfter == s.ResetAfter && r.Delay == s.Delay &&
		r.At == s.At && r.each == s.each
}

// at is the entry of limit i. It may be changed only in a Result of which there are no copies,
// and that has room for it.
func (r *Result) at(i int) *algo.Answer {
	switch {
	case i < len(r.each):
		return &r.each[i]
	case r.more != nil:
		return &r.more.each[i-len(r.each)]
	default:
		return &algo.Answer{}
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
func tighter(e, than *algo.Answer) bool {
	switch {
	case e.Refused != than.Refused:
		return e.Refused
	case e.Remaining != than.Remaining:
		return e.Remaining < than.Remaining
	default:
		return e.Reset > than.Reset
	}
}

// CompareTurns compares the turns of two receipts of one key, in the order in which the store has given them out: it is
// negative if r's turn comes first, and 0 if they cannot be told apart.
func (p Policy) CompareTurns(r, s *Result) int {
	order := cmp.Or(cmp.Compare(p.p.turn(r), p.p.turn(s)), cmp.Compare(r.At, s.At))
	for i := 0; order == 0 && i < len(p.p.algorithms); i++ { // they were decided at one instant
		order = slices.Compare(r.at(i).Charged[:], s.at(i).Charged[:])
		if p.p.limits[i].Algorithm == TokenBucket { // the later has left fewer tokens
			order = -order
		}
	}
	return order
}

// turn returns the instant at which it is the turn of what was charged, by the store's clock.
func (p *policy) turn(r *Result) int64 {
	delay := int64(0)
	for i := range p.algorithms {
		delay = max(delay, r.at(i).Delay())
	}
	return r.At + delay
}
