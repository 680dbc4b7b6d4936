package record

import (
	"context"
	"time"

	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/core/policies"
)

// Use is a policy that an app uses.
type Use struct {
	Name     string
	Owner    string // the app to which it belongs: the app itself, another one that lends it, or "*"
	Revision int64  // that of the policy
	Policy   policies.Policy
}

// Uses returns the policies that an app uses, by name: its own, those that others lend it, and those of all apps whose
// names it has not.
func (r *Record) Uses(ctx context.Context, app string) (map[string]Use, error) {
	uses := map[string]Use{}
	err := r.readingOf(ctx, func(ctx context.Context, t sqldb.Tx) error {
		return t.Each(ctx, func(row sqldb.Row) error {
			var user, text string
			var u Use
			if err := row.Scan(&user, &u.Name, &u.Owner, &u.Revision, &text); err != nil {
				return err
			}
			if _, own := uses[u.Name]; own && user != app {
				return nil
			}
			var err error
			u.Policy, err = decode(text)
			uses[u.Name] = u
			return err
		}, `SELECT u.app, u.name, u.owner, p.revision, p.body FROM weir_users u
			JOIN weir_policies p ON p.app = u.owner AND p.name = u.name AND p.deleted = 0
			WHERE u.app = ? OR u.app = '*'`, app)
	}, app)
	return uses, err
}

// Last returns the last version of each policy that belongs to an app and was not deleted, by name, without the policies
// themselves.
func (r *Record) Last(ctx context.Context, app string) (map[string]Past, error) {
	last := map[string]Past{}
	err := r.readingOf(ctx, func(ctx context.Context, t sqldb.Tx) error {
		return t.Each(ctx, func(row sqldb.Row) error {
			var name string
			var p Past
			var at int64
			err := row.Scan(&name, &p.Revision, &at, &p.By.ID, &p.By.Name, &p.Reason, &p.Action, &p.Forced)
			p.At = time.UnixMicro(at).UTC()
			last[name] = p
			return err
		}, `SELECT v.name, v.revision, v.at, v.person, v.shown, v.reason, v.action, v.forced FROM weir_versions v
			JOIN weir_policies p ON p.app = v.app AND p.name = v.name AND p.revision = v.revision AND p.deleted = 0
			WHERE v.app = ?`, app)
	}, app)
	return last, err
}

// Names returns the names of the policies that belong to each app, in no order.
func (r *Record) Names(ctx context.Context) (map[string][]string, error) {
	names := map[string][]string{}
	err := r.db.Read(ctx, func(ctx context.Context, t sqldb.Tx) error {
		return t.Each(ctx, func(row sqldb.Row) error {
			var app, name string
			err := row.Scan(&app, &name)
			names[app] = append(names[app], name)
			return err
		}, `SELECT app, name FROM weir_policies WHERE deleted = 0`)
	})
	return names, err
}
