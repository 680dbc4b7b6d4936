package enforce

import (
	"errors"
	"fmt"

	"github.com/weir-go/weir/core"
)

// Errors of waits, and causes with which contexts end.
var (
	// ErrClosed is the error of a wait that [Limiter.Close] has ended, or that began after it.
	ErrClosed = errors.New("enforce: the Limiter was closed while a caller waited for its turn")

	// ErrPermitLost is the cause with which the context of a permit's holder ends before its release: because the store
	// has given the place to somebody else, or, under "fail closed", has not confirmed for a whole lease that it is still
	// held; because [Limiter.Close] has released it; or because a [Detached] permit was held for too long.
	ErrPermitLost = errors.New("enforce: the permit is lost; somebody else may have its place")
)

// OverLimitError is the error of [Limiter.Wait] and [Limiter.Acquire] over the limit: the turn would come too late,
// or never.
type OverLimitError struct {
	// Result is the refusal. RetryAfter counts from when it was made.
	Result core.Result

	policy  core.Policy
	units   int64 // that were asked for
	permits int64 // that were asked for, or 0
	blocked bool  // the key is; see Blocked
}

// Error implements error. The text names the policy and what was asked for, as in "enforce: mail: 5 units asked for, at
// most 3 at once; waiting cannot help".
func (e *OverLimitError) Error() string {
	what, remedy := "over the limit", "waiting cannot help"
	if e.Result.Outcome != core.Never {
		remedy = fmt.Sprintf("try again in %v", e.Result.RetryAfter)
	}
	if e.policy.IsZero() { // another package made it
		return "enforce: " + what + "; " + remedy
	}
	if e.blocked {
		what = "the key is blocked"
	}
	for i, limit := range e.policy.Limits() {
		each, asked, of := e.Result.Each(i), e.units, "units"
		if limit.Algorithm == core.Concurrent {
			asked, of = e.permits, "permits"
		}
		switch {
		case each.Never:
			what = fmt.Sprintf("%d %s asked for, at most %d at once", asked, of, limit.Burst+limit.Debt)
		case e.Result.Outcome == core.Never || !each.Refused || of == "units":
		case each.Remaining > 0:
			what = fmt.Sprintf("%d permits asked for, %d left", asked, each.Remaining)
		default:
			what = "all permits are taken"
		}
	}
	return fmt.Sprintf("enforce: %s: %s; %s", e.policy.Name(), what, remedy)
}

// eachError returns the error of each of n that were sent together.
func eachError(err error, n int) []error {
	var partly *core.BatchError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &partly) && len(partly.Errs) == n:
		return partly.Errs
	}
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

func panicked(value any) error { return fmt.Errorf("enforce: the store panicked: %v", value) }
