package core

import (
	"context"
	"errors"
)

// Limiter, built by [NewLimiter], enforces a policy on anything that has a key: jobs, messages, calls to
// somebody else's API. For HTTP requests use a [Guard]. It is immutable and safe
// for concurrent use.
type Limiter struct {
	store  *failover
	policy Policy
}

// NewLimiter builds a Limiter that enforces p. A nil store means a [Memory] of its
// own; a policy without a name is named "default". It fails if p is zero.
func NewLimiter(s Store, p Policy) (*Limiter, error) {
	if p.IsZero() {
		return nil, errors.New("core: NewLimiter without a policy; give one, such as core.MustParse(\"100/1m\")")
	}
	if err := checkStore(s); err != nil {
		return nil, err
	}
	if p.Name() == "" {
		p = p.Named("default")
	}
	if s == nil {
		s = defaultMemory()
	}
	return &Limiter{newFailover(s), p}, nil
}

// Allow takes one unit for key. See [Limiter.AllowN].
func (l *Limiter) Allow(ctx context.Context, key string) (Result, error) {
	return l.AllowN(ctx, key, 1)
}

// AllowN takes n units for key, all or none, and tells at once whether they are to
// be had. Being over the limit is a Result, not an error; look at
// [Result.Allowed].
//
// If the store fails, the policy's fail word decides and Result.Local is set;
// only under "fail closed" is there an error then, a [*StoreError]. Other errors
// are the context's, and those of an empty key or a negative n.
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (Result, error) {
	res, err := l.store.take(ctx, Take{Policy: l.policy, Key: key, Cost: n})
	if res.Local {
		return res, nil
	}
	return res, err
}

// Peek tells how things stand for key and takes nothing.
func (l *Limiter) Peek(ctx context.Context, key string) (Result, error) {
	return l.AllowN(ctx, key, 0)
}

// Refund gives back n of the r.Taken units that AllowN took when it answered r, as
// far as they still weigh: a unit that has drained meanwhile is not given back. A
// receipt is good for its units once. More than r.Taken is an error, as is a store
// that fails, whatever the fail word: then nothing may have been given back.
func (l *Limiter) Refund(ctx context.Context, key string, r Result, n int64) error {
	return l.store.refund(ctx, Take{Policy: l.policy, Key: key, Cost: r.Taken}, r, n)
}

// Reset forgets key: it is as if it had never come. A store that fails is an error,
// whatever the fail word.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	return l.store.reset(ctx, l.policy, key)
}
