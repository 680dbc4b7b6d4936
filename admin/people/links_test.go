package people_test

import (
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/rights"
)

// A link opens one session, once, however many try it at the same time, in several processes.
func TestLinkOpensOneSession(t *testing.T) { sqltest.Each(t, linkOpensOneSession) }

func linkOpensOneSession(t *testing.T, location string) {
	s, other := start(t, location), start(t, location)
	link := s.link(t, "anna", rights.Admin, rights.AllApps, 0)
	status, body := newBrowser(t).get(s.url + "/link")
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, body, `"Kind":"link"`, "a GET shows a form")

	var opened atomic.Int32
	var work sync.WaitGroup
	for i := range 8 {
		work.Go(func() {
			of := s
			if i%2 == 1 {
				of = other
			}
			if status, _ := newBrowser(t).post(of.url+"/link", url.Values{"secret": {link.URL}}); status == http.StatusOK {
				opened.Add(1)
			}
		})
	}
	work.Wait()
	assert.Equal(t, int32(1), opened.Load())
	status, body = newBrowser(t).post(s.url+"/link", url.Values{"secret": {link.Code}})
	assert.Equal(t, http.StatusForbidden, status)
	assert.Contains(t, body, "once, within ten minutes")
}

func TestLinkEnds(t *testing.T) {
	s := start(t, sqltest.New(t))
	link := s.link(t, "anna", rights.Admin, rights.AllApps, 0)
	assert.WithinDuration(t, time.Now().Add(10*time.Minute), link.Ends, time.Minute)
	s.now.ahead = 10*time.Minute + time.Second
	status, _ := newBrowser(t).post(s.url+"/link", url.Values{"secret": {link.Code}})
	assert.Equal(t, http.StatusForbidden, status)
}

// The role that a link gives ends; a link without one is for somebody who has a role.
func TestRoleOfLinkEnds(t *testing.T) {
	s := start(t, sqltest.New(t))
	b := s.login(t, "anna", rights.Owner, "pay", 7)
	who, err := s.of(b)
	require.NoError(t, err)
	assert.Equal(t, map[string]rights.Role{"pay": rights.Owner}, who.Roles)
	assert.False(t, who.Admin)
	_, err = s.MakeLink(t.Context(), console, people.LocalPerson{Name: "anna"})
	require.NoError(t, err)

	s.now.ahead = 7*24*time.Hour + time.Second
	_, err = s.of(b)
	require.ErrorIs(t, err, people.ErrNobody)
	_, err = s.MakeLink(t.Context(), console, people.LocalPerson{Name: "anna"})
	assert.ErrorContains(t, err, `"anna" has no role`)
	_, err = s.MakeLink(t.Context(), console, people.LocalPerson{Name: "eve"})
	assert.ErrorContains(t, err, `"eve" has no role`)
	_, err = s.MakeLink(t.Context(), console, people.LocalPerson{Name: "anna@x y", Role: rights.Viewer, App: "pay"})
	assert.ErrorContains(t, err, "give 1 to 57 letters")
	_, err = s.MakeLink(t.Context(), console, people.LocalPerson{Name: "anna", Role: rights.Admin, App: "pay"})
	assert.ErrorContains(t, err, "admins are those of all apps")
}

// A link or a token gives a role, and never takes one away: neither the larger one of before, nor its time. A token of
// less is made all the same, and one without a role has that of the person.
func TestLinksAndTokensLessenNothing(t *testing.T) {
	s := start(t, sqltest.New(t))
	of := func(app string) people.Grant {
		all, _, err := s.Grants(t.Context(), app)
		require.NoError(t, err)
		require.Len(t, all, 1)
		return all[0]
	}
	token := func(l people.LocalPerson, role rights.Role, app string) *rights.Person {
		secret, _, err := s.MakeLocalToken(t.Context(), console, l, people.NewToken{Name: "cli", Apps: []string{app}, Role: role, Days: 90})
		require.NoError(t, err)
		who, err := s.with(secret)
		require.NoError(t, err)
		return who
	}
	b := s.login(t, "anna", rights.Admin, rights.AllApps, 0)
	admin := of(rights.AllApps)
	who := token(people.LocalPerson{Name: "anna", Role: rights.Viewer, Days: 90}, rights.Viewer, rights.AllApps)
	assert.False(t, who.Admin)
	assert.Equal(t, rights.Viewer, who.Role("pay"))
	s.link(t, "anna", rights.Admin, rights.AllApps, 1)
	assert.Equal(t, admin, of(rights.AllApps))
	_, err := s.of(b)
	require.NoError(t, err, "the session goes on")
	assert.True(t, token(people.LocalPerson{Name: "anna"}, rights.None, rights.AllApps).Admin)
	assert.Equal(t, rights.Owner, token(people.LocalPerson{Name: "anna"}, rights.None, "pay").Role("pay"))

	s.link(t, "bob", rights.Viewer, "pay", 7)
	viewer := of("pay")
	_, err = s.MakeLink(t.Context(), console, people.LocalPerson{Name: "bob", Role: rights.Owner, App: "pay", Days: 1})
	require.ErrorContains(t, err, `local:bob is viewer of app "pay" for longer`)
	assert.Equal(t, viewer, of("pay"))
	s.link(t, "bob", rights.Owner, "pay", 8)
	owner := of("pay")
	assert.Equal(t, rights.Owner, owner.Role)
	assert.Equal(t, 24*time.Hour, owner.Ends.Sub(viewer.Ends).Round(time.Hour))
	s.link(t, "bob", rights.Owner, "pay", 2)
	assert.Equal(t, owner, of("pay"))
	s.link(t, "bob", rights.Owner, "pay", 0)
	assert.Zero(t, of("pay").Ends)

	_, _, err = s.MakeLocalToken(t.Context(), console, people.LocalPerson{Name: "bob"}, people.NewToken{Name: "cli", Apps: []string{"shop"}, Days: 1})
	assert.ErrorContains(t, err, `"bob" has no role in the apps of the token`)
}

// A link of somebody who has lost their role, or was put out, opens nothing until they have one.
func TestLinkWithoutRights(t *testing.T) {
	s := start(t, sqltest.New(t))
	link := s.link(t, "anna", rights.Owner, "pay", 0)
	redeem := func() (int, string) { return newBrowser(t).post(s.url+"/link", url.Values{"secret": {link.Code}}) }
	require.NoError(t, s.Bar(t.Context(), console, "local:anna", true))
	status, body := redeem()
	assert.Equal(t, http.StatusForbidden, status)
	assert.Contains(t, body, `"Kind":"no-rights"`)
	assert.Contains(t, body, `"Person":"local:anna"`)
	require.NoError(t, s.Bar(t.Context(), console, "local:anna", false))
	s.grants(t, "pay")
	status, _ = redeem()
	assert.Equal(t, http.StatusForbidden, status)
	s.grants(t, "pay", grant("local:anna", rights.Viewer))
	status, body = redeem()
	assert.Equal(t, http.StatusOK, status, body)
}

// A form of another site, or of an old browser, logs nobody in: they would work under somebody else's name.
func TestLinkFromAnotherSite(t *testing.T) {
	s := start(t, sqltest.New(t))
	link := s.link(t, "anna", rights.Admin, rights.AllApps, 0)
	for name, header := range map[string]map[string]string{
		"cross-site":       {"Sec-Fetch-Site": "cross-site"},
		"same-site":        {"Sec-Fetch-Site": "same-site"},
		"typed":            {"Sec-Fetch-Site": "none"},
		"origin":           {"Origin": "https://evil.example"},
		"origin is null":   {"Origin": "null"},
		"origin and fetch": {"Origin": "https://evil.example", "Sec-Fetch-Site": "same-origin"},
		"nothing":          {},
	} {
		b := newBrowser(t)
		r := b.form(s.url+"/link", url.Values{"secret": {link.Code}})
		r.Header.Del("Sec-Fetch-Site")
		for k, v := range header {
			r.Header.Set(k, v)
		}
		resp, err := b.Do(r)
		require.NoError(t, err)
		status, _ := read(t, resp)
		assert.Equal(t, http.StatusForbidden, status, name)
	}
	b := newBrowser(t)
	r := b.form(s.url+"/link", url.Values{"secret": {link.Code}})
	r.Header.Del("Sec-Fetch-Site")
	r.Header.Set("Origin", s.url)
	resp, err := b.Do(r)
	require.NoError(t, err)
	status, _ := read(t, resp)
	assert.Equal(t, http.StatusOK, status, "a browser without Sec-Fetch-Site sends Origin")
}
