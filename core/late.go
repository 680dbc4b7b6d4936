package core

import "sync"

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
