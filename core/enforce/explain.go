package enforce

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/internal/algo"
)

// Explanation describes what would become of a request, and why: it is the answer of [Limiter.Explain]. Its String is a
// text for people. In JSON, durations are nanoseconds.
type Explanation struct {
	// Policy is the text of the policy with the numbers that hold for the key, [Unlimited], or [Blocked].
	Policy string `json:"policy"`
	// Numbers is the place of these numbers: "code", an entry of the Source's Set such as Keys["mail"]["user=7"], "tier"
	// or "given", those of ExplainAs. Revision is that of the Set in force, "" if it has none.
	Numbers  string `json:"numbers"`
	Revision string `json:"revision,omitempty"`
	// Key is the key, and Stored the name under which the store keeps its counts, such as a key of Redis. StoredPermits is
	// that of its permits. They are "" where there are none.
	Key           string `json:"key"`
	Stored        string `json:"stored,omitempty"`
	StoredPermits string `json:"storedPermits,omitempty"`
	// Cost is the number of units that was asked for.
	Cost int64 `json:"cost"`
	// At is the instant for which all this holds, by the clock of the store that decides.
	At time.Time `json:"at"`
	// From is the place of the decision: "store", "deny-cache" (the process remembers that the store has refused),
	// "process" (the store is in the process, or the key is Unlimited or Blocked), "fallback", "open" or "closed" (the
	// policy's fail word, because the store fails).
	From string `json:"from"`
	// Failure is the error of a store that fails, or "".
	Failure string `json:"failure,omitempty"`
	// Outcome is the decision of now, and Result what the caller would get. A request that would wait has a Result.Delay.
	Outcome string      `json:"outcome"`
	Result  core.Result `json:"-"`
	// Shadow reports that the policy is a trial: a Guard lets the request pass whatever the Outcome.
	Shadow bool `json:"shadow,omitempty"`
	// Limits are the limits of the policy in the order of [core.Policy.Limits], permits last. There are none where nothing
	// is counted.
	Limits []LimitExplanation `json:"limits,omitempty"`
	// Next are the next five times at which such a request would be admitted if nobody else came and each gave its permit
	// back at once: the first is At if it would be admitted now. There are fewer where the cost can never fit, and none
	// where it is 0 or nothing is counted.
	Next []Turn `json:"next,omitempty"`
	// Permits has the permits that are held. It is nil if the policy has none.
	Permits *PermitExplanation `json:"permits,omitempty"`
	// Owed is the units that this process has admitted while the store did not answer, and that the store is charged with
	// after its next decision about the key.
	Owed int64 `json:"owed,omitempty"`
	// Waiting is the number of callers of this process that wait for their turn with the same key and cost.
	Waiting int `json:"waiting,omitempty"`
	// Notes are sentences about what else matters.
	Notes []string `json:"notes,omitempty"`
}

// LimitExplanation is one limit in an [Explanation], as it is before the request.
type LimitExplanation struct {
	// Limit is the limit's text, such as "10/1s burst 20", in a process's share of the policy the part of the process.
	Limit string `json:"limit"`
	// Used is the number of units, or permits, in use: more than the burst if the key is in debt. Left is the number that
	// would be admitted now.
	Used int64 `json:"used"`
	Left int64 `json:"left"`
	// Refuses reports that this limit refuses the request, and Never that it always will, because the cost is above burst
	// and debt.
	Refuses bool `json:"refuses,omitempty"`
	Never   bool `json:"never,omitempty"`
	// RetryAfter is the time until this limit admits the request, if it Refuses. For permits it is the time until enough
	// leases end, if nobody renews: mostly it comes sooner.
	RetryAfter time.Duration `json:"retryAfter,omitempty"`
	// Delay is the time that the request would wait for its turn at this limit, if it is admitted.
	Delay time.Duration `json:"delay,omitempty"`
	// ResetAfter is the time until the limit is as if unused.
	ResetAfter time.Duration `json:"resetAfter,omitempty"`
}

// Turn is an admission in the future.
type Turn struct {
	// At is the instant of the admission, by the clock of the store that decides.
	At time.Time `json:"at"`
	// Delay is the time that it waits then, in a LeakyBucket or where it may reserve.
	Delay time.Duration `json:"delay,omitempty"`
}

// PermitExplanation describes the permits of a key.
type PermitExplanation struct {
	// Held is the number of permits that are held, of Most, and Here the number of those that this process holds.
	Held int64 `json:"held"`
	Most int64 `json:"most"`
	Here int64 `json:"here"`
	// FirstEnds and LastEnds are the ends of the first and of the last of their leases, if nobody renews. They are zero if
	// none is held.
	FirstEnds time.Time `json:"firstEnds,omitzero"`
	LastEnds  time.Time `json:"lastEnds,omitzero"`
}

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
func (l *Limiter) Explain(ctx context.Context, key string, cost int64) (Explanation, error) {
	return l.ExplainAsk(ctx, Ask{Key: key, Cost: cost})
}

// ExplainAs is Explain under other numbers of the policy, for which nothing is changed: "what if it were 200/1m?" p has
// the name of l's policy, or none. Numbers that do not share the counts of those of now, such as another algorithm, find
// what was counted under them, mostly nothing: a note says so.
func (l *Limiter) ExplainAs(ctx context.Context, p core.Policy, key string, cost int64) (Explanation, error) {
	if p.IsZero() {
		return Explanation{}, errors.New("enforce: ExplainAs without a policy; give one, such as core.MustParse(\"100/1m\")")
	}
	if p.Name() == "" {
		p = p.Named(l.policy.Name())
	}
	if p.Name() != l.policy.Name() {
		return Explanation{}, fmt.Errorf("enforce: ExplainAs of %q for the policy %q, which has counts of its own; give other numbers under the same name", p, l.policy.Name())
	}
	if err := checkStore(l.engine.store, p); err != nil {
		return Explanation{}, err
	}
	now := l.now(key)
	_, _, permits := p.Concurrent()
	given := &Limiter{engine: l.engine, named: l.named, policy: p, rates: hasRates(p), permits: permits}
	x, err := given.explain(ctx, Ask{Key: key, Cost: cost})
	if x.Numbers = numbersGiven; err != nil {
		return Explanation{}, err
	}
	if now.answer == asks && !sharesState(p, now.policy) {
		x.Notes = slices.DeleteFunc(x.Notes, func(note string) bool { return note == unseen })
		x.note("these numbers count apart from those of now, %q: what was counted under those is not in this", now.policy)
	}
	return x, nil
}

// ExplainAsk is Explain for what [Limiter.Begin] takes, with a Wait and AtMost, for programs that build something like a
// guard on a Limiter.
func (l *Limiter) ExplainAsk(ctx context.Context, ask Ask) (Explanation, error) {
	now := l.now(ask.Key)
	x, err := now.explain(ctx, ask)
	if err != nil {
		return Explanation{}, err
	}
	x.Numbers = numbersOfCode
	switch {
	case l.following != nil:
		version := l.following.last.Load()
		if version.set != nil {
			x.Revision = version.set.Revision
		}
		if _, own := version.of.Keys[ask.Key]; own {
			x.Numbers = Entry{Policy: l.policy.Name(), Field: fieldKeys, Key: ask.Key}.String()
		} else if version.of.Limiter != l.code {
			x.Numbers = Entry{Policy: l.policy.Name(), Field: fieldPolicies}.String()
		}
	case l.policy.String() != l.named.policy.String():
		x.Numbers = numbersOfTier
	}
	return x, nil
}

// explain explains by the numbers of l itself.
func (l *Limiter) explain(ctx context.Context, ask Ask) (Explanation, error) {
	t := core.Take{Policy: l.policy, Key: ask.Key, Cost: ask.Cost, AtMost: ask.AtMost, Wait: ask.Wait}
	if err := t.ValidateState(); err != nil {
		return Explanation{}, err
	}
	if err := ctx.Err(); err != nil {
		return Explanation{}, err
	}
	x := Explanation{Policy: variant{limiter: l}.String(), Key: ask.Key, Cost: ask.Cost, Shadow: l.policy.Options().Shadow}
	if l.answer != asks {
		x.From, x.At = fromProcess, time.Now()
		if err := l.answer.fill(ctx, ask.Cost, &x.Result); err != nil {
			return Explanation{}, err
		}
		if x.Outcome = x.Result.Outcome.String(); l.answer == admits {
			x.Policy = Unlimited
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
func (l *Limiter) explainState(ctx context.Context, t *core.Take, x *Explanation) error {
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
func (x *Explanation) decidedWithout(state *core.State, word core.Failure) bool {
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
func (x *Explanation) describe(f *forecast, now int64) {
	limits, before := f.take.Policy.Limits(), *f
	before.leases = f.leases.Clone()
	res := before.ask(now)
	var used []int64
	if hasRates(f.take.Policy) {
		used = f.take.Policy.Spec().InUse(f.text, now)
	}
	x.Result = res
	for i, limit := range limits {
		l := LimitExplanation{Limit: limit.String()}
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
			if x.Permits = (&PermitExplanation{Held: held, Most: limit.Burst}); held > 0 {
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
func (x *Explanation) foresee(f *forecast, state core.State) {
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
			x.Next = append(x.Next, Turn{time.UnixMicro(at), res.Delay})
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
func (x *Explanation) remembers(state *core.State) int64 {
	x.From, x.Result = fromDenyCache, *state.Remembered
	x.note("the process remembers that the store has refused, and asks it again in %v at the latest", state.RememberedFor.Round(time.Microsecond))
	return max(0, min(state.RememberedFor, state.Remembered.RetryAfter).Microseconds())
}

// maxTries bounds the number of times that a request which obeys RetryAfter is refused again: by the permits, and then by
// rates that have been asked again.
const maxTries = 16

func (x *Explanation) note(format string, args ...any) {
	x.Notes = append(x.Notes, fmt.Sprintf(format, args...))
}

func microseconds(n int64) time.Duration { return time.Duration(max(0, n)) * time.Microsecond }

// String returns the Explanation as lines of text that can be pasted into a ticket.
func (x Explanation) String() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-9s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("policy", "%s", x.Policy)
	of := x.Numbers
	if x.Revision != "" {
		of += ", revision " + x.Revision
	}
	if of != numbersOfCode {
		line("numbers", "%s", of)
	}
	line("key", "%q", x.Key)
	for _, name := range []string{x.Stored, x.StoredPermits} {
		if name != "" {
			line("stored", "%s", name)
		}
	}
	line("request", "cost %d, at %s", x.Cost, x.At.UTC().Format(instant))
	answer := x.Result.String()
	if x.Result.Limit == 0 { // nothing is counted
		answer = x.Outcome
		if x.Result.RetryAfter > 0 {
			answer += fmt.Sprintf(", retry in %v", x.Result.RetryAfter)
		}
	}
	line("answer", "%s (%s)", answer, x.From)
	if x.Failure != "" {
		line("failure", "%s", x.Failure)
	}
	if x.Shadow {
		line("trial", "the policy is on trial and refuses nobody")
	}
	for _, l := range x.Limits {
		line("limit", "%s: %s", l.Limit, l)
	}
	if p := x.Permits; p != nil && p.Held > 0 {
		line("permits", "%d of %d held, %d by this process; leases end %s to %s", p.Held, p.Most, p.Here, p.FirstEnds.UTC().Format(instant), p.LastEnds.UTC().Format(instant))
	}
	if x.Waiting > 0 {
		line("waiting", "%d callers of this process", x.Waiting)
	}
	if x.Owed > 0 {
		line("owed", "%d units", x.Owed)
	}
	for i, turn := range x.Next {
		after := "now"
		if d := turn.At.Sub(x.At); d > 0 {
			after = "in " + d.String()
		}
		if turn.Delay > 0 {
			after += ", then waits " + turn.Delay.String()
		}
		name := ""
		if i == 0 {
			name = "next"
		}
		line(name, "%s (%s)", turn.At.UTC().Format(instant), after)
	}
	for _, n := range x.Notes {
		line("note", "%s", n)
	}
	return b.String()
}

// instant is the form of an instant in a text.
const instant = "2006-01-02T15:04:05.000000Z"

// String returns what is used and left, and whether the limit refuses, as in "10 used, 0 left, refuses, admits in 100ms".
func (l LimitExplanation) String() string {
	text := fmt.Sprintf("%d used, %d left", l.Used, l.Left)
	switch {
	case l.Never:
		text += ", refuses: the cost can never fit"
	case l.Refuses:
		text += fmt.Sprintf(", refuses, admits in %v", l.RetryAfter)
	case l.Delay > 0:
		text += fmt.Sprintf(", its turn is in %v", l.Delay)
	}
	if l.ResetAfter > 0 {
		text += fmt.Sprintf(", as if unused in %v", l.ResetAfter)
	}
	return text
}
