package manage

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/rights"
)

// Me answers PathMe: who asks, and what they may do.
type Me struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Token is the id of the token that was sent, or 0 for a session.
	Token int64 `json:"token,omitempty"`
	Admin bool  `json:"admin,omitempty"`
	// Roles are those of the apps, by name.
	Roles map[string]string `json:"roles"`
}

// Me returns who asks, and what they may do.
func (*Manager) Me(_ context.Context, who *rights.Person) (*Me, error) {
	if who == nil {
		return nil, &RightError{Verdict: rights.Hidden, Action: rights.ActionView}
	}
	me := &Me{ID: who.ID, Name: who.Name, Token: who.Token, Admin: who.Admin, Roles: map[string]string{}}
	for app, role := range who.Roles {
		me.Roles[app] = role.String()
	}
	return me, nil
}

// Grants answers PathGrants, and is its body.
type Grants struct {
	Grants []Grant `json:"grants" maxItems:"500"`
	// Proposal is the id of the proposal that new grants have become, because the app wants another owner to approve them:
	// nothing was written then. It is not read.
	Proposal string `json:"proposal,omitempty"`
}

// Grant is a right of a person or a group on an app.
type Grant struct {
	// Kind is "person" or "group".
	Kind string `json:"kind" enum:"person,group"`
	// Subject is the id of the person, or the name that the identity provider gives the group.
	Subject string `json:"subject"`
	// Name is that of the person. It is not read.
	Name string `json:"name,omitempty"`
	Role string `json:"role" enum:"viewer,operator,owner,admin"`
	// Ends is the end of the right, if it has one.
	Ends time.Time `json:"ends,omitzero"`
}

// errNoPeople reports that a program was started without people.
var errNoPeople = refusal(http.StatusNotImplemented, "this server keeps no people")

// Grants returns the rights on an app, and their revision.
func (m *Manager) Grants(ctx context.Context, who *rights.Person, app string) (*Grants, int64, error) {
	if err := m.may(who, grants(app), app); err != nil {
		return nil, 0, err
	}
	if m.o.People == nil {
		return nil, 0, errNoPeople
	}
	all, revision, err := m.o.People.Grants(ctx, app)
	if err != nil {
		return nil, 0, err
	}
	out := &Grants{Grants: []Grant{}}
	for _, g := range all {
		out.Grants = append(out.Grants, Grant{Kind: string(g.Kind), Subject: g.Subject, Name: g.Name, Role: g.Role.String(), Ends: g.Ends})
	}
	return out, revision, nil
}

// grants returns the action that the grants of an app need.
func grants(app string) rights.Action {
	if app == rights.AllApps {
		return rights.ActionGroups
	}
	return rights.ActionGrant
}

// PutGrants makes the rights on an app those of a list.
func (m *Manager) PutGrants(ctx context.Context, who *rights.Person, app string, all []Grant, w Write) (*Grants, int64, error) {
	if err := m.may(who, grants(app), app); err != nil {
		return nil, 0, err
	}
	expect, err := w.expect()
	if err != nil {
		return nil, 0, err
	}
	if err := w.reasoned(); err != nil {
		return nil, 0, err
	}
	if m.o.People == nil {
		return nil, 0, errNoPeople
	}
	list := make([]people.Grant, len(all))
	for i, g := range all {
		role, err := rights.ParseRole(g.Role)
		if err != nil {
			return nil, 0, refusal(http.StatusUnprocessableEntity, "%v", err)
		}
		list[i] = people.Grant{Kind: people.Kind(g.Kind), Subject: g.Subject, Role: role, Ends: g.Ends}
	}
	expected := expect.Revision
	switch {
	case w.Any:
		expected = people.Any
	case expected < 0:
		expected = math.MaxInt64 // NoRevision is people.Any
	}
	proposal, base, err := m.proposeGrants(ctx, who, app, list, expected, w)
	if err != nil {
		return nil, 0, err
	}
	if proposal != "" {
		out, _, err := m.Grants(ctx, who, app)
		if err == nil {
			out.Proposal = proposal
		}
		return out, 0, err
	}
	if _, err := m.o.People.SetGrants(ctx, m.author(who, grants(app), w.Reason, app), app, list, base); err != nil {
		return nil, 0, err
	}
	return m.Grants(ctx, who, app)
}

// author returns a person as the author of a change of rights, which is permitted by what they may do as it is made.
func (m *Manager) author(who *rights.Person, a rights.Action, reason string, apps ...string) people.By {
	return people.By{Person: who, Reason: reason, Permit: func(now *rights.Person) error { return m.may(now, a, apps...) }}
}
