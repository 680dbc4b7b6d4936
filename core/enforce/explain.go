package enforce

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/explain"
	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/internal/algo"
)

// explanation is an explain.Explanation that is being made.
type explanation explain.Explanation

// The numbers of an Explanation that no entry of a Set has brought.
const (
	numbersOfCode = "code"
	numbersGiven  = "given"
	numbersOfTier = "tier"
)

// Explain returns what would become of a request of cost units for key, and why: what is used of each limit, what is
// left, which limit refuses, and when the next such requests would be admitted. If the policy has permits, the request is
// one that Acquire makes, and takes one.
//
// It takes nothing and writes nothing. It asks the store once for what it keeps, or twice if the policy has permits and
// rates: give it to people, and not to each request. If the store fails, the Explanation is that of the policy's fail
// word, and its Failure says why. An error is the context's, that of a mistake, or that of a store which does not
// implement [core.StateStore].
func (l *Limiter) Explain(ctx context.Context, key string, cost int64) (explain.Explanation, error) {
	return l.ExplainAsk(ctx, Ask{Key: key, Cost: cost})
}

// ExplainAs is Explain under other numbers of the policy, for which nothing is changed: "what if it were 200/1m?" p has
// the name of l's policy, or none. Numbers that do not share the counts of those of now, such as another algorithm, find
// what was counted under them, mostly nothing: a note says so.
func (l *Limiter) ExplainAs(ctx context.Context, p core.Policy, key string, cost int64) (explain.Explanation, error) {
	if p.IsZero() {
		return explain.Explanation{}, errors.New("enforce: ExplainAs without a policy; give one, such as core.MustParse(\"100/1m\")")
	}
	if p.Name() == "" {
		p = p.Named(l.policy.Name())
	}
	if p.Name() != l.policy.Name() {
		return explain.Explanation{}, fmt.Errorf("enforce: ExplainAs of %q for the policy %q, which has counts of its own; give other numbers under the same name", p, l.policy.Name())
	}
	if err := checkStore(l.engine.store, p); err != nil {
		return explain.Explanation{}, err
	}
	now := l.now(key)
	_, _, permits := p.Concurrent()
	given := &Limiter{engine: l.engine, named: l.named, policy: p, rates: hasRates(p), permits: permits, asksStore: true}
	x, err := given.explain(ctx, Ask{Key: key, Cost: cost})
	if x.Numbers = numbersGiven; err != nil {
		return explain.Explanation{}, err
	}
	if now.asksStore && !sharesState(p, now.policy) {
		x.Notes = slices.DeleteFunc(x.Notes, func(note string) bool { return note == unseen })
		x.note("these numbers count apart from those of now, %q: what was counted under those is not in this", now.policy)
	}
	return explain.Explanation(x), nil
}

// ExplainAsk is Explain for what [Limiter.Begin] takes, with a Wait and AtMost, for programs that build something like a
// guard on a Limiter.
func (l *Limiter) ExplainAsk(ctx context.Context, ask Ask) (explain.Explanation, error) {
	now := l.now(ask.Key)
	x, err := now.explain(ctx, ask)
	if err != nil {
		return explain.Explanation{}, err
	}
	x.Numbers = numbersOfCode
	switch {
	case l.following != nil:
		set, version := l.following.Last()
		if set != nil {
			x.Revision = set.Revision
		}
		if _, own := version.Keys[ask.Key]; own {
			x.Numbers = follow.Entry{Policy: l.policy.Name(), Field: fieldKeys, Key: ask.Key}.String()
		} else if version.Limiter != l.code {
			x.Numbers = follow.Entry{Policy: l.policy.Name(), Field: fieldPolicies}.String()
		}
	case l.policy.String() != l.named.policy.String():
		x.Numbers = numbersOfTier
	}
	return explain.Explanation(x), nil
}

// explain explains by the numbers of l itself.
func (l *Limiter) explain(ctx context.Context, ask Ask) (explanation, error) {
	t := core.Take{Policy: l.policy, Key: ask.Key, Cost: ask.Cost, AtMost: ask.AtMost, Wait: ask.Wait}
	if err := t.ValidateState(); err != nil {
		return explanation{}, err
	}
	if err := ctx.Err(); err != nil {
		return explanation{}, err
	}
	x := explanation{Policy: variant{limiter: l}.String(), Key: ask.Key, Cost: ask.Cost, Shadow: l.policy.Options().Shadow}
	if !l.asksStore {
		x.From, x.At = fromProcess, time.Now()
		if err := l.answer.fill(ctx, ask.Cost, &x.Result); err != nil {
			return explanation{}, err
		}
		if x.Outcome = x.Result.Outcome.String(); l.answer == admits {
			x.Policy = follow.Unlimited
		}
		return x, nil
	}
	return x, l.explainState(ctx, &t, &x)
}

// The values of Explanation.From.
const (
	fromStore     = "store"
	fromDenyCache = "deny-cache"
	fromProcess   = "process"
	fromFallback  = "fallback"
	fromOpen      = "open"
	fromClosed    = "closed"
)

// unseen is the note about a key of which the store has nothing: a person may have typed another one.
const unseen = "nothing is counted for this key: it was not used lately, or it is spelled otherwise, such as user=7 instead of 7"

// explainState fills in what follows from the state of the key.
func (l *Limiter) explainState(ctx context.Context, t *core.Take, x *explanation) error {
	e := l.engine
	store, ok := e.store.(core.StateStore)
	if !ok {
		return fmt.Errorf("enforce: %T does not show what it keeps; give a store that implements StateStore", e.store)
	}
	if x.From = fromStore; !e.remote() {
		x.From = fromProcess
	}
	x.Owed, x.Waiting = e.ledger.Owed(ledgerKeyOf(l.policy, t.Key)), e.waiters.count(lineKey{l.policy, t.Key, t.Cost, inStore})
	state, err := store.State(ctx, *t)
	x.Stored, x.StoredPermits = state.Name, state.PermitName
	decides := l.policy
	var failed *core.StoreError
	if errors.As(err, &failed) {
		if x.Failure, x.At = failed.Error(), time.Now(); x.decidedWithout(&state, l.policy.Options().Fail) {
			x.Outcome = x.Result.Outcome.String()
			return nil
		}
		own := *t
		own.Policy = l.policy.Local()
		x.From, decides = fromFallback, own.Policy
		state, err = e.fallback().State(context.WithoutCancel(ctx), own)
		state.Leases = e.holder.withLeases(state.Leases, l.policy, t.Key, state.At)
	}
	if err != nil {
		return err
	}
	x.At = time.UnixMicro(state.At)
	f := forecast{take: *t, text: state.Text, leases: algo.LeasesUntil(state.Leases), local: x.From == fromFallback}
	f.take.Policy = decides
	x.describe(&f, state.At)
	if state.Text == nil && len(state.Leases) == 0 && state.Remembered == nil && x.Owed == 0 {
		x.note(unseen)
	}
	if x.Permits != nil {
		x.Permits.Here = e.holder.places(l.policy, t.Key)
	}
	x.foresee(&f, state)
	x.Outcome = x.Result.Outcome.String()
	return nil
}

// decidedWithout fills in the answer of a store that fails where nothing is counted for it: what it remembers, and what
// the fail word says.
func (x *explanation) decidedWithout(state *core.State, word core.Failure) bool {
	switch {
	case state.Remembered != nil:
		x.remembers(state)
	case word == core.FailOpen:
		x.From, x.Result.Outcome, x.Result.Local = fromOpen, core.Admitted, true
	case word == core.FailClosed:
		x.From = fromClosed
	default:
		return false
	}
	return true
}

// describe fills in the limits as they are before the request, and the permits.
func (x *explanation) describe(f *forecast, now int64) {
	limits, before := f.take.Policy.Limits(), *f
	before.leases = f.leases.Clone()
	res := before.ask(now)
	var used []int64
	if hasRates(f.take.Policy) {
		used = f.take.Policy.Spec().InUse(f.text, now)
	}
	x.Result = res
	for i, limit := range limits {
		l := explain.Limit{Limit: limit.String()}
		if limit.Algorithm == core.Concurrent {
			held, first, last := f.leases.Held(now, now+limit.Lease.Microseconds())
			l.Used, l.Left = held, max(0, limit.Burst-held)
			part := res.Each(i)
			if l.Refuses, l.RetryAfter = part.Refused, res.Delay+part.RetryAfter; part == (core.LimitResult{}) { // the rates have refused
				if l.Refuses = l.Left < 1; l.Refuses {
					l.RetryAfter = microseconds(f.leases.Clone().Acquire(probe, 1, f.terms(now))[2] - now)
				}
			} else if !l.Refuses {
				l.RetryAfter = 0
			}
			if x.Permits = (&explain.Permits{Held: held, Most: limit.Burst}); held > 0 {
				x.Permits.FirstEnds, x.Permits.LastEnds = time.UnixMicro(first), time.UnixMicro(last)
				l.ResetAfter = microseconds(last - now)
			}
		} else {
			peek := f.take
			peek.Now, peek.Cost, peek.AtMost, peek.Debt = now, 0, false, false
			as, _, _ := peek.Policy.Spec().Step(f.text, peek)
			l.Used, l.Left, l.ResetAfter = used[i], as.Each(i).Remaining, as.Each(i).ResetAfter
			part := res.Each(i)
			if l.Refuses, l.Never = part.Refused, part.Never; l.Refuses {
				l.RetryAfter = part.RetryAfter
			} else {
				l.Delay = part.Delay
			}
		}
		x.Limits = append(x.Limits, l)
	}
}

// nextTurns is the number of turns in an Explanation.
const nextTurns = 5

// foresee fills in when the next requests would be admitted.
func (x *explanation) foresee(f *forecast, state core.State) {
	at := state.At
	if state.Remembered != nil {
		at += x.remembers(&state)
	}
	if x.Owed > 0 {
		x.note("this process has admitted units without the store; the next decision of the store has it charged with them, which is not in the turns")
	}
	if x.Cost == 0 {
		return
	}
	for tries := 0; len(x.Next) < nextTurns && tries < maxTries; {
		res := f.ask(at)
		switch {
		case res.Allowed():
			x.Next = append(x.Next, explain.Turn{At: time.UnixMicro(at), Delay: res.Delay})
			tries = 0
		case res.Outcome == core.Never || res.RetryAfter <= 0:
			return
		default:
			// a permit that was refused was asked for when the wait was over
			at, tries = f.soonest(at, at+(res.Delay+res.RetryAfter).Microseconds()), tries+1
		}
	}
	if len(x.Next) == 0 {
		x.note("only the store could admit so many units at once, and it does not answer")
	}
}

// remembers fills in the answer of a store that remembers a refusal, and returns how many microseconds it goes on to.
func (x *explanation) remembers(state *core.State) int64 {
	x.From, x.Result = fromDenyCache, *state.Remembered
	x.note("the process remembers that the store has refused, and asks it again in %v at the latest", state.RememberedFor.Round(time.Microsecond))
	return max(0, min(state.RememberedFor, state.Remembered.RetryAfter).Microseconds())
}

// maxTries bounds the number of times that a request which obeys RetryAfter is refused again: by the permits, and then by
// rates that have been asked again.
const maxTries = 16

func (x *explanation) note(format string, args ...any) {
	x.Notes = append(x.Notes, fmt.Sprintf(format, args...))
}

func microseconds(n int64) time.Duration { return time.Duration(max(0, n)) * time.Microsecond }

// forecast decides about requests as the store would, on a copy of what it keeps.
type forecast struct {
	take   core.Take
	text   []byte
	leases *algo.Leases
	local  bool
}

// probe is the id of the permit of a request that is not made.
const probe = "\x00"

func (f *forecast) terms(now int64) algo.Terms {
	n, lease, _ := f.take.Policy.Concurrent()
	return algo.Terms{Most: n, Lease: lease.Microseconds(), Now: now}
}

// ask decides about a request at an instant. It leaves what the store would keep after it: if the permits refuse, its
// units are given back, and of an admitted one there is no permit.
func (f *forecast) ask(at int64) (res core.Result) {
	p := f.take.Policy
	if res.Outcome = core.Admitted; hasRates(p) {
		t := f.take
		t.Now = at
		var next []byte
		var ttl time.Duration
		if res, next, ttl = p.Spec().Step(f.text, t); ttl > 0 {
			f.text = next
		}
	}
	if _, _, permits := p.Concurrent(); permits && res.Allowed() {
		turn := at + res.Delay.Microseconds() // the permit is acquired when the wait is over
		permit := core.Permit{Policy: p, Key: f.take.Key, ID: "probe"}
		reply := f.leases.Acquire(probe, 1, f.terms(turn))
		f.leases.Release(probe)
		held, err := permit.Explain(reply[:])
		if err != nil { // as no reply that Acquire gives
			return core.Result{At: turn}
		}
		if !held.Allowed() {
			if back := (core.Refund{Policy: p, Key: f.take.Key, Receipt: res, Units: res.Taken, Now: at}); back.Units > 0 {
				if next, ttl := p.Spec().StepRefund(f.text, back); ttl > 0 {
					f.text = next
				}
			}
			res.Taken = 0
		}
		p.Combine(&res, &held)
	}
	res.Local = f.local
	return res
}

// soonest returns the first instant at which a request is admitted, after from, where one is refused, and no later than
// to, where its RetryAfter ends. Nearly always that is to. It is earlier where other numbers of the policy have counted
// on the key, and what they have counted is as if unused before all has come back by these numbers.
func (f *forecast) soonest(from, to int64) int64 {
	for to > from+1 {
		at := from + (to-from)/2
		if last := to - 1; at < last && !f.admits(last) {
			return to
		}
		if f.admits(at) {
			to = at
		} else {
			from = at
		}
	}
	return to
}

// admits reports whether a request is admitted at an instant, and leaves all as it is.
func (f *forecast) admits(at int64) bool {
	copied := *f
	copied.leases = f.leases.Clone()
	res := copied.ask(at)
	return res.Allowed()
}
