package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
)

// Degrade lets a request over its limit go on, to a handler that asks [Degraded] and does less: an answer from a cache,
// a smaller model, a page without its recommendations. Use it where a poorer answer is better than none, and where that
// answer is cheap: nothing bounds how many of them there are. A request over its limit pays for one more context.
//
// With a handler, at most one, that answers instead: Degrade(ginmw.Handle(cached)). Its status is 200 unless it says
// otherwise, and the answer has no Retry-After.
//
// The answer says that it must not be cached, whatever the handler says about that. Other rules hold all the same.
// Only what its limit refuses is degraded: a request without a key, or one for which the store failed under "fail
// closed", is answered as by [Reject].
func Degrade(instead ...OverLimit) OverLimit { return degrade{instead} }

// Degraded reports whether the request with that context goes on although it is over a limit, because of [Degrade]. For
// the context see [FromContext].
func Degraded(ctx context.Context) bool {
	c, is := lookup(ctx, degradedKey{}).(*handlerContext)
	for ; c != nil; c = c.outer {
		if c.degraded {
			c.rule.asked.found()
		}
	}
	return is
}

type degrade struct{ instead []OverLimit }

func (d degrade) String() string {
	if len(d.instead) == 0 {
		return "degrade"
	}
	return fmt.Sprintf("degrade(%v)", d.instead[0])
}

// goesOn reports whether the request goes on.
func (d degrade) goesOn() bool { return len(d.instead) == 0 }

// Err reports a composition that makes no sense to New.
func (d degrade) Err() error {
	if len(d.instead) > 1 {
		return fmt.Errorf("Degrade is given %d handlers; give the one that answers, or none", len(d.instead))
	}
	for _, h := range d.instead {
		switch h := h.(type) {
		case nil:
			return errors.New("Degrade(nil): give the handler that answers, or nothing")
		case *reject:
			return errors.New("Degrade of Reject is Reject; leave out Degrade")
		case degrade:
			return errors.New("Degrade of Degrade; leave one out")
		case *breaker:
			return errors.New("Degrade of Break; say it the other way round: Break(BreakOptions{Before: Degrade(...)})")
		case interface{ Err() error }:
			return h.Err()
		}
	}
	return nil
}

// Serve implements OverLimit.
func (d degrade) Serve(x *Refusal) Verdict {
	if !overLimit(&x.Result, x.Err) {
		return plain.Serve(x)
	}
	if d.goesOn() {
		return Verdict{Action: Pass, degraded: true}
	}
	if n, ok := d.instead[0].(native); ok {
		return Verdict{Action: Native, Native: n.handler, Status: statusOK, degraded: true}
	}
	v := d.instead[0].Serve(x)
	v.Status = cmp.Or(v.Status, statusOK)
	v.degraded = v.Status < 400
	return v
}
