package people_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/rights"
)

func grant(person string, role rights.Role) people.Grant {
	return people.Grant{Kind: people.KindPerson, Subject: person, Role: role}
}

func (s *site) grants(t testing.TB, app string, all ...people.Grant) int64 {
	t.Helper()
	revision, err := s.SetGrants(t.Context(), console, app, all, people.Any)
	require.NoError(t, err)
	return revision
}

// Grants are written whole, with the revision that was read, and each that is different is a row of the audit.
func TestGrants(t *testing.T) { sqltest.Each(t, grants) }

func grants(t *testing.T, location string) {
	s := start(t, location)
	s.login(t, "anna", rights.Admin, rights.AllApps, 0)
	first := s.grants(t, "pay", grant("local:bob", rights.Owner), people.Grant{Kind: people.KindGroup, Subject: "Zahlung & Co", Role: rights.Viewer})
	all, revision, err := s.Grants(t.Context(), "pay")
	require.NoError(t, err)
	assert.Equal(t, first, revision)
	require.Len(t, all, 2)
	assert.Equal(t, "Zahlung & Co", all[0].Subject)
	assert.Equal(t, "local:bob", all[1].Name)

	_, err = s.SetGrants(t.Context(), console, "pay", nil, first-1)
	var stale *people.StaleError
	require.ErrorAs(t, err, &stale)
	assert.Equal(t, first, stale.Current)
	same, err := s.SetGrants(t.Context(), console, "pay", all, first)
	require.NoError(t, err)
	assert.Equal(t, first, same, "the same grants are no change")

	s.login(t, "bob", rights.None, "", 0)
	ends := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	second := s.grants(t, "pay", people.Grant{Kind: people.KindPerson, Subject: "local:bob", Role: rights.Operator, Ends: ends})
	assert.Greater(t, second, first)
	all, _, err = s.Grants(t.Context(), "pay")
	require.NoError(t, err)
	require.Len(t, all, 1)
	assert.Equal(t, people.Grant{Kind: people.KindPerson, Subject: "local:bob", Role: rights.Operator, Ends: ends, Name: "bob"}, all[0])
	rows, err := s.audit.List(t.Context(), audit.Filter{Apps: []string{"pay"}})
	require.NoError(t, err)
	require.Len(t, rows, 4)
	assert.Equal(t, "grant", rows[0].Action)
	assert.Equal(t, "console", rows[0].By.ID)
	assert.Equal(t, second, rows[0].Revision)
	assert.Equal(t, first, rows[0].Was)
	assert.Contains(t, rows[0].Detail+rows[1].Detail, `"was":"owner","role":"operator"`)
	assert.Contains(t, rows[0].Detail+rows[1].Detail, `"was":"viewer","role":"none"`)

	s.now.ahead = 2 * time.Hour
	all, _, err = s.Grants(t.Context(), "pay")
	require.NoError(t, err)
	assert.Empty(t, all, "what has ended is no grant")
	s.grants(t, "pay", grant("local:bob", rights.Viewer))
}

func TestGrantsAreChecked(t *testing.T) {
	s := start(t, sqltest.New(t))
	many := make([]people.Grant, people.MaxGrants+1)
	for i := range many {
		many[i] = grant(fmt.Sprintf("local:p%d", i), rights.Viewer)
	}
	for want, all := range map[string][]people.Grant{
		"give an id":           {grant("anna@example.com", rights.Viewer)},
		"twice":                {grant("local:a", rights.Viewer), grant("local:a", rights.Owner)},
		`"person" or "group"`:  {{Kind: "robot", Subject: "local:a", Role: rights.Viewer}},
		"give the name of one": {{Kind: people.KindGroup, Subject: "a\nb", Role: rights.Viewer}},
		"no role":              {grant("local:a", rights.None)},
		"admins are those":     {grant("local:a", rights.Admin)},
		"which is over":        {{Kind: people.KindPerson, Subject: "local:a", Role: rights.Viewer, Ends: time.Now().Add(-time.Hour)}},
		"groups for many":      many,
	} {
		_, err := s.SetGrants(t.Context(), console, "pay", all, people.Any)
		var invalid *people.InvalidError
		require.ErrorAs(t, err, &invalid, want)
		assert.ErrorContains(t, err, want)
	}
	_, err := s.SetGrants(t.Context(), console, "PAY!", nil, people.Any)
	require.Error(t, err)
	_, err = s.SetGrants(t.Context(), people.By{}, "pay", nil, people.Any)
	assert.ErrorContains(t, err, "give a person")
}

// Two admins who take each other's right away at once: one of them is still there, whichever comes first.
func TestLastAdminStays(t *testing.T) { sqltest.Each(t, lastAdminStays) }

func lastAdminStays(t *testing.T, location string) {
	s, other := start(t, location), start(t, location)
	group := people.Grant{Kind: people.KindGroup, Subject: "admins", Role: rights.Admin}
	for range 5 {
		s.grants(t, rights.AllApps, grant("local:anna", rights.Admin), grant("local:bob", rights.Admin), group)
		var work sync.WaitGroup
		errs := make([]error, 2)
		for i, by := range []string{"local:anna", "local:bob"} {
			work.Go(func() {
				of := []*site{s, other}[i]
				permit := func(now *rights.Person) error {
					if rights.Decide(now, rights.ActionGroups) != rights.Allowed {
						return errors.New("no right any more")
					}
					return nil
				}
				left := []people.Grant{grant(by, rights.Admin), group}
				_, errs[i] = of.SetGrants(t.Context(), people.By{Person: &rights.Person{ID: by, Admin: true}, Permit: permit},
					rights.AllApps, left, people.Any)
			})
		}
		work.Wait()
		assert.True(t, (errs[0] == nil) != (errs[1] == nil), "%v and %v", errs[0], errs[1])
		all, _, err := s.Grants(t.Context(), rights.AllApps)
		require.NoError(t, err)
		assert.Len(t, all, 2)
	}

	// The same with two commands, which may always: the second would remove the last one.
	s.grants(t, rights.AllApps, grant("local:anna", rights.Admin), grant("local:bob", rights.Admin))
	var work sync.WaitGroup
	errs := make([]error, 2)
	for i, gone := range []string{"local:anna", "local:bob"} {
		work.Go(func() {
			of := []*site{s, other}[i]
			all, revision, err := of.Grants(t.Context(), rights.AllApps)
			if assert.NoError(t, err) {
				kept := []people.Grant{}
				for _, g := range all {
					if g.Subject != gone {
						kept = append(kept, g)
					}
				}
				_, errs[i] = of.SetGrants(t.Context(), console, rights.AllApps, kept, revision)
			}
		})
	}
	work.Wait()
	assert.True(t, (errs[0] == nil) != (errs[1] == nil), "%v and %v", errs[0], errs[1])

	all, _, err := s.Grants(t.Context(), rights.AllApps)
	require.NoError(t, err)
	require.Len(t, all, 1)
	last := all[0].Subject
	var lastAdmin *people.LastAdminError
	for name, change := range map[string][]people.Grant{
		"removed":      {},
		"demoted":      {grant(last, rights.Owner)},
		"with an end":  {{Kind: people.KindPerson, Subject: last, Role: rights.Admin, Ends: time.Now().Add(time.Hour)}},
		"only a group": {group},
	} {
		_, err = s.SetGrants(t.Context(), console, rights.AllApps, change, people.Any)
		require.ErrorAs(t, err, &lastAdmin, name)
	}
	s.link(t, strings.TrimPrefix(last, "local:"), rights.Viewer, rights.AllApps, 1)
	kept, _, err := s.Grants(t.Context(), rights.AllApps)
	require.NoError(t, err)
	all[0].Name = strings.TrimPrefix(last, "local:") // the link has made it known
	require.Equal(t, all, kept, "after a link of a lesser role")
	s.link(t, strings.TrimPrefix(last, "local:"), rights.None, "", 0)
	require.ErrorAs(t, s.Bar(t.Context(), console, last, true), &lastAdmin, "barred")
}

// People who lose a right are logged out, in all processes.
func TestTakingAwayEndsSessions(t *testing.T) { sqltest.Each(t, takingAwayEndsSessions) }

func takingAwayEndsSessions(t *testing.T, location string) {
	s, other := start(t, location), start(t, location)
	s.grants(t, rights.AllApps, grant("local:root", rights.Admin))
	for _, c := range []struct {
		name string
		take func()
	}{
		{"removed", func() { s.grants(t, "pay") }},
		{"demoted", func() { s.grants(t, "pay", grant("local:anna", rights.Viewer)) }},
		{"barred", func() { require.NoError(t, s.Bar(t.Context(), console, "local:anna", true)) }},
		{"logged out", func() { require.NoError(t, s.EndSessions(t.Context(), console, "local:anna")) }},
	} {
		b := s.login(t, "anna", rights.Owner, "pay", 0)
		other.Outdate()
		for _, of := range []*site{s, other} {
			who, err := of.of(b)
			require.NoError(t, err, c.name)
			assert.Equal(t, rights.Owner, who.Role("pay"), c.name)
		}
		c.take()
		began := time.Now()
		_, err := s.of(b)
		require.ErrorIs(t, err, people.ErrNobody, "%s: at once where it was done", c.name)
		soon(t, func() bool { _, err := other.of(b); return errors.Is(err, people.ErrNobody) }, c.name+": elsewhere")
		t.Logf("%s: gone in the other process after %v", c.name, time.Since(began).Round(time.Millisecond))
		status, _ := b.get(s.url)
		assert.Equal(t, http.StatusUnauthorized, status, c.name)
		require.NoError(t, s.Bar(t.Context(), console, "local:anna", false))
		s.grants(t, "pay")
	}

	// A right that is added, or another person's, ends nothing.
	b := s.login(t, "anna", rights.Viewer, "pay", 0)
	s.grants(t, "pay", grant("local:anna", rights.Owner), grant("local:bob", rights.Viewer))
	s.grants(t, "pay", grant("local:anna", rights.Owner))
	who, err := s.of(b)
	require.NoError(t, err)
	assert.Equal(t, rights.Owner, who.Role("pay"))
}
