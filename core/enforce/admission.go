package enforce

import (
	"context"
	"time"

	"github.com/weir-go/weir/core"
)

// Ask is the argument of [Limiter.Begin].
type Ask struct {
	// Key is the user, tenant or job that is counted: any text but the empty one. The store keeps it in plain text; see
	// [core.Take].
	Key string
	// Cost is the number of units to take of the policy's rates. 0 peeks.
	Cost int64
	// AtMost takes as many units as there are, up to Cost, as in [core.Take]. With a Cost of 0 it takes none, and only
	// looks whether there is one, for a program that knows the cost when the work is done: see [Admission.Charge].
	AtMost bool
	// Wait is the longest time that the caller would wait for its turn, as in [core.Take]. 0 means now or not at all.
	Wait time.Duration
	// Trial marks a limit that is tried out: the caller goes on at once, whatever Result.Delay says, and never calls
	// [Admission.Wait]. Callers that do wait would otherwise keep turns for it that they could give back.
	Trial bool
}

// Admission is a decision with the units and permits that it has taken, until they are given back: the answer of
// [Limiter.Begin]. It is for programs that build something like a guard on a Limiter; most need only the Limiter's
// other methods. The zero Admission refuses, and has nothing to give back.
type Admission struct {
	// Result is the decision.
	Result core.Result
	// Err is nil, or the [*core.StoreError] because of which the policy's fail word has decided.
	Err error

	limiter *Limiter
	key     string
	origin  origin    // of the units, if the Result does not say because permits may have another one
	turn    time.Time // of what was taken, if that is still to come; else zero
	asks    asker     // while the line of the turn does not know of it
	hold    *hold
}

// Begin takes units of the policy's rates: the first step of an admission. It fills in a, which must be zero; to return
// an Admission would take as long as a part of the decision. A policy of permits alone has no rates, and Begin admits.
// Being over the limit is a Result, not an error: look at a.Result.Allowed. An error means that nothing was decided and
// nothing taken, and leaves a zero: the context's, that of a mistake in the Ask, and a [*core.StoreError] under "fail
// closed".
//
// The next steps are Wait, if Result.Delay is not 0, and Acquire, if the policy has permits: in this order, so that no
// permit is held during the wait, and a request over its rate costs one round trip. What was taken remains taken until
// GiveBack and Release.
//
// If a caller that was waiting has just left, Begin takes over its turn without asking the store: Result is then the
// receipt of that turn, and Result.Delay counts from now.
func (l *Limiter) Begin(ctx context.Context, ask Ask, a *Admission) error {
	if l.following != nil {
		l = l.now(ask.Key)
	}
	a.limiter, a.key = l, ask.Key
	if !l.asksStore {
		err := l.begin(ctx, &ask, &a.Result)
		if err != nil {
			*a = Admission{}
		}
		return err
	}
	if l.permits && !l.rates {
		a.Result.Outcome = core.Admitted
		return nil
	}
	if l.waits && !ask.AtMost && !ask.Trial {
		a.asks = l.engine.waiters.askers.add(ask.Key)
	}
	if w := l.engine.waiters; w.free.Load() > 0 && !ask.AtMost && ctx.Err() == nil {
		if turn := w.claim(l.policy, &ask); turn != nil {
			a.Result, a.turn = turn.took, turn.at
			a.Result.Delay = max(0, time.Until(turn.at).Round(time.Microsecond))
			return nil
		}
	}
	var t core.Take // filled in place: a literal would be made elsewhere and copied
	t.Policy, t.Key, t.Cost, t.AtMost, t.Wait = l.policy, ask.Key, ask.Cost, ask.AtMost, ask.Wait
	a.Err = l.engine.decide(ctx, &t, &a.Result)
	if a.Result.Delay > 0 && a.Result.Allowed() {
		a.turn = time.Now().Add(a.Result.Delay)
	} else if a.asks.count != nil {
		a.asks.done()
	}
	if a.Err != nil && !a.Result.Local {
		err := a.Err
		*a = Admission{}
		return err
	}
	return nil
}

// Acquire takes n permits of the policy, at least 1, for what Begin has admitted: the last step. It does nothing if the
// policy has no permits. Afterwards Result is the decision of rates and permits together; if the permits are refused,
// or if Acquire fails, the units are given back. Errors are those of Begin.
func (a *Admission) Acquire(ctx context.Context, n int64) error {
	if !a.limiter.permits || a.hold != nil || !a.Result.Allowed() || !a.limiter.asksStore {
		return nil
	}
	done := false
	undo := func() {
		a.GiveBack(a.Result.Taken)
		a.Result.Taken = 0
	}
	defer func() {
		if !done { // it failed, or the store panicked
			undo()
		}
	}()
	h, permits, err := a.limiter.engine.acquire(ctx, core.Permit{Policy: a.limiter.policy, Key: a.key, Weight: n})
	if err != nil && !permits.Local {
		return err
	}
	if err != nil {
		a.Err = err
	}
	a.hold = h
	if !permits.Allowed() {
		undo()
	}
	a.origin = originOf(&a.Result)
	a.limiter.policy.Combine(&a.Result, &permits)
	done = true
	return nil
}

// Wait returns when it is the turn of what was taken: at once, unless Result.Delay says otherwise, and earlier than
// it says if other callers leave that wait for the same key and cost. Result is then the receipt of the turn that was
// used. Wait fails with an [*OverLimitError], at once, if ctx would end before; with the context's error if ctx ends
// all the same; and with [ErrClosed] if the Limiter is closed meanwhile. Then nothing remains taken; see
// [Limiter.Wait].
func (a *Admission) Wait(ctx context.Context) error {
	if a.turn.IsZero() || !a.Result.Allowed() {
		return nil
	}
	if end, bounded := ctx.Deadline(); bounded && time.Until(end) <= a.Result.Delay {
		units := a.Result.Taken
		a.GiveBack(units)
		a.Result.Taken = 0
		res := core.Result{Limit: a.Result.Limit, RetryAfter: a.Result.Delay, At: a.Result.At}
		return &OverLimitError{Result: res, policy: a.limiter.policy, units: units}
	}
	took, turn := a.refund(a.Result.Taken), a.turn
	a.turn = time.Time{}
	receipt, err := a.limiter.engine.waiters.wait(ctx, took, turn, &a.asks)
	if err != nil {
		a.Result.Taken = 0
		return err
	}
	receipt.Delay = a.Result.Delay
	a.Result = receipt
	return nil
}

// overLimit returns the error of a refusal.
func (a *Admission) overLimit(units, permits int64) error {
	return &OverLimitError{
		Result: a.Result, policy: a.limiter.policy, units: units, permits: permits, blocked: a.limiter.answer == refuses,
	}
}

// Policy returns the policy by which Begin has decided, with the numbers of the key, or the zero Policy if it failed.
func (a *Admission) Policy() core.Policy {
	if a.limiter == nil {
		return core.Policy{}
	}
	return a.limiter.policy
}

// charged returns the store that has charged the units.
func (a *Admission) charged() origin {
	if a.origin != unset {
		return a.origin
	}
	return originOf(&a.Result)
}

// refund returns a refund of units whose receipt is that of the rates alone.
func (a *Admission) refund(units int64) *core.Refund {
	r := &core.Refund{Policy: a.limiter.policy, Key: a.key, Receipt: a.Result, Units: units}
	switch a.charged() {
	case inStore:
		r.Receipt.Local = false
	case inFallback:
		r.Receipt.Local = true
	default: // nowhere
		r.Receipt.Local, r.Receipt.At = true, 0
	}
	return r
}

// GiveBack gives back units of those that were taken, at most Result.Taken in all, as far as they still weigh; see
// [core.Refund]. It does not wait for a remote store.
func (a *Admission) GiveBack(units int64) {
	units = min(units, a.Result.Taken)
	switch {
	case units <= 0 || a.limiter == nil || !a.limiter.asksStore:
	case units == a.Result.Taken && time.Now().Before(a.turn):
		a.limiter.engine.waiters.put(a.refund(units), a.turn, &a.asks)
		a.turn = time.Time{}
	default:
		a.asks.done()
		a.limiter.engine.giveBack(a.refund(units))
	}
}

// Charge takes further units, for what was used already: as many as there are, the policy's debt included. It does
// not wait for a remote store. If that does not answer, it is asked again for ten seconds, unless it may have charged
// them. If done is not nil, Charge calls it once, when the units are charged, so that everybody who asks the store
// afterwards sees that, or when it is certain that they are never charged.
func (a *Admission) Charge(units int64, done func()) {
	if done == nil {
		done = func() {}
	}
	if units <= 0 || a.limiter == nil || !a.limiter.rates || !a.limiter.asksStore {
		done()
		return
	}
	a.limiter.engine.charge(core.Take{Policy: a.limiter.policy, Key: a.key, Cost: units, AtMost: true, Debt: true}, a.charged(), done)
}

// Held reports whether there are permits to release.
func (a *Admission) Held() bool { return a.hold != nil }

// Context returns a child of ctx that ends on Release, and with the cause [ErrPermitLost] if the permits are lost.
// Without permits it is ctx.
func (a *Admission) Context(ctx context.Context) context.Context { return a.hold.attach(ctx) }

// Release gives the permits back. Only the first call counts, and it does not wait for the store.
func (a *Admission) Release() { a.hold.release() }

// Detach lets the permits outlive the request that they were acquired for, such as for a connection that is taken
// over. The code that takes care of it calls Claim. After Detach, call Finish instead of Release. Without permits the
// result is nil, whose methods may be called all the same.
func (a *Admission) Detach() *Detached {
	if a.hold == nil {
		return nil
	}
	a.hold.detach()
	return &Detached{a.hold}
}

// Finish is called when the request is over. It releases the permits unless they were detached. Detached permits that
// nobody has claimed are released at once if the request has panicked, and otherwise after one lease.
func (a *Admission) Finish(panicked bool) { a.hold.finish(panicked) }

// Detached has the permits of a request that outlive it. A nil *Detached has none, and may be used like any other.
type Detached struct{ hold *hold }

// Claim takes over the permits: they are held, and renewed, until release is called, which may be done more than
// once. The context held is a child of ctx for the work. It ends on release, and with the cause [ErrPermitLost] if the
// permits are lost or have been held for a day. It has ended already if they were given back before Claim, because
// nobody had claimed them in time or the handler had panicked.
func (d *Detached) Claim(ctx context.Context) (held context.Context, release func()) {
	if d == nil {
		return context.WithCancel(ctx)
	}
	return d.hold.claim(ctx), d.hold.release
}
