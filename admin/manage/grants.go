package manage

import (
	"context"
	"time"

	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/policies"
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
	Grants []Grant `json:"grants" maxItems:"1000"`
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

// Grants returns the rights on an app.
func (m *Manager) Grants(_ context.Context, who *rights.Person, app string) (*Grants, int64, error) {
	if err := m.may(who, rights.ActionView, app); err != nil {
		return nil, 0, err
	}
	return nil, 0, ErrNotYet
}

// PutGrants makes the rights on an app those of a list.
func (m *Manager) PutGrants(_ context.Context, who *rights.Person, app string, _ []Grant, _ Write) (*Grants, int64, error) {
	action := rights.ActionGrant
	if app == policies.AllApps {
		action = rights.ActionGroups
	}
	if err := m.may(who, action, app); err != nil {
		return nil, 0, err
	}
	return nil, 0, ErrNotYet
}
