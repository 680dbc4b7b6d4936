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

// Bounds of a record.
const (
	MaxPolicies = 10_000 // of all apps
	MaxApps     = 1000   // that the record knows
)

// Record is a database of policies. It is safe for concurrent use, and several processes may use one database.
type Record struct {
	db  *sqldb.DB
	log *audit.Log
	now func() time.Time
}

// New returns the record in a database, whose changes are in the audit.
func New(db *sqldb.DB, log *audit.Log) *Record { return &Record{db: db, log: log, now: log.Now} }

// readingOf is [sqldb.DB.Read] for what belongs to an app, and to a policy of it if names has one. A name that none can have is
// not sent to the database, which may not even have it as a text.
func (r *Record) readingOf(ctx context.Context, do func(context.Context, sqldb.Tx) error, app string, names ...string) error {
	if app != policies.AllApps && policies.CheckApp(app) != nil {
		return &NotFoundError{App: app}
	}
	for _, name := range names {
		if policies.CheckName(name) != nil {
			return &NotFoundError{App: app, Name: name}
		}
	}
	return r.db.Read(ctx, do)
}

// Head names the document of an app that holds.
type Head struct {
	App     string
	Version policies.Version
	Digest  string // SHA-256 of the encoded document, in hexadecimal digits
}

// Heads returns those of all apps but [policies.AllApps].
func (r *Record) Heads(ctx context.Context) ([]Head, error) {
	var heads []Head
	err := r.db.Read(ctx, func(ctx context.Context, t sqldb.Tx) error {
		return t.Each(ctx, func(row sqldb.Row) error {
			var h Head
			err := row.Scan(&h.App, &h.Version.Generation, &h.Version.Revision, &h.Digest)
			heads = append(heads, h)
			return err
		}, `SELECT app, generation, revision, digest FROM weir_apps WHERE app <> '*' ORDER BY app`)
	})
	return heads, err
}

// Head returns that of an app, and whether the record knows the app.
func (r *Record) Head(ctx context.Context, app string) (h Head, known bool, err error) {
	err = r.readingOf(ctx, func(ctx context.Context, t sqldb.Tx) error {
		h, known, err = headOf(ctx, t, app)
		return err
	}, app)
	if errors.As(err, new(*NotFoundError)) {
		return h, false, nil
	}
	return h, known, err
}

func headOf(ctx context.Context, t sqldb.Tx, app string) (h Head, known bool, err error) {
	h.App = app
	err = t.Row(ctx, `SELECT generation, revision, digest FROM weir_apps WHERE app = ?`, app).
		Scan(&h.Version.Generation, &h.Version.Revision, &h.Digest)
	if errors.Is(err, sql.ErrNoRows) {
		return h, false, nil
	}
	return h, err == nil, err
}

// Known reports whether a document was ever that of an app, among about the last thousand.
func (r *Record) Known(ctx context.Context, app string, v policies.Version, digest string) (known bool, err error) {
	err = r.db.Read(ctx, func(ctx context.Context, t sqldb.Tx) error {
		var n int
		err := t.Row(ctx, `SELECT COUNT(*) FROM weir_documents
			WHERE app = ? AND generation = ? AND revision = ? AND digest = ?`,
			app, v.Generation, v.Revision, digest).Scan(&n)
		known = n > 0
		return err
	})
	return known, err
}

// Document returns the document of an app, of one moment, with its encoding. The error is a *NotFoundError if the
// record does not know the app.
func (r *Record) Document(ctx context.Context, app string) (*policies.Document, []byte, error) {
	var rendered []rendered
	err := r.readingOf(ctx, func(ctx context.Context, t sqldb.Tx) error {
		h, known, err := headOf(ctx, t, app)
		switch {
		case err != nil:
			return err
		case !known || app == policies.AllApps:
			return &NotFoundError{App: app}
		}
		rendered, err = render(ctx, t, map[string]policies.Version{app: h.Version})
		return err
	}, app)
	if err != nil {
		return nil, nil, err
	}
	return rendered[0].document, rendered[0].encoded, nil
}

// Policy returns a policy that belongs to an app, and the revision that wrote it. The error is a *NotFoundError if
// there is none.
func (r *Record) Policy(ctx context.Context, app, name string) (p policies.Policy, revision int64, err error) {
	err = r.readingOf(ctx, func(ctx context.Context, t sqldb.Tx) error {
		h, err := heldOf(ctx, t, app, name)
		if err != nil {
			return err
		}
		if h.policy == nil {
			owner := ""
			err := t.Row(ctx, `SELECT owner FROM weir_users WHERE app = ? AND name = ?`, app, name).Scan(&owner)
			if err != nil && !errors.Is(err, sql.ErrNoRows) {
				return err
			}
			return &NotFoundError{App: app, Name: name, Owner: owner}
		}
		p, revision = *h.policy, h.revision
		return nil
	}, app, name)
	return p, revision, err
}

// Owned returns the policies that belong to an app, by name.
func (r *Record) Owned(ctx context.Context, app string) (map[string]policies.Policy, error) {
	owned := map[string]policies.Policy{}
	err := r.readingOf(ctx, func(ctx context.Context, t sqldb.Tx) error {
		return ownedBy(ctx, t, app, owned)
	}, app)
	return owned, err
}

func ownedBy(ctx context.Context, t sqldb.Tx, app string, owned map[string]policies.Policy) error {
	return t.Each(ctx, func(row sqldb.Row) error {
		var name, text string
		if err := row.Scan(&name, &text); err != nil {
			return err
		}
		p, err := decode(text)
		owned[name] = p
		return err
	}, `SELECT name, body FROM weir_policies WHERE app = ? AND deleted = 0`, app)
}
