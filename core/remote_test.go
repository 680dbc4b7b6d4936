package core_test

import (
	"context"
	"errors"
	"sync"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/core"
)

// advance lets time pass in a bubble, and what it wakes finish.
func advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func down() error { return &core.StoreError{Class: core.ClassDown, Err: errors.New("gone")} }

// remote is a store that is not in the process, and fails when it is told to.
type remote struct {
	core.Store

	mu      sync.Mutex
	err     error
	held    chan struct{} // if not nil, refunds wait for it
	refunds []int64
	resets  int
}

func newRemote(s core.Store) *remote { return &remote{Store: s} }

func (r *remote) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

func (r *remote) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func (r *remote) Take(ctx context.Context, t core.Take) (core.Result, error) {
	if err := r.failure(); err != nil {
		return core.Result{}, err
	}
	return r.Store.Take(ctx, t)
}

func (r *remote) Refund(ctx context.Context, refunds []core.Refund) error {
	if r.held != nil {
		<-r.held
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

func (r *remote) Reset(ctx context.Context, p core.Policy, key string) error {
	if err := r.failure(); err != nil {
		return err
	}
	r.mu.Lock()
	r.resets++
	r.mu.Unlock()
	return r.Store.Reset(ctx, p, key)
}

func (r *remote) refunded() []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]int64(nil), r.refunds...)
}
