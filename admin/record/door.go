package record

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/policies"
)

// Announced is a rule of a service, as the service has described it. Its texts are not trusted.
type Announced struct {
	App     string
	Process string
	Policy  string
	Code    string // the text of the code's policy
}

// Bounds of what services can make of a change by what they announce.
const (
	maxCannotUse = 100 // that a refusal lists
	maxOfApp     = 20  // of them, of one app and policy: those of others are not hidden
	maxCodes     = 16  // different texts of one policy in the processes of one app; those of a fleet have a few
)

// judged is the verdict of the rules of services on the policy of an edit.
type judged struct {
	cannotUse []CannotUse
	afresh    bool // whether counts of one of them begin anew
}

// judge finds what the rules of services could not use of the edits, by the names of the policies. It takes its time
// where there are many texts, and so no transaction waits for it.
func (c *Change) judge(ctx context.Context, expected map[string]*policies.Policy) (map[string]judged, error) {
	rules := map[string][]Announced{}
	for _, rule := range c.Announced {
		rules[rule.Policy] = append(rules[rule.Policy], rule)
	}
	all := map[string]judged{}
	for _, e := range c.Edits {
		if e.Patch != nil {
			e.Policy = expected[e.Name]
		}
		if e.Policy == nil {
			continue
		}
		uses := map[string]bool{c.App: true}
		for _, app := range e.Policy.Apps {
			uses[app] = true
		}
		var found judged
		seen := map[[3]string]bool{}                        // a process has many rules of one policy
		verdicts := map[string]judged{}                     // by text: thousands of processes have the same code
		codes, listed := map[string]int{}, map[string]int{} // by app
		for _, rule := range rules[e.Name] {
			once := [3]string{rule.App, rule.Process, rule.Code}
			if !uses[rule.App] && !uses[policies.AllApps] || seen[once] {
				continue
			}
			seen[once] = true
			verdict, known := verdicts[rule.Code]
			if !known {
				if err := ctx.Err(); err != nil {
					return nil, &sqldb.UnavailableError{Err: err}
				}
				if codes[rule.App]++; codes[rule.App] > maxCodes {
					continue // it can keep nobody waiting
				}
				verdict = fits(e.Name, *e.Policy, rule.Code)
				verdicts[rule.Code] = verdict
			}
			found.afresh = found.afresh || verdict.afresh
			for _, no := range verdict.cannotUse {
				if listed[rule.App]++; listed[rule.App] > maxOfApp {
					break
				}
				no.App, no.Process = rule.App, rule.Process
				found.cannotUse = append(found.cannotUse, no)
			}
			found.cannotUse = found.cannotUse[:min(len(found.cannotUse), maxCannotUse)]
		}
		if e.Patch != nil && e.Patch.Text == nil { // a text that was there before keeps nobody from helping one caller
			found.cannotUse = slices.DeleteFunc(found.cannotUse, func(no CannotUse) bool { return no.Entry == "" })
		}
		all[e.Name] = found
	}
	return all, nil
}

// expected returns the policies as edits with a Patch would make them now, by their names: what of them services must be
// able to use.
func (r *Record) expected(ctx context.Context, c *Change) (map[string]*policies.Policy, error) {
	expected := map[string]*policies.Policy{}
	if !slices.ContainsFunc(c.Edits, func(e Edit) bool { return e.Patch != nil }) {
		return expected, nil
	}
	err := r.db.Read(ctx, func(ctx context.Context, t sqldb.Tx) error {
		for _, e := range c.Edits {
			if e.Patch == nil {
				continue
			}
			now, err := heldOf(ctx, t, c.App, e.Name)
			if err != nil {
				return err
			}
			p := e.Patch.On(now.policy)
			if p == nil {
				continue
			}
			of := policies.Policy{Text: p.Text, Apps: p.Apps, Keys: map[string]string{}}
			if e.Patch.Text != nil || e.Patch.Tiers != nil {
				of.Tiers = p.Tiers
			}
			for key, text := range e.Patch.Keys {
				if text != "" {
					of.Keys[key] = text
				}
			}
			expected[e.Name] = &of
		}
		return nil
	})
	return expected, err
}

// door finds what rules could not use of a policy, whether its counts begin anew, and whether it would go back to an
// earlier epoch, whose counts would hold again.
func (w *writer) door(d *Difference) error {
	if d.After == nil {
		return nil
	}
	after, ok := parse(d.Name, d.After.Text)
	if d.Before != nil && ok {
		if before, ok := parse(d.Name, d.Before.Text); ok {
			if o, was := after.Options().Epoch, before.Options().Epoch; o < was && !w.change.Back && !w.change.Force {
				return &InvalidError{Name: d.Name, Err: fmt.Errorf(
					"found epoch %d after epoch %d, so that the counts from before would hold again; "+
						"write \"epoch %d\" to keep those of now, \"epoch %d\" to start afresh, or force it", o, was, was, was+1)}
			}
			d.Afresh = shapes(before) != shapes(after)
			if err := sameForm(before, after); err != nil {
				w.cannotUse(CannotUse{Policy: d.Name, Why: err.Error()})
			}
		}
	}
	found := w.judged[d.Name]
	if d.Before == nil || d.Before.Text == "" {
		d.Afresh = d.Afresh || found.afresh
	}
	w.cannotUse(found.cannotUse...)
	return nil
}

// fits returns what a rule could not use of a policy, if its code's policy is code.
func fits(name string, p policies.Policy, code string) (found judged) {
	now, err := core.Parse(code)
	if err != nil {
		return found // what it says of itself is no policy: it cannot keep anybody from changing one
	}
	now = now.Named(name)
	if p.Text != "" {
		fitting, err := enforce.Fits(now, p.Text)
		if err != nil {
			found.cannotUse = []CannotUse{{Policy: name, Why: err.Error()}}
			return found
		}
		found.afresh = shapes(fitting) != shapes(now)
		now = fitting
	}
	for kind, texts := range map[string]map[string]string{"tier": p.Tiers, "key": p.Keys} {
		for _, entry := range slices.Sorted(maps.Keys(texts)) {
			text := texts[entry]
			if text == follow.Unlimited || kind == "key" && text == follow.Blocked {
				continue
			}
			if _, err := enforce.FitsTier(now, text); err != nil && len(found.cannotUse) < maxCannotUse {
				found.cannotUse = append(found.cannotUse, CannotUse{Policy: name, Entry: kind + " " + entry, Why: err.Error()})
			}
		}
	}
	return found
}

func (w *writer) cannotUse(all ...CannotUse) {
	room := maxCannotUse - len(w.outcome.CannotUse)
	w.outcome.CannotUse = append(w.outcome.CannotUse, all[:min(len(all), room)]...)
}

// parse reads the text of a policy, and reports whether there is one.
func parse(name, text string) (core.Policy, bool) {
	p, err := core.Parse(text)
	if err != nil {
		return p, false
	}
	return p.Named(name), true
}

// sameForm returns why programs that could use one policy could not use another one, or nil. Options that one of them
// leaves out are those of the code, which is not known here.
func sameForm(before, after core.Policy) error {
	_, err := enforce.Fits(bare(before), bare(after).String())
	return err
}

// bare returns p without its options.
func bare(p core.Policy) core.Policy {
	without, err := core.NewPolicy(p.Name(), core.PolicyOptions{}, p.Limits()...)
	if err != nil {
		return p
	}
	return without
}

// shapes names the states in which two policies keep their counts.
func shapes(p core.Policy) [2]string { return [2]string{p.Spec().Shape(), p.Spec().PermitShape()} }
