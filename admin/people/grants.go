package people

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/policies"
)

// MaxGrants is the number of grants of one app.
const MaxGrants = 500

// Kind is that of somebody who can be given a role.
type Kind string

// The kinds.
const (
	KindPerson Kind = "person" // by ID
	KindGroup  Kind = "group"  // of the identity provider, by name
)

// Grant is the role that somebody has in an app.
type Grant struct {
	Kind    Kind
	Subject string
	Role    rights.Role
	Ends    time.Time // zero for no end
	Name    string    // as it is shown; SetGrants does not read it
}

// endsBefore reports whether a grant ends before another.
func (g Grant) endsBefore(other Grant) bool {
	return !g.Ends.IsZero() && (other.Ends.IsZero() || g.Ends.Before(other.Ends))
}

// Any is the revision of grants that expects none.
const Any int64 = -1

// Grants returns the roles that are given in an app, or with [rights.AllApps] in all, and the revision that has written
// them, which is 0 if none has. Those that have ended are left out.
func (p *People) Grants(ctx context.Context, app string) (grants []Grant, revision int64, err error) {
	err = p.db.Read(ctx, func(ctx context.Context, t sqldb.Tx) error {
		grants, revision, err = p.grants(ctx, t, app)
		return err
	})
	return grants, revision, err
}

func (p *People) grants(ctx context.Context, t sqldb.Tx, app string) (grants []Grant, revision int64, err error) {
	err = t.Row(ctx, `SELECT revision FROM weir_granted WHERE app = ?`, app).Scan(&revision)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, 0, err
	}
	now := p.now()
	err = t.Each(ctx, func(row sqldb.Row) error {
		var g Grant
		var role string
		var ends int64
		var name sql.NullString
		if err := row.Scan(&g.Kind, &g.Subject, &role, &ends, &name); err != nil {
			return err
		}
		g.Ends, g.Name = moment(ends), cmp.Or(name.String, g.Subject)
		if given := (given{ends: g.Ends}); !given.holds(now) {
			return nil
		}
		var err error
		g.Role, err = rights.ParseRole(role)
		grants = append(grants, g)
		return err
	}, `SELECT g.kind, g.subject, g.role, g.ends, p.name FROM weir_grants g
		LEFT JOIN weir_people p ON g.kind = 'person' AND p.id = g.subject
		WHERE g.app = ? ORDER BY g.kind, g.subject`, app)
	return grants, revision, err
}

// SetGrants makes the grants of an app, or with [rights.AllApps] those of all apps, what they shall be, and returns
// their revision. It expects the revision that was read, or [Any]. Sessions of people who lose something end.
func (p *People) SetGrants(ctx context.Context, by By, app string, grants []Grant, expected int64) (revision int64, err error) {
	err = p.db.Change(ctx, func(ctx context.Context, c *sqldb.Change) error {
		revision, err = p.SetGrantsIn(ctx, c, by, app, grants, expected)
		return err
	})
	return revision, err
}

// SetGrantsIn is SetGrants as a part of a change.
func (p *People) SetGrantsIn(ctx context.Context, c *sqldb.Change, by By, app string, grants []Grant, expected int64,
) (int64, error) {
	if err := p.checkGrants(app, grants); err != nil {
		return 0, err
	}
	if err := p.permitted(ctx, c.Tx, by); err != nil {
		return 0, err
	}
	before, revision, err := p.grants(ctx, c.Tx, app)
	if err != nil {
		return 0, err
	}
	if expected != Any && expected != revision {
		return 0, &StaleError{Expected: expected, Current: revision}
	}
	d := difference(before, grants)
	if d.empty() {
		return revision, nil
	}
	return p.writeGrants(ctx, c, by, app, d, revision)
}

// writeGrants writes a difference.
func (p *People) writeGrants(ctx context.Context, c *sqldb.Change, by By, app string, d grantsDifference, was int64,
) (int64, error) {
	admins, err := p.admins(ctx, c.Tx)
	if err != nil {
		return 0, err
	}
	for _, g := range d.all {
		// What has ended is not among those that were read, and so every grant is replaced.
		_, err := c.Exec(ctx, `DELETE FROM weir_grants WHERE app = ? AND kind = ? AND subject = ?`, app, string(g.Kind), g.Subject)
		if err == nil && g.Role != rights.None {
			_, err = c.Exec(ctx, `INSERT INTO weir_grants (app, kind, subject, role, ends) VALUES (?, ?, ?, ?, ?)`,
				app, string(g.Kind), g.Subject, g.Role.String(), micro(g.Ends))
		}
		if err != nil {
			return 0, err
		}
	}
	if err := p.stillAdmins(ctx, c.Tx, admins); err != nil {
		return 0, err
	}
	for _, g := range d.less {
		query := `DELETE FROM weir_sessions WHERE person = ?`
		if g.Kind == KindGroup {
			query = `DELETE FROM weir_sessions WHERE person IN (SELECT person FROM weir_members WHERE name = ?)`
		}
		if _, err := c.Exec(ctx, query, g.Subject); err != nil {
			return 0, err
		}
	}
	revision := c.Revision()
	n, err := c.Exec(ctx, `UPDATE weir_granted SET revision = ? WHERE app = ?`, revision, app)
	if err == nil && n == 0 {
		_, err = c.Exec(ctx, `INSERT INTO weir_granted (app, revision) VALUES (?, ?)`, app, revision)
	}
	if err != nil {
		return 0, err
	}
	return revision, p.changed(ctx, c, by, audit.Row{App: app, Action: "grant", Revision: revision, Was: was}, d.details()...)
}

// checkGrants finds the mistakes that can be seen without the database.
func (p *People) checkGrants(app string, grants []Grant) error {
	if err := policies.CheckApp(app); err != nil && app != rights.AllApps {
		return &InvalidError{Err: err}
	}
	if len(grants) > MaxGrants {
		return invalid("found %d grants; give at most %d, and groups for many people", len(grants), MaxGrants)
	}
	seen := map[[2]string]bool{}
	for _, g := range grants {
		one := [2]string{string(g.Kind), g.Subject}
		switch {
		case g.Kind != KindPerson && g.Kind != KindGroup:
			return invalid(`found the kind %.40q of a grant; give "person" or "group"`, g.Kind)
		case g.Kind == KindPerson && !anID.MatchString(g.Subject):
			return invalid("found the person %.80q; give an id, as it is shown to somebody who logs in without a right", g.Subject)
		case g.Kind == KindGroup && !isLine(g.Subject):
			return invalid("found the group %.80q; give the name of one, of 1 to %d characters that can be shown", g.Subject, maxLine)
		case g.Role < rights.Viewer || g.Role > rights.Admin:
			return invalid(`found the role "none" for %.80q; leave out whoever shall have no role`, g.Subject)
		case g.Role == rights.Admin && app != rights.AllApps:
			return invalid("found the role \"admin\" in app %q; give \"owner\", since admins are those of all apps", app)
		case seen[one]:
			return invalid("found %s %.80q twice; give one role", g.Kind, g.Subject)
		case !g.Ends.IsZero() && !p.now().Before(g.Ends):
			return invalid("found an end at %s for %.80q, which is over; give a later one, or none",
				g.Ends.UTC().Format(time.RFC3339), g.Subject)
		}
		seen[one] = true
	}
	return nil
}

// isLine reports whether a text is one line that every database keeps as it is.
func isLine(s string) bool {
	return s != "" && utf8.ValidString(s) && utf8.RuneCountInString(s) <= maxLine && strings.TrimSpace(s) == s &&
		!strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// grantsDifference has the grants that are other ones after a change.
type grantsDifference struct {
	all    []Grant // as they shall be; the role None deletes one
	less   []Grant // those of all that take something away
	before map[[2]string]Grant
}

func difference(before, after []Grant) grantsDifference {
	d := grantsDifference{before: map[[2]string]Grant{}}
	for _, g := range before {
		d.before[[2]string{string(g.Kind), g.Subject}] = g
	}
	kept := map[[2]string]bool{}
	for _, g := range after {
		one := [2]string{string(g.Kind), g.Subject}
		was, had := d.before[one]
		kept[one] = true
		if had && was.Role == g.Role && was.Ends.Equal(g.Ends) {
			continue
		}
		d.all = append(d.all, g)
		if had && g.Role < was.Role {
			d.less = append(d.less, g)
		}
	}
	for _, g := range before {
		if !kept[[2]string{string(g.Kind), g.Subject}] {
			g.Role = rights.None
			d.all, d.less = append(d.all, g), append(d.less, g)
		}
	}
	slices.SortFunc(d.all, func(a, b Grant) int {
		return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Subject, b.Subject))
	})
	return d
}

func (d grantsDifference) empty() bool { return len(d.all) == 0 }

// details describe the difference for the audit.
func (d grantsDifference) details() []any {
	type change struct {
		Kind    Kind       `json:"kind"`
		Subject string     `json:"subject"`
		Was     string     `json:"was"`
		Role    string     `json:"role"`
		Ends    *time.Time `json:"ends,omitempty"`
	}
	all := make([]any, len(d.all))
	for i, g := range d.all {
		c := change{
			Kind: g.Kind, Subject: g.Subject, Role: g.Role.String(),
			Was: d.before[[2]string{string(g.Kind), g.Subject}].Role.String(),
		}
		if !g.Ends.IsZero() && g.Role != rights.None {
			c.Ends = &g.Ends
		}
		all[i] = c
	}
	return all
}

// admins is the number of people who are admins: those without an end, and all. Groups are not counted, since they may
// be empty.
type admins struct{ lasting, all int }

func (p *People) admins(ctx context.Context, t sqldb.Tx) (a admins, err error) {
	now := p.now().UnixMicro()
	err = t.Each(ctx, func(row sqldb.Row) error {
		var ends int64
		err := row.Scan(&ends)
		if ends == 0 {
			a.lasting++
		}
		a.all++
		return err
	}, `SELECT g.ends FROM weir_grants g WHERE g.app = '*' AND g.kind = 'person' AND g.role = 'admin'
		AND (g.ends = 0 OR g.ends > ?)
		AND NOT EXISTS (SELECT 1 FROM weir_people p WHERE p.id = g.subject AND p.barred <> 0)`, now)
	return a, err
}

// stillAdmins refuses a change after which there would be nobody to give rights again.
func (p *People) stillAdmins(ctx context.Context, t sqldb.Tx, before admins) error {
	after, err := p.admins(ctx, t)
	if err != nil {
		return err
	}
	if before.lasting > 0 && after.lasting == 0 || before.all > 0 && after.all == 0 {
		return &LastAdminError{}
	}
	return nil
}

// give gives one person a role in an app, unless they have more: a larger role, or the same one for longer. It refuses a
// larger role that ends before the one that they have, since they would have neither then.
func (p *People) give(ctx context.Context, c *sqldb.Change, by By, app string, g Grant) error {
	if err := p.checkGrants(app, []Grant{g}); err != nil {
		return err
	}
	all, was, err := p.grants(ctx, c.Tx, app)
	if err != nil {
		return err
	}
	same := func(old Grant) bool { return old.Kind == g.Kind && old.Subject == g.Subject }
	if i := slices.IndexFunc(all, same); i >= 0 {
		switch old := all[i]; {
		case old.Role > g.Role, old.Role == g.Role && !old.endsBefore(g):
			return nil
		case g.endsBefore(old):
			return invalid("%s is %v of app %q for longer, and would have no role when that of %v ends; give it for as long, "+
				"or to another person", g.Subject, old.Role, app, g.Role)
		}
	}
	after := slices.DeleteFunc(slices.Clone(all), same)
	if len(after) >= MaxGrants {
		return invalid("app %q has %d grants already; take one away first", app, len(after))
	}
	if d := difference(all, append(after, g)); !d.empty() {
		_, err = p.writeGrants(ctx, c, by, app, d, was)
	}
	return err
}
