package explaintest

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/weir-go/weir/core"
)

// Remote is a store outside of the process, as far as others can tell, that keeps all in memory and fails on demand.
type Remote struct {
	Store
	broken atomic.Bool
}

// NewRemote returns a Remote on s.
func NewRemote(s Store) *Remote { return &Remote{Store: s} }

// Break makes all calls fail from now on, or ends that.
func (r *Remote) Break(broken bool) { r.broken.Store(broken) }

func (r *Remote) failure() error {
	if r.broken.Load() {
		return &core.StoreError{Class: core.ClassDown, Err: errors.New("connection refused")}
	}
	return nil
}

// Take implements core.Store.
func (r *Remote) Take(ctx context.Context, t core.Take) (core.Result, error) {
	if err := r.failure(); err != nil {
		return core.Result{}, err
	}
	return r.Store.Take(ctx, t)
}

// State implements core.StateStore.
func (r *Remote) State(ctx context.Context, t core.Take) (core.State, error) {
	if err := r.failure(); err != nil {
		return core.State{}, err
	}
	return r.Store.State(ctx, t)
}

// Refund implements core.Store.
func (r *Remote) Refund(ctx context.Context, refunds []core.Refund) error {
	if err := r.failure(); err != nil {
		return err
	}
	return r.Store.Refund(ctx, refunds)
}

// Reset implements core.Store.
func (r *Remote) Reset(ctx context.Context, p core.Policy, key string) error {
	if err := r.failure(); err != nil {
		return err
	}
	return r.Store.Reset(ctx, p, key)
}

// Acquire implements core.PermitStore.
func (r *Remote) Acquire(ctx context.Context, p core.Permit) (core.Result, error) {
	if err := r.failure(); err != nil {
		return core.Result{}, err
	}
	return r.Store.Acquire(ctx, p)
}

// Renew implements core.PermitStore.
func (r *Remote) Renew(ctx context.Context, permits []core.Permit) (lost []core.Permit, err error) {
	if err := r.failure(); err != nil {
		return nil, err
	}
	return r.Store.Renew(ctx, permits)
}

// Release implements core.PermitStore.
func (r *Remote) Release(ctx context.Context, permits []core.Permit) error {
	if err := r.failure(); err != nil {
		return err
	}
	return r.Store.Release(ctx, permits)
}
