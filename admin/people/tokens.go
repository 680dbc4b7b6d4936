package people

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/policies"
)

// Bounds of tokens.
const (
	MaxTokens    = 100                   // of one maker
	MaxTokenApps = 40                    // of one token
	MaxDays      = 365                   // of one token
	TokenStart   = "weir_"               // so that scanners for secrets know one
	used         = time.Hour             // the last use is written as often
	secretLen    = 32                    // bytes
	day          = 24 * time.Hour        // of the ends of tokens and grants
	encodedLen   = (secretLen*8 + 5) / 6 // characters
)

// secret returns 32 random bytes as text.
func secret() string {
	b := make([]byte, secretLen)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// Token is a token without its secret.
type Token struct {
	ID    int64
	Name  string
	Maker string // ID of the person
	Apps  []string
	Role  rights.Role
	Made  time.Time
	Ends  time.Time
	Used  time.Time // to the hour; zero if it never was
}

// NewToken is a token that shall be made.
type NewToken struct {
	Name string
	Apps []string // or [rights.AllApps] alone
	Role rights.Role
	Days int // until it ends
}

// MakeToken makes a token of somebody, and returns it with its secret, which is kept nowhere. Its rights are at most
// those that the person has: now, and whenever it is used.
func (p *People) MakeToken(ctx context.Context, by By, n NewToken) (secret string, t Token, err error) {
	err = p.db.Change(ctx, func(ctx context.Context, c *sqldb.Change) error {
		secret, t, err = p.makeToken(ctx, c, by, by.Person, n)
		return err
	})
	return secret, t, err
}

func (p *People) makeToken(ctx context.Context, c *sqldb.Change, by By, maker *rights.Person, n NewToken,
) (string, Token, error) {
	if err := n.check(); err != nil {
		return "", Token{}, err
	}
	if err := p.permitted(ctx, c.Tx, by); err != nil {
		return "", Token{}, err
	}
	has, err := p.Now(ctx, c.Tx, maker)
	if err != nil {
		return "", Token{}, err
	}
	for _, app := range n.Apps {
		if role := limit(has, app); role < n.Role {
			return "", Token{}, invalid("found the role %q in app %q; give at most what the maker has there, which is %q",
				n.Role, app, role)
		}
	}
	now := p.now().UTC().Truncate(time.Microsecond)
	t := Token{
		Name: n.Name, Maker: maker.ID, Apps: slices.Sorted(slices.Values(n.Apps)), Role: n.Role,
		Made: now, Ends: now.Add(time.Duration(n.Days) * day),
	}
	if err := p.inherit(ctx, c.Tx, maker, &t); err != nil {
		return "", Token{}, err
	}
	if _, err := c.Exec(ctx, `DELETE FROM weir_tokens WHERE ends <= ?`, now.UnixMicro()); err != nil {
		return "", Token{}, err
	}
	var made int
	if err := c.Row(ctx, `SELECT COUNT(*) FROM weir_tokens WHERE maker = ?`, t.Maker).Scan(&made); err != nil {
		return "", Token{}, err
	}
	if made >= MaxTokens {
		return "", Token{}, invalid("there are %d tokens of this maker already; delete one first", made)
	}
	apps, err := json.Marshal(t.Apps)
	if err != nil {
		return "", Token{}, err
	}
	t.ID = c.Revision()
	text := TokenStart + secret()
	_, err = c.Exec(ctx, `INSERT INTO weir_tokens (id, hash, name, maker, parent, apps, role, made, ends, used)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0)`,
		t.ID, sum(text), t.Name, t.Maker, maker.Token, string(apps), t.Role.String(), micro(t.Made), micro(t.Ends))
	if err != nil {
		return "", Token{}, err
	}
	what := audit.Row{Action: "token", Revision: t.ID}
	if len(t.Apps) == 1 {
		what.App = t.Apps[0]
	}
	return text, t, p.changed(ctx, c, by, what, map[string]any{
		"token": t.ID, "name": t.Name, "maker": t.Maker, "apps": t.Apps, "role": t.Role, "ends": t.Ends,
	})
}

// inherit bounds a token that a token makes by what that one may do.
func (p *People) inherit(ctx context.Context, t sqldb.Tx, maker *rights.Person, made *Token) error {
	if maker.Token == 0 {
		return nil
	}
	parent, err := p.token(ctx, t, maker.Token)
	switch {
	case err != nil:
		return err
	case parent == nil:
		return ErrToken
	}
	for _, app := range made.Apps {
		if !slices.Contains(parent.apps, app) && !slices.Contains(parent.apps, rights.AllApps) {
			return invalid("found app %q in a token that a token makes; give apps of that one", app)
		}
	}
	made.Role = min(made.Role, parent.role)
	if parent.ends.Before(made.Ends) {
		made.Ends = parent.ends
	}
	return nil
}

// limit returns the largest role that a token for an app may have.
func limit(maker *rights.Person, app string) rights.Role {
	if app != rights.AllApps || maker.Admin {
		return maker.Role(app)
	}
	best := rights.None // a token for all apps has the maker's role in each
	for _, role := range maker.Roles {
		best = max(best, min(role, rights.Owner))
	}
	return best
}

func (n NewToken) check() error {
	switch {
	case !isLine(n.Name) || len(n.Name) > maxShown:
		return invalid("found the name %.80q of a token; give one of 1 to %d bytes, such as the program that uses it", n.Name, maxShown)
	case n.Role < rights.Viewer || n.Role > rights.Admin:
		return invalid(`found no role of a token; give "viewer", "operator", "owner" or "admin"`)
	case n.Days < 1 || n.Days > MaxDays:
		return invalid("found %d days of a token; give 1 to %d", n.Days, MaxDays)
	case len(n.Apps) == 0 || len(n.Apps) > MaxTokenApps:
		return invalid(`found %d apps of a token; give 1 to %d, or "*" for all that its maker has`, len(n.Apps), MaxTokenApps)
	case slices.Contains(n.Apps, rights.AllApps) && len(n.Apps) > 1:
		return invalid(`found "*" among the apps of a token; give it alone`)
	case n.Role == rights.Admin && n.Apps[0] != rights.AllApps:
		return invalid(`found the role "admin" of a token for some apps; give "*" as its app`)
	}
	for i, app := range n.Apps {
		if err := policies.CheckApp(app); err != nil && app != rights.AllApps {
			return &InvalidError{Err: err}
		}
		if slices.Contains(n.Apps[:i], app) {
			return invalid("found app %q twice", app)
		}
	}
	return nil
}

// Tokens returns the tokens of a maker, or with "" of everybody, by their numbers. Those that have ended are left out.
func (p *People) Tokens(ctx context.Context, maker string) ([]Token, error) {
	s, err := p.state(ctx)
	if err != nil {
		return nil, err
	}
	var all []Token
	now := p.now()
	for _, t := range s.tokens {
		if (maker == "" || t.maker == maker) && now.Before(t.ends) {
			all = append(all, Token{
				ID: t.id, Name: t.name, Maker: t.maker, Apps: t.apps, Role: t.role, Made: t.made, Ends: t.ends,
				Used: moment(t.used.Load()),
			})
		}
	}
	slices.SortFunc(all, func(a, b Token) int { return int(a.ID - b.ID) })
	return all, nil
}

// DeleteToken ends a token, and those that it has made.
func (p *People) DeleteToken(ctx context.Context, by By, id int64) error {
	return p.db.Change(ctx, func(ctx context.Context, c *sqldb.Change) error {
		if err := p.permitted(ctx, c.Tx, by); err != nil {
			return err
		}
		gone, err := p.token(ctx, c.Tx, id)
		switch {
		case err != nil:
			return err
		case gone == nil:
			return &NotFoundError{What: "such token"}
		}
		for ids := []int64{id}; len(ids) > 0; ids = ids[1:] {
			err := c.Each(ctx, func(row sqldb.Row) error {
				var child int64
				err := row.Scan(&child)
				ids = append(ids, child)
				return err
			}, `SELECT id FROM weir_tokens WHERE parent = ?`, ids[0])
			if err == nil {
				_, err = c.Exec(ctx, `DELETE FROM weir_tokens WHERE id = ?`, ids[0])
			}
			if err != nil {
				return err
			}
		}
		return p.changed(ctx, c, by, audit.Row{Action: "delete-token"}, map[string]any{
			"token": id, "name": gone.name, "maker": gone.maker,
		})
	})
}

// token is a token as it is known.
type token struct {
	id   int64
	name string
	// maker is the person whose rights bound its own.
	maker      string
	apps       []string
	role       rights.Role
	made, ends time.Time
	used       atomic.Int64 // in microseconds
}

// selectToken has the columns of scanToken.
const selectToken = `SELECT hash, id, name, maker, apps, role, made, ends, used FROM weir_tokens`

func scanToken(row sqldb.Row) (*token, string, error) {
	t := &token{}
	var hash, apps, role string
	var made, ends, used int64
	if err := row.Scan(&hash, &t.id, &t.name, &t.maker, &apps, &role, &made, &ends, &used); err != nil {
		return nil, "", err
	}
	t.made, t.ends = moment(made), moment(ends)
	t.used.Store(used)
	var err error
	if t.role, err = rights.ParseRole(role); err != nil {
		return nil, "", err
	}
	return t, hash, json.Unmarshal([]byte(apps), &t.apps)
}

// token reads a token, or nil if there is none.
func (p *People) token(ctx context.Context, t sqldb.Tx, id int64) (*token, error) {
	tok, _, err := scanToken(t.Row(ctx, selectToken+` WHERE id = ?`, id))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return tok, err
}

// rights returns what a token may do now, which is never more than its maker may.
func (t *token) rights(maker *person, now time.Time) *rights.Person {
	has := maker.rights(now, now.Sub(maker.seen) < groupsLast)
	r := &rights.Person{
		ID: t.maker, Name: has.Name + ", token " + t.name, Token: t.id, Roles: map[string]rights.Role{},
		Admin: has.Admin && t.role == rights.Admin && slices.Contains(t.apps, rights.AllApps),
	}
	for _, app := range t.apps {
		if app != rights.AllApps {
			r.Roles[app] = min(t.role, has.Role(app), rights.Owner)
			continue
		}
		for of, role := range has.Roles {
			r.Roles[of] = min(t.role, role, rights.Owner)
		}
		if has.Admin {
			r.Roles[rights.AllApps] = min(t.role, rights.Owner)
		}
	}
	return r
}

// isToken reports whether a text has the form of a token.
func isToken(text string) bool {
	rest, found := strings.CutPrefix(text, TokenStart)
	return found && isSecret(rest)
}

// isSecret reports whether a text has the form of a secret.
func isSecret(text string) bool {
	b, err := base64.RawURLEncoding.DecodeString(text)
	return err == nil && len(b) == secretLen
}
