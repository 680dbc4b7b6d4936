package manage

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/record"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/internal/adminapi"
)

func settingsOf(s record.Settings) adminapi.Settings { return adminapi.Settings(s) }

// Settings returns the settings of an app that a person may see. It is much less work than App, of which they are a part.
func (m *Manager) Settings(ctx context.Context, who *rights.Person, app string) (adminapi.Settings, error) {
	if err := m.may(who, rights.ActionView, app); err != nil {
		return adminapi.Settings{}, err
	}
	state, err := m.o.Record.State(ctx, app)
	switch {
	case err == nil:
		return settingsOf(state.Settings), nil
	case !notFound(err) || !who.Admin:
		return adminapi.Settings{}, err
	}
	_, known, other := m.o.Record.Head(ctx, app)
	if s := m.standing(ctx, app); other != nil || known || s.processes == 0 { // it is deleted, or it is nowhere
		return adminapi.Settings{}, cmp.Or(other, err)
	}
	return adminapi.Settings{}, nil // processes announce an app that nobody has made known
}

// PutApp makes an app known, or changes its settings. Prefixes of counts are an admin's.
func (m *Manager) PutApp(
	ctx context.Context, who *rights.Person, app string, s adminapi.Settings, w Write,
) (*adminapi.Written, error) {
	if err := m.may(who, rights.ActionSettings, app); err != nil {
		return nil, err
	}
	expect, err := w.expect()
	if err != nil {
		return nil, err
	}
	a := rights.ActionSettings
	state, err := m.o.Record.State(ctx, app)
	switch {
	case notFound(err):
		a = rights.ActionAddApp
	case err != nil:
		return nil, err
	case !slices.Equal(state.Settings.Counts, slices.Compact(slices.Sorted(slices.Values(s.Counts)))):
		if a = rights.ActionAddApp; m.may(who, a, app) != nil {
			return nil, refusal(http.StatusForbidden, "the prefixes under which app %q counts are an admin's to change; leave them as they are", app)
		}
		if w.Any { // they would be those of another moment
			expect.Revision = state.Revision
		}
	}
	if err := m.may(who, a, app); err != nil {
		return nil, err
	}
	if a != rights.ActionAddApp && w.Any {
		expect.Revision = state.Revision // the prefixes of this moment are written
	}
	needed := a
	if who.Admin { // no second person is asked, and so they must be one still
		needed = rights.ActionAddApp
	}
	return m.change(ctx, who, record.Change{
		App: app, Action: string(a), Permit: m.permit(who, needed, app), Reviewed: who.Admin,
		Settings: &record.SettingsEdit{Settings: record.Settings(s), Expect: expect},
	}, w)
}

// DeleteApp deletes an app with its policies, its grants and its proposals, unless a process announces it or another app
// lends it a policy. Its history stays.
func (m *Manager) DeleteApp(ctx context.Context, who *rights.Person, app string, w Write) (*adminapi.Written, error) {
	if err := m.may(who, rights.ActionDeleteApp, app); err != nil {
		return nil, err
	}
	expect, err := w.expect()
	if err != nil {
		return nil, err
	}
	if err := w.reasoned(); err != nil {
		return nil, err
	}
	if _, err := m.o.Record.State(ctx, app); err != nil {
		return nil, err
	}
	processes, _, err := m.processes(ctx, app)
	switch {
	case err != nil:
		return nil, err
	case len(processes) > 0:
		return nil, refusal(http.StatusConflict, "%d processes of app %q still announce themselves; stop them first", len(processes), app)
	}
	c := record.Change{
		App: app, Action: string(rights.ActionDeleteApp), Permit: m.permit(who, rights.ActionDeleteApp, app),
		Delete: true, Expect: expect,
	}
	if m.o.People != nil {
		c.Also = func(ctx context.Context, t *sqldb.Change) error {
			_, err := m.o.People.SetGrantsIn(ctx, t, m.author(who, rights.ActionDeleteApp, w.Reason, app), app, nil, people.Any)
			return err
		}
	}
	return m.change(ctx, who, c, w)
}
