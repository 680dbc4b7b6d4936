package storetest_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/storetest"
)

// table is all that a store needs: anything that can compare and swap. If it fails, the error is a *core.StoreError; if
// the context has ended and nothing was done, the context's error.
type table interface {
	// Get returns the text of a key that has not expired, or nil.
	Get(ctx context.Context, key string) (text []byte, err error)
	// Swap stores next for ttl if the text is still old, and reports whether it was. An old that is nil or empty stands
	// for no text.
	Swap(ctx context.Context, key string, old, next []byte, ttl time.Duration) (swapped bool, err error)
	// Delete removes a key.
	Delete(ctx context.Context, key string) error
	// Now is the table's clock, in microseconds since 1970: one for all processes.
	Now() int64
}

// customStore is a core.Store on a table.
type customStore struct{ table }

// Take implements core.Store.
func (s customStore) Take(ctx context.Context, t core.Take) (res core.Result, err error) {
	if err := t.Validate(); err != nil {
		return core.Result{}, err
	}
	err = s.update(ctx, t.Policy, t.Key, t.Now, func(text []byte, now int64) (next []byte, ttl time.Duration) {
		t.Now = now
		res, next, ttl = t.Policy.Spec().Step(text, t)
		return next, ttl
	})
	if err != nil {
		return core.Result{}, err
	}
	return res, nil
}

// Refund implements core.Store.
func (s customStore) Refund(ctx context.Context, refunds []core.Refund) error {
	for i := range refunds {
		if err := refunds[i].Validate(); err != nil {
			return err
		}
	}
	errs := make([]error, len(refunds))
	for i, r := range refunds {
		errs[i] = s.update(ctx, r.Policy, r.Key, r.Now, func(text []byte, now int64) (next []byte, ttl time.Duration) {
			r.Now = now
			return r.Policy.Spec().StepRefund(text, r)
		})
	}
	if errors.Join(errs...) == nil {
		return nil
	}
	return &core.BatchError{Errs: errs}
}

// Reset implements core.Store.
func (s customStore) Reset(ctx context.Context, p core.Policy, key string) error {
	t := core.Take{Policy: p, Key: key}
	if err := t.Validate(); err != nil {
		return err
	}
	return s.Delete(ctx, place(p, key))
}

// State implements core.StateStore, for Limiter.Explain. Without it the store can do all the rest.
func (s customStore) State(ctx context.Context, t core.Take) (core.State, error) {
	if err := t.ValidateState(); err != nil {
		return core.State{}, err
	}
	name := place(t.Policy, t.Key)
	text, err := s.Get(ctx, name)
	if err != nil {
		return core.State{}, err
	}
	state := core.State{At: t.Now, Text: text, Name: name}
	if state.At == 0 { // it is not forced
		state.At = s.Now()
	}
	return state, nil
}

// update replaces the text of a key by the next one, and starts over if another caller was faster.
func (s customStore) update(ctx context.Context, p core.Policy, key string, now int64, step func(text []byte, now int64) ([]byte, time.Duration)) error {
	key = place(p, key)
	for {
		text, err := s.Get(ctx, key)
		if err != nil {
			return err
		}
		at := now
		if at == 0 { // it is not forced
			at = s.Now()
		}
		next, ttl := step(text, at)
		if ttl == 0 { // there is nothing to store
			return nil
		}
		if swapped, err := s.Swap(ctx, key, text, next, ttl); swapped || err != nil {
			return err
		}
	}
}

// place is the table's key: policies of other names, and of other algorithms, have states of their own.
func place(p core.Policy, key string) string { return p.Name() + ":" + p.Spec().Shape() + ":" + key }

// mapTable is a table in the process. Nothing in it expires, which changes no decision.
type mapTable struct {
	mu    sync.Mutex
	texts map[string][]byte
}

func (m *mapTable) Get(ctx context.Context, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.texts[key], ctx.Err()
}

func (m *mapTable) Swap(ctx context.Context, key string, old, next []byte, _ time.Duration) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() != nil || !bytes.Equal(m.texts[key], old) {
		return false, ctx.Err()
	}
	m.texts[key] = next
	return true, nil
}

func (m *mapTable) Delete(ctx context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() == nil {
		delete(m.texts, key)
	}
	return ctx.Err()
}

func (*mapTable) Now() int64 { return time.Now().UnixMicro() }

// A store that does nothing but compare and swap keeps all the promises.
func TestCustomStore(t *testing.T) {
	t.Parallel()
	storetest.Exercise(t, func(*testing.T) core.Store {
		return customStore{&mapTable{texts: map[string][]byte{}}}
	})
}
