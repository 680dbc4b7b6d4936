package record

import (
	"fmt"
	"maps"
	"slices"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/policies"
)

// Announced is a rule of a service, as the service has described it. Its texts are not trusted.
type Announced struct {
	App     string
	Process string
	Policy  string
	Code    string // the text of the code's policy
}

// maxCannotUse bounds what a refusal lists.
const maxCannotUse = 100

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
	uses := map[string]bool{w.change.App: true}
	for _, app := range d.After.Apps {
		uses[app] = true
	}
	seen := map[[3]string]bool{} // a process has many rules of one policy
	for _, rule := range w.change.Announced {
		once := [3]string{rule.App, rule.Process, rule.Code}
		if rule.Policy != d.Name || !uses[rule.App] && !uses[policies.AllApps] || seen[once] {
			continue
		}
		seen[once] = true
		w.fits(d, rule)
	}
	return nil
}

// fits notes what a rule could not use.
func (w *writer) fits(d *Difference, rule Announced) {
	no := CannotUse{App: rule.App, Process: rule.Process, Policy: d.Name}
	now, err := core.Parse(rule.Code)
	if err != nil {
		return // what it says of itself is no policy: it cannot keep anybody from changing one
	}
	now = now.Named(d.Name)
	if text := d.After.Text; text != "" {
		fitting, err := enforce.Fits(now, text)
		if err != nil {
			no.Why = err.Error()
			w.cannotUse(no)
			return
		}
		if d.Before == nil || d.Before.Text == "" {
			d.Afresh = d.Afresh || shapes(fitting) != shapes(now)
		}
		now = fitting
	}
	for kind, texts := range map[string]map[string]string{"tier": d.After.Tiers, "key": d.After.Keys} {
		for _, name := range slices.Sorted(maps.Keys(texts)) {
			text := texts[name]
			if text == enforce.Unlimited || kind == "key" && text == enforce.Blocked {
				continue
			}
			if _, err := enforce.FitsTier(now, text); err != nil {
				no.Entry, no.Why = kind+" "+name, err.Error()
				w.cannotUse(no)
			}
		}
	}
}

func (w *writer) cannotUse(no CannotUse) {
	if len(w.outcome.CannotUse) < maxCannotUse {
		w.outcome.CannotUse = append(w.outcome.CannotUse, no)
	}
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
