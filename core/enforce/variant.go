package enforce

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/core"
)

// Variant returns a Limiter for other numbers of l's policy, such as those of another tier. It has the same name, and
// counts on with what l has counted, except that a GCRA or a LeakyBucket whose full bucket takes another time starts
// afresh; see [core.Spec.Shape]. It fails if p differs from l's policy in more than numbers, such as in its algorithms
// or options; the number of processes that share the limits is a number, too. core.Policy.ParseLike fills in the options. The
// Limiter follows no Source.
func (l *Limiter) Variant(p core.Policy) (*Limiter, error) {
	if p.IsZero() {
		return nil, errors.New("enforce: a Limiter without a policy; give one, such as core.MustParse(\"100/1m\")")
	}
	if p.Name() == "" {
		p = p.Named(l.policy.Name())
	}
	if err := tierDiffers(p, l.policy); err != nil {
		return nil, err
	}
	return l.named.limiter(p), nil
}

// Fits reads a text that stands in the place of a policy of the code, as in [follow.Set].Policies: what it leaves out
// is as in the code. It fails if the text has a mistake, or differs in more than may change while a program runs:
// numbers, the number of processes that share the limits, the length of "wait" where the code has one, "fail", "shadow"
// and "epoch". Another algorithm would count apart, and a program that was written for a policy that never waits is not
// made for one that does.
func Fits(code core.Policy, text string) (core.Policy, error) {
	p, err := code.ParseLike(text)
	if err == nil {
		err = differs(p, code)
	}
	if err != nil {
		return core.Policy{}, err
	}
	return p, nil
}

// FitsTier reads a text of a tier or a key of a policy, as in [follow.Set].Tiers: what it leaves out is as in the
// policy that holds now. It fails if the text has a mistake, or differs in more than numbers. [follow.Unlimited] and
// [follow.Blocked] are not texts of policies: look for them before.
func FitsTier(policy core.Policy, text string) (core.Policy, error) {
	p, err := policy.ParseLike(text)
	if err == nil {
		err = tierDiffers(p, policy)
	}
	if err != nil {
		return core.Policy{}, err
	}
	return p, nil
}

// differs returns why p cannot stand in the place of a policy of the code, or nil.
func differs(p, code core.Policy) error {
	switch {
	case p.Name() != code.Name():
		return fmt.Errorf("enforce: the variant %q of %q has another name; leave it out", p, code)
	case !sameForm(p, code):
		return fmt.Errorf("enforce: the variant %q of %q differs in more than numbers, and so would not share its counts; give it the same algorithms", p, code)
	case p.Options().Wait == 0 && code.Options().Wait > 0:
		return fmt.Errorf("enforce: the variant %q of %q does not wait; its \"wait\" may be shorter, and must not be 0", p, code)
	case p.Options().Wait > 0 && code.Options().Wait == 0:
		return fmt.Errorf("enforce: the variant %q of %q waits, and the code has no \"wait\"; leave it out", p, code)
	default:
		return nil
	}
}

// tierDiffers returns why p cannot be a tier of policy, or nil.
func tierDiffers(p, policy core.Policy) error {
	o, want := p.Options(), policy.Options()
	want.Processes = o.Processes // how many is a number, too
	if err := differs(p, policy); err != nil || o == want {
		return err
	}
	_, options, written := strings.Cut(policy.String(), "; ")
	if !written {
		return fmt.Errorf("enforce: in %q only the numbers may differ; leave the options out, as the policy does", p)
	}
	return fmt.Errorf("enforce: in %q only the numbers may differ; leave the options out, or write those of the policy: %q", p, options)
}

// stateOf names the state that a key of a policy has: in the store, and in the fallback, where the share may be of
// another number of processes.
type stateOf struct{ shape, local string }

func stateFor(p core.Policy) stateOf { return stateOf{shape(p), shape(p.Local())} }

// sharesState reports whether the key of one name has one state under both, in the store and in the fallback.
func sharesState(p, q core.Policy) bool { return stateFor(p) == stateFor(q) }

func shape(p core.Policy) string { return p.Spec().Shape() }

// hasRates reports whether p has limits that are not permits.
func hasRates(p core.Policy) bool { return shape(p) != "" }

// waits reports whether p may let callers wait for their turn.
func waits(p core.Policy) bool {
	return p.Options().Wait > 0 || slices.ContainsFunc(p.Limits(), func(l core.Limit) bool { return l.Algorithm == core.LeakyBucket })
}

// sameForm reports whether two policies differ in nothing but numbers.
func sameForm(p, q core.Policy) bool {
	return slices.EqualFunc(p.Limits(), q.Limits(), func(l, m core.Limit) bool {
		return l.Algorithm == m.Algorithm && l.Buckets == m.Buckets && (l.Align == m.Align || onCalendar(l) && onCalendar(m))
	})
}

func onCalendar(l core.Limit) bool { return l.Align != "" && l.Align != "epoch" }

// weighs returns the time until nothing that was taken weighs any more, in any of the limits.
func weighs(res *core.Result) (longest time.Duration) {
	for i := range core.MaxLimits {
		longest = max(longest, res.Each(i).ResetAfter)
	}
	return longest
}

// answer is the answer that a Limiter of what is unlimited or blocked gives to all. It asks no store: there is nothing to
// give back, to charge or to renew.
type answer uint8

const (
	admits  answer = iota // the key is Unlimited
	refuses               // the key is Blocked
)

// blockedFor is the time after which a blocked key may ask again.
const blockedFor = time.Minute

// answering returns a Limiter of l's policy that gives one answer.
func (l *Limiter) answering(a answer) *Limiter {
	return &Limiter{engine: l.engine, named: l.named, policy: l.policy, rates: l.rates, permits: l.permits, answer: a}
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
