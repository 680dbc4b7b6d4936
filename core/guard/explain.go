package guard

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/explain"
	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/keyfunc"
)

// Explanation describes what a Guard would decide about a request, and why: it is the answer of [Guard.Explain]. Its
// String is a text for people. In JSON, durations are nanoseconds.
type Explanation struct {
	// Method and Route are those of the request; Route is "" if the adapter finds none.
	Method string `json:"method"`
	Route  string `json:"route"`
	// Entry is the entry of Config.Routes that holds, such as `Routes["POST /login"]`, or "" if none does.
	Entry string `json:"entry,omitempty"`
	// Revision is that of the Source's Set in force, or "".
	Revision string `json:"revision,omitempty"`
	// Passes reports whether the request would go on to its handler.
	Passes bool `json:"passes"`
	// RefusedBy is the place of the rule that would refuse, "StrictRoutes", or "".
	RefusedBy string `json:"refusedBy,omitempty"`
	// Rules are the rules in the order in which they are asked.
	Rules []RuleExplanation `json:"rules,omitempty"`
}

// RuleExplanation is one rule in an [Explanation].
type RuleExplanation struct {
	// Place is the place of the rule in the Config, Policy the name of its policy, KeyFunc the name of its key function,
	// and OverLimit that of its handler.
	Place     string `json:"place"`
	Policy    string `json:"policy"`
	KeyFunc   string `json:"keyFunc"`
	OverLimit string `json:"overLimit"`
	// Tier is the tier that the rule's Tier has returned, if it has one, also where no numbers are for it.
	Tier string `json:"tier,omitempty"`
	// Key is the key that is counted, or "" if the request has none.
	Key string `json:"key,omitempty"`
	// Refuses reports that the rule would refuse the request, and Matters that this ends it. It does not matter if an
	// earlier rule refuses, on trial, and if the handler is Degrade. A [HandlerFunc] is not called, and taken for one that
	// answers.
	Refuses bool `json:"refuses,omitempty"`
	Matters bool `json:"matters,omitempty"`
	// Why says in a few words why the rule refuses, and why it is not asked or does not matter. It is "" for one that is
	// asked and admits.
	Why string `json:"why,omitempty"`
	// Circuit is the time for which the circuit of the key is open; see [Break].
	Circuit time.Duration `json:"circuit,omitempty"`
	// Limits is the explanation of the limits, or nil if they would not be asked: what would become of the request by
	// them, also where an earlier rule refuses or the circuit is open.
	Limits *explain.Explanation `json:"limits,omitempty"`

	opens bool // the refusal would open the circuit
}

// Explain returns what g would decide about r now, and why: all rules in order, with the numbers that hold for its tier
// and key, and when it would be admitted. It takes nothing, waits for nothing, calls no Observe and no handler, counts
// nothing in the circuits of [Break], and logs nothing. It calls the Skip, the Tier, the Key and the Cost of the rules, as a
// request does, and asks the store for each rule: see [enforce.Limiter.Explain]. An error is that of a store which cannot
// be explained, or the context's.
func (g *Guard) Explain(r keyfunc.Request) (Explanation, error) {
	now := g
	if g.source != nil {
		now = g.current()
	}
	x := Explanation{Method: r.Method(), Route: r.Route(), Revision: now.revision, Passes: true}
	rules := now.rules
	if t := now.routes; t != nil {
		f := found{table: t, route: x.Route, own: t.lookup(x.Method, x.Route)}
		if g.strict {
			if f.own == nil || !f.own.alone {
				f.suspect = t.suspect(x.Method, r, &f)
			}
			if f.own == nil && !usual(x.Method) {
				f.other = t.ofOtherMethod(x.Method, x.Route)
			}
			if f.suspect != nil && len(f.suspect.rules) > 0 || t.isClosed(&f) {
				x.Passes, x.RefusedBy = false, "StrictRoutes"
				return x, nil
			}
		}
		if f.own != nil {
			x.Entry, rules = f.own.place(), f.own.rules
		}
	}
	for _, ru := range rules {
		e, err := ru.explain(r)
		if err != nil {
			return Explanation{}, err
		}
		e.rank(&x, ru)
		x.Rules = append(x.Rules, e)
	}
	return x, nil
}

// rank notes whether the rule matters, after those before it.
func (e *RuleExplanation) rank(x *Explanation, ru *rule) {
	also := func(why string) {
		if e.Why != "" {
			e.Why += "; "
		}
		e.Why += why
	}
	if !x.Passes {
		also("not asked, because " + x.RefusedBy + " refuses")
		return
	}
	if !e.Refuses {
		return
	}
	handler := ru.OverLimit
	if ru.breaker != nil {
		if handler = ru.breaker.o.Before; e.Circuit > 0 || e.opens {
			handler = ru.breaker.o.Then
		}
	}
	d, degrades := handler.(degrade)
	switch overLimit := e.Limits != nil && e.Limits.From != FromClosed.String(); {
	case ru.shadow:
		also("on trial, and so it refuses nobody")
	case degrades && d.goesOn() && overLimit:
		also("its handler lets the request go on")
	default:
		e.Matters, x.Passes, x.RefusedBy = true, false, e.Place
	}
}

// explain explains a rule by itself. It does what [Guard.begin] does, and leaves no trace.
func (ru *rule) explain(r keyfunc.Request) (e RuleExplanation, err error) {
	e = RuleExplanation{Place: ru.place, Policy: ru.name, KeyFunc: ru.Key.String(), OverLimit: fmt.Sprint(ru.OverLimit)}
	if ru.Skip != nil && ru.Skip(r) {
		e.Why = "Skip says that the rule does not concern the request"
		return e, nil
	}
	var k keyfunc.Key
	missing := ru.Key.AppendTo(&k, r)
	e.Key = k.String()
	limiter, own := ru.keys[e.Key]
	if !own {
		if limiter = ru.limiter; ru.Tier != nil {
			e.Tier = ru.Tier(r)
			if l, known := ru.tiers[e.Tier]; known {
				limiter = l
			}
		}
	}
	if limiter == nil {
		e.Why = "unlimited, by " + ru.numbersFor(e.Tier, e.Key)
		return e, nil
	}
	if missing != nil || e.Key == "" {
		e.Why = fmt.Sprintf("the request has no key (%v)", keyErrorOf(missing))
		switch ru.NoKey {
		case NoKeyShared:
			e.Key, e.Why = sharedKey, e.Why+": all such requests are counted together"
		case NoKeyPass:
			e.Key, e.Why = "", e.Why+": such requests pass"
			return e, nil
		default:
			e.Key, e.Refuses, e.Why = "", true, e.Why+": such requests are refused"
			return e, nil
		}
	}
	ask := enforce.Ask{Key: e.Key, Cost: 1, Wait: ru.wait}
	if end, bounded := r.Context().Deadline(); bounded {
		ask.Wait = min(ask.Wait, max(0, time.Until(end)))
	}
	switch {
	case ru.After != nil:
		ask.Cost, ask.AtMost = 0, true
	case ru.Cost != nil:
		if ask.Cost = ru.Cost(r); ask.Cost < 0 {
			e.Refuses, e.Why = true, fmt.Sprintf("its Cost has returned %d", ask.Cost)
			return e, nil
		}
	}
	return e, ru.explainLimits(r.Context(), &e, limiter, ask)
}

// explainLimits explains the limits of a rule, and its circuit.
func (ru *rule) explainLimits(ctx context.Context, e *RuleExplanation, limiter *enforce.Limiter, ask enforce.Ask) error {
	room := ru.waiting.Load() < int64(ru.Waiting)
	if !room {
		ask.Wait = 0
	}
	x, err := limiter.ExplainAsk(ctx, ask)
	if err != nil {
		return err
	}
	x.Numbers, x.Revision = ru.numbersFor(e.Tier, e.Key), ru.revision
	if e.Limits = &x; ru.After != nil {
		x.Notes = append(x.Notes, "the rule counts with After, when a request is over: those that are under way are not in this")
	}
	why := func(format string, args ...any) { e.Refuses, e.Why = true, fmt.Sprintf(format, args...) }
	switch {
	case x.From == FromClosed.String():
		why("the store fails, and the policy fails closed")
	case !x.Result.Allowed():
		why("over the limit")
	case ru.waits && !room && x.Result.Delay > 0:
		why("it would have to wait, and all %d places in which requests wait are taken", ru.Waiting)
	}
	if ru.breaker == nil {
		return nil
	}
	circuit := ru.breaker.circuits.Peek(ru.inEpoch, e.Key)
	switch e.Circuit = circuit.Refuse; {
	case e.Circuit > 0:
		why("the circuit of the key is open for %v, and the store is not asked", e.Circuit.Round(time.Millisecond))
	case e.Refuses && circuit.Opens && x.From != FromClosed.String():
		e.opens = true
		e.Why += ", which opens the circuit of the key"
	case !e.Refuses && circuit.Probe:
		e.Why = "it would be the probe that closes the circuit of the key"
	}
	return nil
}

// numbersFor names the place of the numbers that hold for a tier and a key, as explain.Explanation has it.
func (ru *rule) numbersFor(tier, key string) string {
	find := func(field, tier, key string) (string, bool) {
		for _, e := range ru.entries {
			if e.Field == field && e.Tier == tier && e.Key == key && e.Err == nil && e.Text != "" {
				return e.String(), true
			}
		}
		return "", false
	}
	if _, own := ru.keys[key]; own {
		if place, ok := find(inKeys, "", key); ok {
			return place
		}
	}
	if _, known := ru.tiers[tier]; known {
		if place, ok := find(inTiers, tier, ""); ok {
			return place
		}
		return fmt.Sprintf("the tier %q of the code", tier)
	}
	if place, ok := find("Policies", "", ""); ok {
		return place
	}
	return "code"
}

// ExplainKey explains the limits of a policy for a key, where there is no request: for a page or a command. tier is the
// tier by which the request would go, or "". Of rules that share a policy, the first is explained. It fails if no rule
// has the policy, or knows the tier.
func (g *Guard) ExplainKey(ctx context.Context, policy, tier, key string, cost int64) (explain.Explanation, error) {
	now := g
	if g.source != nil {
		now = g.current()
	}
	for _, ru := range now.all() {
		if ru.name != policy {
			continue
		}
		limiter, own := ru.keys[key]
		if l, known := ru.tiers[tier]; !own && known {
			limiter = l
		} else if !own {
			if limiter = ru.limiter; tier != "" {
				return explain.Explanation{}, fmt.Errorf("guard: the policy %q has no tier %q; give one of its rule or of the Source, or \"\" for none", policy, tier)
			}
		}
		if limiter == nil {
			x := explain.Explanation{Policy: follow.Unlimited, Numbers: ru.numbersFor(tier, key), Revision: ru.revision, Key: key, Cost: cost, From: FromProcess.String()}
			x.Result.Outcome = core.Admitted
			x.Outcome, x.At = x.Result.Outcome.String(), time.Now()
			return x, nil
		}
		e := RuleExplanation{Tier: tier, Key: key}
		if err := ru.explainLimits(ctx, &e, limiter, enforce.Ask{Key: key, Cost: cost, Wait: ru.wait}); err != nil {
			return explain.Explanation{}, err
		}
		if e.Why != "" && (e.Circuit > 0 || e.Limits.Result.Allowed()) {
			e.Limits.Notes = append(e.Limits.Notes, e.Why)
		}
		return *e.Limits, nil
	}
	return explain.Explanation{}, fmt.Errorf("guard: no rule has the policy %q; give the name of one that a rule has, as Guard.PolicyNames lists them", policy)
}

// String returns the Explanation as lines of text that can be pasted into a ticket.
func (x Explanation) String() string {
	var b strings.Builder
	line := func(name, text string) { fmt.Fprintf(&b, "%-9s %s\n", name, text) }
	route := strings.TrimSpace(x.Method + " " + x.Route)
	if x.Route == "" {
		route += " (no route)"
	}
	if x.Entry != "" {
		route += ", " + x.Entry
	}
	line("request", route)
	answer := "passes"
	if !x.Passes {
		answer = "refused by " + x.RefusedBy
	}
	line("answer", answer)
	if len(x.Rules) == 0 && x.Passes {
		line("rules", "none hold for this route")
	}
	for i := range x.Rules {
		e := &x.Rules[i]
		fmt.Fprintf(&b, "\n%s: policy %s, key by %s\n", e.Place, e.Policy, e.KeyFunc)
		if e.Tier != "" {
			line("tier", fmt.Sprintf("%q", e.Tier))
		}
		switch {
		case e.Refuses && e.Matters:
			line("refuses", e.Why+"; "+e.OverLimit+" answers")
		case e.Refuses:
			line("refuses", "without effect: "+e.Why)
		case e.Why != "":
			line("why", e.Why)
		}
		if e.Limits != nil {
			b.WriteString(e.Limits.String())
		} else if e.Key != "" {
			line("key", fmt.Sprintf("%q", e.Key))
		}
	}
	return b.String()
}
