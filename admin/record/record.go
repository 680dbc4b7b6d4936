package record

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/core/policies"
)

// Bounds of a record.
const (
	MaxPolicies = 10_000 // of all apps
	MaxApps     = 1000   // that the record knows
	MaxWhy      = 1 << 10
)

// maxTime bounds each call, whatever the caller's context says.
const maxTime = 20 * time.Second

// Record is a database of policies. It is safe for concurrent use, and several processes may use one database.
type Record struct {
	d     dialect
	write *sql.DB
	read  *sql.DB
	now   func() time.Time
}

// Open opens the database at a location, a file such as "weir.db", "postgres://user@host/database" or
// "mariadb://user@host/database", and makes its tables where they are missing.
func Open(ctx context.Context, location string) (*Record, error) {
	d, write, read, err := locate(location)
	if err != nil {
		return nil, err
	}
	r := &Record{d: d, now: time.Now}
	if r.write, err = sql.Open(d.driver, write); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	r.read = r.write
	if d.oneWriter {
		if r.read, err = sql.Open(d.driver, read); err != nil {
			return nil, fmt.Errorf("record: %w", err)
		}
		r.write.SetMaxOpenConns(1)
		r.read.SetMaxOpenConns(4)
		r.read.SetMaxIdleConns(4)
	} else {
		r.write.SetMaxOpenConns(16)
		r.write.SetMaxIdleConns(4)
		r.write.SetConnMaxLifetime(30 * time.Minute)
	}
	if err := r.migrate(ctx, r.write); err != nil {
		return nil, errors.Join(fmt.Errorf("record: the tables of %s: %w", d.name, err), r.Close())
	}
	return r, nil
}

// Close ends the connections.
func (r *Record) Close() error {
	err := r.write.Close()
	if r.read != r.write {
		err = errors.Join(err, r.read.Close())
	}
	return err
}

// readingOf is reading for what belongs to an app, and to a policy of it if names has one. A name that none can have is
// not sent to the database, which may not even have it as a text.
func (r *Record) readingOf(ctx context.Context, do func(context.Context, tx) error, app string, names ...string) error {
	if app != policies.AllApps && policies.CheckApp(app) != nil {
		return &NotFoundError{App: app}
	}
	for _, name := range names {
		if policies.CheckName(name) != nil {
			return &NotFoundError{App: app, Name: name}
		}
	}
	return r.reading(ctx, do)
}

// reading calls do with a transaction that sees one state of the database.
func (r *Record) reading(ctx context.Context, do func(context.Context, tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	t, err := r.read.BeginTx(ctx, r.d.reads)
	if err != nil {
		return unavailable(err)
	}
	defer t.Rollback() //nolint:errcheck // nothing was written
	return unavailable(do(ctx, tx{t, &r.d}))
}

// UnavailableError reports that the database did not do what it was asked for. Nothing was written.
type UnavailableError struct{ Err error }

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("record: the database does not answer as it should: %v; try again", e.Err)
}

// Unwrap returns the error of the database.
func (e *UnavailableError) Unwrap() error { return e.Err }

// unavailable returns err as an *UnavailableError, unless it is one of this package.
func unavailable(err error) error {
	var refusal interface{ refusal() }
	if err == nil || errors.As(err, &refusal) || errors.Is(err, errDry) {
		return err
	}
	return &UnavailableError{err}
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
	err := r.reading(ctx, func(ctx context.Context, t tx) error {
		return t.each(ctx, func(rows *sql.Rows) error {
			var h Head
			err := rows.Scan(&h.App, &h.Version.Generation, &h.Version.Revision, &h.Digest)
			heads = append(heads, h)
			return err
		}, `SELECT app, generation, revision, digest FROM weir_apps WHERE app <> '*' ORDER BY app`)
	})
	return heads, err
}

// Head returns that of an app, and whether the record knows the app.
func (r *Record) Head(ctx context.Context, app string) (h Head, known bool, err error) {
	err = r.readingOf(ctx, func(ctx context.Context, t tx) error {
		h, known, err = t.head(ctx, app)
		return err
	}, app)
	if errors.As(err, new(*NotFoundError)) {
		return h, false, nil
	}
	return h, known, err
}

func (t tx) head(ctx context.Context, app string) (h Head, known bool, err error) {
	h.App = app
	err = t.row(ctx, `SELECT generation, revision, digest FROM weir_apps WHERE app = ?`, app).
		Scan(&h.Version.Generation, &h.Version.Revision, &h.Digest)
	if errors.Is(err, sql.ErrNoRows) {
		return h, false, nil
	}
	return h, err == nil, err
}

// Known reports whether a document was ever that of an app, among about the last thousand.
func (r *Record) Known(ctx context.Context, app string, v policies.Version, digest string) (known bool, err error) {
	err = r.reading(ctx, func(ctx context.Context, t tx) error {
		var n int
		err := t.row(ctx, `SELECT COUNT(*) FROM weir_documents
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
	err := r.readingOf(ctx, func(ctx context.Context, t tx) error {
		h, known, err := t.head(ctx, app)
		switch {
		case err != nil:
			return err
		case !known || app == policies.AllApps:
			return &NotFoundError{App: app}
		}
		rendered, err = t.render(ctx, map[string]policies.Version{app: h.Version})
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
	err = r.readingOf(ctx, func(ctx context.Context, t tx) error {
		h, err := t.held(ctx, app, name)
		if err != nil {
			return err
		}
		if h.policy == nil {
			owner := ""
			err := t.row(ctx, `SELECT owner FROM weir_users WHERE app = ? AND name = ?`, app, name).Scan(&owner)
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
	err := r.readingOf(ctx, func(ctx context.Context, t tx) error {
		return t.owned(ctx, app, owned)
	}, app)
	return owned, err
}

func (t tx) owned(ctx context.Context, app string, owned map[string]policies.Policy) error {
	return t.each(ctx, func(rows *sql.Rows) error {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			return err
		}
		p, err := decode(text)
		owned[name] = p
		return err
	}, `SELECT name, body FROM weir_policies WHERE app = ? AND deleted = 0`, app)
}
