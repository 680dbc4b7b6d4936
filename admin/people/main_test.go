package people_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/rights"
)

func TestMain(m *testing.M) { os.Exit(sqltest.Main(m)) }

// console is the author of what commands do.
var console = people.By{Person: people.Console(), Reason: "test"}

// site is a server with people, and a page that says who is there.
type site struct {
	*people.People

	db    *sqldb.DB
	audit *audit.Log
	url   string
	now   *clock
}

type clock struct{ ahead time.Duration }

func (c *clock) now() time.Time { return time.Now().Add(c.ahead) }

// start serves people of a database. More than one may do so, as several processes do.
func start(t testing.TB, location string, change ...func(*people.Options)) *site {
	t.Helper()
	s := &site{db: sqltest.Open(t, location), now: &clock{}}
	server := httptest.NewUnstartedServer(nil)
	s.url = "http://" + server.Listener.Addr().String()
	s.audit = newAudit(t, s.db)
	o := people.Options{DB: s.db, Audit: s.audit, PublicURL: s.url, Now: s.now.now, Log: slog.New(slog.DiscardHandler)}
	o.Render = func(w http.ResponseWriter, _ *http.Request, status int, s people.Screen) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(s)
	}
	for _, f := range change {
		f(&o)
	}
	var err error
	s.People, err = people.New(t.Context(), o)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/login", s.Handler())
	mux.Handle("/login/", s.Handler())
	mux.Handle("/logout", s.Handler())
	mux.Handle("/link", s.Handler())
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		who, err := s.Authenticate(r)
		switch {
		case errors.As(err, new(*people.TooManyError)):
			http.Error(w, err.Error(), http.StatusTooManyRequests)
			return
		case err != nil:
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, who.ID+" "+who.Name)
	})
	server.Config.Handler = mux
	server.Start()
	t.Cleanup(server.Close)
	return s
}

// browser keeps cookies and sends what browsers send.
type browser struct {
	*http.Client

	t testing.TB
}

func newBrowser(t testing.TB) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &browser{&http.Client{Jar: jar, Transport: transport}, t}
}

// get returns the status and the body of a page, after all redirects.
func (b *browser) get(url string) (int, string) {
	b.t.Helper()
	resp, err := b.Get(url)
	require.NoError(b.t, err)
	return read(b.t, resp)
}

// post sends a form of the server's page.
func (b *browser) post(to string, form url.Values) (int, string) {
	b.t.Helper()
	resp, err := b.Do(b.form(to, form))
	require.NoError(b.t, err)
	return read(b.t, resp)
}

func (b *browser) form(to string, form url.Values) *http.Request {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, to, strings.NewReader(form.Encode()))
	require.NoError(b.t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return r
}

func read(t testing.TB, resp *http.Response) (int, string) {
	t.Helper()
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

// session returns the value of the cookie of a session on this machine, or "". Another port has another name for it.
func (b *browser) session(of string) string {
	b.t.Helper()
	u, err := url.Parse(of)
	require.NoError(b.t, err)
	for _, c := range b.Jar.Cookies(u) {
		if strings.HasPrefix(c.Name, "weir-") && !strings.HasPrefix(c.Name, "weir-login-") {
			return c.Value
		}
	}
	return ""
}

// link makes a link for a person with a role.
func (s *site) link(t testing.TB, name string, role rights.Role, app string, days int) people.Link {
	t.Helper()
	link, err := s.MakeLink(t.Context(), console, people.LocalPerson{Name: name, Role: role, App: app, Days: days})
	require.NoError(t, err)
	return link
}

// login returns a browser in which somebody has come by a link.
func (s *site) login(t testing.TB, name string, role rights.Role, app string, days int) *browser {
	t.Helper()
	b := newBrowser(t)
	status, body := b.post(s.url+"/link", url.Values{"secret": {s.link(t, name, role, app, days).Code}})
	require.Equal(t, http.StatusOK, status, body)
	require.Equal(t, "local:"+name+" "+name, body)
	return b
}

// with returns who a token is.
func (s *site) with(secret string) (*rights.Person, error) {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, s.url+"/v1/apps", nil)
	r.Header.Set("Authorization", "Bearer "+secret)
	return s.Authenticate(r)
}

// of returns who is logged in, in a browser.
func (s *site) of(b *browser) (*rights.Person, error) {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, s.url+"/", nil)
	r.AddCookie(&http.Cookie{Name: s.cookieName(), Value: b.session(s.url)})
	return s.Authenticate(r)
}

// soon waits until something holds, and at most for what a right may outlast its end.
func soon(t testing.TB, holds func() bool, what string) {
	t.Helper()
	assert.Eventually(t, holds, 10*time.Second, 20*time.Millisecond, what) // 2 s, on a machine that has nothing else to do
}

type ctx = context.Context

// cookieName is that of a session, which over http has the port in it.
func (s *site) cookieName() string {
	u, _ := url.Parse(s.url)
	return "weir-" + u.Port()
}

func newAudit(t testing.TB, db *sqldb.DB) *audit.Log {
	t.Helper()
	l := audit.New(db, audit.Options{Lines: io.Discard})
	t.Cleanup(func() { assert.NoError(t, l.Close()) })
	return l
}

// loopbacks are the networks of proxies on this machine.
var loopbacks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

func isUnavailable(err error) bool { return errors.As(err, new(*sqldb.UnavailableError)) }
