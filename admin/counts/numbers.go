package counts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/explain"
	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/policies"
)

// Numbers are those that a rule obeys if the fleet says something of its policy. They explain what these mean for what a
// [View] has read.
type Numbers struct {
	*enforce.Variants
	// Entries are the texts of the fleet, with what has become of each.
	Entries []follow.Entry

	rule     *Rule
	code     *enforce.Limiter
	revision string
	fleet    policies.Policy
}

// silent is a log that nobody reads: what it would say stands in the Entries, and may have keys.
var silent = slog.New(slog.DiscardHandler)

// NumbersOf returns the numbers of a rule under what the fleet says of its policy, in a revision.
func NumbersOf(r *Rule, v *View, fleet policies.Policy, revision string) (*Numbers, error) {
	code, err := r.code(fleet.Text)
	if err != nil {
		return nil, err
	}
	l, err := enforce.New(v, code, enforce.Options{Log: silent})
	if err != nil {
		return nil, err
	}
	n := &Numbers{rule: r, code: l, revision: revision, fleet: fleet}
	n.Variants, n.Entries = l.Variants(r.Tiers, n.set(), nil)
	return n, nil
}

// Then returns the numbers after those of n: a process that cannot use a text goes on with what it had.
func (n *Numbers) Then(fleet policies.Policy, revision string) *Numbers {
	next := &Numbers{rule: n.rule, code: n.code, revision: revision, fleet: fleet}
	next.Variants, next.Entries = n.code.Variants(n.rule.Tiers, next.set(), n.Variants)
	return next
}

func (n *Numbers) set() *follow.Set {
	name := n.rule.Policy
	return &follow.Set{
		Revision: n.revision,
		Policies: map[string]string{name: n.fleet.Text},
		Tiers:    map[string]map[string]string{name: n.fleet.Tiers},
		Keys:     map[string]map[string]string{name: n.fleet.Keys},
	}
}

// code returns the policy of the code. If no process has said what that is, it is one that can have the text of the fleet.
func (r *Rule) code(text string) (core.Policy, error) {
	switch {
	case r.Code != "":
		return CodeOf(r.Policy, r.Code)
	case text == "":
		return core.Policy{}, errors.New("its numbers are those of the code, and no process says which these are")
	}
	p, err := CodeOf(r.Policy, text)
	if err != nil {
		return core.Policy{}, err
	}
	// What a text leaves out is as in the code: mostly nothing. A wait, a code has or not.
	return core.NewPolicy(r.Policy, core.PolicyOptions{Wait: p.Options().Wait}, p.Limits()...)
}

// CodeOf reads the text that processes have announced as that of a policy in their code. It may be anybody's.
func CodeOf(name, text string) (core.Policy, error) {
	p, err := core.Parse(text)
	if err == nil && name != "" {
		if err = policies.CheckName(name); err == nil {
			p = p.Named(name)
		}
	}
	if err != nil {
		return core.Policy{}, fmt.Errorf("what its processes say of themselves is no policy: %s", Plain(err))
	}
	return p, nil
}

// Of returns the Limiter for a key in a tier, "" for none: nil if it is unlimited. place is that of its numbers, such as
// Tiers["api"]["pro"] or "code".
func (n *Numbers) Of(key, tier string) (l *enforce.Limiter, place string) {
	at := follow.Entry{Policy: n.rule.Policy, Text: "it has one"}
	if own, has := n.Keys[key]; has {
		at.Field, at.Key = "Keys", key
		return own, at.String()
	}
	if own, has := n.Tiers[tier]; has && tier != "" {
		if at.Field, at.Tier = "Tiers", tier; n.fleet.Tiers[tier] == "" {
			return own, fmt.Sprintf("tier %q of the code", tier)
		}
		return own, at.String()
	}
	if n.Limiter.Policy() == n.code.Policy() {
		return n.Limiter, "code"
	}
	at.Field, at.Text = "Policies", ""
	return n.Limiter, at.String()
}

// Counts returns the policy by which a key in a tier is counted. ok is false if nothing is counted, because it is
// unlimited or blocked.
func (n *Numbers) Counts(key, tier string) (p core.Policy, ok bool) {
	l, _ := n.Of(key, tier)
	if text := l.String(); text == follow.Unlimited || text == follow.Blocked {
		return core.Policy{}, false
	}
	return l.Policy(), true
}

// Explain explains what a request of one unit would get, from what the View has read for [Numbers.Counts].
func (n *Numbers) Explain(ctx context.Context, key, tier string) (x explain.Explanation, err error) {
	l, place := n.Of(key, tier)
	if l == nil {
		x = explain.Explanation{Policy: follow.Unlimited, Key: key, Cost: 1, From: "process", Outcome: core.Admitted.String(), At: time.Now()}
	} else if x, err = l.Explain(ctx, key, 1); err != nil {
		return x, unreadable(err, key)
	}
	x.Numbers, x.Revision = place, n.revision
	if n.rule.Process {
		x.From = "process"
	}
	return x, nil
}
