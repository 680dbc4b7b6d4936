package manage

import (
	"cmp"
	"context"

	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
)

// Me returns who asks, and what they may do.
func (*Manager) Me(_ context.Context, who *rights.Person) (*adminapi.Me, error) {
	if who == nil {
		return nil, &RightError{Verdict: rights.Hidden, Action: rights.ActionView}
	}
	me := &adminapi.Me{ID: who.ID, Name: who.Name, Token: who.Token, Admin: who.Admin, Roles: map[string]string{}}
	for app, role := range who.Roles {
		me.Roles[app] = role.String()
	}
	return me, nil
}

// limited returns the number of entries that a list has if limit are wanted: 0 are as many as there may be.
func limited(limit int) int {
	if limit <= 0 {
		return adminapi.MaxLimit
	}
	return min(limit, adminapi.MaxLimit)
}

// Apps returns up to limit apps that a person may see, by name, those after a name.
func (m *Manager) Apps(ctx context.Context, who *rights.Person, after string, limit int) (*adminapi.Apps, error) {
	heads, err := m.o.Record.Heads(ctx)
	if err != nil {
		return nil, err
	}
	out := &adminapi.Apps{Apps: []adminapi.App{}}
	for _, h := range heads {
		if len(out.Apps) == limited(limit) {
			break
		}
		if h.App > after && rights.Decide(who, rights.ActionView, h.App) == rights.Allowed {
			out.Apps = append(out.Apps, m.app(who, h))
		}
	}
	return out, nil
}

func (m *Manager) app(who *rights.Person, h record.Head) adminapi.App {
	state := m.o.Publisher.State(h.App)
	return adminapi.App{
		App: h.App, Generation: h.Version.Generation, Revision: h.Version.Revision,
		Published: state.Version == h.Version && state.Alarm == "", Alarm: state.Alarm,
		Role: who.Role(h.App).String(),
	}
}

// Search finds apps and policies by a part of their names, and says whether a text may be a key.
func (*Manager) Search(context.Context, *rights.Person, string) (*adminapi.Found, error) {
	return nil, ErrNotYet
}

// App returns an app on one page.
func (m *Manager) App(ctx context.Context, who *rights.Person, app string) (*adminapi.AppView, error) {
	if err := m.may(who, rights.ActionView, app); err != nil {
		return nil, err
	}
	head, known, err := m.o.Record.Head(ctx, app)
	if err != nil {
		return nil, err
	}
	if !known {
		return nil, &record.NotFoundError{App: app}
	}
	return &adminapi.AppView{App: m.app(who, head), Policies: []adminapi.PolicyView{}}, nil
}

// PutApp makes an app known, or changes its settings.
func (m *Manager) PutApp(ctx context.Context, who *rights.Person, app string, _ adminapi.Settings, w Write) (*adminapi.Written, error) {
	if err := m.may(who, rights.ActionAddApp, app); err != nil {
		return nil, err
	}
	return m.change(ctx, who, record.Change{App: app, Action: "add"}, w)
}

// DeleteApp deletes an app with its policies.
func (m *Manager) DeleteApp(_ context.Context, who *rights.Person, app string, _ Write) (*adminapi.Written, error) {
	if err := m.may(who, rights.ActionDeleteApp, app); err != nil {
		return nil, err
	}
	return nil, ErrNotYet
}

// maxLeap bounds how far processes can raise a generation: somebody has to adopt an app a thousand times for that, and
// after the last number that there is nobody could adopt it any more.
const maxLeap = 1000

// Adopt makes the record's document of an app later than all that its services have seen, after the record was restored
// from a backup or replaced.
func (m *Manager) Adopt(ctx context.Context, who *rights.Person, app string, w Write) (*adminapi.Written, error) {
	if err := m.may(who, rights.ActionAdopt, app); err != nil {
		return nil, err
	}
	head, found, err := m.o.Record.Head(ctx, app)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, &record.NotFoundError{App: app}
	}
	// Later than anything that anybody has seen, so that the processes take it as well.
	known := max(head.Version.Generation, m.o.Publisher.State(app).Version.Generation)
	processes, _, err := m.processes(ctx, app)
	if err != nil {
		return nil, err
	}
	generation := known
	for _, p := range processes {
		if p.Version.Generation > known+maxLeap { // anybody can announce the last number that there is
			m.o.Log.Warn("weir-admin: a process announces a generation that no record has given, and is left out",
				"app", app, "process", cmp.Or(p.Name, p.ID), "version", p.Version.String())
			continue
		}
		generation = max(generation, p.Version.Generation)
	}
	return m.change(ctx, who, record.Change{App: app, Action: "adopt", Generation: generation}, w)
}

// Grants returns the rights on an app.
func (m *Manager) Grants(_ context.Context, who *rights.Person, app string) (*adminapi.Grants, int64, error) {
	if err := m.may(who, rights.ActionView, app); err != nil {
		return nil, 0, err
	}
	return nil, 0, ErrNotYet
}

// PutGrants makes the rights on an app those of a list.
func (m *Manager) PutGrants(_ context.Context, who *rights.Person, app string, _ []adminapi.Grant, _ Write) (*adminapi.Grants, int64, error) {
	action := rights.ActionGrant
	if app == policies.AllApps {
		action = rights.ActionGroups
	}
	if err := m.may(who, action, app); err != nil {
		return nil, 0, err
	}
	return nil, 0, ErrNotYet
}
