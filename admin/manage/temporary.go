package manage

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/admin/counts"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

// Temporary is the body of PathTemporary: either Text or Trial.
type Temporary struct {
	// Text has the numbers that hold until then.
	Text string `json:"text,omitempty"`
	// Trial is true to let the policy only count until then, and false to let it refuse.
	Trial *bool     `json:"trial,omitempty"`
	Until time.Time `json:"until"`
}

// owns reports whether a person may write a policy of an app for good, which concerns all apps that use it.
func (m *Manager) owns(ctx context.Context, who *rights.Person, app, name string) (bool, error) {
	p, _, err := m.o.Record.Policy(ctx, app, name)
	if missing := new(record.NotFoundError); err != nil && (!errors.As(err, &missing) || missing.Owner != "") {
		return false, m.shown(who, app, err)
	}
	return rights.Decide(who, rights.ActionWrite, append([]string{app}, p.Apps...)...) == rights.Allowed, nil
}

// forATime changes a part of a policy until a time. Operators change numbers alone, for a week at most.
func (m *Manager) forATime(
	ctx context.Context, who *rights.Person, a rights.Action, c record.Change, until time.Time, w Write,
) (*adminapi.Written, error) {
	name := c.Edits[0].Name
	owner, err := m.owns(ctx, who, c.App, name)
	if err != nil {
		return nil, err
	}
	if owner {
		a = rights.ActionWrite // so that nobody has lost it when the change is written
	}
	c.Edits[0].Until, c.Edits[0].Operator = until, !owner
	c.Permit = m.permit(who, a, c.App)
	return m.change(ctx, who, c, w)
}

// SetTemporary writes other numbers of a policy, or puts it on trial, until a time. A policy that the record does not
// have is then that of the code again.
func (m *Manager) SetTemporary(
	ctx context.Context, who *rights.Person, app, name string, t Temporary, w Write,
) (*adminapi.Written, error) {
	a := rights.ActionTemporary
	if t.Trial != nil {
		a = rights.ActionTrial
	}
	if err := m.may(who, a, app); err != nil {
		return nil, err
	}
	expect, err := w.expect()
	if err != nil {
		return nil, err
	}
	switch {
	case (t.Text == "") == (t.Trial == nil):
		return nil, refusal(http.StatusUnprocessableEntity, `give either "text" or "trial"`)
	case t.Until.IsZero():
		return nil, refusal(http.StatusUnprocessableEntity, `the end is missing; give "until", at most a week from now`)
	}
	text := t.Text
	if t.Trial != nil {
		p, err := m.tried(ctx, who, app, name, *t.Trial)
		if err != nil {
			return nil, err
		}
		text = p.Text
		if p, revision, err := m.o.Record.Policy(ctx, app, name); w.Any && err == nil && p.Text != "" {
			expect.Revision = revision // the numbers are those of this text
		}
	}
	return m.forATime(ctx, who, a, record.Change{
		App: app, Action: string(a), Edits: []record.Edit{{Name: name, Patch: &record.Patch{Text: &text}, Expect: expect}},
	}, t.Until, w)
}

// EndTemporary lets the former text of a policy hold again before its time.
func (m *Manager) EndTemporary(ctx context.Context, who *rights.Person, app, name string, w Write) (*adminapi.Written, error) {
	if err := m.may(who, rights.ActionTemporary, app); err != nil {
		return nil, err
	}
	return m.end(ctx, who, rights.ActionTemporary, app, name, "", w)
}

// end ends what is temporary of a policy: its text, or the numbers of a key.
func (m *Manager) end(
	ctx context.Context, who *rights.Person, a rights.Action, app, name, key string, w Write,
) (*adminapi.Written, error) {
	if _, err := w.expect(); err != nil { // what is ended is compared as the change is written
		return nil, err
	}
	until, err := m.until(ctx, app, name, key)
	if err != nil {
		return nil, err
	}
	if until.IsZero() {
		return nil, refusal(http.StatusNotFound, "nothing of the policy %q is temporary there any more; read it again", name)
	}
	owner, err := m.owns(ctx, who, app, name)
	if err != nil {
		return nil, err
	}
	if owner {
		a = rights.ActionWrite
	}
	return m.change(ctx, who, record.Change{
		App: app, Action: "end", Key: key, Permit: m.permit(who, a, app), Force: true, Back: true,
		Edits: []record.Edit{{Name: name, End: []string{key}, Operator: !owner}},
	}, w)
}

// until returns the end of what is temporary of a policy, zero if that is nothing.
func (m *Manager) until(ctx context.Context, app, name, key string) (time.Time, error) {
	all, err := m.o.Record.Temporaries(ctx, app)
	for _, t := range all {
		if t.Name == name && t.Key == key {
			return t.Ends, err
		}
	}
	return time.Time{}, err
}

// PutKey gives a key numbers of its own, or takes them away. With an end, the former numbers hold again then; only
// owners may leave it out. No numbers and no end are the end of what is temporary, if anything is, and then the former
// numbers hold at once.
func (m *Manager) PutKey(
	ctx context.Context, who *rights.Person, app, name string, k KeyNumbers, w Write,
) (*adminapi.Written, error) {
	if err := m.may(who, rights.ActionSetKey, app); err != nil {
		return nil, err
	}
	if err := counts.CheckKey(k.Key); err != nil {
		return nil, refusal(http.StatusUnprocessableEntity, "%v", err)
	}
	expect, err := w.expect()
	if err != nil {
		return nil, err
	}
	c := record.Change{
		App: app, Action: string(rights.ActionSetKey), Key: k.Key,
		Edits: []record.Edit{{Name: name, Patch: &record.Patch{Keys: map[string]string{k.Key: k.Text}}, Expect: expect}},
	}
	if !k.Until.IsZero() {
		return m.forATime(ctx, who, rights.ActionSetKey, c, k.Until, w)
	}
	if k.Text == "" {
		until, err := m.until(ctx, app, name, k.Key)
		if err != nil {
			return nil, err
		}
		if !until.IsZero() {
			return m.end(ctx, who, rights.ActionSetKey, app, name, k.Key, w)
		}
	}
	if rights.Decide(who, rights.ActionWrite, app) != rights.Allowed {
		return nil, refusal(http.StatusForbidden,
			"an operator of app %q gives the end of a key's numbers, at most a week from now; an owner can leave it out", app)
	}
	c.Permit = m.permit(who, rights.ActionWrite, app)
	return m.change(ctx, who, c, w)
}

// TrialOf returns the text that Trial and SetTemporary would write to put a policy on trial, or to end that.
func (m *Manager) TrialOf(ctx context.Context, who *rights.Person, app, name string, on bool) (string, error) {
	if err := m.may(who, rights.ActionTrial, app); err != nil {
		return "", err
	}
	p, err := m.tried(ctx, who, app, name, on)
	if err != nil {
		return "", err
	}
	return p.Text, nil
}

// tried returns a policy as the record or the code has it, on trial or not.
func (m *Manager) tried(ctx context.Context, who *rights.Person, app, name string, on bool) (*policies.Policy, error) {
	p, err := m.current(ctx, app, name)
	if err != nil {
		return nil, m.shown(who, app, err)
	}
	if p.Text, err = m.trialText(ctx, app, name, p.Text, on); err != nil {
		return nil, err
	}
	return p, nil
}

// trialText returns a text with "shadow", or one that refuses. Where the code of a process is on trial, leaving the word
// out would be no end of it.
func (m *Manager) trialText(ctx context.Context, app, name, text string, on bool) (string, error) {
	var parts []string
	for part := range strings.SplitSeq(text, ";") {
		if part = strings.TrimSpace(part); part != "" && part != "shadow" && part != "shadow off" {
			parts = append(parts, part)
		}
	}
	s := m.standing(ctx, app)
	switch a := s.policies[name]; {
	case on:
		parts = append(parts, "shadow")
	case a != nil && slices.ContainsFunc(a.texts, onTrial):
		parts = append(parts, "shadow off")
	}
	text = strings.Join(parts, "; ")
	if _, err := core.Parse(text); err != nil {
		return "", &record.InvalidError{Name: name, Err: err}
	}
	return text, nil
}

func onTrial(text string) bool {
	p, err := core.Parse(text)
	return err == nil && p.Options().Shadow
}

// temporaryOf returns what is temporary of the policies of an app, by their names, as a person may see it.
func (m *Manager) temporaryOf(ctx context.Context, who *rights.Person, app string) (map[string][]adminapi.Temporarily, error) {
	all, err := m.o.Record.Temporaries(ctx, app)
	if err != nil {
		return nil, err
	}
	return byName(temporarily(who, app, all)), nil
}

// stuck returns the numbers of temporary changes that could not be ended at their time, by their apps.
func (m *Manager) stuck(ctx context.Context) (map[string]int, error) {
	all, err := m.o.Record.Temporaries(ctx, "")
	if err != nil {
		return nil, err
	}
	stuck := map[string]int{}
	for _, t := range all {
		stuck[t.App]++
	}
	return stuck, nil
}

func byName(all []adminapi.Temporarily) map[string][]adminapi.Temporarily {
	named := map[string][]adminapi.Temporarily{}
	for _, t := range all {
		named[t.Policy] = append(named[t.Policy], t)
	}
	return named
}

// temporarily returns temporary changes as a person may see them: those of keys only if they may look at keys.
func temporarily(who *rights.Person, app string, all []record.Temporary) (out []adminapi.Temporarily) {
	for _, t := range all {
		if t.Key == "" || seesKeys(who, app) {
			out = append(out, adminapi.Temporarily{
				Policy: t.Name, Key: t.Key, Text: t.Text, Former: t.Former, Began: t.Began, Until: t.Ends,
				By: cmp.Or(t.By.Name, t.By.ID), Reason: t.Reason, Why: t.Why,
			})
		}
	}
	return out
}

// current returns a policy of an app as the record has it, with the text of the code if it has none.
func (m *Manager) current(ctx context.Context, app, name string) (*policies.Policy, error) {
	p, _, err := m.o.Record.Policy(ctx, app, name)
	var missing *record.NotFoundError
	if err != nil && (!errors.As(err, &missing) || missing.Owner != "") {
		return nil, err
	}
	if p.Text == "" {
		code, _, err := m.ofCode(ctx, app, name)
		if err != nil {
			return nil, err
		}
		p.Text = code.Text
	}
	return &p, nil
}
