package core

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Limiter, built by [NewLimiter], enforces a policy on anything that has a key: jobs,
// messages, calls to somebody else's API. For HTTP requests use a [Guard]. It is immutable and safe
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
	if err := checkStore(s, p); err != nil {
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
// be had. In a LeakyBucket, wait for Result.Delay before going on, or call Wait. Permits
// that the policy has beside its rates are not looked at; see [Limiter.Acquire]. Being over the limit is a Result, not an error; look at
// [Result.Allowed].
//
// If the store fails, the policy's fail word decides and Result.Local is set;
// only under "fail closed" is there an error then, a [*StoreError]. Other errors
// are the context's, and those of an empty key or a negative n.
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (Result, error) {
	return l.take(ctx, Take{Policy: l.policy, Key: key, Cost: n})
}

func (l *Limiter) take(ctx context.Context, t Take) (Result, error) {
	res, err := l.store.take(ctx, t)
	if res.Local {
		return res, nil
	}
	return res, err
}

// Peek tells how things stand for key and takes nothing.
func (l *Limiter) Peek(ctx context.Context, key string) (Result, error) {
	return l.AllowN(ctx, key, 0)
}

// UpTo takes as many units for key as there are, at most n. Result.Taken tells how many
// that were; none is a refusal.
func (l *Limiter) UpTo(ctx context.Context, key string, n int64) (Result, error) {
	return l.take(ctx, Take{Policy: l.policy, Key: key, Cost: n, AtMost: true})
}

// Reserve is like AllowN, but takes the units ahead of their time if they are to be had
// within ahead: Result.Delay then tells how long to wait before using them. Whoever comes
// later queues behind, in the whole fleet, and nobody has to ask again. Who does not
// want to wait any more gives them back by Refund, all of them: they come back if nobody
// has queued behind.
//
// The policy says how far ahead is possible at all, as "10/1s; wait 2s" does; without
// "wait" Reserve is AllowN.
func (l *Limiter) Reserve(ctx context.Context, key string, n int64, ahead time.Duration) (Result, error) {
	return l.take(ctx, Take{Policy: l.policy, Key: key, Cost: n, Ahead: ahead})
}

// Wait takes n units for key and returns when it is their turn. Without the policy's word
// "wait" it never waits, except in a LeakyBucket: give it, as in "10/1s; wait 30s". With it,
// it reserves as far ahead as the word and ctx's deadline allow. It asks the store once, and callers are served in the order in which they
// came.
//
// It fails with an [*OverLimitError] at once if the turn would come too late. If ctx ends
// while it waits, it gives the units back, which helps if nobody has queued behind, and
// fails with the context's error.
func (l *Limiter) Wait(ctx context.Context, key string, n int64) error {
	t := Take{Policy: l.policy, Key: key, Cost: n, Ahead: l.policy.Options().Ahead}
	if deadline, bounded := ctx.Deadline(); bounded {
		t.Ahead = min(t.Ahead, max(0, time.Until(deadline)))
	}
	res, err := l.take(ctx, t)
	switch {
	case err != nil:
		return err
	case !res.Allowed():
		return &OverLimitError{res}
	default:
		return l.await(ctx, t, res)
	}
}

// await waits for the turn of what was taken. Who leaves before, or knows that its time
// will be up, gives it back.
func (l *Limiter) await(ctx context.Context, t Take, res Result) (err error) {
	if res.Delay == 0 {
		return nil
	}
	if deadline, bounded := ctx.Deadline(); bounded && time.Until(deadline) <= res.Delay {
		err = &OverLimitError{Result{Limit: res.Limit, RetryAfter: res.Delay, At: res.At}}
	} else {
		err = sleep(ctx, res.Delay, nil)
	}
	if err != nil { // the store's own deadline bounds this
		_ = l.store.refund(context.WithoutCancel(ctx), t, res, res.Taken)
	}
	return err
}

// Acquire is AcquireN for one permit.
func (l *Limiter) Acquire(ctx context.Context, key string) (held context.Context, release func(), err error) {
	return l.AcquireN(ctx, key, 1)
}

// AcquireN takes permits of a policy that has them ("20 concurrent lease 30s"), n at once,
// at least 1, for work that weighs as much as n. They are held, and renewed, until release is called,
// which may be done more than once and never waits for the store. If the policy has rates
// as well, one unit is taken of them.
//
// The context held is ctx's child for the work. It ends on release, and with the cause
// [ErrPermitLost] if the permits are lost, because the store did not answer for a whole
// lease, or has forgotten them: then somebody else may be at work too. Work that looks at
// its context stops then; work that does not runs on beside its successor.
//
// Over the limit it fails with an [*OverLimitError]. If the store fails, the policy's fail
// word decides, as in AllowN. On an error there is nothing to release.
func (l *Limiter) AcquireN(ctx context.Context, key string, n int64) (held context.Context, release func(), err error) {
	if l.policy.p.permits == nil {
		return nil, nil, fmt.Errorf("core: the policy %q has no permits; give one such as \"20 concurrent\"", l.policy)
	}
	if n < 1 {
		return nil, nil, fmt.Errorf("core: AcquireN of %d permits; give 1 or more", n)
	}
	t := Take{Policy: l.policy, Key: key, Cost: 1}
	res, h, err := l.store.admit(ctx, t, n)
	switch {
	case err != nil && !res.Local:
		return nil, nil, err
	case !res.Allowed():
		return nil, nil, &OverLimitError{res}
	}
	given := h
	defer func() { given.release() }() // if it leaves before its turn, and if the store panics
	if err := l.await(ctx, t, res); err != nil {
		return nil, nil, err
	}
	given = nil
	if h == nil { // it failed open
		held, cancel := context.WithCancel(ctx)
		return held, cancel, nil
	}
	return h.attach(ctx), h.release, nil
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
