package guard

import (
	"cmp"
	"errors"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/keyfunc"
)

// taken is what one rule has taken for a request.
type taken struct {
	rule      *rule
	admission core.Admission
	unnamed   error  // why it was counted without a key of its own
	asked     *asked // what its limits look like in lists; nil unless asked for
	seen      seen   // what only Observe wants to know
	queued    bool   // it has a place among those who wait
	passes    bool   // the request does not concern the rule
	key       string // with Break
	barred    bool   // its circuit is open, so that nobody was asked
	probe     bool   // it decides whether its circuit closes
}

// Check decides on a request. Rules are asked in order, and the first that refuses ends it: what those before it have
// taken is given back, and those after it are never charged. Rates that decide at once come first, then a rule in which
// the request waits for its turn, until the client leaves, or until Close; permits are acquired last, when the wait is
// over. The caller carries the Verdict out, and calls its Finish when the request is over, whatever happened. Adapters
// call [Guard.Serve], which does all that.
func (g *Guard) Check(r keyfunc.Request) Verdict {
	if g.early.requests.Load() < earlyRequests {
		g.look(r)
	}
	rules, table := g.rules, g.routes
	if g.source != nil {
		now := g.current()
		rules, table = now.rules, now.routes
	}
	if table != nil {
		if own, ok := table.find(r); ok {
			rules = own
		}
	}
	if len(rules) == 1 { // which is nearly always so, and then takes no memory
		var one [1]taken
		return g.decide(r, rules, one[:])
	}
	return g.decide(r, rules, make([]taken, len(rules)))
}

// decide asks the rules. all is for what each of them takes, and is changed in place: to copy it costs as much as a part of
// a decision.
func (g *Guard) decide(r keyfunc.Request, rules []*rule, all []taken) (v Verdict) {
	v = Verdict{Action: Pass, guard: g}
	done := false
	defer func() {
		if g.headers.RateLimit {
			v.members = members(all)
		}
		if !done { // a rule refuses, or code of the program panics
			giveBack(all)
		}
	}()
	for i, ru := range rules {
		t := &all[i]
		err := g.begin(r, ru, t)
		switch {
		case t.rule != nil:
		case t.passes:
			if t.unnamed != nil && v.Policy == "" {
				v.Policy, v.Err = ru.name, t.unnamed
			}
		case !g.passes(r, ru, &v, t, err):
			return v
		}
	}
	for _, waiting := range [...]bool{true, false} { // nobody holds a permit while it waits
		for i := range all {
			t := &all[i]
			err := g.complete(r, t, waiting)
			if t.rule == nil || err == nil && t.admission.Result.Allowed() {
				continue
			}
			res := &t.admission.Result
			if late := (*core.OverLimitError)(nil); errors.As(err, &late) {
				*res, err = late.Result, nil
			} else if err != nil {
				*res = core.Result{}
			} else {
				err = t.admission.Err
			}
			if !g.passes(r, t.rule, &v, t, err) {
				return v
			}
			t.rule = nil // it holds nothing
		}
	}
	for i := range all {
		if t := &all[i]; t.rule != nil {
			g.tell(r, t.rule, t, cmp.Or(t.admission.Err, t.unnamed))
			if t.probe {
				t.rule.breaker.admitted(t.rule.name, t.key)
			}
		}
	}
	done = true
	g.conclude(r, &v, all)
	return v
}

// begin asks one rule for its rates. Only if it has admitted, t has the rule. Otherwise t passes, or has the Result of a
// refusal; or the error says why nothing could be decided.
func (g *Guard) begin(r keyfunc.Request, ru *rule, t *taken) (err error) {
	if ru.Skip != nil && ru.Skip(r) {
		t.passes = true
		return nil
	}
	limiter := ru.limiter
	if ru.Tier != nil {
		if limiter, t.seen.tier = g.of(ru, ru.Tier(r)); limiter == nil {
			t.passes = true
			return nil
		}
	}
	key, warning, unnamed := ru.key(r)
	t.unnamed = unnamed
	if warning != "" {
		g.doubt(ru, warning)
	}
	if unnamed != nil {
		g.mistake(ru, unnamed)
		switch ru.NoKey {
		case NoKeyShared:
			key = sharedKey
		case NoKeyPass:
			t.admission.Result.Outcome = core.Admitted
			g.tell(r, ru, t, unnamed)
			t.passes = true
			return nil
		default:
			t.unnamed = nil
			return unnamed
		}
	}
	if ru.breaker != nil {
		t.key = key
		t.admission.Result.RetryAfter, t.probe = ru.breaker.ask(ru.name, key)
		if t.barred = t.admission.Result.RetryAfter > 0; t.barred {
			return nil
		}
	}
	ask := core.Ask{Key: key, Cost: 1}
	switch {
	case ru.After != nil: // it only looks
		ask.Cost, ask.AtMost = 0, true
	case ru.Cost != nil:
		ask.Cost = ru.Cost(r)
	}
	t.rule, t.queued = ru, ru.waits && ru.enter() // known before the store is asked, which may panic
	if t.queued && ru.wait > 0 {
		ask.Wait = ru.wait
		if end, bounded := r.Context().Deadline(); bounded {
			ask.Wait = min(ask.Wait, max(0, time.Until(end)))
		}
	}
	began := g.now()
	a := &t.admission
	*a, err = limiter.Begin(r.Context(), ask)
	t.seen.took = g.since(began)
	if err != nil {
		g.mistake(ru, err)
	} else if err = a.Err; a.Result.Delay > 0 && a.Result.Allowed() && !t.queued { // there is no place to wait in
		a.GiveBack(a.Result.Taken)
		a.Result.Outcome, a.Result.RetryAfter = core.Refused, a.Result.Delay
	}
	if t.queued && (a.Result.Delay == 0 || !a.Result.Allowed()) {
		t.queued = false
		ru.leave()
	}
	t.asked = g.asks(ru, limiter, key)
	if !a.Result.Allowed() {
		t.rule = nil
	}
	return err
}

// complete does what follows when the rates have admitted: it waits for the turn, or acquires the permits.
func (g *Guard) complete(r keyfunc.Request, t *taken, waiting bool) error {
	switch {
	case waiting && t.queued:
		var err error
		if !t.rule.shadow { // a trial holds nobody back
			err = t.admission.Wait(r.Context())
		}
		t.rule.leave()
		t.queued = false
		return err
	case !waiting && t.rule != nil && t.rule.permits:
		began := g.now()
		err := t.admission.Acquire(r.Context(), 1)
		t.seen.took += g.since(began)
		return err
	default:
		return nil
	}
}

// of is the limiter of a tier, or nil for one that nothing holds, and the tier's name if the rule knows it.
func (g *Guard) of(ru *rule, tier string) (*core.Limiter, string) {
	if l, ok := ru.tiers[tier]; ok {
		return l, tier
	}
	if tier != "" {
		g.stranger(ru, tier)
	}
	return ru.limiter, ""
}

// enter reports whether there is a place to wait in, and takes it.
func (ru *rule) enter() bool {
	if ru.waiting.Add(1) <= int64(ru.Waiting) {
		return true
	}
	ru.waiting.Add(-1)
	return false
}

func (ru *rule) leave() { ru.waiting.Add(-1) }

// giveBack undoes what was taken, the last first.
func giveBack(all []taken) {
	for i := len(all) - 1; i >= 0; i-- {
		t := &all[i]
		if t.rule == nil {
			continue
		}
		if t.queued {
			t.rule.leave()
		}
		t.admission.GiveBack(t.admission.Result.Taken)
		t.admission.Release()
	}
}

// passes lets a rule's handler answer for a refusal, and reports whether the request goes on all the same: in a trial, and
// where the handler lets it pass. The Result of t is zero where nothing was decided.
func (g *Guard) passes(r keyfunc.Request, ru *rule, v *Verdict, t *taken, err error) bool {
	g.tell(r, ru, t, cmp.Or(err, t.unnamed))
	if t.admission.Result.Outcome == core.Never {
		g.never(ru, &t.admission.Result)
	}
	if ru.shadow {
		return true
	}
	answer := g.answer(r, ru, t, err)
	if answer.Action == Pass {
		// The first refusal is what the client is told of, whatever comes after it.
		if v.rule == nil {
			answer.guard, answer.degraded = g, answer.degraded || v.degraded
			*v = answer
		}
		v.degraded = v.degraded || answer.degraded
		return true
	}
	answer.guard = g
	*v = answer
	return false
}

// answer is what a rule's handler answers for a refusal, as a Verdict that can be carried out.
func (g *Guard) answer(r keyfunc.Request, ru *rule, t *taken, err error) (v Verdict) {
	handler, res := ru.OverLimit, &t.admission.Result
	if ru.breaker != nil {
		handler = ru.breaker.choose(ru.name, t, res, err)
	}
	if reject, ok := handler.(*reject); ok { // refusals are the attack: they cost little
		v = reject.answer(r, ru.bodies, res, err)
	} else {
		v = handler.Serve(&Refusal{Request: r, Rule: &ru.Rule, Result: *res, Err: err, bodies: ru.bodies})
	}
	v.Policy, v.Result, v.Err, v.rule = ru.name, *res, err, ru
	if v.Action > Native || v.Action == Native && v.Native == nil {
		v.Action = Reply
	}
	v.Status = validStatus(v.Status, statusTooManyRequests)
	return v
}

// validStatus is a status that can be written: instead, where it is none of an answer.
func validStatus(status, instead int) int {
	if status < 200 || status > 999 {
		return instead
	}
	return status
}

// conclude fills in the Verdict of a request that passes: what the client is told, and what is owed.
func (g *Guard) conclude(r keyfunc.Request, v *Verdict, all []taken) {
	n := 0
	for i := range all {
		t := &all[i]
		if t.rule == nil {
			continue
		}
		// A client is not told of a trial, which does not hold it.
		if res := &t.admission.Result; !t.rule.shadow && (v.rule == nil || v.Result.Allowed() && res.Limit > 0 && (v.Result.Limit == 0 || tighter(res, &v.Result))) {
			v.rule, v.Policy, v.Result, v.Err = t.rule, t.rule.name, *res, t.admission.Err
		}
		if t.settles() || t.admission.Held() {
			n++
		}
	}
	if v.rule != nil {
		v.marks = g.marks(r, v.rule)
	}
	if n > 0 {
		v.owed = newOwed(g, all, n)
	}
}

// tighter reports whether the client should be told of a rather than b: the least that remains, and the latest reset.
func tighter(a, b *core.Result) bool {
	if a.Remaining != b.Remaining {
		return a.Remaining < b.Remaining
	}
	return a.ResetAfter > b.ResetAfter
}
