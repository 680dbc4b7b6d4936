package guard

import (
	"context"
	"errors"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
)

// taken is the part of one rule in a request: its decision, and all that must be given back if another rule refuses.
// The zero taken belongs to a rule that has not been asked.
type taken struct {
	rule      *rule
	admission enforce.Admission
	exempt    bool     // the request does not concern the rule
	keyless   error    // why the request was counted without a key
	listing   *listing // for RateLimit and RateLimit-Policy; nil if they are not sent
	seen      seen     // for Observe alone
	queued    bool     // the request has one of the places in which requests wait
	attempt   *attempt // of a rule with After
	key       string   // that is counted, if the request has one
	barred    bool     // the circuit is open, so that the store was not asked
	probe     bool     // the request decides whether the circuit closes
}

// admits reports whether the rule has decided that the request passes.
func (t *taken) admits() bool { return !t.exempt && t.admission.Result.Allowed() }

// queue takes a place to wait in, if there is one, and sets how long the request would wait there.
func (t *taken) queue(ctx context.Context, ask *enforce.Ask) {
	if t.queued = t.rule.enter(); !t.queued || t.rule.wait == 0 {
		return
	}
	ask.Wait = t.rule.wait
	if end, bounded := ctx.Deadline(); bounded {
		ask.Wait = min(ask.Wait, max(0, time.Until(end)))
	}
}

// checkPlace gives the place back if there is nothing to wait for, and refuses a request that would have to wait
// without a place.
func (t *taken) checkPlace() {
	a := &t.admission
	switch waits := a.Result.Delay > 0 && a.Result.Allowed(); {
	case waits && !t.queued:
		a.GiveBack(a.Result.Taken)
		a.Result.Outcome, a.Result.RetryAfter, a.Result.Taken = core.Refused, a.Result.Delay, 0
	case !waits && t.queued:
		t.leave()
	}
}

// standInLine takes a place, for a rule with After, if other requests under way may use all that is left.
func (t *taken) standInLine() {
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
func (g *Guard) wait(ctx context.Context, t *taken) (err error) {
	if g.observe != nil {
		began := time.Now()
		defer func() { t.seen.waited = time.Since(began) }()
	}
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
	var began time.Time
	if t.seen.began != 0 {
		began = time.Now()
	}
	err := t.admission.Acquire(ctx, 1)
	if t.seen.began != 0 {
		t.seen.took += time.Since(began)
	}
	if err != nil {
		g.warnFailed(t.rule, 1, err)
	}
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

// queued returns how many places are taken. One that finds no place has it for a moment, too.
func (ru *rule) queued() int { return int(min(max(ru.waiting.Load(), 0), int64(ru.Waiting))) }

// leave gives the place back.
func (t *taken) leave() {
	t.queued = false
	t.rule.waiting.Add(-1)
}

// holds reports whether there is anything to give back: not if the rule was not asked, exempts the request or refuses
// it.
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
