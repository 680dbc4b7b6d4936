package people

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/rights"
)

// linkLasts is the time in which a link must be used.
const linkLasts = 10 * time.Minute

// maxLinks is the number of links that wait to be used.
const maxLinks = 1000

// LocalPerson is somebody of this admin, without an identity provider, and the role that a link or a token gives them,
// unless they have more in the app: a larger role stays, and so does one that ends later or never.
type LocalPerson struct {
	Name string
	Role rights.Role // None leaves the roles that the person has
	App  string      // or [rights.AllApps]
	Days int         // until the role ends; 0 for no end
}

// Link is a link that opens one session, once.
type Link struct {
	URL  string
	Code string // to be typed where the URL does without scripts
	Ends time.Time
}

// MakeLink makes a link for a person of this admin. By it whoever has the link is that person, once, in the next ten
// minutes.
func (p *People) MakeLink(ctx context.Context, by By, l LocalPerson) (link Link, err error) {
	err = p.db.Change(ctx, func(ctx context.Context, c *sqldb.Change) error {
		id, err := p.local(ctx, c, by, l)
		if err != nil {
			return err
		}
		now := p.now().UTC()
		if _, err := c.Exec(ctx, `DELETE FROM weir_links WHERE ends <= ?`, now.UnixMicro()); err != nil {
			return err
		}
		var waiting int
		if err := c.Row(ctx, `SELECT COUNT(*) FROM weir_links`).Scan(&waiting); err != nil {
			return err
		}
		if waiting >= maxLinks {
			return invalid("%d links wait to be used; use one, or wait until they end in ten minutes", waiting)
		}
		code := secret()
		link = Link{URL: p.origin + pathLink + "#" + code, Code: code, Ends: now.Add(linkLasts)}
		_, err = c.Exec(ctx, `INSERT INTO weir_links (hash, person, ends) VALUES (?, ?, ?)`, sum(code), id, micro(link.Ends))
		if err != nil {
			return err
		}
		return p.changed(ctx, c, by, audit.Row{Action: "link"}, map[string]any{"person": id})
	})
	return link, err
}

// MakeLocalToken makes a token of a person of this admin, with its own role, which may be less than the person has. With
// the role None it may do what the person may do in its apps.
func (p *People) MakeLocalToken(ctx context.Context, by By, l LocalPerson, n NewToken) (secret string, t Token, err error) {
	err = p.db.Change(ctx, func(ctx context.Context, c *sqldb.Change) error {
		id, err := p.local(ctx, c, by, l)
		if err != nil {
			return err
		}
		maker := &rights.Person{ID: id, Name: l.Name}
		if n.Role == rights.None {
			has, err := p.Now(ctx, c.Tx, maker)
			if err != nil {
				return err
			}
			n.Role = rights.Admin
			for _, app := range n.Apps {
				n.Role = min(n.Role, limit(has, app))
				if app != rights.AllApps {
					n.Role = min(n.Role, rights.Owner)
				}
			}
			if n.Role == rights.None {
				return invalid("%q has no role in the apps of the token; give one", l.Name)
			}
		}
		secret, t, err = p.makeToken(ctx, c, by, maker, n)
		return err
	})
	return secret, t, err
}

func (l LocalPerson) app() string {
	if l.App == "" {
		return rights.AllApps
	}
	return l.App
}

// local makes a person of this admin known, and gives them a role.
func (p *People) local(ctx context.Context, c *sqldb.Change, by By, l LocalPerson) (id string, err error) {
	if id, err = Local(l.Name); err != nil {
		return "", err
	}
	if l.Days < 0 || l.Days > MaxDays {
		return "", invalid("found %d days of a role; give 1 to %d, or 0 for no end", l.Days, MaxDays)
	}
	if err := p.permitted(ctx, c.Tx, by); err != nil {
		return "", err
	}
	n, err := c.Exec(ctx, `UPDATE weir_people SET name = ? WHERE id = ?`, l.Name, id)
	if err == nil && n == 0 {
		_, err = c.Exec(ctx, `INSERT INTO weir_people (id, issuer, subject, name, seen, barred) VALUES (?, '', ?, ?, ?, 0)`,
			id, l.Name, l.Name, p.now().UnixMicro())
	}
	if err != nil {
		return "", err
	}
	if l.Role != rights.None {
		g := Grant{Kind: KindPerson, Subject: id, Role: l.Role}
		if l.Days > 0 {
			g.Ends = p.now().UTC().Truncate(time.Microsecond).Add(time.Duration(l.Days) * day)
		}
		return id, p.give(ctx, c, by, l.app(), g)
	}
	one, err := p.person(ctx, c.Tx, id)
	if err != nil {
		return "", err
	}
	if !anything(one.rights(p.now(), true)) {
		return "", invalid("%q has no role; give one, and the app that it is for", l.Name)
	}
	return id, nil
}

// errNoRights reports a link of somebody who has no right any more.
var errNoRights = errors.New("people: no rights")

// redeem uses a link up, and returns the person whose it was. It returns false if there is no such link any more, and
// errNoRights for a person who has no right, whose link is left.
func (p *People) redeem(r *http.Request, code string) (person string, found bool, err error) {
	ctx := r.Context()
	s, err := p.state(ctx)
	if err != nil {
		return "", false, err
	}
	right := func() {}
	if s.links[sum(code)] == nil {
		if right, err = p.attempts.wrong(r); err != nil {
			return "", false, err
		}
		if s, err = p.newest(ctx); err != nil {
			right()
			return "", false, err
		}
	}
	known := s.links[sum(code)]
	if known == nil || !p.now().Before(known.ends) {
		return "", false, nil
	}
	right()
	err = p.db.Change(ctx, func(ctx context.Context, c *sqldb.Change) error {
		n, err := c.Exec(ctx, `DELETE FROM weir_links WHERE hash = ? AND ends > ?`, sum(code), p.now().UnixMicro())
		if err != nil || n == 0 {
			return err
		}
		one, err := p.person(ctx, c.Tx, known.person)
		if err != nil {
			return err
		}
		who, err := p.enter(ctx, c.Tx, known.person, login{name: one.name})
		switch {
		case err != nil:
			return err
		case !anything(who):
			return errNoRights
		}
		found = true
		return p.changed(ctx, c, By{Person: who}, audit.Row{Action: "enter"}, map[string]any{"by": "link"})
	})
	return known.person, found && err == nil, err
}
