package manage

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/rights"
)

// Tokens answers PathTokens.
type Tokens struct {
	Tokens []Token `json:"tokens"`
}

// Token is a token without its secret.
type Token struct {
	ID    int64    `json:"id"`
	Name  string   `json:"name"`
	Maker string   `json:"maker"` // the id of the person who has made it
	Apps  []string `json:"apps"`  // "*" is all of them
	Role  string   `json:"role"`
	// Made, Ends and Used are times; Used is that of its last use, to the hour.
	Made time.Time `json:"made"`
	Ends time.Time `json:"ends"`
	Used time.Time `json:"used,omitzero"`
}

// NewToken is the body of PathTokens.
type NewToken struct {
	Name string   `json:"name"`
	Apps []string `json:"apps" maxItems:"40"`
	Role string   `json:"role" enum:"viewer,operator,owner,admin"`
	// Days is the time until it ends, a year at most.
	Days int `json:"days" minimum:"1" maximum:"365"`
}

// MadeToken answers PathTokens. The secret is in no other answer.
type MadeToken struct {
	Token
	Secret string `json:"secret"`
}

// Tokens returns up to limit tokens that a person has made, after one; for an admin, those of everybody.
func (m *Manager) Tokens(ctx context.Context, who *rights.Person, after int64, limit int) (*Tokens, error) {
	if who == nil {
		return nil, m.may(nil, rights.ActionToken)
	}
	if m.o.People == nil {
		return nil, errNoPeople
	}
	maker := who.ID
	if who.Admin {
		maker = ""
	}
	all, err := m.o.People.Tokens(ctx, maker)
	if err != nil {
		return nil, err
	}
	out := &Tokens{Tokens: []Token{}}
	for _, t := range all {
		if t.ID > after && len(out.Tokens) < limited(limit) && (who.Token == 0 || seesAll(who, t.Apps)) {
			out.Tokens = append(out.Tokens, tokenOf(t))
		}
	}
	return out, nil
}

// seesAll reports whether a person may know of all of some apps: whoever has a token of a maker may not see all of theirs.
func seesAll(who *rights.Person, apps []string) bool {
	return !slices.ContainsFunc(apps, func(app string) bool { return !visible(who, app) })
}

func tokenOf(t people.Token) Token {
	return Token{ID: t.ID, Name: t.Name, Maker: t.Maker, Apps: t.Apps, Role: t.Role.String(), Made: t.Made, Ends: t.Ends, Used: t.Used}
}

// MakeToken makes a token of at most the maker's rights.
func (m *Manager) MakeToken(ctx context.Context, who *rights.Person, n NewToken, reason string) (*MadeToken, error) {
	if len(n.Apps) == 0 {
		return nil, refusal(http.StatusUnprocessableEntity, `found no apps; give those of the token, or "*"`)
	}
	if err := m.may(who, rights.ActionToken, n.Apps...); err != nil {
		return nil, err
	}
	if w := (Write{Reason: reason}); w.reasoned() != nil {
		return nil, ErrNoReason
	}
	if m.o.People == nil {
		return nil, errNoPeople
	}
	role, err := rights.ParseRole(n.Role)
	if err != nil {
		return nil, refusal(http.StatusUnprocessableEntity, "%v", err)
	}
	secret, made, err := m.o.People.MakeToken(ctx, m.author(who, rights.ActionToken, reason, n.Apps...),
		people.NewToken{Name: n.Name, Apps: n.Apps, Role: role, Days: n.Days})
	if err != nil {
		return nil, err
	}
	return &MadeToken{Token: tokenOf(made), Secret: secret}, nil
}

// DeleteToken ends a token, and those that were made with it. People end their own, and with a token that has no right to
// make others nobody ends any but itself.
func (m *Manager) DeleteToken(ctx context.Context, who *rights.Person, id int64, reason string) error {
	if who == nil {
		return m.may(nil, rights.ActionToken)
	}
	if w := (Write{Reason: reason}); w.reasoned() != nil {
		return ErrNoReason
	}
	if m.o.People == nil {
		return errNoPeople
	}
	maker := who.ID
	if who.Admin {
		maker = ""
	}
	own, err := m.o.People.Tokens(ctx, maker)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(own, func(t people.Token) bool { return t.ID == id })
	if at < 0 {
		return refusal(http.StatusNotFound, "you have no token %d", id)
	}
	author := people.By{Person: who, Reason: reason}
	if who.Token != 0 && who.Token != id { // it is not its maker
		author = m.author(who, rights.ActionToken, reason, own[at].Apps...)
	}
	return m.o.People.DeleteToken(ctx, author, id)
}
