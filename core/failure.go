package core

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
)

// Failure says who decides while the store does not answer: the grammar's fail
// word. It never turns into a 429, which would blame the caller.
type Failure uint8

// The fail words.
const (
	// FailLocal, "fail local": an in-process store decides with the same policy.
	// Each process then counts for itself. This is the default.
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

// failover is a store that keeps to each policy's fail word when the store behind
// it fails. Guards and limiters ask it instead of the store.
type failover struct {
	store Store
	local func() *Memory
	held  *holder // the permits that were acquired through it
}

// Fallback is implemented by a store that brings the in-process store which
// decides in its place while it fails. So all guards and limiters on that store
// share one, and one limit stays one limit within the process.
type Fallback interface {
	Fallback() *Memory
}

// checkStore tells of a store that can only panic, or cannot do what p asks for. No
// store is a Memory.
func checkStore(s Store, p Policy) error {
	if v := reflect.ValueOf(s); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("core: Store is a nil %T; was the error of its constructor ignored?", s)
	}
	if _, ok := s.(PermitStore); s != nil && !ok && p.p != nil && p.p.permits != nil {
		return fmt.Errorf("core: the policy %q has permits, and %T cannot keep them; give a store that implements PermitStore", p, s)
	}
	return nil
}

func newFailover(s Store) *failover {
	f := &failover{store: s, held: newHolder()}
	switch s := s.(type) {
	case *Memory:
		f.local = func() *Memory { return s }
	case Fallback:
		f.local = s.Fallback
	default:
		f.local = sync.OnceValue(defaultMemory)
	}
	return f
}

// take answers with a usable Result unless the policy fails closed, the caller
// left, or t is invalid. A failure of the store comes along as a *StoreError.
func (f *failover) take(ctx context.Context, t Take) (Result, error) {
	res, err := f.store.Take(ctx, t)
	if err == nil {
		return res, nil
	}
	if failed := (*StoreError)(nil); !errors.As(err, &failed) {
		return Result{}, err
	}
	switch t.Policy.Options().Fail {
	case FailOpen:
		res := Result{Outcome: Admitted, Local: true}
		if t.AtMost { // who asks how many there are gets all
			res.Taken = t.Cost
		}
		return res, err
	case FailClosed:
		return Result{}, err
	default:
		res, local := f.local().Take(context.WithoutCancel(ctx), t)
		if local != nil {
			return Result{}, errors.Join(err, local)
		}
		res.Local = true
		return res, err
	}
}

// acquire is like take for the permits of p.
func (f *failover) acquire(ctx context.Context, p Permit) (*hold, Result, error) {
	h, res, err := f.held.acquire(ctx, f.store.(PermitStore), p) //nolint:forcetypeassert // checkStore has looked
	if failed := (*StoreError)(nil); !errors.As(err, &failed) {
		return h, res, err
	}
	switch p.Policy.Options().Fail {
	case FailOpen:
		return nil, Result{Outcome: Admitted, Local: true}, err
	case FailClosed:
		return nil, Result{}, err
	default:
		h, res, local := f.held.acquire(context.WithoutCancel(ctx), f.local(), p)
		if local != nil {
			return nil, Result{}, errors.Join(err, local)
		}
		res.Local = true
		return h, res, err
	}
}

// admit asks for all that a policy demands: a permit first, because it can be given
// back whole, and then the rates. If they refuse, the permit is given back. It answers
// as take does.
func (f *failover) admit(ctx context.Context, t Take, weight int64) (Result, *hold, error) {
	p := t.Policy.p
	if p.permits == nil {
		res, err := f.take(ctx, t)
		return res, nil, err
	}
	h, permits, err := f.acquire(ctx, Permit{Policy: t.Policy, Key: t.Key, Weight: weight})
	if !permits.Allowed() || len(p.algorithms) == 0 { // then the rates are not asked
		return permits, h, err
	}
	given := h
	defer func() { given.release() }() // if the rates refuse, and if a store panics
	rates, failed := f.take(ctx, t)
	if failed != nil {
		err = failed
	}
	if !rates.Allowed() {
		h = nil
	} else {
		given = nil
	}
	if failed != nil && !rates.Local {
		return rates, h, err
	}
	return p.combine(rates, permits, t.Cost), h, err
}

// refund takes a receipt back to the store that wrote it.
func (f *failover) refund(ctx context.Context, t Take, r Result, units int64) error {
	switch r.charged() {
	case nowhere:
		return nil
	case inFallback:
		return f.local().Refund(ctx, t, r, units)
	default:
		return f.store.Refund(ctx, t, r, units)
	}
}

// reset forgets a key in both stores.
func (f *failover) reset(ctx context.Context, p Policy, key string) error {
	err := f.store.Reset(ctx, p, key)
	if local := f.local(); Store(local) != f.store {
		return errors.Join(err, local.Reset(ctx, p, key))
	}
	return err
}

// remote tells whether asking the store takes more than memory.
func (f *failover) remote() bool { _, memory := f.store.(*Memory); return !memory }
