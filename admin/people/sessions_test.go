package people_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/rights"
)

// age makes all sessions older: those that began, and those that were used.
func (s *site) age(t testing.TB, began, seen time.Duration) {
	t.Helper()
	err := s.db.Write(t.Context(), func(ctx ctx, tx sqldb.Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE weir_sessions SET began = began - ?, seen = seen - ?`,
			began.Microseconds(), seen.Microseconds()); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE weir_known SET changes = changes + 1`)
		return err
	})
	require.NoError(t, err)
	s.Outdate()
}

func (s *site) sessionRows(t testing.TB) (n int, seen time.Time) {
	t.Helper()
	var last int64
	err := s.db.Read(t.Context(), func(ctx ctx, tx sqldb.Tx) error {
		return tx.Row(ctx, `SELECT COUNT(*), COALESCE(MAX(seen), 0) FROM weir_sessions`).Scan(&n, &last)
	})
	require.NoError(t, err)
	return n, time.UnixMicro(last)
}

// A session ends after eight hours in which nobody does anything, and after a day in any case.
func TestSessionsEnd(t *testing.T) { sqltest.Each(t, sessionsEnd) }

func sessionsEnd(t *testing.T, location string) {
	s := start(t, location)
	b := s.login(t, "anna", rights.Owner, "pay", 0)
	s.age(t, 7*time.Hour, 7*time.Hour)
	_, err := s.of(b)
	require.NoError(t, err)
	_, seen := s.sessionRows(t)
	assert.WithinDuration(t, time.Now(), seen, time.Minute, "it was used now")
	s.age(t, 8*time.Hour, 8*time.Hour+time.Second)
	_, err = s.of(b)
	require.ErrorIs(t, err, people.ErrNobody, "nobody has done anything for eight hours")

	b = s.login(t, "anna", rights.None, "", 0)
	s.age(t, 24*time.Hour-time.Minute, 0)
	_, err = s.of(b)
	require.NoError(t, err)
	s.age(t, time.Minute, 0)
	_, err = s.of(b)
	require.ErrorIs(t, err, people.ErrNobody, "it began a day ago")
	s.login(t, "bob", rights.Viewer, "pay", 0)
	n, _ := s.sessionRows(t)
	assert.Equal(t, 1, n, "those that have ended are deleted")
}

// A page that asks again and again does not keep a session, and one that another process has kept goes on.
func TestPollsKeepNoSession(t *testing.T) {
	location := sqltest.New(t)
	s, other := start(t, location), start(t, location)
	b := s.login(t, "anna", rights.Owner, "pay", 0)
	soon(t, func() bool { _, err := other.of(b); return err == nil }, "known elsewhere")
	poll := func() error {
		r := httptest.NewRequest(http.MethodGet, s.url, nil)
		r.Header.Set("HX-Request", "true")
		r.AddCookie(&http.Cookie{Name: s.cookieName(), Value: b.session(s.url)})
		_, err := s.Authenticate(r)
		return err
	}
	s.age(t, time.Hour, time.Hour)
	require.NoError(t, poll())
	_, seen := s.sessionRows(t)
	assert.WithinDuration(t, time.Now().Add(-time.Hour), seen, time.Minute)
	s.age(t, 7*time.Hour-time.Minute, 7*time.Hour-time.Minute)
	require.NoError(t, poll())
	soon(t, func() bool { _, seen := s.sessionRows(t); return time.Since(seen) > 7*time.Hour }, "nearly idle")
	other.Outdate()
	_, err := other.of(b)
	require.NoError(t, err, "somebody does something, in another process")
	s.Drowse(9 * time.Hour)
	require.NoError(t, poll(), "the database says that it was used")
	s.age(t, 0, 8*time.Hour+time.Second)
	require.ErrorIs(t, poll(), people.ErrNobody)
}

// The token of a session is another one after each login, whatever the browser came with: nobody can give somebody
// else a session that they know.
func TestSessionsAreNotFixed(t *testing.T) {
	s := start(t, sqltest.New(t))
	u, err := url.Parse(s.url)
	require.NoError(t, err)

	mallory := s.login(t, "mallory", rights.Viewer, "pay", 0)
	for name, planted := range map[string]string{"invented": strings.Repeat("A", 43), "of somebody else": mallory.session(s.url)} {
		b := newBrowser(t)
		b.Jar.SetCookies(u, []*http.Cookie{{Name: s.cookieName(), Value: planted, Path: "/"}})
		status, body := b.post(s.url+"/link", url.Values{"secret": {s.link(t, "anna", rights.Owner, "pay", 0).Code}})
		require.Equal(t, http.StatusOK, status, body)
		assert.NotEqual(t, planted, b.session(s.url), name)
		thief := newBrowser(t)
		thief.Jar.SetCookies(u, []*http.Cookie{{Name: s.cookieName(), Value: planted, Path: "/"}})
		_, err := s.of(thief)
		require.ErrorIs(t, err, people.ErrNobody, name)
	}

	b := s.login(t, "anna", rights.None, "", 0)
	before := b.session(s.url)
	status, _ := b.post(s.url+"/link", url.Values{"secret": {s.link(t, "anna", rights.None, "", 0).Code}})
	require.Equal(t, http.StatusOK, status)
	after := b.session(s.url)
	assert.NotEqual(t, before, after)
	status, _ = b.post(s.url+"/logout", nil)
	assert.Equal(t, http.StatusOK, status)
	assert.Empty(t, b.session(s.url))
	for _, old := range []string{before, after} {
		r := httptest.NewRequest(http.MethodGet, s.url, nil)
		r.AddCookie(&http.Cookie{Name: s.cookieName(), Value: old})
		_, err := s.Authenticate(r)
		require.ErrorIs(t, err, people.ErrNobody)
	}
}

// The token of a session stands nowhere in the database, and a person has no more than twenty.
func TestSessionsAreFew(t *testing.T) {
	s := start(t, sqltest.New(t))
	first := s.login(t, "anna", rights.Owner, "pay", 0)
	for range 20 {
		s.login(t, "anna", rights.None, "", 0)
	}
	n, _ := s.sessionRows(t)
	assert.Equal(t, 20, n)
	_, err := s.of(first)
	require.ErrorIs(t, err, people.ErrNobody, "the oldest has ended")
	last := s.login(t, "bob", rights.Owner, "pay", 0)
	err = s.db.Read(t.Context(), func(ctx ctx, tx sqldb.Tx) error {
		return tx.Each(ctx, func(row sqldb.Row) error {
			var hash string
			err := row.Scan(&hash)
			assert.NotEqual(t, last.session(s.url), hash)
			return err
		}, `SELECT hash FROM weir_sessions`)
	})
	require.NoError(t, err)
}

// Over https, browsers refuse the cookies from anywhere else and send them nowhere else.
func TestCookies(t *testing.T) {
	c := startCompany(t)
	for public, prefix := range map[string]string{
		"https://weir.example.com": "__Host-weir", "http://127.0.0.1:8090": "weir-8090", "http://localhost": "weir-",
	} {
		s := start(t, sqltest.New(t), withCompany(c), func(o *people.Options) { o.PublicURL = public })
		w := httptest.NewRecorder()
		r := newBrowser(t).form("/link", url.Values{"secret": {s.link(t, "anna", rights.Owner, "pay", 0).Code}})
		s.Handler().ServeHTTP(w, r)
		require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
		assert.Equal(t, "/", w.Header().Get("Location"))
		session := w.Result().Cookies()[0]
		w = httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/login/start", nil))
		require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
		assert.Contains(t, w.Header().Get("Location"), url.QueryEscape(public+"/login/callback"))
		login := w.Result().Cookies()[0]
		assert.Equal(t, prefix, session.Name)
		for _, cookie := range []*http.Cookie{session, login} {
			assert.True(t, strings.HasPrefix(cookie.Name, prefix[:5]), cookie.Name)
			assert.True(t, cookie.HttpOnly)
			assert.Equal(t, http.SameSiteLaxMode, cookie.SameSite)
			assert.Equal(t, "/", cookie.Path)
			assert.Empty(t, cookie.Domain)
			assert.Equal(t, strings.HasPrefix(public, "https:"), cookie.Secure)
		}
	}
}

// No request with a session that changes something is taken from another site, nor where no browser says from where.
func TestWritesOfOtherSites(t *testing.T) {
	s := start(t, sqltest.New(t))
	b := s.login(t, "anna", rights.Owner, "pay", 0)
	for _, c := range []struct {
		method string
		header http.Header
		ok     bool
	}{
		{http.MethodGet, nil, true},
		{http.MethodGet, http.Header{"Sec-Fetch-Site": {"cross-site"}}, true},
		{http.MethodPost, nil, false},
		{http.MethodPost, http.Header{"Sec-Fetch-Site": {"cross-site"}}, false},
		{http.MethodPost, http.Header{"Sec-Fetch-Site": {"same-site"}}, false},
		{http.MethodPost, http.Header{"Sec-Fetch-Site": {"none"}}, false},
		{http.MethodPost, http.Header{"Sec-Fetch-Site": {"same-origin"}}, true},
		{http.MethodDelete, http.Header{"Sec-Fetch-Site": {"same-origin", "cross-site"}}, false},
		{http.MethodPut, http.Header{"Origin": {s.url}}, true},
		{http.MethodPut, http.Header{"Origin": {"null"}}, false},
		{http.MethodPost, http.Header{"Origin": {"null"}, "Sec-Fetch-Site": {"same-origin"}}, true}, // a form of a page without referrer
		{http.MethodPost, http.Header{"Origin": {"null"}, "Sec-Fetch-Site": {"cross-site"}}, false},
		{http.MethodPut, http.Header{"Origin": {s.url + ".evil.example"}}, false},
		{http.MethodPut, http.Header{"Origin": {"https://evil.example"}, "Sec-Fetch-Site": {"same-origin"}}, false},
		{http.MethodPost, http.Header{"Origin": {s.url}, "Sec-Fetch-Site": {"same-origin"}}, true},
	} {
		r := httptest.NewRequest(c.method, s.url, nil)
		r.Header = http.Header{}
		maps.Copy(r.Header, c.header)
		r.AddCookie(&http.Cookie{Name: s.cookieName(), Value: b.session(s.url)})
		_, err := s.Authenticate(r)
		if c.ok {
			require.NoError(t, err, "%v", c)
			continue
		}
		var cross *people.CrossSiteError
		require.ErrorAs(t, err, &cross, "%v", c)
	}
	status, _ := b.post(s.url+"/logout", nil)
	assert.Equal(t, http.StatusOK, status)
}

func TestPublicURL(t *testing.T) {
	db := sqltest.Open(t, sqltest.New(t))
	for _, bad := range []string{
		"", "weir.example.com", "http://weir.example.com", "http://10.0.0.1", "ftp://127.0.0.1", "https://weir.example.com/admin",
		"https://a:b@weir.example.com", "https://weir.example.com?x", "http://localhost.evil.example", "https://",
	} {
		_, err := people.New(t.Context(), people.Options{DB: db, Audit: newAudit(t, db), PublicURL: bad})
		assert.ErrorContains(t, err, "give", bad)
	}
	for _, issuer := range []string{"", "http://login.example.com", "login.example.com"} {
		_, err := people.New(t.Context(), people.Options{
			DB: db, Audit: newAudit(t, db), PublicURL: "https://weir.example.com", OIDC: &people.OIDC{Issuer: issuer, ClientID: "weir"},
		})
		assert.ErrorContains(t, err, "give the https URL", issuer)
	}
}
