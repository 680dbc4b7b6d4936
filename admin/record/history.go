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
		var deleted bool
		var text string
		err := t.Row(ctx, `SELECT deleted, body FROM weir_versions WHERE app = ? AND name = ? AND revision = ?`,
			app, name, revision).Scan(&deleted, &text)
		if errors.Is(err, sql.ErrNoRows) {
			return &NotFoundError{App: app, Name: name, Revision: revision}
		}
		if err != nil || deleted {
			return err
		}
		policy, err := decode(text)
		p = &policy
		return err
	}, app, name)
	return p, err
}
