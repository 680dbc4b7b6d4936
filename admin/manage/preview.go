package manage

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/admin/counts"
	"github.com/weir-go/weir/admin/presets"
	"github.com/weir-go/weir/admin/preview"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
	"github.com/weir-go/weir/internal/inwords"
)

// Preset is a text that is often wanted.
type Preset struct {
	Name  string            `json:"name"`
	Title string            `json:"title"`
	Text  string            `json:"text"`
	Tiers map[string]string `json:"tiers,omitempty"`
	// Words has the reasons for its numbers.
	Words string `json:"words"`
	// Key says who should be counted.
	Key string `json:"key"`
}

// Presets answers PathPresets.
type Presets struct {
	Presets []Preset `json:"presets"`
}

// Checked answers PathCheck: what a policy says, while somebody writes it.
type Checked struct {
	// Words are sentences: what holds at once, and in the worst window.
	Words []string `json:"words,omitempty"`
	// Pictures have the numbers of a picture for each period of the limits.
	Pictures []Picture `json:"pictures,omitempty"`
	// Trial is whether the policy only counts.
	Trial bool `json:"trial,omitempty"`
	// Mistakes are those of the policy. There are no words then.
	Mistakes []adminapi.Mistake `json:"mistakes,omitempty"`
	// Warnings are sentences about texts that could be meant otherwise.
	Warnings []string `json:"warnings,omitempty"`
}

// Picture has the numbers of a picture: what a caller gets from idle on.
type Picture = preview.Picture

// AskPreview is the body of PathPreview.
type AskPreview struct {
	Policy adminapi.Policy `json:"policy"`
	// Keys are looked at beside the busiest.
	Keys []string `json:"keys,omitempty" maxItems:"50"`
}

// Preview answers PathPreview: what a change would do. Nothing was changed.
type Preview struct {
	// Difference is nil if the policy says that already.
	Difference *adminapi.Difference `json:"difference,omitempty"`
	// Words and Kept are sentences, about the numbers after the change, and about the counts.
	Words []string `json:"words"`
	Kept  []string `json:"kept,omitempty"`
	// Keys are the busiest, and those that were asked for.
	Keys []KeyPreview `json:"keys"`
	// Refused is the number of these keys that would be refused now, and were not before.
	Refused int `json:"refused"`
	// CannotUse lists the rules of processes that could not use it.
	CannotUse []adminapi.CannotUse `json:"cannotUse,omitempty"`
	// Unused is whether no process has a policy of this name.
	Unused bool `json:"unused,omitempty"`
	// Why is the reason why no keys could be looked at, or "".
	Why string `json:"why,omitempty"`
}

// KeyPreview is a key before and after a change.
type KeyPreview struct {
	Key    string   `json:"key"`
	Prefix string   `json:"prefix,omitempty"`
	Before KeyState `json:"before"`
	After  KeyState `json:"after"`
	// Why is the reason why it is not known, or "".
	Why string `json:"why,omitempty"`
}

// KeyState is the answer that the next request of a key would get.
type KeyState struct {
	Allowed   bool  `json:"allowed"`
	Limit     int64 `json:"limit"`
	Remaining int64 `json:"remaining"`
	// RetryAfter is the time until a request is admitted, and ResetAfter until the key is as if unused: nanoseconds.
	RetryAfter time.Duration `json:"retryAfter,omitempty"`
	ResetAfter time.Duration `json:"resetAfter,omitempty"`
}

// maxTyped bounds the keys of one preview that a person asks for: the audit has a row of each.
const maxTyped = 20

// Preview returns what a change of a policy would do, and changes nothing. Keys are looked at only for those who have
// the right to look at them.
func (m *Manager) Preview(ctx context.Context, who *rights.Person, app, name string, ask AskPreview) (*Preview, error) {
	if err := m.may(who, rights.ActionView, app); err != nil {
		return nil, err
	}
	if err := policies.CheckName(name); err != nil {
		return nil, refusal(http.StatusUnprocessableEntity, "%v", err)
	}
	if len(ask.Keys) > maxTyped {
		return nil, refusal(http.StatusUnprocessableEntity, "found %d keys; give at most %d", len(ask.Keys), maxTyped)
	}
	if len(ask.Keys) > 0 {
		if err := m.may(who, rights.ActionLook, app); err != nil {
			return nil, err
		}
	}
	before, revision, err := m.o.Record.Policy(ctx, app, name)
	if missing := new(record.NotFoundError); err != nil && (!errors.As(err, &missing) || missing.Owner != "") {
		return nil, m.shown(who, app, err)
	}
	after := ask.Policy.Value()
	if !seesKeys(who, app) {
		after.Keys = before.Keys // whoever may not see them cannot have changed them
	}
	if mistakes := mistakesOf(name, after); len(mistakes) > 0 {
		return nil, &adminapi.Problem{
			Type: adminapi.TypeInvalid, Title: http.StatusText(http.StatusUnprocessableEntity), Status: http.StatusUnprocessableEntity,
			Detail: "the policy has mistakes; mend each of them", Errors: mistakes,
		}
	}
	s := m.standing(ctx, app)
	typed := make([]preview.Key, len(ask.Keys))
	for i, key := range ask.Keys {
		if err := m.looked(ctx, who, app, name, key); err != nil {
			return nil, err
		}
		typed[i] = preview.Key{Key: key}
	}
	found, err := preview.Of(ctx, m.o.Counts, preview.Ask{
		Policy: name, Before: before, After: after, Rules: ofPolicy(m.bound(ctx, app, &s), name), Keys: typed,
	})
	if err != nil {
		return nil, refusal(http.StatusUnprocessableEntity, "%v", err)
	}
	out := &Preview{Words: []string{}, Keys: []KeyPreview{}, Unused: s.failed == nil && s.policies[name] == nil}
	if len(found.Differences) > 0 {
		out.Difference = &adminapi.Difference{Name: name, After: pastFor(who, app, &after)}
		if revision > 0 {
			out.Difference.Before = pastFor(who, app, &before)
		}
	}
	if s.failed != nil {
		out.Why = "the processes could not be read from Redis, so that it is not known which keys are busy"
	}
	for i := range found.Rules {
		out.add(who, app, name, &found.Rules[i], out.Difference)
	}
	return out, nil
}

// add adds what a change does in the processes that have a rule.
func (p *Preview) add(who *rights.Person, app, name string, r *preview.Rule, d *adminapi.Difference) {
	for _, e := range r.Entries {
		if e.Entry == "text" && e.Words != nil && len(p.Words) == 0 {
			p.Words = wordsOf(*e.Words)
		}
		if e.Change != nil {
			if e.Entry == "text" && len(p.Kept) == 0 {
				p.Kept = e.Change.Counts
				p.Kept = append(p.Kept, "while old and new numbers meet, they admit together "+e.Change.Together)
			}
			if d != nil {
				d.Afresh = d.Afresh || !e.Change.Kept
			}
		}
		if e.Why != "" && len(p.CannotUse) < maxMistakes {
			process := ""
			if len(r.Names) > 0 {
				process = r.Names[0]
			}
			p.CannotUse = append(p.CannotUse, cannotUseFor(who, app, []record.CannotUse{{
				App: app, Process: process, Policy: name, Entry: strings.TrimPrefix(e.Entry, "text"), Why: e.Why,
			}})...)
		}
	}
	if r.Why != "" && p.Why == "" {
		p.Why = r.Why
	}
	for _, k := range r.Keys {
		key := KeyPreview{Key: k.Key.Key, Prefix: r.Prefix, Before: stateOf(k.Before), After: stateOf(k.After), Why: k.Why}
		if k.Why == "" && !k.Before.Refused() && k.After.Refused() {
			p.Refused++
		}
		p.Keys = append(p.Keys, key)
	}
}

func stateOf(n preview.Next) KeyState {
	s := KeyState{Allowed: !n.Refused(), Remaining: n.Remaining, RetryAfter: n.RetryAfter}
	if p, err := core.Parse(n.Policy); err == nil {
		s.Limit = inwords.Of(p).AtOnce
	}
	return s
}

// ofPolicy returns the rules of one policy.
func ofPolicy(rules []counts.Rule, name string) []counts.Rule {
	return slices.DeleteFunc(slices.Clone(rules), func(r counts.Rule) bool { return r.Policy != name })
}

// Check returns what a policy says, while somebody writes it. Its mistakes are a part of the answer.
func (m *Manager) Check(_ context.Context, who *rights.Person, p adminapi.Policy) (*Checked, error) {
	if who == nil {
		return nil, m.may(nil, rights.ActionView)
	}
	out := &Checked{Mistakes: mistakesOf("policy", p.Value())}
	text, err := core.Parse(p.Text)
	if err != nil || len(out.Mistakes) > 0 {
		return out, nil //nolint:nilerr // it is among the mistakes, or there is no text
	}
	found := preview.Check(preview.Draft{Text: text.String()})
	if found.Words != nil {
		out.Words = wordsOf(*found.Words)
	}
	out.Pictures, out.Trial = found.Pictures, text.Options().Shadow
	return out, nil
}

// mistakesOf returns the mistakes of a policy, with the columns of its texts.
func mistakesOf(name string, p policies.Policy) (all []adminapi.Mistake) {
	add := func(location, text string, kind preview.Kind) {
		for _, found := range preview.Check(preview.Draft{Policy: name, Text: text, Now: p.Text, For: kind}).Mistakes {
			if len(all) < maxMistakes {
				all = append(all, adminapi.Mistake{Location: location, Message: found.Problem, Column: found.Column})
			}
		}
	}
	if p.Text != "" {
		add("text", p.Text, preview.ForPolicy)
	}
	if len(all) > 0 { // the others are held against it
		return all
	}
	for _, tier := range slices.Sorted(maps.Keys(p.Tiers)) {
		add("tiers."+tier, p.Tiers[tier], preview.ForTier)
	}
	for _, key := range slices.Sorted(maps.Keys(p.Keys)) {
		add("keys", p.Keys[key], preview.ForKey) // the key itself may be a person
	}
	document := policies.Document{App: "app", Version: policies.Version{Generation: 1, Revision: 1}, Policies: map[string]policies.Policy{name: p}}
	if err := document.Check(); err != nil && len(all) == 0 {
		all = mistakes(err)
	}
	return all
}

// words says a policy's text in sentences; none if it has none.
func words(text string) []string {
	p, err := core.Parse(text)
	if err != nil {
		return nil
	}
	return wordsOf(inwords.Of(p))
}

func wordsOf(said inwords.Policy) (all []string) {
	for _, row := range said.Rows() {
		all = append(all, row[0]+": "+row[1])
	}
	return append(all, said.Notes...)
}

// Presets returns texts that are often wanted.
func (m *Manager) Presets(_ context.Context, who *rights.Person) (*Presets, error) {
	if who == nil {
		return nil, m.may(nil, rights.ActionView)
	}
	out := &Presets{}
	for _, p := range presets.All() {
		out.Presets = append(out.Presets, Preset{
			Name: p.Name, Title: p.Title, Text: p.Policy.Text, Tiers: p.Policy.Tiers, Key: p.Key, Words: p.Words,
		})
	}
	return out, nil
}
