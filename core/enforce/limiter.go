package enforce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/follow"
)

// Options are the options of [New]. The zero value is a good choice.
type Options struct {
	// Log receives one line for each class of failure of a server of the store, one each minute while it fails, and
	// one when it is back; and one line for each text of the Source that cannot be used. nil means slog.Default().
	Log *slog.Logger
	// Source has other numbers for the policy, and for single keys of it, while the program runs: the tiers of its Set are
	// not looked at. With makes Limiters that follow it, too. nil means that the numbers never change, and costs nothing.
	Source follow.Source
}

// Limiter, built by [New], enforces a policy on anything that has a key: jobs, messages, calls to other services. For
// HTTP requests use guard.Guard, which is built on it. It is immutable and safe for concurrent use.
//
// Limiter has three main methods: Allow, Wait and Acquire. Most callers should use Allow, which takes one unit and
// returns a Result that admits or refuses. Use Wait for work that can wait, such as calls to a service that limits
// you: it returns when it is the caller's turn. Use Acquire for work of which only so much may run at the same time:
// it takes a permit, and returns an error if there is none.
//
// AllowN and AcquireN take more than one. UpTo takes as many units as there are, and Peek takes none. Reserve is Wait
// for callers that do the waiting themselves. Refund gives back units that were not used, Credit does so for callers
// that have no receipt, and Reset forgets a key.
// Use Begin to build something like a guard on a Limiter.
//
// Wait blocks until the turn comes, Close for half a second at most, and Acquire only if the policy has a leaky bucket
// beside its permits. All others return when the store has answered.
//
// A key is the user, tenant or job that is counted. It stands in the store in plain text: hash what nobody should see
// there, or set redisstore.Options.HashKeys.
type Limiter struct {
	engine  *engine
	named   *named
	policy  core.Policy
	rates   bool // the policy has rates
	permits bool // the policy has permits
	waits   bool // it may let callers wait for their turn

	asksStore bool   // the store decides
	answer    answer // if it does not, the one that all get

	following *follow.Following[*Variants] // nil without a Source
	code      *Limiter                     // the same by the numbers of the code; nil without a Source
}

// New builds a Limiter that enforces p. If s is nil, New makes a [core.Memory]; a policy without a name is named
// "default". It fails if p is zero, or asks for what s cannot do.
func New(s core.Store, p core.Policy, o Options) (*Limiter, error) {
	if err := errors.Join(checkStore(s, p), checkSource(o.Source)); err != nil {
		return nil, err
	}
	if s == nil {
		s = defaultMemory()
	}
	if !p.IsZero() && p.Name() == "" {
		p = p.Named("default")
	}
	e := newEngine(s, o.Log)
	e.source = o.Source
	return newGroup(e).limiter(p)
}

// Store returns the store in which l counts: the one that New was given, or the [core.Memory] that it has made.
func (l *Limiter) Store() core.Store { return l.engine.store }

// With returns a Limiter for a further policy, which must have a name. It shares with l the store, the fallback that
// decides while the store fails, the Source, and all that is done in the background. It fails if another policy has the name
// already. For policies that are loaded again while the program runs, use [Limiter.WithAll].
func (l *Limiter) With(p core.Policy) (*Limiter, error) {
	return l.named.group.limiter(p)
}

// WithAll is With for all policies of a configuration, whose Limiters it returns in their order. When the configuration
// is loaded again, call it again and use the Limiters that it returns in the place of those from before, which may
// still be used meanwhile. The names that were given before do not matter then: a name may have another algorithm, or other
// numbers. Where those of a name have the same [core.Spec.Shape], they count on; else the name starts afresh. What is
// known of policies of which no Limiter is used any more is let go.
//
// It fails if two different policies have one name, and the error reports that and all other mistakes. With of one of the
// Limiters adds a policy to the same configuration.
func (l *Limiter) WithAll(policies ...core.Policy) ([]*Limiter, error) {
	g, all, mistakes := newGroup(l.engine), make([]*Limiter, len(policies)), []error(nil)
	for i, p := range policies {
		var err error
		if all[i], err = g.limiter(p); err != nil {
			mistakes = append(mistakes, err)
		}
	}
	if mistakes != nil {
		return nil, errors.Join(mistakes...)
	}
	return all, nil
}

// limiter returns the Limiter of a policy of the code.
func (g *group) limiter(p core.Policy) (*Limiter, error) {
	n, err := g.register(p)
	if err != nil {
		return nil, err
	}
	return n.limiter(p).follow(), nil
}

// limiter returns a Limiter for a policy of that name that may be enforced. It notes the numbers of p, for
// [Limiter.Reset]: one policy for each state that a key may have under its name.
func (n *named) limiter(p core.Policy) *Limiter {
	n.group.mu.Lock()
	n.add(p)
	n.group.mu.Unlock()
	_, _, permits := p.Concurrent()
	l := &Limiter{engine: n.group.engine, named: n, policy: p, rates: hasRates(p), permits: permits, waits: waits(p), asksStore: true}
	if l.waits {
		l.engine.waiters.expect()
	}
	return l
}

// Policy returns the policy that l enforces, with the numbers that it has now if l follows a Source.
func (l *Limiter) Policy() core.Policy {
	if l.following != nil {
		return l.following.Now().Limiter.policy
	}
	return l.policy
}

// String returns the text of the policy that l enforces now, or [follow.Unlimited] or
// [follow.Blocked]. A nil Limiter, as in [Variants], is unlimited.
func (l *Limiter) String() string {
	if l != nil && l.following != nil {
		l = l.following.Now().Limiter
	}
	return variant{limiter: l}.String()
}

// PolicyNames returns the name of l's policy; see [follow.Set.Unused].
func (l *Limiter) PolicyNames() []string { return []string{l.policy.Name()} }

// Close ends the waits of callers for their turn with [ErrClosed], releases the permits that are held, whose contexts
// end with [ErrPermitLost], and waits until a remote store has got all that is due, for half a second at most. The error
// says how many releases, refunds, charges and hand-backs it may not have got. Close is for l and all that With made. The
// store is not closed, and l may still be used, except that a wait for a turn fails with [ErrClosed]. A Limiter that is
// used without permits, waiting and refunds need not be closed.
func (l *Limiter) Close() error { return l.engine.close() }

// Allow takes one unit for key. See [Limiter.AllowN].
func (l *Limiter) Allow(ctx context.Context, key string) (res core.Result, err error) {
	// Not by AllowN, which would copy the Result once more.
	l = l.now(key)
	err = l.decide(ctx, core.Take{Policy: l.policy, Key: key, Cost: 1}, &res)
	return res, err
}

// AllowN takes n units for key, all or none, and reports at once whether there are so many. In a LeakyBucket, wait
// for Result.Delay before going on, or call Wait. Permits that the policy has beside its rates are not looked at; see
// [Limiter.Acquire]. Being over the limit is a Result, not an error; look at [core.Result.Allowed].
//
// If the store fails, the policy's fail word decides and Result.Local is set; only under "fail closed" is there an
// error then, a [*core.StoreError]. Other errors are the context's, and those of an empty key, a negative n, and a
// policy that has permits alone.
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (res core.Result, err error) {
	l = l.now(key)
	err = l.decide(ctx, core.Take{Policy: l.policy, Key: key, Cost: n}, &res)
	return res, err
}

// decide drops the error of a store that failed if the fail word has decided. A store in the process does not fail, and
// is asked without a further call.
func (l *Limiter) decide(ctx context.Context, t core.Take, res *core.Result) error {
	if !l.asksStore {
		return l.answer.decide(ctx, &t, res)
	}
	if m := l.engine.memory; m != nil {
		return m.TakeInto(ctx, &t, res)
	}
	if err := l.engine.decide(ctx, &t, res); err != nil && !res.Local {
		return err
	}
	return nil
}

// Peek reports how things stand for key, and takes nothing. It does not look at permits.
func (l *Limiter) Peek(ctx context.Context, key string) (core.Result, error) {
	return l.AllowN(ctx, key, 0)
}

// UpTo takes as many units for key as there are, at most n: Result.Taken has their number. If there is none, it is
// refused. With n = 0 it takes none, and is refused if there is none.
func (l *Limiter) UpTo(ctx context.Context, key string, n int64) (res core.Result, err error) {
	l = l.now(key)
	err = l.decide(ctx, core.Take{Policy: l.policy, Key: key, Cost: n, AtMost: true}, &res)
	return res, err
}

// Reserve is like AllowN, but takes the units ahead of their time if their turn comes within wait: Result.Delay is
// then the time to wait before using them. Later callers queue behind, in the whole fleet, and nobody has to ask
// again. A caller that does not want them any more gives them all back by Refund: they come back if nobody has queued
// behind.
//
// The policy's word "wait" bounds how far ahead they may be taken, as in "10/1s; wait 2s"; without it Reserve is
// AllowN.
func (l *Limiter) Reserve(ctx context.Context, key string, n int64, wait time.Duration) (res core.Result, err error) {
	l = l.now(key)
	err = l.decide(ctx, core.Take{Policy: l.policy, Key: key, Cost: n, Wait: wait}, &res)
	return res, err
}

// Wait takes n units for key and returns when it is their turn. Without the policy's word "wait" it never waits,
// except in a LeakyBucket: give it, as in "10/1s; wait 30s". With it, it reserves as far ahead as the word and ctx's
// deadline allow. It asks the store once, and callers are served in the order in which they came.
//
// It fails with an [*OverLimitError] at once if the turn would come too late. If ctx ends while it waits, it fails with
// the context's error; if l is closed, with [ErrClosed]. Then those who wait behind it for the same key and n move up,
// and the turn that is left over is that of the next caller. If none comes within some 50 ms, the units are given back,
// which helps if no other process has queued behind. Other errors are those of AllowN.
func (l *Limiter) Wait(ctx context.Context, key string, n int64) error {
	if !l.rates { // Begin admits it, as Acquire needs
		return fmt.Errorf("enforce: the policy %q has permits alone, and no turn to wait for; use Limiter.Acquire", l.policy)
	}
	l = l.now(key)
	wait := l.policy.Options().Wait
	if end, bounded := ctx.Deadline(); bounded {
		wait = min(wait, max(0, time.Until(end)))
	}
	var a Admission
	err := l.Begin(ctx, Ask{Key: key, Cost: n, Wait: wait}, &a)
	switch {
	case err != nil:
		return err
	case !a.Result.Allowed():
		return a.overLimit(n, 0)
	default:
		return a.Wait(ctx)
	}
}

// Acquire is AcquireN for one permit.
func (l *Limiter) Acquire(ctx context.Context, key string) (held context.Context, release func(), err error) {
	return l.AcquireN(ctx, key, 1)
}

// AcquireN takes permits of a policy that has them ("20 concurrent lease 30s"), n at once, at least 1, for work that
// weighs as much as n. They are held, and renewed, until release is called, which may be done more than once and
// never waits for the store. If the policy has rates as well, one unit is taken of them.
//
// The context held is ctx's child for the work. It ends on release, and with the cause [ErrPermitLost] if the permits
// are lost, because the store has forgotten them, or, under "fail closed", has not answered for a whole lease: then
// somebody else may be at work too. Work that looks at its context stops then; work that does not runs on beside its
// successor.
//
// Over the limit it fails with an [*OverLimitError]. If the store fails, the policy's fail word decides, as in
// AllowN. On an error there is nothing to release, and release is nil.
func (l *Limiter) AcquireN(ctx context.Context, key string, n int64) (held context.Context, release func(), err error) {
	if !l.permits {
		return nil, nil, fmt.Errorf("enforce: the policy %q has no permits; give one such as \"20 concurrent\"", l.policy)
	}
	if n < 1 {
		return nil, nil, fmt.Errorf("enforce: AcquireN of %d permits; give 1 or more", n)
	}
	var a Admission
	err = l.Begin(ctx, Ask{Key: key, Cost: 1}, &a)
	if err == nil {
		err = a.Wait(ctx)
	}
	if err == nil {
		err = a.Acquire(ctx, n)
	}
	switch {
	case err != nil:
		return nil, nil, err
	case !a.Result.Allowed():
		return nil, nil, a.overLimit(1, n)
	}
	if !a.Held() { // it failed open
		held, cancel := context.WithCancel(ctx)
		return held, cancel, nil
	}
	return a.Context(ctx), a.Release, nil
}

// Refund gives back n of the r.Taken units that AllowN took when it answered r, as far as they still weigh: a unit
// that has drained meanwhile is not given back. A receipt is good for its units once. More than r.Taken is an error,
// as is a store that fails, whatever the fail word: then it is unknown whether anything was given back. The units come
// back where they were taken, also if l has other numbers than the Limiter that took them.
func (l *Limiter) Refund(ctx context.Context, key string, r core.Result, n int64) error {
	now := l.now(key)
	if (!now.asksStore || l.following != nil) && r.Taken > 0 && r.At == 0 && !r.Local { // the key was unlimited
		return nil
	}
	err := l.engine.refund(ctx, []core.Refund{{Policy: now.policy, Key: key, Receipt: r, Units: n}})
	if err == nil {
		return nil
	}
	var one *core.BatchError
	if errors.As(err, &one) && len(one.Errs) == 1 {
		return one.Errs[0]
	}
	return err
}

// Credit gives back up to n of the units that key has in use, whoever has taken them: the latest first, and no more than
// are in use, so that nothing is left over for later. With 10/1m and 6 used, Credit of 8 leaves 10. It is for callers that
// have no receipt, such as a service that is asked by others; with one, use [Limiter.Refund], which never breaks the
// bound. After a Credit more is admitted than the policy says: its bound is the limit and all credits, so that a
// caller that may ask for credits freely has no limit.
//
// Units come back where l counts now: not in another state that the key has under other numbers; see [core.Spec.Shape].
// Debt is forgiven first. While callers wait for their turn, those that come later may get one beside them. In a
// sliding-counter, the units of the window before give back what they still weigh. Other processes may refuse what they
// have just refused for a second more; see redisstore.Options.DenyCache. A key that is unlimited or blocked has nothing
// in use.
//
// A store that fails is an error, a [*core.StoreError], whatever the fail word: then it is unknown whether it has given
// anything back, and it may give back twice if it is asked again. Under "fail local" the process gives back then as well
// what it has admitted meanwhile, and what the store was not charged for comes back without asking it. Other errors are
// the context's, and those of an empty key, a negative n, and a policy that has permits alone.
func (l *Limiter) Credit(ctx context.Context, key string, n int64) error {
	l = l.now(key)
	r := core.Refund{Policy: l.policy, Key: key, Units: n, Credit: true}
	if !l.asksStore {
		return r.Validate()
	}
	return l.engine.credit(ctx, &r)
}

// Reset forgets the units that were taken for key: it is as if it had never come, under all numbers of the policy that
// l, With and [Limiter.Variant] know: the latest 256 that count apart. Permits stay held. A store that fails is an
// error, whatever the fail word.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	return l.named.reset(ctx, l.now(key).policy, key)
}
