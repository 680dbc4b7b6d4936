package core

import (
	"fmt"
	"sync"
)

// Failure is the fail word of a policy: it chooses the decision while the store does not answer. A guard never answers
// the failure itself with a 429, which would blame the caller.
type Failure uint8

// The fail words.
const (
	// FailLocal, "fail local": an in-process store decides with the same policy, or with
	// a share of its limits; see PolicyOptions.Processes. Each process then counts for itself.
	// This is the default.
	FailLocal Failure = iota
	// FailOpen, "fail open": everything passes, uncounted. For limits that
	// protect nothing but comfort.
	FailOpen
	// FailClosed, "fail closed": everything is refused, with status 503. For
	// limits that must hold, such as on guessing passwords.
	FailClosed
)

// String returns the word as the grammar has it: "local", "open" or "closed".
func (f Failure) String() string {
	switch f {
	case FailLocal:
		return "local"
	case FailOpen:
		return "open"
	case FailClosed:
		return "closed"
	default:
		return fmt.Sprintf("Failure(%d)", uint8(f))
	}
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
	// Class is the kind of failure: one of the Class constants.
	Class string
	// MaybeExecuted reports that the decision may have been made and charged, as when
	// the reply was lost. If it is false, the decision was surely not made.
	MaybeExecuted bool
	// Server is the address of the server that failed, or "" if the store does not say.
	Server string
	// Err is the cause.
	Err error
}

// The classes of [StoreError]. They are few and fixed, so that they can be labels.
const (
	ClassTimeout = "timeout" // no answer within the deadline
	ClassDown    = "down"    // no connection, or a server that cannot serve now
	ClassBreaker = "breaker" // not asked, because it failed just before
	ClassBusy    = "busy"    // not asked, or answered too late, because this process asks for too much
	ClassLost    = "lost"    // the connection broke before the answer came
	ClassOOM     = "oom"     // the server is out of memory
	ClassDenied  = "denied"  // wrong password or missing rights
	ClassReply   = "reply"   // an answer that makes no sense
	ClassOther   = "other"   // any other error of the server
)

// Error implements error.
func (e *StoreError) Error() string {
	known := "surely not executed"
	if e.MaybeExecuted {
		known = "maybe executed"
	}
	if e.Server != "" {
		return fmt.Sprintf("store failed at %s (%s, %s): %v", e.Server, e.Class, known, e.Err)
	}
	return fmt.Sprintf("store failed (%s, %s): %v", e.Class, known, e.Err)
}

// Unwrap returns the cause.
func (e *StoreError) Unwrap() error { return e.Err }

// LateError is the error of a [Store.Take] that has ended while its answer was still under way, because the caller
// has left or its time was over. If the answer comes later, the store calls Answer. The caller of Take calls
// Then to receive it, as enforce.Limiter does to give back what is of no use any more. A store need not use LateError;
// without it, what was charged for such a Take stays charged.
type LateError struct {
	// Err is the context's error, or a [*StoreError] whose MaybeExecuted is true.
	Err error

	mu       sync.Mutex
	answered bool
	res      Result
	err      error
	then     func(Result, error)
}

// Error implements error.
func (e *LateError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *LateError) Unwrap() error { return e.Err }

// Answer passes on the answer that Take would have returned. The store calls it at most once.
func (e *LateError) Answer(res Result, err error) {
	e.mu.Lock()
	e.answered, e.res, e.err = true, res, err
	then := e.then
	e.mu.Unlock()
	if then != nil {
		then(res, err)
	}
}

// Then calls f with the answer: at once if that has come already, otherwise when it comes, in a goroutine of the store,
// which f must not hold up, and in which nobody sees a panic of f. If no answer comes, f is not called. Then is called
// once at most.
func (e *LateError) Then(f func(Result, error)) {
	e.mu.Lock()
	e.then = f
	answered := e.answered
	e.mu.Unlock()
	if answered {
		f(e.res, e.err)
	}
}
