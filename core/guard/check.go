package guard

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/keyfunc"
)

// taken is what one rule has taken for a request.
type taken struct {
	rule      *rule // nil until it is asked
	admission enforce.Admission
	exempt    bool   // the request does not concern the rule
	keyless   error  // why it was counted without a key of its own
	asked     *asked // for RateLimit and RateLimit-Policy; nil if they are not sent
	seen      seen   // what only Observe wants to know
	queued    bool   // it has one of the places in which requests wait
	attempt   *attempt
	key       string // with Break
	barred    bool   // its circuit is open, so that the store was not asked
	probe     bool   // it decides whether its circuit closes
}

// admits reports whether the rule has decided that the request passes.
func (t *taken) admits() bool { return !t.exempt && t.admission.Result.Allowed() }

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
	v.setHeaders(x, d, own)
	var f found
	if g.routes != nil {
		f, d.found = d.found, found{}
	}
	if !own {
		scratches.Put(d)
	}
	final := Final{Bytes: -1, Panicked: true}
	if o := v.owed; o != nil {
		if o.settles {
			x.Watch()
		}
		defer func() {
			if o.settles {
				final = x.Final(err, final.Panicked)
				final.Err = err
			}
			v.Finish(final)
		}()
	}
	switch v.Action {
	case Pass:
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
			g.compare(x, &f, err)
		}
		g.watchHandler(x, &v)
	case Native:
		err = g.native(x, v)
	default:
		x.Reply(v.Status, v.Body)
	}
	final.Panicked = false
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
	passes := false
	defer func() {
		if g.headers.RateLimit {
			v.members = members(all)
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
			err = t.wait(r.Context())
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
		case !g.refuse(r, v, t, err):
			return
		default: // it goes on, and the rule has nothing to do with it any more
			t.attempt.end(false)
		}
	}
	g.conclude(r, v, all)
	passes = true
}

// begin takes units of a rule's rates. If afterwards the rule neither admits nor exempts the request, t has the Result
// of a refusal, or the error says why nothing could be decided.
func (g *Guard) begin(r keyfunc.Request, t *taken, d *Scratch) (err error) {
	ru := t.rule
	limiter := ru.limiter
	if ru.Skip != nil || ru.Tier != nil {
		if limiter = g.limiterFor(r, t); limiter == nil {
			t.exempt = true
			return nil
		}
	}
	ask := enforce.Ask{Cost: 1}
	if err = ru.key(r, &d.key); err != nil {
		if ask.Key, err = g.keyless(r, t, err); err != nil || t.exempt {
			return err
		}
	} else if ask.Key = d.key.Text(); !ru.forgets || d.shared {
		ask.Key = d.key.String()
	}
	if t.keyless == nil && !ru.keyed.seen.Load() {
		ru.keyed.found()
	}
	if warning := d.key.Warning(); warning != "" {
		g.warnAddress(ru, warning)
	}
	if ru.breaker != nil && t.bar(ask.Key) {
		return nil
	}
	switch {
	case ru.After != nil: // it only looks
		ask.Cost, ask.AtMost = 0, true
		if !ru.shadow {
			t.attempt = g.afters.enter(afterID{ru.name, ask.Key}, limiter)
		}
	case ru.Cost != nil:
		ask.Cost = ru.Cost(r)
	}
	ctx := r.Context()
	if ru.waits {
		t.queue(ctx, &ask) // before the store is asked, which may panic
	}
	var began time.Time
	if g.observe != nil {
		began = time.Now()
	}
	err = limiter.Begin(ctx, ask, &t.admission)
	if g.observe != nil {
		t.seen.took = time.Since(began)
	}
	if err != nil {
		g.warnFailed(ru, ask.Cost, err)
	} else {
		err = t.admission.Err
	}
	switch {
	case ru.waits:
		t.place()
	case t.attempt != nil:
		t.attend()
	}
	if ru.lists != nil {
		t.asked = g.asks(ru, limiter, ask.Key)
	}
	return err
}

// limiterFor returns the limiter with the numbers of the request's tier, or nil if the rule does not concern it.
func (g *Guard) limiterFor(r keyfunc.Request, t *taken) (limiter *enforce.Limiter) {
	ru := t.rule
	if ru.Skip != nil && ru.Skip(r) {
		return nil
	}
	if ru.Tier == nil {
		return ru.limiter
	}
	limiter, t.seen.tier = g.ofTier(ru, ru.Tier(r))
	return limiter
}

// key writes the key of r to k. Without an error it is not empty.
func (ru *rule) key(r keyfunc.Request, k *keyfunc.Key) error {
	k.Reset()
	err := ru.Key.AppendTo(k, r)
	switch {
	case err == nil && k.Len() == 0:
		err = keyfunc.ErrNoKey
	case err != nil && !errors.Is(err, keyfunc.ErrNoKey):
		err = keyError{err}
	}
	return err
}

// keyError is the error of a key function that does not work. What cannot be named has no key.
type keyError struct{ error }

func (f keyError) Unwrap() error { return f.error }

func (keyError) Is(target error) bool { return target == keyfunc.ErrNoKey }

// keyless does what the rule says about a request without a key: it returns the key of all such requests, lets the
// request pass, or returns the error.
func (g *Guard) keyless(r keyfunc.Request, t *taken, err error) (key string, _ error) {
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
			g.tell(r, t, err)
		}
		return "", nil
	default:
		return "", err
	}
}

// bar reports whether the circuit of a key is open. Then the store is not asked.
func (t *taken) bar(key string) bool {
	t.key = key
	t.admission.Result.RetryAfter, t.probe = t.rule.breaker.circuits.Ask(t.rule.name, key)
	t.barred = t.admission.Result.RetryAfter > 0
	return t.barred
}

// queue takes a place to wait in, if there is one, and says how long the request would wait there.
func (t *taken) queue(ctx context.Context, ask *enforce.Ask) {
	if t.queued = t.rule.enter(); !t.queued || t.rule.wait == 0 {
		return
	}
	ask.Wait = t.rule.wait
	if end, bounded := ctx.Deadline(); bounded {
		ask.Wait = min(ask.Wait, max(0, time.Until(end)))
	}
}

// place gives the place back if there is nothing to wait for, and refuses what would have to wait without a place.
func (t *taken) place() {
	a := &t.admission
	switch waits := a.Result.Delay > 0 && a.Result.Allowed(); {
	case waits && !t.queued:
		a.GiveBack(a.Result.Taken)
		a.Result.Outcome, a.Result.RetryAfter, a.Result.Taken = core.Refused, a.Result.Delay, 0
	case !waits && t.queued:
		t.leave()
	}
}

// attend is place for a rule with After: it takes a place if others that are under way may use all that is left.
func (t *taken) attend() {
	res := &t.admission.Result
	switch {
	case !res.Allowed():
		t.attempt.end(false)
	case t.attempt.start(left(res)):
	case t.rule.enter():
		t.queued = true
	default:
		t.attempt.end(false)
		t.attempt.refuseForNow(res)
	}
}

// wait returns when it is the request's turn, or with t refused.
func (t *taken) wait(ctx context.Context) (err error) {
	switch {
	case t.attempt != nil:
		err = t.attempt.wait(ctx, &t.admission)
	case !t.rule.shadow: // a trial holds nobody back
		err = t.admission.Wait(ctx)
	}
	t.leave()
	return t.outcome(err)
}

// acquire acquires a permit, or returns with t refused.
func (g *Guard) acquire(ctx context.Context, t *taken) error {
	began := time.Now()
	err := t.admission.Acquire(ctx, 1)
	if err != nil {
		g.warnFailed(t.rule, 1, err)
	}
	t.seen.took += time.Since(began)
	return t.outcome(err)
}

// outcome turns the error of a wait or of permits into a Result if it is a refusal. It returns why nothing was decided,
// or why the Result is not the store's.
func (t *taken) outcome(err error) error {
	res := &t.admission.Result
	if late := (*enforce.OverLimitError)(nil); errors.As(err, &late) {
		*res = late.Result
		return nil
	}
	if err == nil {
		return t.admission.Err
	}
	*res = core.Result{}
	return err
}

// enter reports whether there is a place to wait in, and takes it.
func (ru *rule) enter() bool {
	if ru.waiting.Add(1) <= int64(ru.Waiting) {
		return true
	}
	ru.waiting.Add(-1)
	return false
}

// leave gives the place back.
func (t *taken) leave() {
	t.queued = false
	t.rule.waiting.Add(-1)
}

// holds reports whether there is anything to give back: not if the rule was not asked, exempts the request or refuses it.
func (t *taken) holds() bool { return t.queued || t.attempt != nil || t.admits() }

// giveBack undoes what was taken.
func (t *taken) giveBack() {
	if t.queued {
		t.leave()
	}
	t.attempt.end(false)
	t.admission.GiveBack(t.admission.Result.Taken)
	t.admission.Release()
}

// refuse lets the rule's handler answer a request that the rule refuses, and reports whether the request goes on all
// the same: on trial, and if the handler lets it pass. The Result of t is zero if nothing was decided.
func (g *Guard) refuse(r keyfunc.Request, v *Verdict, t *taken, err error) (goesOn bool) {
	ru, res := t.rule, &t.admission.Result
	if g.observe != nil {
		g.tell(r, t, cmp.Or(err, t.keyless))
	}
	if res.Outcome == core.Never {
		g.warnCost(ru, res)
	}
	if ru.shadow {
		return true
	}
	handler := ru.OverLimit
	if ru.breaker != nil {
		handler = ru.breaker.choose(ru.name, t, res, err)
	}
	if reject, ok := handler.(*reject); ok { // refusals are the attack: they cost little
		if v.rule != nil { // what a handler has said that let the request pass
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
			if v.rule != nil { // the first refusal is what the client is told of, whatever comes after it
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

// conclude fills in the Verdict of a request that passes: what the client is told, and what is to be done at its end.
func (g *Guard) conclude(r keyfunc.Request, v *Verdict, all []taken) {
	owing := false
	for i := range all {
		t := &all[i]
		if !t.admits() {
			continue
		}
		if g.observe != nil {
			g.tell(r, t, cmp.Or(t.admission.Err, t.keyless))
		}
		if t.probe {
			t.rule.breaker.circuits.Admitted(t.rule.name, t.key)
		}
		// A client is not told of a trial, which does not hold it.
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

// tighter reports whether the client should be told of a rather than b: the least that remains, and the latest reset.
func tighter(a, b *core.Result) bool {
	if a.Remaining != b.Remaining {
		return a.Remaining < b.Remaining
	}
	return a.ResetAfter > b.ResetAfter
}
