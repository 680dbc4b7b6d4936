package people

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/rights"
)

// Bounds of what is kept of people.
const (
	maxPeople = 20_000 // that are known; somebody without any right is not added beyond
	maxGroups = 500    // of one person
	maxLine   = 255    // characters of a name, a subject or a group
	maxShown  = 100    // characters of a name that is shown
	// groupsLast is the time for which a token has the rights of its maker's groups after the maker's last login: the
	// groups of those who have left are never read again.
	groupsLast = 30 * 24 * time.Hour
	// forgotten is the time after which somebody without rights is deleted.
	forgotten = 90 * 24 * time.Hour
)

// ID returns the identity of a person of a provider. It never is a mail address or a name, which may become somebody
// else's.
func ID(issuer, subject string) string {
	h := sha256.New()
	_ = binary.Write(h, binary.BigEndian, uint64(len(issuer))) // a hash takes everything
	h.Write([]byte(issuer + subject))
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(h.Sum(nil)))
}

var (
	localName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,56}$`)
	anID      = regexp.MustCompile(`^([a-z2-7]{52}|local:[A-Za-z0-9][A-Za-z0-9._@-]{0,56})$`)
)

// Local returns the identity of a person of this admin, who comes by a link.
func Local(name string) (string, error) {
	if !localName.MatchString(name) {
		return "", invalid("found the name %.80q; give 1 to 57 letters, digits and . _ @ -, such as \"anna\"", name)
	}
	return "local:" + name, nil
}

// person is somebody as they are known.
type person struct {
	id     string
	name   string
	issuer string // "" for a person of this admin
	seen   time.Time
	barred bool
	own    []given            // grants to the person
	groups map[string][]given // grants to the groups of the person
}

// given is a grant to somebody.
type given struct {
	app  string
	role rights.Role
	ends time.Time // zero for no end
}

func (g given) holds(now time.Time) bool { return g.ends.IsZero() || now.Before(g.ends) }

// rights returns what a person may do now.
func (p *person) rights(now time.Time, groups bool) *rights.Person {
	r := &rights.Person{ID: p.id, Name: p.shown(), Roles: map[string]rights.Role{}}
	if p.barred {
		return r
	}
	add := func(all []given) {
		for _, g := range all {
			switch {
			case !g.holds(now):
			case g.app == rights.AllApps && g.role == rights.Admin:
				r.Admin = true
			default:
				r.Roles[g.app] = max(r.Roles[g.app], g.role)
			}
		}
	}
	add(p.own)
	if groups {
		for _, all := range p.groups {
			add(all)
		}
	}
	return r
}

func (p *person) shown() string {
	if p.name != "" {
		return p.name
	}
	return p.id
}

// anything reports whether somebody may do anything.
func anything(p *rights.Person) bool {
	if p.Admin {
		return true
	}
	for _, role := range p.Roles {
		if role > rights.None {
			return true
		}
	}
	return false
}

// Known is a person that has logged in, or has a right.
type Known struct {
	ID     string
	Name   string
	Issuer string // "" for a person of this admin
	Seen   time.Time
	Barred bool
	// Rights are those of now.
	Rights *rights.Person
}

// People returns everybody that is known, by name: those without a right as well, so that they can be given one.
func (p *People) People(ctx context.Context) ([]Known, error) {
	s, err := p.state(ctx)
	if err != nil {
		return nil, err
	}
	now := p.now()
	all := make([]Known, 0, len(s.people))
	for _, one := range s.people {
		all = append(all, Known{one.id, one.shown(), one.issuer, one.seen, one.barred, one.rights(now, true)})
	}
	slices.SortFunc(all, func(a, b Known) int {
		return strings.Compare(a.Name+"\x00"+a.ID, b.Name+"\x00"+b.ID)
	})
	return all, nil
}

// login is somebody as the provider describes them, or a link does.
type login struct {
	issuer, subject string
	name            string
	groups          []string
}

// enter writes what a login says of a person, and returns their rights.
func (p *People) enter(ctx context.Context, t sqldb.Tx, id string, l login) (*rights.Person, error) {
	now := p.now().UnixMicro()
	n, err := t.Exec(ctx, `UPDATE weir_people SET name = ?, seen = ? WHERE id = ?`, l.name, now, id)
	if err != nil {
		return nil, err
	}
	known := n > 0
	if known && l.issuer != "" { // of somebody who was put out before they were seen
		if _, err := t.Exec(ctx, `UPDATE weir_people SET issuer = ?, subject = ? WHERE id = ? AND issuer = ''`,
			l.issuer, l.subject, id); err != nil {
			return nil, err
		}
	}
	if err := p.join(ctx, t, id, l.groups); err != nil {
		return nil, err
	}
	one, err := p.person(ctx, t, id)
	if err != nil {
		return nil, err
	}
	one.name = l.name
	r := one.rights(p.now(), true)
	if !known {
		var people int
		if err := t.Row(ctx, `SELECT COUNT(*) FROM weir_people`).Scan(&people); err != nil {
			return nil, err
		}
		if people >= maxPeople && !anything(r) {
			return r, p.join(ctx, t, id, nil) // nobody would ever tidy up after somebody who is not kept
		}
		_, err = t.Exec(ctx, `INSERT INTO weir_people (id, issuer, subject, name, seen, barred) VALUES (?, ?, ?, ?, ?, 0)`,
			id, l.issuer, l.subject, l.name, now)
	}
	return r, err
}

// join makes the groups of a person those of a login.
func (p *People) join(ctx context.Context, t sqldb.Tx, id string, groups []string) error {
	if _, err := t.Exec(ctx, `DELETE FROM weir_members WHERE person = ?`, id); err != nil {
		return err
	}
	for _, group := range groups {
		if _, err := t.Exec(ctx, `INSERT INTO weir_members (person, name) VALUES (?, ?)`, id, group); err != nil {
			return err
		}
	}
	return nil
}

// person reads somebody from the database.
func (p *People) person(ctx context.Context, t sqldb.Tx, id string) (*person, error) {
	one := &person{id: id, groups: map[string][]given{}}
	var seen int64
	err := t.Row(ctx, `SELECT name, issuer, seen, barred FROM weir_people WHERE id = ?`, id).
		Scan(&one.name, &one.issuer, &seen, &one.barred)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	one.seen = moment(seen)
	err = t.Each(ctx, func(row sqldb.Row) error {
		g, _, err := scanGiven(row)
		one.own = append(one.own, g)
		return err
	}, `SELECT app, role, ends, subject FROM weir_grants WHERE kind = 'person' AND subject = ?`, id)
	if err != nil {
		return nil, err
	}
	err = t.Each(ctx, func(row sqldb.Row) error {
		g, group, err := scanGiven(row)
		one.groups[group] = append(one.groups[group], g)
		return err
	}, `SELECT g.app, g.role, g.ends, g.subject FROM weir_grants g JOIN weir_members m ON m.name = g.subject
		WHERE g.kind = 'group' AND m.person = ?`, id)
	return one, err
}

func scanGiven(row sqldb.Row) (g given, subject string, err error) {
	var role string
	var ends int64
	if err := row.Scan(&g.app, &role, &ends, &subject); err != nil {
		return g, "", err
	}
	g.ends = moment(ends)
	g.role, err = rights.ParseRole(role)
	return g, subject, err
}

// moment returns the time of a column, in which 0 is none.
func moment(micro int64) time.Time {
	if micro == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micro).UTC()
}

// micro is the inverse of moment.
func micro(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixMicro()
}

// line returns a text of somebody else as one line of at most n characters that can be shown.
func line(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.Join(strings.Fields(s), " "))
	if runes := []rune(s); len(runes) > n {
		s = string(runes[:n])
	}
	return s
}

// Bar puts somebody out, whatever their groups say, or lets them in again. It may be somebody who was never seen: they do
// not get in when they log in for the first time.
func (p *People) Bar(ctx context.Context, by By, id string, barred bool) error {
	return p.db.Change(ctx, func(ctx context.Context, c *sqldb.Change) error {
		if err := p.permitted(ctx, c.Tx, by); err != nil {
			return err
		}
		before, err := p.admins(ctx, c.Tx)
		if err != nil {
			return err
		}
		out, action := 0, "let-in"
		if barred {
			out, action = 1, "bar"
		}
		n, err := c.Exec(ctx, `UPDATE weir_people SET barred = ? WHERE id = ?`, out, id)
		switch {
		case err != nil:
			return err
		case n == 0 && (!barred || !anID.MatchString(id)):
			return &NotFoundError{What: "such person"}
		case n == 0:
			if err := p.barUnseen(ctx, c.Tx, id); err != nil {
				return err
			}
		}
		if barred {
			if err := p.stillAdmins(ctx, c.Tx, before); err != nil {
				return err
			}
			if _, err := c.Exec(ctx, `DELETE FROM weir_sessions WHERE person = ?`, id); err != nil {
				return err
			}
		}
		return p.changed(ctx, c, by, audit.Row{Action: action}, map[string]any{"person": id})
	})
}

// barUnseen puts somebody out who was never seen. What the provider says of them is found when they log in.
func (p *People) barUnseen(ctx context.Context, t sqldb.Tx, id string) error {
	var people int
	if err := t.Row(ctx, `SELECT COUNT(*) FROM weir_people`).Scan(&people); err != nil {
		return err
	}
	if people >= maxPeople {
		return invalid("%d people are known already; somebody who was never seen can be put out when they have logged in", people)
	}
	_, err := t.Exec(ctx, `INSERT INTO weir_people (id, issuer, subject, name, seen, barred) VALUES (?, '', '', ?, 0, 1)`,
		id, strings.TrimPrefix(id, "local:"))
	return err
}

// EndSessions logs somebody out everywhere.
func (p *People) EndSessions(ctx context.Context, by By, id string) error {
	return p.db.Change(ctx, func(ctx context.Context, c *sqldb.Change) error {
		if err := p.permitted(ctx, c.Tx, by); err != nil {
			return err
		}
		if _, err := c.Exec(ctx, `DELETE FROM weir_sessions WHERE person = ?`, id); err != nil {
			return err
		}
		return p.changed(ctx, c, by, audit.Row{Action: "end-sessions"}, map[string]any{"person": id})
	})
}
