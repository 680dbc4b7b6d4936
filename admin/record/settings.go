package record

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/core/policies"
)

// Settings are those of an app.
type Settings struct {
	Title string `json:"title,omitempty"` // a name for people
	// FourEyes reports whether a change of a policy that the app uses needs the approval of another person.
	FourEyes bool `json:"fourEyes,omitempty"`
	// KeptBy is the place of the files from which the policies of the app are written, "" if people write them here.
	// Nothing but an emergency, a temporary change and what comes from the files is written then.
	KeptBy string `json:"keptBy,omitempty"`
	// KeptByToken is the number of the token that writes them, whose changes need no approval; 0 is none.
	KeptByToken int64 `json:"keptByToken,omitempty"`
	// Counts are the prefixes of stores in which processes of the app count.
	Counts []string `json:"counts,omitempty"`
}

// SettingsEdit is a change of the settings of an app, or of an app that the record does not know yet.
type SettingsEdit struct {
	Settings Settings `json:"settings"`
	// Expect is the State.Revision that was read. Absent is that of an app that is not there, or deleted.
	Expect Expect `json:"expect,omitzero"`
}

// State is an app beside its policies.
type State struct {
	Settings Settings
	Revision int64 // of the settings; 0 if they were never written
	Deleted  bool
}

// Bounds of settings.
const (
	maxLine   = 200 // bytes
	maxCounts = 32
)

func (e *SettingsEdit) check() error {
	if e == nil {
		return nil
	}
	s := &e.Settings
	for of, line := range map[string]string{"title": s.Title, "place of the files": s.KeptBy} {
		if len(line) > maxLine || !utf8.ValidString(line) || strings.ContainsFunc(line, unicode.IsControl) {
			return fmt.Errorf("found the %s %.100q; give one line of at most %d bytes", of, line, maxLine)
		}
	}
	if len(s.Counts) > maxCounts {
		return fmt.Errorf("found %d prefixes; give at most %d", len(s.Counts), maxCounts)
	}
	for _, prefix := range s.Counts {
		if prefix == "" || len(prefix) > maxLine || !utf8.ValidString(prefix) || strings.ContainsFunc(prefix, unicode.IsControl) {
			return fmt.Errorf("found the prefix %.100q; give 1 to %d bytes of text", prefix, maxLine)
		}
	}
	s.Counts = slices.Compact(slices.Sorted(slices.Values(s.Counts)))
	return nil
}

// App is an app that the record knows.
type App struct {
	Head
	State
}

// Apps returns the apps that are not deleted, by name, without [policies.AllApps].
func (r *Record) Apps(ctx context.Context) (all []App, err error) {
	err = r.db.Read(ctx, func(ctx context.Context, t sqldb.Tx) error {
		return t.Each(ctx, func(row sqldb.Row) error {
			var a App
			var counts string
			err := row.Scan(&a.App, &a.Version.Generation, &a.Version.Revision, &a.Digest, &a.Settings.Title, &a.Settings.FourEyes,
				&a.Settings.KeptBy, &a.Settings.KeptByToken, &counts, &a.Revision)
			if err == nil {
				a.Settings.Counts, err = decodeCounts(counts)
			}
			all = append(all, a)
			return err
		}, `SELECT app, generation, revision, digest, title, four_eyes, kept_by, kept_by_token, counts, settings FROM weir_apps
			WHERE app <> '*' AND deleted = 0 ORDER BY app`)
	})
	return all, err
}

// State returns an app beside its policies. The error is a *NotFoundError if the record does not know it, or it is
// deleted.
func (r *Record) State(ctx context.Context, app string) (s State, err error) {
	err = r.readingOf(ctx, func(ctx context.Context, t sqldb.Tx) error {
		_, known, err := headOf(ctx, t, app)
		if err != nil {
			return err
		}
		s, err = stateOf(ctx, t, app)
		if err == nil && (!known || s.Deleted) {
			err = &NotFoundError{App: app}
		}
		return err
	}, app)
	return s, err
}

// stateOf returns the zero State of an app that the record does not know.
func stateOf(ctx context.Context, t sqldb.Tx, app string) (s State, err error) {
	var counts string
	err = t.Row(ctx, `SELECT title, four_eyes, kept_by, kept_by_token, counts, settings, deleted FROM weir_apps WHERE app = ?`, app).
		Scan(&s.Settings.Title, &s.Settings.FourEyes, &s.Settings.KeptBy, &s.Settings.KeptByToken, &counts, &s.Revision, &s.Deleted)
	if errors.Is(err, sql.ErrNoRows) {
		return State{}, nil
	}
	if err == nil {
		s.Settings.Counts, err = decodeCounts(counts)
	}
	return s, err
}

func decodeCounts(text string) (counts []string, err error) {
	if text == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(text), &counts); err != nil {
		return nil, fmt.Errorf("the prefixes of an app in the database are %.100q: %w", text, err)
	}
	return counts, nil
}

// permit asks Permit for a change that concerns apps, and refuses one that needs another person's approval, or that
// comes from elsewhere than the files that the app is kept by. What ends by itself needs neither.
func (w *writer) permit(ctx context.Context, name string, apps []string, ordinary bool) error {
	c := w.change
	if c.Permit != nil {
		if w.verdict == nil {
			verdict, err := c.Permit(ctx, w.Tx)
			if err != nil {
				return err
			}
			w.verdict = verdict
		}
		if err := w.verdict(name, apps); err != nil {
			return err
		}
	}
	if !ordinary || c.Emergency && name != "" || c.Delete { // an end of four eyes is no emergency
		return nil
	}
	if err := w.guards(ctx); err != nil {
		return err
	}
	if by := w.guarded[c.App].keptBy; by != "" && !c.FromFiles && name != "" {
		return &KeptError{App: c.App, By: by}
	}
	if asking := w.asking(apps); len(asking) > 0 {
		return &ReviewError{Apps: asking}
	}
	return nil
}

// guard has the settings of an app that keep one person from changing its policies.
type guard struct {
	fourEyes bool
	keptBy   string
	token    int64
}

// guards reads the apps that are guarded, by one query, however many apps use a policy.
func (w *writer) guards(ctx context.Context) error {
	if w.guarded != nil {
		return nil
	}
	w.guarded = map[string]guard{}
	return w.Each(ctx, func(row sqldb.Row) error {
		var app string
		var g guard
		err := row.Scan(&app, &g.fourEyes, &g.keptBy, &g.token)
		w.guarded[app] = g
		return err
	}, `SELECT app, four_eyes, kept_by, kept_by_token FROM weir_apps WHERE four_eyes = 1 OR kept_by <> ''`)
}

// asking returns those of some apps that ask for the approval of another person. The files of one app are no reason to
// pass over another one, which its policies may name.
func (w *writer) asking(apps []string) (asking []string) {
	for _, app := range apps {
		g := w.guarded[app]
		fromFiles := g.keptBy != "" && w.change.Token != 0 && w.change.Token == g.token
		if g.fourEyes && !w.change.Reviewed && !fromFiles {
			asking = append(asking, app)
		}
	}
	return asking
}

// alone gives a temporary change of one person in an app of four eyes the bounds of an operator: an owner would not need
// the other one otherwise, but for the end in a year.
func (w *writer) alone(ctx context.Context, e *Edit, before *policies.Policy) error {
	if e.Until.IsZero() || e.Operator || w.change.Emergency {
		return nil
	}
	if err := w.guards(ctx); err != nil {
		return err
	}
	if len(w.asking(w.change.users(before))) > 0 {
		e.Operator = true
	}
	return nil
}

// settings writes the settings of an app, which has its row. state is the state before.
func (w *writer) settings(ctx context.Context, state *State) error {
	c, e := w.change, w.change.Settings
	current := state.Revision
	if e.Expect.Absent && current != 0 && !state.Deleted || e.Expect.Revision != 0 && e.Expect.Revision != current {
		return w.stale(ctx, "", e.Expect.Revision, current)
	}
	was, is := state.Settings, e.Settings
	if was.Title == is.Title && was.FourEyes == is.FourEyes && was.KeptBy == is.KeptBy && was.KeptByToken == is.KeptByToken &&
		slices.Equal(was.Counts, is.Counts) && !state.Deleted && current != 0 {
		return nil
	}
	// A title and prefixes are no second person's business, but the rest would be a way around them.
	ordinary := current != 0 && (was.FourEyes != is.FourEyes || was.KeptBy != is.KeptBy || was.KeptByToken != is.KeptByToken)
	if err := w.permit(ctx, "", []string{c.App}, ordinary); err != nil {
		return err
	}
	counts := ""
	if len(is.Counts) > 0 {
		data, err := json.Marshal(is.Counts)
		if err != nil {
			return err
		}
		counts = string(data)
	}
	w.outcome.Settings = w.Revision()
	if _, err := w.Exec(ctx, `UPDATE weir_apps SET title = ?, four_eyes = ?, kept_by = ?, kept_by_token = ?, counts = ?,
		settings = ?, deleted = 0 WHERE app = ?`, is.Title, bit(is.FourEyes), is.KeptBy, is.KeptByToken, counts, w.Revision(),
		c.App); err != nil {
		return err
	}
	detail, err := json.Marshal(map[string][2]Settings{"settings": {was, is}})
	if err != nil {
		return err
	}
	if len(detail) > audit.MaxDetail {
		detail = []byte(`{"cut":true}`)
	}
	return w.appRow(ctx, state.Revision, string(detail))
}

// appRow writes the rows of the history and of the audit for a change of the app itself.
func (w *writer) appRow(ctx context.Context, was int64, detail string) error {
	c := w.change
	if _, err := w.Exec(ctx, `INSERT INTO weir_versions (app, name, revision, deleted, body, at, person, shown, reason, action,
		forced) VALUES (?, '', ?, 1, '', ?, ?, ?, ?, ?, ?)`, c.App, w.Revision(), w.at.UnixMicro(), c.By.ID, c.By.Name,
		c.Reason, c.Action, bit(c.Force)); err != nil {
		return err
	}
	return w.log.Append(ctx, w.Change, audit.Row{
		At: w.at, By: c.By, App: c.App, Action: c.Action, Reason: c.Reason, Revision: w.Revision(), Was: was,
		Forced: c.Force, Emergency: c.Emergency, Detail: detail,
	})
}

// deleteApp deletes what belongs to an app, but for its rights. It is published once more, without policies.
func (w *writer) deleteApp(ctx context.Context, state *State) error {
	c := w.change
	if c.App == policies.AllApps {
		return &InvalidError{Err: fmt.Errorf("%q stands for all apps and cannot be deleted; delete its policies", c.App)}
	}
	if e := c.Expect; (e.Absent || e.Revision != 0) && e.Revision != state.Revision {
		return w.stale(ctx, "", e.Revision, state.Revision)
	}
	var lent TakenError
	err := w.Row(ctx, `SELECT app, name, owner FROM weir_users WHERE app = ? AND owner <> ? ORDER BY name LIMIT 1`, c.App, c.App).
		Scan(&lent.App, &lent.Name, &lent.Owner)
	if err == nil {
		return &lent
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if err := w.permit(ctx, "", []string{c.App}, false); err != nil {
		return err
	}
	owned := map[string]policies.Policy{}
	if err := ownedBy(ctx, w.Tx, c.App, owned); err != nil {
		return err
	}
	c.Edits = nil
	for _, name := range sortedNames(owned) {
		c.Edits = append(c.Edits, Edit{Name: name})
	}
	if err := w.endProposals(ctx, c.App, "the app was deleted"); err != nil {
		return err
	}
	if _, err := w.Exec(ctx, `UPDATE weir_apps SET deleted = 1, four_eyes = 0, kept_by = '', kept_by_token = 0, counts = '',
		settings = ? WHERE app = ?`, w.Revision(), c.App); err != nil {
		return err
	}
	w.affected[c.App] = true
	return w.appRow(ctx, state.Revision, "")
}
