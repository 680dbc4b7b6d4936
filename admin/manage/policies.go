package manage

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

// Held is a policy as the record has it.
type Held struct {
	adminapi.Held
	// Temporary are the changes of it that end by themselves.
	Temporary []adminapi.Temporarily `json:"temporary,omitempty"`
	// KeyCount is the number of keys with numbers of their own, for those who may not see the keys.
	KeyCount int `json:"keyCount,omitempty"`
}

// Document returns the document of an app as it is published, and the revision of the app. With owned it has only the
// policies that belong to the app, with the further apps of each, as Apply takes them. It leaves out keys of policies at
// whose keys the person may not look.
func (m *Manager) Document(ctx context.Context, who *rights.Person, app string, owned bool) (encoded []byte, revision int64, err error) {
	if err := m.may(who, rights.ActionView, app); err != nil {
		return nil, 0, err
	}
	// The revision is read first: a change that comes between is refused when they are applied again, and not undone.
	head, known, err := m.o.Record.Head(ctx, app)
	if err != nil {
		return nil, 0, err
	}
	if !known || app == policies.AllApps && !owned {
		return nil, 0, &record.NotFoundError{App: app}
	}
	uses, err := m.o.Record.Uses(ctx, app)
	if err != nil {
		return nil, 0, err
	}
	document := policies.Document{App: app, Version: head.Version, Policies: map[string]policies.Policy{}}
	for name, u := range uses {
		if owned && u.Owner != app {
			continue
		}
		p := policyFor(who, u.Owner, u.Policy).Value()
		if !owned {
			p.Apps = nil
		}
		document.Policies[name] = p
	}
	encoded, err = document.Encode()
	return encoded, head.Version.Revision, err
}

// Policy returns a policy that belongs to an app.
func (m *Manager) Policy(ctx context.Context, who *rights.Person, app, name string) (*Held, error) {
	if err := m.may(who, rights.ActionView, app); err != nil {
		return nil, err
	}
	p, revision, err := m.o.Record.Policy(ctx, app, name)
	if err != nil {
		return nil, m.shown(who, app, err)
	}
	temporary, err := m.temporaryOf(ctx, who, app)
	if err != nil {
		return nil, err
	}
	held := heldFor(who, app, name, revision, p)
	held.Temporary = temporary[name]
	return &held, nil
}

// heldFor returns a policy that belongs to an app as a person may see it.
func heldFor(who *rights.Person, app, name string, revision int64, p policies.Policy) Held {
	return Held{
		Held:     adminapi.Held{App: app, Name: name, Revision: revision, Policy: policyFor(who, app, p)},
		KeyCount: len(p.Keys),
	}
}

// PutPolicy writes a policy. The right is needed on each app that it names, or has named.
func (m *Manager) PutPolicy(ctx context.Context, who *rights.Person, app, name string, p adminapi.Policy, w Write) (*adminapi.Written, error) {
	apps := append([]string{app}, p.Apps...)
	if err := m.may(who, rights.ActionWrite, apps...); err != nil {
		return nil, err
	}
	expect, err := w.expect()
	if err != nil {
		return nil, err
	}
	value := p.Value()
	return m.change(ctx, who, record.Change{
		App: app, Action: "set", Permit: m.permit(who, rights.ActionWrite, apps...),
		Edits: []record.Edit{{Name: name, Policy: &value, Expect: expect}},
	}, w)
}

// DeletePolicy deletes a policy: the code's holds again.
func (m *Manager) DeletePolicy(ctx context.Context, who *rights.Person, app, name string, w Write) (*adminapi.Written, error) {
	if err := m.may(who, rights.ActionDelete, app); err != nil {
		return nil, err
	}
	expect, err := w.expect()
	if err != nil {
		return nil, err
	}
	return m.change(ctx, who, record.Change{
		App: app, Action: "delete", Permit: m.permit(who, rights.ActionDelete, app),
		Edits: []record.Edit{{Name: name, Expect: expect}},
	}, w)
}

// DecodePolicy reads a policy from JSON, with the places of its mistakes.
func DecodePolicy(data []byte, name string) (adminapi.Policy, error) {
	p, err := policies.DecodePolicy(data, name)
	if err != nil {
		return adminapi.Policy{}, &record.InvalidError{Name: name, Err: err}
	}
	return adminapi.PolicyOf(p), nil
}

// maxHistory bounds the versions of one answer.
const maxHistory = 100

// History returns up to limit versions of a policy before a revision, the latest first. 0 of either are the latest 100.
func (m *Manager) History(ctx context.Context, who *rights.Person, app, name string, before int64, limit int) (*adminapi.History, error) {
	if err := m.may(who, rights.ActionView, app); err != nil {
		return nil, err
	}
	if limit <= 0 || limit > adminapi.MaxLimit {
		limit = maxHistory
	}
	versions, err := m.o.Record.History(ctx, app, name, before, limit)
	if err != nil {
		return nil, err
	}
	out := &adminapi.History{Versions: []adminapi.Past{}}
	for _, v := range versions {
		out.Versions = append(out.Versions, pastOf(who, app, v))
	}
	return out, nil
}

// pastOf returns a version of a policy of an app as a person may see it.
func pastOf(who *rights.Person, app string, v record.Past) adminapi.Past {
	return adminapi.Past{
		Revision: v.Revision, At: v.At, Who: v.By.Name, Reason: v.Reason, Action: v.Action, Forced: v.Forced,
		Policy: pastFor(who, app, v.Policy),
	}
}

// Rollback writes the version of a policy that a revision has.
func (m *Manager) Rollback(ctx context.Context, who *rights.Person, app, name string, to int64, w Write) (*adminapi.Written, error) {
	if err := m.may(who, rights.ActionWrite, app); err != nil {
		return nil, err
	}
	expect, err := w.expect()
	if err != nil {
		return nil, err
	}
	p, err := m.o.Record.Version(ctx, app, name, to)
	if err != nil {
		return nil, err
	}
	return m.change(ctx, who, record.Change{
		App: app, Action: "rollback", Permit: m.permit(who, rights.ActionWrite, app),
		Back:  true, // to the epoch of that version as well: somebody asked for it
		Edits: []record.Edit{{Name: name, Policy: p, Expect: expect}},
	}, w)
}

// RollbackApp makes all policies of an app what they were at a revision. A dry one only says what would differ.
func (m *Manager) RollbackApp(
	ctx context.Context, who *rights.Person, app string, to int64, dry bool, w Write,
) (*adminapi.Written, error) {
	if err := m.may(who, rights.ActionWrite, app); err != nil {
		return nil, err
	}
	expect, err := w.expect()
	if err != nil {
		return nil, err
	}
	if expect.Absent {
		return nil, refusal(http.StatusBadRequest, `found "If-None-Match"; send "If-Match" with the revision of the app's document`)
	}
	edits, err := m.o.Record.Back(ctx, app, to)
	if err != nil {
		return nil, err
	}
	return m.change(ctx, who, record.Change{
		App: app, Action: "rollback", Revision: expect.Revision, Back: true, Edits: edits, Dry: dry,
		Permit: m.permit(who, rights.ActionWrite, app),
	}, w)
}

// TakeOver writes a limit that only the code of the services has into the record, as it is.
func (m *Manager) TakeOver(ctx context.Context, who *rights.Person, app, name string, w Write) (*adminapi.Written, error) {
	if err := m.may(who, rights.ActionWrite, app); err != nil {
		return nil, err
	}
	p, err := m.taken(ctx, app, name)
	if err != nil {
		return nil, err
	}
	return m.change(ctx, who, record.Change{
		App: app, Action: "take-over", Permit: m.permit(who, rights.ActionWrite, app),
		Edits: []record.Edit{{Name: name, Policy: p, Expect: record.Expect{Absent: true}}},
	}, w)
}

// CodeOf returns the policy that TakeOver would write: that of the code of an app's processes.
func (m *Manager) CodeOf(ctx context.Context, who *rights.Person, app, name string) (*adminapi.Policy, error) {
	if err := m.may(who, rights.ActionView, app); err != nil {
		return nil, err
	}
	p, err := m.taken(ctx, app, name)
	if err != nil {
		return nil, err
	}
	out := adminapi.PolicyOf(*p)
	return &out, nil
}

// taken returns the policy of the code, unless its tiers are those of some processes alone, which would hold for all.
func (m *Manager) taken(ctx context.Context, app, name string) (*policies.Policy, error) {
	p, mixed, err := m.ofCode(ctx, app, name)
	if err == nil && mixed {
		err = refusal(http.StatusConflict, "processes of app %q have different tiers of the policy %q in their code, or no room to announce them; "+
			"write those that shall hold", app, name)
	}
	return p, err
}

// ofCode returns a policy as the code of all processes of an app has it. mixed reports that they differ in their tiers, of
// which it has those of one.
func (m *Manager) ofCode(ctx context.Context, app, name string) (p *policies.Policy, mixed bool, err error) {
	s := m.standing(ctx, app)
	if s.failed != nil {
		return nil, false, refusal(http.StatusServiceUnavailable, "the processes could not be read from Redis: %v; try again", s.failed)
	}
	a := s.policies[name]
	switch {
	case a == nil || len(a.texts) == 0:
		return nil, false, refusal(http.StatusNotFound, "no process of app %q has a policy %q in its code; weir services lists what they have", app, name)
	case len(a.texts) > 1:
		return nil, false, refusal(http.StatusConflict, "processes of app %q have different texts of the policy %q in their code: %.200q; write the one that shall hold",
			app, name, a.texts)
	}
	code, err := core.Parse(a.texts[0])
	if err != nil {
		return nil, false, refusal(http.StatusConflict, "the processes of app %q announce a policy %q that is none: %v", app, name, err)
	}
	unnamed, err := core.NewPolicy("", code.Options(), code.Limits()...)
	if err != nil {
		return nil, false, err
	}
	return &policies.Policy{Text: unnamed.String(), Tiers: a.tiers}, a.mixed, nil
}

// Apply makes the policies of the app that a document names those of the document, all in one change. With prune those
// that it does not have are deleted, and with dry nothing is written.
func (m *Manager) Apply(ctx context.Context, who *rights.Person, data []byte, dry, prune bool, w Write) (*adminapi.Written, error) {
	document, err := policies.Decode(data)
	if err != nil {
		return nil, &record.InvalidError{Err: err}
	}
	app := document.App
	if app == "" {
		return nil, refusal(http.StatusUnprocessableEntity, `the document names no app; give it one, as in "app": "pay"`)
	}
	apps := []string{app}
	for _, p := range document.Policies {
		apps = append(apps, p.Apps...)
	}
	if err := m.may(who, rights.ActionWrite, apps...); err != nil {
		return nil, err
	}
	expect, err := w.expect()
	if err != nil {
		return nil, err
	}
	if expect.Absent {
		return nil, refusal(http.StatusBadRequest, `found "If-None-Match"; send "If-Match" with the revision of the app, or with *`)
	}
	var owned map[string]policies.Policy
	if prune {
		if owned, err = m.o.Record.Owned(ctx, app); err != nil {
			return nil, err
		}
	}
	c := record.Change{
		App: app, Action: "apply", Revision: expect.Revision, Dry: dry, Permit: m.permit(who, rights.ActionWrite, apps...),
		Beneath: true, FromFiles: who.Token != 0, Token: who.Token,
	}
	for _, name := range slices.Sorted(maps.Keys(document.Policies)) {
		p := document.Policies[name]
		c.Edits = append(c.Edits, record.Edit{Name: name, Policy: &p})
	}
	for _, name := range slices.Sorted(maps.Keys(owned)) {
		if _, kept := document.Policies[name]; !kept {
			c.Edits = append(c.Edits, record.Edit{Name: name})
		}
	}
	return m.change(ctx, who, c, w)
}

// Trial lets a policy only count what it would refuse, or refuse again. An operator gives until, at which the former
// text holds again, at most a week from now.
func (m *Manager) Trial(ctx context.Context, who *rights.Person, app, name string, on bool, until time.Time, w Write) (*adminapi.Written, error) {
	if !until.IsZero() {
		return m.SetTemporary(ctx, who, app, name, Temporary{Trial: &on, Until: until}, w)
	}
	if err := m.may(who, rights.ActionTrial, app); err != nil {
		return nil, err
	}
	if err := m.may(who, rights.ActionWrite, app); err != nil {
		return nil, refusal(http.StatusForbidden, "an operator of app %q gives the end of a trial, which is at most a week from now", app)
	}
	expect, err := w.expect()
	if err != nil {
		return nil, err
	}
	p, err := m.tried(ctx, who, app, name, on)
	if err != nil {
		return nil, err
	}
	return m.change(ctx, who, record.Change{
		App: app, Action: "trial", Permit: m.permit(who, rights.ActionWrite, app),
		Edits: []record.Edit{{Name: name, Policy: p, Expect: expect}},
	}, w)
}
