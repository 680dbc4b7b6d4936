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
}

// Error implements error.
func (e *OverLimitError) Error() string {
	if e.Result.Outcome == core.Never {
		return fmt.Sprintf("over limit: more than the %d units that it ever admits at once", e.Result.Limit)
	}
	return fmt.Sprintf("over limit: try again in %v", e.Result.RetryAfter)
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
