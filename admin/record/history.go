package record

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/core/policies"
)

// Past is a version of a policy.
type Past struct {
	Revision int64
	At       time.Time
	By       audit.Person
	Reason   string
	Action   string
	Forced   bool
	Policy   *policies.Policy // nil if the version is that there is none
}

// History returns up to limit versions of a policy that belongs to an app, before a revision, the latest first. 0 is
// before all.
func (r *Record) History(ctx context.Context, app, name string, before int64, limit int) ([]Past, error) {
	var all []Past
	err := r.readingOf(ctx, func(ctx context.Context, t sqldb.Tx) error {
		return t.Each(ctx, func(row sqldb.Row) error {
			var p Past
			var at int64
			var deleted bool
			var text string
			if err := row.Scan(&p.Revision, &deleted, &text, &at, &p.By.ID, &p.By.Name, &p.Reason, &p.Action, &p.Forced); err != nil {
				return err
			}
			p.At = time.UnixMicro(at).UTC()
			if !deleted {
				policy, err := decode(text)
				if err != nil {
					return err
				}
				p.Policy = &policy
			}
			all = append(all, p)
			return nil
		}, `SELECT revision, deleted, body, at, person, shown, reason, action, forced FROM weir_versions
			WHERE app = ? AND name = ? AND (? = 0 OR revision < ?) ORDER BY revision DESC LIMIT ?`,
			app, name, before, before, limit)
	}, app, name)
	return all, err
}

// Version returns a policy as a revision has written it, nil if that has deleted it. The error is a *NotFoundError if
// it has not written it.
func (r *Record) Version(ctx context.Context, app, name string, revision int64) (p *policies.Policy, err error) {
	err = r.readingOf(ctx, func(ctx context.Context, t sqldb.Tx) error {
		p, err = versionOf(ctx, t, app, name, revision)
		return err
	}, app, name)
	return p, err
}

func versionOf(ctx context.Context, t sqldb.Tx, app, name string, revision int64) (*policies.Policy, error) {
	var deleted bool
	var text string
	err := t.Row(ctx, `SELECT deleted, body FROM weir_versions WHERE app = ? AND name = ? AND revision = ?`,
		app, name, revision).Scan(&deleted, &text)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, &NotFoundError{App: app, Name: name, Revision: revision}
	}
	if err != nil || deleted {
		return nil, err
	}
	p, err := decode(text)
	return &p, err
}

// Back returns the edits that make the policies of an app what they were after a revision: those that it has had then,
// and deletions of those that it has not. The error is a *NotFoundError if the app had no policy then.
func (r *Record) Back(ctx context.Context, app string, revision int64) (edits []Edit, err error) {
	err = r.readingOf(ctx, func(ctx context.Context, t sqldb.Tx) error {
		then := map[string]*policies.Policy{}
		if err := t.Each(ctx, func(row sqldb.Row) error {
			var name, text string
			var deleted bool
			if err := row.Scan(&name, &deleted, &text); err != nil || deleted {
				return err
			}
			p, err := decode(text)
			then[name] = &p
			return err
		}, `SELECT v.name, v.deleted, v.body FROM weir_versions v JOIN (SELECT name, MAX(revision) AS revision FROM weir_versions
			WHERE app = ? AND name <> '' AND revision <= ? GROUP BY name) AS latest
			ON v.name = latest.name AND v.revision = latest.revision WHERE v.app = ?`, app, revision, app); err != nil {
			return err
		}
		var known int
		if err := t.Row(ctx, `SELECT COUNT(*) FROM weir_versions WHERE app = ? AND revision <= ?`, app, revision).
			Scan(&known); err != nil {
			return err
		}
		head, _, err := headOf(ctx, t, app)
		if err != nil {
			return err
		}
		if known == 0 || revision > head.Version.Revision {
			return &NotFoundError{App: app, Revision: revision}
		}
		now := map[string]policies.Policy{}
		if err := ownedBy(ctx, t, app, now); err != nil {
			return err
		}
		for name := range now {
			if then[name] == nil {
				then[name] = nil // it is deleted
			}
		}
		for _, name := range sortedNames(then) {
			edits = append(edits, Edit{Name: name, Policy: then[name]})
		}
		return nil
	}, app)
	return edits, err
}
