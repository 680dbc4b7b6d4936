package redistest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"
)

// Lateness measures until the end of the test how late the machine itself is: by
// how much a short timer overran at most, so far, for each of a few steps. A test of how
// long an outage may take adds it to what it allows, so that a busy machine does not fail
// it.
func Lateness(t testing.TB) func() time.Duration {
	const every = 2 * time.Millisecond
	const steps = 4 // timers and goroutines that a decision waits for, one after the other
	var most atomic.Int64
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		timer := time.NewTimer(every)
		defer timer.Stop()
		for start := time.Now(); ; start = time.Now() {
			select {
			case <-timer.C:
				most.Store(max(most.Load(), int64(time.Since(start)-every)))
				timer.Reset(every)
			case <-ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return func() time.Duration { return steps * time.Duration(most.Load()) }
}
