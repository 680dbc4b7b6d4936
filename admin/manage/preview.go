package manage

import (
	"context"
	"errors"
	"fmt"
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
	// Key is a sentence about the callers to count apart.
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
	// Trial reports whether the policy only counts.
	Trial bool `json:"trial,omitempty"`
	// Mistakes are those of the policy. There are no words then.
	Mistakes []adminapi.Mistake `json:"mistakes,omitempty"`
}

// Picture has the numbers of a picture: what a caller gets from idle on.
type Picture = preview.Picture

// AskPreview is the body of PathPreview.
type AskPreview struct {
	Policy adminapi.Policy `json:"policy"`
	// Keys are looked at beside the busiest.
	Keys []string `json:"keys,omitempty" maxItems:"20"`
}

// Preview answers PathPreview: what a change would do. Nothing was changed.
type Preview struct {
	// Difference is nil if the policy says that already.
	Difference *adminapi.Difference `json:"difference,omitempty"`
	// Words and Kept are sentences, about the numbers after the change, and about the counts.
	Words []string `json:"words"`
	Kept  []string `json:"kept,omitempty"`
	// Keys are those that were asked for and the busiest, once for each rule that counts apart.
	Keys []KeyPreview `json:"keys"`
	// Refused is the number of these keys that would be refused then, and are not now. Nobody is on trial.
	Refused int `json:"refused"`
	// Busiest is the number of busiest keys among them, and Idle how many of these the store does not know: if it is all of
	// them, the services do not seem to count there.
	Busiest int `json:"busiest"`
	Idle    int `json:"idle,omitempty"`
	// CannotUse lists the rules of processes that could not use it.
	CannotUse []adminapi.CannotUse `json:"cannotUse,omitempty"`
	// MoreRules is the number of rules that were not looked at: of each app eight are, which differ in their code or in the
	// place of their counts.
	MoreRules int `json:"moreRules,omitempty"`
	// Unused reports whether no process has a policy of this name.
	Unused bool `json:"unused,omitempty"`
	// NoTier reports whether callers in tiers have other numbers than those of the busiest keys here, whose tiers nobody
	// knows.
	NoTier bool `json:"noTier,omitempty"`
	// Why is the reason why no keys could be looked at, or "".
	Why string `json:"why,omitempty"`
}

// KeyPreview is a key before and after a change.
type KeyPreview struct {
	Key  string `json:"key"`
	Tier string `json:"tier,omitempty"`
	// Rule tells the rules apart that count the key: the text of the code and the prefix, "" if there is one rule.
	Rule   string   `json:"rule,omitempty"`
	Before KeyState `json:"before"`
	After  KeyState `json:"after"`
	// Why is the reason why it is not known, or "".
	Why string `json:"why,omitempty"`
}

// KeyState is the answer that the next request of a key would get.
type KeyState struct {
	// Policy is the one that holds for the key, "unlimited" or "blocked".
	Policy  string `json:"policy"`
	Allowed bool   `json:"allowed"`
	// Trial reports whether the request passes even if it is not allowed.
	Trial bool  `json:"trial,omitempty"`
	Limit int64 `json:"limit"`
	// Remaining is the number of units left before the request, and -1 where nothing is counted.
	Remaining int64 `json:"remaining"`
	// RetryAfter is the time until a request is admitted, and Delay the time that it waits for its turn: nanoseconds.
	RetryAfter time.Duration `json:"retryAfter,omitempty"`
	Delay      time.Duration `json:"delay,omitempty"`
}

// maxTyped bounds the keys of one preview that a person asks for: the audit has a row of each.
const maxTyped = 20

// Preview returns what a change of a policy would do, and changes nothing. Keys are looked at only for those who have
// the right to look at them; others see how many of the busiest would be refused.
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
	for _, key := range ask.Keys {
		if err := counts.CheckKey(key); err != nil {
			return nil, refusal(http.StatusUnprocessableEntity, "%v", err)
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
	tiers := tiersOf(&before, &after, ofPolicy(s.rules, name))
	keys, noKeys := m.busy(app, name, ask.Keys, tiers)
	for _, key := range ask.Keys {
		if err := m.looked(ctx, who, app, name, key, ""); err != nil {
			return nil, err
		}
	}
	if reported := keys != nil && keys[len(keys)-1].Busiest; reported && seesKeys(who, app) { // one row for all of them
		if err := m.looked(ctx, who, app, name, "", ""); err != nil {
			return nil, err
		}
	}
	ofApp := preview.Ask{Policy: name, Before: before, After: after, Rules: m.lookable(who, app, ofPolicy(m.bound(ctx, app, &s), name)), Keys: keys}
	looking, cancel := s.patience(ctx)
	defer cancel()
	found, err := preview.Of(looking, m.o.Counts, ofApp)
	if err != nil {
		return nil, refusal(http.StatusUnprocessableEntity, "%v", err)
	}
	out := &Preview{Words: []string{}, Keys: []KeyPreview{}, Unused: s.failed == nil && s.policies[name] == nil, NoTier: len(tiers) > 0}
	out.MoreRules = found.MoreRules
	if len(found.Differences) > 0 {
		out.Difference = &adminapi.Difference{Name: name, After: pastFor(who, app, &after)}
		if revision > 0 {
			out.Difference.Before = pastFor(who, app, &before)
		}
	}
	if s.failed != nil {
		out.Why = "the processes could not be read from Redis, so that it is not known where they count"
	}
	for i := range found.Rules {
		out.explain(&found, &found.Rules[i], seesKeys(who, app))
		out.cannot(who, app, app, name, &found.Rules[i])
		out.keys(name, &found.Rules[i], len(found.Rules) > 1)
	}
	if len(out.Words) == 0 {
		out.Words = append(out.Words, words(after.Text)...)
	}
	if out.Why == "" && len(out.Keys) == 0 {
		out.Why = noKeys
	}
	if !seesKeys(who, app) { // how many there are is no person
		out.Keys = []KeyPreview{}
	}
	return out, m.previewOthers(ctx, who, app, ofApp, out)
}

// maxTiers bounds the tiers in which a preview shows a key that a person has typed.
const maxTiers = 6

// tiersOf returns the first tiers that a policy has before or after a change.
func tiersOf(before, after *policies.Policy, rules []counts.Rule) []string {
	names := map[string]bool{}
	for _, texts := range []map[string]string{before.Tiers, after.Tiers} {
		for name := range texts {
			names[name] = true
		}
	}
	for i := range rules {
		for name := range rules[i].Tiers {
			names[name] = true
		}
	}
	all := slices.Sorted(maps.Keys(names))
	return all[:min(len(all), maxTiers)]
}

// busy returns the keys to look at in a preview: those that a person has typed, in no tier and in each, and then those
// that use most of a policy and that are refused most. why is the reason why there are none of the latter.
func (m *Manager) busy(app, name string, typed, tiers []string) (keys []preview.Key, why string) {
	var reported Keys
	m.busiest(app, name, &reported)
	seen := map[string]bool{}
	for _, key := range typed {
		if !seen[key] {
			seen[key] = true
			keys = append(keys, preview.Key{Key: key})
			for _, tier := range tiers {
				keys = append(keys, preview.Key{Key: key, Tier: tier})
			}
		}
	}
	for _, c := range append(slices.Clone(reported.Busiest), reported.Refused...) {
		if !seen[c.Key] && len(keys) < preview.MaxKeys && counts.CheckKey(c.Key) == nil {
			seen[c.Key] = true
			keys = append(keys, preview.Key{Key: c.Key, Busiest: true})
		}
	}
	return keys, reported.Why
}

// lookable marks the rules of which the counts are shared with apps at whose keys a person may not look.
func (m *Manager) lookable(who *rights.Person, app string, rules []counts.Rule) []counts.Rule {
	for i := range rules {
		shared := append([]string{app}, rules[i].With...)
		if len(shared) > 1 && rights.Decide(who, rights.ActionLook, shared...) != rights.Allowed { // nobody has asked for those of the others
			rules[i].Barred = "another app counts there as well, and you may not look at its keys"
		}
	}
	return rules
}

// maxOthers bounds the further apps whose processes a preview asks whether they could use the change.
const maxOthers = 50

// previewOthers adds what the processes of other apps that use the policy, or shall use it, could not use.
func (m *Manager) previewOthers(ctx context.Context, who *rights.Person, app string, ask preview.Ask, out *Preview) error {
	apps := append(slices.Clone(ask.Before.Apps), ask.After.Apps...)
	if slices.Contains(apps, policies.AllApps) {
		heads, err := m.o.Record.Heads(ctx)
		if err != nil {
			return err
		}
		apps = nil
		for _, h := range heads {
			apps = append(apps, h.App)
		}
	}
	slices.Sort(apps)
	lent := ask.Before.Apps
	apps = slices.DeleteFunc(slices.Compact(apps), func(other string) bool { // an app that somebody has but typed tells them nothing
		known := visible(who, other) || slices.Contains(lent, other) || slices.Contains(lent, policies.AllApps)
		return other == app || other == policies.AllApps || !known
	})
	ctx, cancel := context.WithTimeout(ctx, glimpse)
	defer cancel()
	for _, other := range apps[:min(len(apps), maxOthers)] {
		s := m.standing(ctx, other)
		ask.Rules, ask.Keys = ofPolicy(s.rules, ask.Policy), nil
		if len(ask.Rules) == 0 {
			continue
		}
		out.Unused = false
		found, err := preview.Of(ctx, m.o.Counts, ask)
		if err != nil {
			return err
		}
		out.MoreRules += found.MoreRules
		for i := range found.Rules {
			out.cannot(who, app, other, ask.Policy, &found.Rules[i])
		}
	}
	return nil
}

// maxExplained bounds the entries of which a preview has words.
const maxExplained = 20

// explain adds the words for the entries that a person has changed. All rules have nearly the same.
func (p *Preview) explain(of *preview.Preview, r *preview.Rule, seesKeys bool) {
	if len(p.Words) > 0 {
		return
	}
	changed, others := map[string]bool{}, 0
	for _, d := range of.Differences {
		changed[d.Entry] = true
	}
	for i, e := range r.Entries {
		if d := p.Difference; d != nil && e.Change != nil {
			d.Afresh = d.Afresh || !e.Change.Kept
		}
		isKey := strings.HasPrefix(e.Entry, "key ")
		if i >= maxExplained || e.Entry != "text" && !changed[e.Entry] || isKey && !seesKeys {
			others++
			continue
		}
		about := ""
		if e.Entry != "text" {
			about = e.Entry + ": "
		}
		switch {
		case e.Words != nil && about == "":
			p.Words = wordsOf(*e.Words)
		case e.Words != nil:
			p.Words = append(p.Words, about+e.After+"; "+strings.Join(wordsOf(inwords.Policy{AtOnce: e.Words.AtOnce, Within: e.Words.Within}), ", "))
		case e.After != "":
			p.Words = append(p.Words, about+e.After)
		}
		if e.Change != nil {
			for _, kept := range e.Change.Counts {
				p.Kept = append(p.Kept, about+kept)
			}
			p.Kept = append(p.Kept, about+"while old and new numbers meet, they admit together: "+e.Change.Together)
		}
	}
	if others += r.More; others > 0 {
		p.Words = append(p.Words, fmt.Sprintf("and other numbers or options for %d further tiers and keys", others))
	}
}

// cannot adds what the processes of an app could not use of the change of a policy that belongs to owner.
func (p *Preview) cannot(who *rights.Person, owner, app, name string, r *preview.Rule) {
	processes := r.Names
	if len(processes) == 0 {
		processes = []string{""}
	}
	for _, e := range r.Entries {
		for _, process := range processes {
			if e.Why == "" || len(p.CannotUse) == maxMistakes {
				break
			}
			p.CannotUse = append(p.CannotUse, cannotUseFor(who, owner, []record.CannotUse{{
				App: app, Process: process, Policy: name, Entry: strings.TrimPrefix(e.Entry, "text"), Why: e.Why,
			}})...)
		}
	}
}

// keys adds the keys as a rule counts them. apart reports whether there are others.
func (p *Preview) keys(name string, r *preview.Rule, apart bool) {
	if r.Why != "" && p.Why == "" {
		p.Why = r.Why
	}
	p.Busiest += r.Busiest
	p.Idle += r.Idle
	for _, k := range r.Keys {
		key := KeyPreview{Key: k.Key.Key, Tier: k.Tier, Before: stateOf(k.Before), After: stateOf(k.After), Why: k.Why}
		if apart {
			key.Rule = strings.TrimSpace(strings.TrimPrefix(r.Code, name+":") + " " + r.Prefix)
		}
		if k.Why == "" && key.Before.passes() && !key.After.passes() {
			p.Refused++
		}
		p.Keys = append(p.Keys, key)
	}
}

func (s *KeyState) passes() bool { return s.Allowed || s.Trial }

func stateOf(n preview.Next) KeyState {
	s := KeyState{
		Policy: n.Policy, Allowed: n.Outcome != "" && !n.Refused(), Trial: n.Trial, Remaining: n.Remaining, RetryAfter: n.RetryAfter, Delay: n.Delay,
	}
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
