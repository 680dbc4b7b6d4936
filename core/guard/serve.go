package guard

import (
	"context"
	"errors"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/guard/internal/accept"
	"github.com/weir-go/weir/keyfunc"
)

// Serve decides on a request, sets the headers of the answer, and calls the handler or answers in its place. When the
// request is over, it releases and settles. The error is the handler's.
func (g *Guard) Serve(x Exchange) (err error) {
	var v Verdict
	d := x.Scratch()
	own := d != nil
	if !own {
		d = scratches.Get().(*Scratch)
	}
	g.check(x, &v, d)
	panicked := true
	if v.owed != nil { // first of all: what comes may panic, the adapter included
		defer func() { v.end(x, err, panicked) }()
		if v.owed.settles {
			x.Watch()
		}
	}
	v.setHeaders(x, d, own)
	var f found
	if g.routes != nil {
		f, d.found = d.found, found{}
	}
	if !own {
		scratches.Put(d)
	}
	switch {
	case v.Action == Pass:
		err = g.pass(x, &v, &f)
	case v.Action == Native || isRefuser(x):
		err = g.native(x, v)
	default:
		x.Reply(v.Status, v.Body)
	}
	panicked = false
	return err
}

// pass calls the handler of the route.
func (g *Guard) pass(x Exchange, v *Verdict, f *found) (err error) {
	var ctx context.Context
	if v.derives() {
		ctx = v.context(x.Context())
	}
	if v.degraded {
		defer keepUncached(x)()
	}
	if f.suspect != nil || f.other != nil {
		x.Watch()
	}
	if err = x.Next(ctx); f.table != nil {
		g.compare(x, f, err)
	}
	g.watchHandler(x, v)
	return err
}

// native lets a handler of the framework answer, and sends the plain reply if it does not. Without such a handler the
// exchange is a Refuser. v is a copy, which both may keep.
func (g *Guard) native(x Exchange, v Verdict) error {
	r, refuses := x.(Refuser)
	if v.Action != Native {
		r.Refuse(&v)
		return nil
	}
	status := v.Status
	x.Watch()
	uncached := keepUncached(x)
	defer uncached()
	answered, known, err := x.Handle(v.Native, &v)
	if !known {
		g.warnForeign(x, &v)
		status, v.Body, _ = plain.answer(nil, asText, nameless, &v.Result, v.Err)
		v.Status = status
	}
	if !answered && err == nil {
		uncached()
		if len(v.Body) > 0 && x.Get(headerType) == "" {
			x.Set(headerType, accept.TypeText)
		}
		if v.Status = validStatus(v.Status, status); refuses {
			r.Refuse(&v)
		} else {
			x.Reply(v.Status, v.Body)
		}
	}
	return err
}

// Check decides on a request. Rules are asked in the order written, up to the first that refuses: each takes units of
// its rates, then waits for its turn, until the client leaves or until Close, and then acquires its permits, before the
// next is asked. What those before the one that refuses have taken is given back, and those after it are not charged.
// The caller carries out the Verdict, and calls its Finish when the request is over, also after a panic. Adapters call
// [Guard.Serve], which does all that.
func (g *Guard) Check(r keyfunc.Request) (v Verdict) {
	d := scratches.Get().(*Scratch)
	g.check(r, &v, d)
	d.found = found{}
	scratches.Put(d)
	return v
}

// check is Check in place, because a Verdict is large: copying one takes as long as a part of a decision. v must be
// zero.
func (g *Guard) check(r keyfunc.Request, v *Verdict, d *Scratch) {
	if g.first.requests.Load() < watchedRequests {
		g.watchFirst(r)
	}
	rules, table := g.rules, g.routes
	if g.source != nil {
		now := g.current()
		rules, table = now.rules, now.routes
	}
	if table != nil {
		if !g.find(table, r, &d.found) {
			v.guard, v.Err = g, errOverlooked
			v.Status, v.Body, v.fields = plain.answer(r, asText, nameless, &v.Result, v.Err)
			return
		}
		if own := d.found.own; own != nil {
			rules = own.rules
		}
	}
	var one [1]taken // there is nearly always one rule, which then takes no memory
	all := one[:]
	if len(rules) != 1 {
		all = make([]taken, len(rules))
	}
	v.Action, v.guard, d.shared = Pass, g, len(rules) > 1
	if g.observe != nil && d.subject == nil {
		d.subject = newSubject()
	}
	passes := false
	defer func() {
		if g.headers.RateLimit {
			v.members = members(all)
		}
		if d.subject != nil && d.subject.observing { // Observe has panicked
			d.subject.forget()
		}
		for i := len(all) - 1; !passes && i >= 0; i-- { // a rule refuses, or code of the program panics
			if all[i].holds() {
				all[i].giveBack()
			}
		}
	}()
	for i, ru := range rules {
		t := &all[i]
		t.rule = ru
		err := g.begin(r, t, d)
		if t.queued && t.admits() {
			err = g.wait(r.Context(), t)
		}
		if ru.permits && t.admits() {
			err = g.acquire(r.Context(), t)
		}
		switch {
		case t.admits():
		case t.exempt:
			if t.keyless != nil && v.Policy == "" {
				v.Policy, v.Err = ru.name, t.keyless
			}
		case !g.refuse(r, v, t, d, err):
			return
		default: // it goes on, and the rule has nothing to do with it any more
			t.attempt.end(false)
		}
	}
	g.conclude(r, v, all, d)
	passes = true
}

// begin takes units of a rule's rates. If afterwards the rule neither admits nor exempts the request, t has the Result
// of a refusal, or the error says why nothing could be decided.
func (g *Guard) begin(r keyfunc.Request, t *taken, d *Scratch) (err error) {
	ru := t.rule
	limiter, ask := ru.limiter, enforce.Ask{Cost: 1, Trial: ru.shadow}
	d.key.Reset()
	if ru.Skip != nil || ru.Tier != nil || ru.keys != nil {
		if limiter, err = g.limiterFor(r, t, d); limiter == nil {
			t.exempt = true
			return nil
		}
	}
	if ru.keys == nil {
		err = ru.Key.AppendTo(&d.key, r)
	}
	if ask.Key, err = g.key(r, t, d, err); err != nil || t.exempt {
		return err
	}
	t.key = ask.Key
	if ru.breaker != nil && t.bar() {
		return nil
	}
	if ru.Cost != nil || ru.After != nil {
		g.setCost(r, t, limiter, &ask)
	}
	if ru.waits {
		t.queue(r.Context(), &ask) // before the store is asked, which may panic
	}
	var began time.Time
	if g.observe != nil && (!g.inProcess || d.subject.sampled()) {
		began = t.seen.begin()
	}
	err = limiter.Begin(r.Context(), ask, &t.admission)
	if t.seen.began != 0 {
		t.seen.took = time.Since(began)
	}
	if err != nil {
		g.warnFailed(ru, ask.Cost, err)
	} else {
		err = t.admission.Err
	}
	switch {
	case ru.waits:
		t.checkPlace()
	case t.attempt != nil:
		t.standInLine()
	}
	if ru.lists != nil {
		t.listing = g.listing(ru, limiter, ask.Key)
	}
	return err
}

// limiterFor returns the limiter with the numbers of the request's key or tier, or nil if the rule does not concern it.
// Only where there are numbers of single keys it reads the key; err is the error of that.
func (g *Guard) limiterFor(r keyfunc.Request, t *taken, d *Scratch) (limiter *enforce.Limiter, err error) {
	ru := t.rule
	if ru.Skip != nil && ru.Skip(r) {
		return nil, nil //nolint:nilnil // it does not
	}
	if ru.keys != nil {
		err = ru.Key.AppendTo(&d.key, r)
		if l, known := ru.keys[d.key.Text()]; known {
			return l, err
		}
	}
	if ru.Tier == nil {
		return ru.limiter, err
	}
	limiter, t.seen.tier = g.ofTier(ru, ru.Tier(r))
	return limiter, err
}

// key returns the key of a request, which was read with err. Without one it does what the rule says about such requests.
func (g *Guard) key(r keyfunc.Request, t *taken, d *Scratch, err error) (string, error) {
	ru, k := t.rule, &d.key
	if warning := k.Warning(); warning != "" {
		g.warnAddress(ru, warning)
	}
	if err != nil || k.Len() == 0 {
		return g.keyless(r, t, d, keyErrorOf(err))
	}
	if !ru.keyed.seen.Load() {
		ru.keyed.found()
	}
	if ru.forgets && !d.shared {
		return k.Text(), nil
	}
	return k.String(), nil
}

// keyErrorOf returns why a request has no key. err is the error of the key function, or nil if the key is empty.
func keyErrorOf(err error) error {
	switch {
	case err == nil:
		return keyfunc.ErrNoKey
	case errors.Is(err, keyfunc.ErrNoKey):
		return err
	default:
		return keyError{err}
	}
}

// keyError is the error of a key function that has failed. A request for which it fails has no key.
type keyError struct{ error }

func (f keyError) Unwrap() error { return f.error }

func (keyError) Is(target error) bool { return target == keyfunc.ErrNoKey }

// keyless does what the rule says about a request without a key: it returns the key of all such requests, lets the
// request pass, or returns the error.
func (g *Guard) keyless(r keyfunc.Request, t *taken, d *Scratch, err error) (key string, _ error) {
	ru := t.rule
	if !errors.As(err, &keyError{}) {
		g.watchKeyless(ru)
	}
	g.warnKey(ru, err)
	switch ru.NoKey {
	case NoKeyShared:
		t.keyless = err
		return sharedKey, nil
	case NoKeyPass:
		t.keyless, t.exempt = err, true
		t.admission.Result.Outcome = core.Admitted
		if g.observe != nil {
			g.observeDecision(r, t, d, err)
		}
		return "", nil
	default:
		return "", err
	}
}

// setCost sets how many units a request takes. A rule with After only looks.
func (g *Guard) setCost(r keyfunc.Request, t *taken, limiter *enforce.Limiter, ask *enforce.Ask) {
	ru := t.rule
	if ru.After == nil {
		ask.Cost = ru.Cost(r)
		return
	}
	ask.Cost, ask.AtMost = 0, true
	if !ru.shadow {
		t.attempt = g.afters.enter(afterID{ru.inEpoch, ask.Key}, limiter)
	}
}

// bar reports whether the circuit of the key is open. Then the store is not asked.
func (t *taken) bar() bool {
	t.admission.Result.RetryAfter, t.probe = t.rule.breaker.circuits.Ask(t.rule.inEpoch, t.key)
	t.barred = t.admission.Result.RetryAfter > 0
	return t.barred
}

// refuse lets the rule's handler answer a request that the rule refuses, and reports whether the request goes on all
// the same: on trial, and if the handler lets it pass. The Result of t is zero if nothing was decided.
func (g *Guard) refuse(r keyfunc.Request, v *Verdict, t *taken, d *Scratch, err error) (goesOn bool) {
	ru, res := t.rule, &t.admission.Result
	if g.observe != nil {
		g.observeDecision(r, t, d, err)
	}
	if res.Outcome == core.Never {
		g.warnCost(ru, res)
	}
	if ru.shadow {
		return true
	}
	handler := ru.OverLimit
	if ru.breaker != nil {
		handler = ru.breaker.choose(t, res, err)
	}
	if reject, ok := handler.(*reject); ok { // refusals are the attack: they cost little
		if v.rule != nil { // the Verdict of a handler that let the request pass
			*v = Verdict{}
		}
		v.Action = Reply
		v.Status, v.Body, v.fields = reject.answer(r, asText, ru.bodies, res, err)
	} else {
		answer := handler.Serve(&Refusal{Request: r, Rule: &ru.Rule, Result: *res, Err: err, bodies: ru.bodies})
		if answer.Action > Native || answer.Action == Native && answer.Native == nil {
			answer.Action = Reply
		}
		answer.Status = validStatus(answer.Status, statusTooManyRequests)
		if goesOn = answer.Action == Pass; goesOn {
			answer.degraded = answer.degraded || v.degraded
			if v.rule != nil { // the headers speak of the first refusal, whatever comes after it
				v.degraded = answer.degraded
				return true
			}
		}
		*v = answer
	}
	v.guard, v.rule, v.Policy, v.Result, v.Err = g, ru, ru.name, *res, err
	return goesOn
}

// validStatus returns status if it can be that of an answer, and otherwise instead.
func validStatus(status, instead int) int {
	if status < 200 || status > 999 {
		return instead
	}
	return status
}

// conclude fills in the Verdict of a request that passes: the Result for the headers, and what is to be done at its
// end.
func (g *Guard) conclude(r keyfunc.Request, v *Verdict, all []taken, d *Scratch) {
	owing := false
	for i := range all {
		t := &all[i]
		if !t.admits() {
			continue
		}
		if g.observe != nil {
			g.observeDecision(r, t, d, t.admission.Err)
		}
		if t.probe {
			t.rule.breaker.circuits.Admitted(t.rule.inEpoch, t.key)
		}
		// The headers say nothing of a trial, which refuses nobody.
		if res := &t.admission.Result; !t.rule.shadow && (v.rule == nil || v.Result.Allowed() && res.Limit > 0 && (v.Result.Limit == 0 || tighter(res, &v.Result))) {
			v.rule, v.Policy, v.Result, v.Err = t.rule, t.rule.name, *res, t.admission.Err
		}
		if t.rule.settles && t.admission.Result.Taken == 0 {
			g.watchCharges(t.rule, &t.admission.Result)
		}
		owing = owing || t.owes()
	}
	if v.traced = v.rule != nil && v.rule.repeats.traces(); v.traced {
		g.findRepeat(r, v.rule)
	}
	if owing {
		v.owed = newOwed(g, all)
	}
}

// tighter reports whether the headers show a rather than b: the least that remains, and the latest reset.
func tighter(a, b *core.Result) bool {
	if a.Remaining != b.Remaining {
		return a.Remaining < b.Remaining
	}
	return a.ResetAfter > b.ResetAfter
}
