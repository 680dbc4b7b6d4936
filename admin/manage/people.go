package manage

import (
	"context"
	"time"

	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/rights"
)

// People answers PathPeople.
type People struct {
	People []Somebody `json:"people"`
}

// Somebody is a person who has logged in, or has a role.
type Somebody struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Issuer is the identity provider, "" for a person of this server.
	Issuer string `json:"issuer,omitempty"`
	// Seen is the time of the last login.
	Seen time.Time `json:"seen,omitzero"`
	// Barred reports whether the person was put out, whatever their roles are.
	Barred bool `json:"barred,omitempty"`
	Admin  bool `json:"admin,omitempty"`
	// Roles are those of now, those of groups included, in the apps that whoever asks is an owner of.
	Roles map[string]string `json:"roles"`
}

// People returns up to limit people, after the one with an id: those without a role as well, for owners and admins to
// give them one.
func (m *Manager) People(ctx context.Context, who *rights.Person, after string, limit int) (*People, error) {
	if !grantsAnywhere(who) {
		return nil, m.may(who, rights.ActionGroups)
	}
	if m.o.People == nil {
		return nil, errNoPeople
	}
	all, err := m.o.People.People(ctx)
	if err != nil {
		return nil, err
	}
	out := &People{People: []Somebody{}}
	past := after == ""
	for _, known := range all {
		switch {
		case past && len(out.People) < limited(limit):
			out.People = append(out.People, somebody(who, known))
		case known.ID == after:
			past = true
		}
	}
	return out, nil
}

// grantsAnywhere reports whether somebody gives roles in an app.
func grantsAnywhere(who *rights.Person) bool {
	if who == nil {
		return false
	}
	for _, role := range who.Roles { // also an owner of all apps, who gives roles in each
		if role >= rights.Owner {
			return true
		}
	}
	return who.Admin
}

func somebody(who *rights.Person, known people.Known) Somebody {
	out := Somebody{
		ID: known.ID, Name: known.Name, Issuer: known.Issuer, Seen: known.Seen, Barred: known.Barred,
		Admin: known.Rights.Admin, Roles: map[string]string{},
	}
	for app, role := range known.Rights.Roles {
		if rights.Decide(who, grants(app), app) == rights.Allowed {
			out.Roles[app] = role.String()
		}
	}
	return out
}

// Bar puts somebody out, whatever the identity provider says, or lets them in again.
func (m *Manager) Bar(ctx context.Context, who *rights.Person, id string, barred bool, reason string) error {
	if err := m.changesPeople(who, reason); err != nil {
		return err
	}
	return m.o.People.Bar(ctx, m.author(who, rights.ActionGroups, reason), id, barred)
}

// EndSessions logs somebody out of all browsers. Everybody may do that to themselves.
func (m *Manager) EndSessions(ctx context.Context, who *rights.Person, id, reason string) error {
	if who != nil && who.ID == id && m.o.People != nil {
		return m.o.People.EndSessions(ctx, people.By{Person: who, Reason: reason}, id)
	}
	if err := m.changesPeople(who, reason); err != nil {
		return err
	}
	return m.o.People.EndSessions(ctx, m.author(who, rights.ActionGroups, reason), id)
}

func (m *Manager) changesPeople(who *rights.Person, reason string) error {
	if err := m.may(who, rights.ActionGroups); err != nil {
		return err
	}
	if err := (&Write{Reason: reason}).reasoned(); err != nil {
		return err
	}
	if m.o.People == nil {
		return errNoPeople
	}
	return nil
}
