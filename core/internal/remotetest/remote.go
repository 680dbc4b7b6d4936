// Package remotetest has a store outside the process that a test can make fail.
package remotetest

import (
	"context"
	"sync"

	"github.com/weir-go/weir/core"
)

// Remote is a store that is not in the process, and fails on demand.
type Remote struct {
	core.Store

	Held   chan struct{} // if not nil, refunds wait for it
	Resets int           // how many have arrived; read it when none is under way

	mu      sync.Mutex
	err     error
	passing int // calls before the failure
	refunds []int64
}

// New returns a Remote that asks s.
func New(s core.Store) *Remote { return &Remote{Store: s} }

// Fail makes each call from now on fail with err; nil ends that.
func (r *Remote) Fail(err error) { r.FailAfter(0, err) }

// FailAfter is Fail once that many calls have passed.
func (r *Remote) FailAfter(calls int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passing, r.err = calls, err
}

func (r *Remote) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.passing > 0 {
		r.passing--
		return nil
	}
	return r.err
}

// Take is that of core.Store.
func (r *Remote) Take(ctx context.Context, t core.Take) (core.Result, error) {
	if err := r.failure(); err != nil {
		return core.Result{}, err
	}
	return r.Store.Take(ctx, t)
}

// Refund is that of core.Store.
func (r *Remote) Refund(ctx context.Context, refunds []core.Refund) error {
	if r.Held != nil {
		<-r.Held
	}
	if err := r.failure(); err != nil {
		return err
	}
	r.mu.Lock()
	for _, x := range refunds {
		r.refunds = append(r.refunds, x.Units)
	}
	r.mu.Unlock()
	return r.Store.Refund(ctx, refunds)
}

// Reset is that of core.Store.
func (r *Remote) Reset(ctx context.Context, p core.Policy, key string) error {
	if err := r.failure(); err != nil {
		return err
	}
	r.mu.Lock()
	r.Resets++
	r.mu.Unlock()
	return r.Store.Reset(ctx, p, key)
}

// Refunded returns the units of each refund that has arrived.
func (r *Remote) Refunded() []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]int64(nil), r.refunds...)
}
