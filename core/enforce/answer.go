package enforce

import (
	"context"
	"time"

	"github.com/weir-go/weir/core"
)

// answer is the kind of decisions that a Limiter makes. A Limiter of what is unlimited or blocked gives one answer, and asks no store: there
// is nothing to give back, to charge or to renew.
type answer uint8

const (
	asks    answer = iota // the store decides
	admits                // the key is Unlimited
	refuses               // the key is Blocked
)

// blockedFor is the time after which a blocked key may ask again.
const blockedFor = time.Minute

// answering returns a Limiter of l's policy that gives one answer.
func (l *Limiter) answering(a answer) *Limiter {
	return &Limiter{engine: l.engine, policy: l.policy, rates: l.rates, permits: l.permits, answer: a}
}

// decide answers a take, which may have a mistake.
func (a answer) decide(ctx context.Context, t *core.Take, res *core.Result) error {
	if err := t.Validate(); err != nil {
		return err
	}
	return a.fill(ctx, t.Cost, res)
}

// fill fills in the Result. Nothing was counted, so that there is no Limit.
func (a answer) fill(ctx context.Context, cost int64, res *core.Result) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if a == refuses {
		res.Outcome, res.RetryAfter = core.Refused, blockedFor
	} else {
		res.Outcome, res.Taken = core.Admitted, cost
	}
	return nil
}

// begin is Begin for a Limiter that asks no store.
func (l *Limiter) begin(ctx context.Context, ask *Ask, res *core.Result) error {
	if !l.rates {
		return l.answer.fill(ctx, 0, res)
	}
	t := core.Take{Policy: l.policy, Key: ask.Key, Cost: ask.Cost, AtMost: ask.AtMost, Wait: ask.Wait}
	return l.answer.decide(ctx, &t, res)
}
