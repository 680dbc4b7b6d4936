package people_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/rights"
)

// A thousand wrong links, tokens and callbacks at once, all from the address of honest people: those come in
// meanwhile, nobody else does, and no more than twenty are even answered.
func TestUnderAttack(t *testing.T) {
	c := startCompany(t)
	s := start(t, sqltest.New(t), withCompany(c))
	s.grants(t, "pay", people.Grant{Kind: people.KindGroup, Subject: "payments", Role: rights.Operator})
	right, _, err := s.MakeLocalToken(t.Context(), console, people.LocalPerson{Name: "ci", Role: rights.Owner, App: "pay"},
		people.NewToken{Name: "ci", Apps: []string{"pay"}, Role: rights.Owner, Days: 1})
	require.NoError(t, err)
	anna := s.login(t, "anna", rights.Owner, "pay", 0)
	code := strings.Repeat("A", 43)

	transport := &http.Transport{MaxIdleConnsPerHost: 100, MaxConnsPerHost: 100}
	defer transport.CloseIdleConnections()
	attacker := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	wrong := func(ctx context.Context, i int) *http.Request {
		form := url.Values{"secret": {code[:40] + fmt.Sprintf("%03d", i%1000)}}
		r, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/link", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		switch i % 3 {
		case 1:
			r, _ = http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/", nil)
			r.Header.Set("Authorization", "Bearer weir_"+form.Get("secret"))
		case 2:
			r, _ = http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/login/callback?code=a&state="+form.Get("secret"), nil)
			r.AddCookie(&http.Cookie{Name: "weir-login-" + s.cookieName()[5:], Value: form.Get("secret")})
		}
		return r
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var in, refused, limited atomic.Int64
	var most atomic.Uint64
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var attack sync.WaitGroup
	const attempts = 1000
	for i := range attempts {
		attack.Go(func() {
			for ctx.Err() == nil { // again and again, until the honest ones are through
				resp, err := attacker.Do(wrong(ctx, i))
				if err != nil {
					return
				}
				_ = resp.Body.Close()
				switch resp.StatusCode {
				case http.StatusForbidden, http.StatusUnauthorized:
					refused.Add(1)
				case http.StatusTooManyRequests:
					limited.Add(1)
				default:
					in.Add(1)
				}
			}
		})
	}
	assert.Eventually(t, func() bool { return refused.Load()+limited.Load() >= 100 }, time.Minute, time.Millisecond)

	var slowest time.Duration
	for range 5 {
		for name, honest := range map[string]func(){
			"token": func() { _, err := s.with(right); require.NoError(t, err) },
			"session": func() {
				status, body := anna.get(s.url)
				require.Equal(t, http.StatusOK, status, body)
			},
			"link": func() { s.login(t, "bob", rights.Viewer, "pay", 0) },
			"provider": func() {
				status, body := newBrowser(t).get(s.url + "/login/start")
				require.Equal(t, http.StatusOK, status, body)
			},
		} {
			began := time.Now()
			honest()
			if took := time.Since(began); took > slowest {
				slowest = took
				t.Logf("%s took %v", name, took)
			}
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			most.Store(max(most.Load(), now.HeapAlloc))
		}
	}
	assert.Eventually(t, func() bool { return refused.Load()+limited.Load() >= attempts }, time.Minute, time.Millisecond)
	stop()
	attack.Wait()
	runtime.ReadMemStats(&after)
	t.Logf("%d refused, %d limited, slowest honest one %v, heap %d to at most %d MiB", refused.Load(), limited.Load(), slowest,
		before.HeapAlloc>>20, most.Load()>>20)
	assert.Zero(t, in.Load())
	assert.Positive(t, limited.Load())
	assert.Less(t, most.Load(), uint64(100<<20), "of the attackers, the server and the provider together")
	assert.Less(t, slowest, 20*time.Second, "1 s where the machine has nothing else to do")
	assert.Less(t, refused.Load(), int64(20+20*3*2), "20 at once, and 20 a minute")
}

// Behind proxies, the address of the client counts, and not what the client says it is.
func TestAddressesOfAttempts(t *testing.T) {
	s := start(t, sqltest.New(t))
	send := func(header string) int {
		b := newBrowser(t)
		r := b.form(s.url+"/link", url.Values{"secret": {"x"}})
		r.Header.Set("X-Forwarded-For", header)
		resp, err := b.Do(r)
		require.NoError(t, err)
		status, _ := read(t, resp)
		return status
	}
	for i := range 20 {
		assert.Equal(t, http.StatusForbidden, send(fmt.Sprintf("203.0.113.%d", i)))
	}
	assert.Equal(t, http.StatusTooManyRequests, send("203.0.113.99"), "a header that nobody is trusted to write")
	s = start(t, sqltest.New(t), func(o *people.Options) { o.Trusted = loopbacks })
	for range 20 {
		assert.Equal(t, http.StatusForbidden, send("203.0.113.7"))
	}
	assert.Equal(t, http.StatusTooManyRequests, send("203.0.113.7"))
	assert.Equal(t, http.StatusForbidden, send("203.0.113.8"))
}

// A provider is asked for at most 20 wrong codes a minute of an address.
func TestWrongCodes(t *testing.T) {
	c := startCompany(t)
	s := start(t, sqltest.New(t), withCompany(c))
	limited := 0
	for range 25 {
		b := newBrowser(t)
		back := callback(t, s, b)
		u, err := url.Parse(back)
		require.NoError(t, err)
		q := u.Query()
		q.Set("code", "wrong")
		u.RawQuery = q.Encode()
		status, body := b.get(u.String())
		if status == http.StatusTooManyRequests {
			limited++
			continue
		}
		assert.Equal(t, http.StatusForbidden, status)
		assert.Contains(t, body, "invalid_grant")
	}
	assert.LessOrEqual(t, c.asked.Load(), int64(21))
	assert.Positive(t, limited)
}

// Without the database there is a page that says so, and never a right.
func TestDeadDatabase(t *testing.T) {
	for name, start := range map[string]func(testing.TB) *sqltest.Server{"PostgreSQL": sqltest.Postgres, "MariaDB": sqltest.MariaDB} {
		t.Run(name, func(t *testing.T) { deadDatabase(t, start(t)) })
	}
}

func deadDatabase(t *testing.T, server *sqltest.Server) {
	c := startCompany(t)
	s := start(t, server.Database(t), withCompany(c))
	s.grants(t, "pay", people.Grant{Kind: people.KindGroup, Subject: "payments", Role: rights.Operator})
	anna := s.login(t, "anna", rights.Owner, "pay", 0)
	secret, _, err := s.MakeLocalToken(t.Context(), console, people.LocalPerson{Name: "ci", Role: rights.Owner, App: "pay"},
		people.NewToken{Name: "ci", Apps: []string{"pay"}, Role: rights.Owner, Days: 1})
	require.NoError(t, err)
	waits := s.link(t, "anna", rights.None, "", 0)
	b := newBrowser(t)
	back := callback(t, s, b)

	server.Kill()
	soon(t, func() bool { // processes of PostgreSQL live on for a moment, each with its connection
		for range 20 {
			if s.db.Write(t.Context(), func(ctx, sqldb.Tx) error { return nil }) == nil {
				return false
			}
		}
		return true
	}, "the server is gone")
	gone := func(err error) bool { return isUnavailable(err) }
	soon(t, func() bool { _, err := s.of(anna); return gone(err) }, "a session")
	soon(t, func() bool { _, err := s.with(secret); return gone(err) }, "a token")
	_, err = s.with("weir_" + strings.Repeat("A", 43))
	require.True(t, gone(err), "%v: nobody knows that it is wrong", err)
	for what, attempt := range map[string]func() (int, string){
		"link":   func() (int, string) { return newBrowser(t).post(s.url+"/link", url.Values{"secret": {waits.Code}}) },
		"login":  func() (int, string) { return b.get(back) },
		"logout": func() (int, string) { return anna.post(s.url+"/logout", nil) },
	} {
		status, body := attempt()
		assert.Equal(t, http.StatusServiceUnavailable, status, what)
		assert.Contains(t, body, "The database of this server does not answer", what)
	}

	server.Start(t)
	soon(t, func() bool { _, err := s.of(anna); return err == nil }, "the session goes on")
	status, body := newBrowser(t).post(s.url+"/link", url.Values{"secret": {waits.Code}})
	assert.Equal(t, http.StatusOK, status, body)
}
