package people_test

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc/oidctest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/rights"
)

// company is an identity provider, in which somebody is logged in already.
type company struct {
	oidctest.Server

	url   string
	key   *rsa.PrivateKey
	end   string // where it logs people out
	gone  atomic.Bool
	asked atomic.Int64 // requests for ID tokens

	mu     sync.Mutex
	codes  map[string]url.Values // what each was given for
	again  bool                  // whether a code can be used more than once
	claims map[string]any        // of whoever is logged in
	signer *rsa.PrivateKey
}

var theKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

func startCompany(t testing.TB) *company {
	t.Helper()
	c := &company{key: theKey(), codes: map[string]url.Values{}}
	c.signer = c.key
	c.PublicKeys = []oidctest.PublicKey{{PublicKey: c.key.Public(), KeyID: "k", Algorithm: "RS256"}}
	server := httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(server.Close)
	c.url = server.URL
	c.SetIssuer(c.url)
	c.is("7", "Anna A", "payments")
	return c
}

// is logs somebody in at the provider.
func (c *company) is(subject, name string, groups ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.claims = map[string]any{"sub": subject, "name": name, "groups": groups}
}

func (c *company) serve(w http.ResponseWriter, r *http.Request) {
	if c.gone.Load() {
		http.Error(w, "gone", http.StatusBadGateway)
		return
	}
	switch r.URL.Path {
	case "/auth":
		c.auth(w, r)
	case "/token":
		c.token(w, r)
	case "/.well-known/openid-configuration":
		c.discovery(w, r)
	default:
		c.Server.ServeHTTP(w, r) //nolint:staticcheck // not this one
	}
}

// discovery adds to what the server says of itself.
func (c *company) discovery(w http.ResponseWriter, r *http.Request) {
	said := httptest.NewRecorder()
	c.Server.ServeHTTP(said, r) //nolint:staticcheck // not this one
	var all map[string]any
	if err := json.Unmarshal(said.Body.Bytes(), &all); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if c.end != "" {
		all["end_session_endpoint"] = c.end
	}
	_ = json.NewEncoder(w).Encode(all)
}

func (c *company) auth(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || len(q.Get("code_challenge")) != 43 ||
		q.Get("client_id") != "weir" || q.Get("nonce") == "" || q.Get("state") == "" {
		http.Error(w, "a bad request: "+r.URL.RawQuery, http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	code := rand.Text()
	c.codes[code] = q
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {code}, "state": {q.Get("state")}}.Encode(), http.StatusFound)
}

func (c *company) token(w http.ResponseWriter, r *http.Request) {
	c.asked.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.codes[r.PostFormValue("code")]
	challenge := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	w.Header().Set("Content-Type", "application/json")
	if id, secret, _ := r.BasicAuth(); id != "weir" || secret != "s3cret" {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"error":"invalid_client"}`))
		return
	}
	if q == nil || q.Get("redirect_uri") != r.PostFormValue("redirect_uri") ||
		q.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(challenge[:]) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error":"invalid_grant"}`))
		return
	}
	if !c.again {
		delete(c.codes, r.PostFormValue("code"))
	}
	claims := map[string]any{
		"iss": c.url, "aud": "weir", "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(), "nonce": q.Get("nonce"),
	}
	maps.Copy(claims, c.claims)
	text, _ := json.Marshal(claims)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"access_token": "a", "token_type": "Bearer",
		"id_token": oidctest.SignIDToken(crypto.PrivateKey(c.signer), "k", "RS256", string(text)),
	})
}

// withCompany lets a site's people come from a provider.
func withCompany(c *company) func(*people.Options) {
	return func(o *people.Options) {
		o.OIDC = &people.OIDC{Issuer: c.url, ClientID: "weir", ClientSecret: "s3cret"}
	}
}

// A person of the provider logs in, has the rights of their own and of their groups, and comes to the page that they
// wanted. Their name is no right.
func TestLoginByProvider(t *testing.T) { sqltest.Each(t, loginByProvider) }

func loginByProvider(t *testing.T, location string) {
	c := startCompany(t)
	s := start(t, location, withCompany(c))
	s.grants(t, "pay", people.Grant{Kind: people.KindGroup, Subject: "payments", Role: rights.Operator})
	b := newBrowser(t)
	status, body := b.get(s.url + "/login?next=%2Fapps%2Fpay")
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, body, `"Start":"/login/start?next=%2Fapps%2Fpay"`)

	var last string
	b.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		last = r.URL.Path
		return nil
	}
	status, body = b.get(s.url + "/login/start?next=%2Fapps%2Fpay")
	require.Equal(t, http.StatusOK, status, body)
	assert.Equal(t, people.ID(c.url, "7")+" Anna A", body)
	assert.Equal(t, "/apps/pay", last)
	who, err := s.of(b)
	require.NoError(t, err)
	assert.Equal(t, map[string]rights.Role{"pay": rights.Operator}, who.Roles)

	// Somebody else with the same name is somebody else, and has no right; the page has the id that needs one.
	c.is("8", "Anna A", "sales")
	other := newBrowser(t)
	status, body = other.get(s.url + "/login/start")
	assert.Equal(t, http.StatusForbidden, status)
	assert.Contains(t, body, people.ID(c.url, "8"))
	assert.Empty(t, other.session(s.url), "without a right there is no session")
	known, err := s.People.People(t.Context())
	require.NoError(t, err)
	require.Len(t, known, 2)
	for _, k := range known {
		assert.Equal(t, "Anna A", k.Name)
		assert.Equal(t, c.url, k.Issuer)
	}
	s.grants(t, "shop", grant(people.ID(c.url, "8"), rights.Viewer))
	status, _ = other.get(s.url + "/login/start")
	assert.Equal(t, http.StatusOK, status)

	// At the next login the groups are other ones.
	c.is("7", "Anna B", "sales")
	status, _ = newBrowser(t).get(s.url + "/login/start")
	assert.Equal(t, http.StatusForbidden, status)
	_, err = s.of(b)
	require.ErrorIs(t, err, people.ErrNobody)
}

// Somebody who was put out before their first login does not get in by the right of a group, until they are let in.
func TestPutOutBeforeTheFirstLogin(t *testing.T) { sqltest.Each(t, putOutBefore) }

func putOutBefore(t *testing.T, location string) {
	c := startCompany(t)
	s := start(t, location, withCompany(c))
	s.grants(t, "pay", people.Grant{Kind: people.KindGroup, Subject: "payments", Role: rights.Operator})
	id := people.ID(c.url, "7")
	require.NoError(t, s.Bar(t.Context(), console, id, true))
	known, err := s.People.People(t.Context())
	require.NoError(t, err)
	require.Len(t, known, 1)
	assert.True(t, known[0].Barred)
	assert.Zero(t, known[0].Seen)

	b := newBrowser(t)
	status, _ := b.get(s.url + "/login/start")
	assert.Equal(t, http.StatusForbidden, status)
	assert.Empty(t, b.session(s.url))
	require.NoError(t, s.Bar(t.Context(), console, id, false))
	status, _ = b.get(s.url + "/login/start")
	assert.Equal(t, http.StatusOK, status)
	known, err = s.People.People(t.Context())
	require.NoError(t, err)
	require.Len(t, known, 1)
	assert.Equal(t, []string{"Anna A", c.url}, []string{known[0].Name, known[0].Issuer})

	var missing *people.NotFoundError
	require.ErrorAs(t, s.Bar(t.Context(), console, "anna@example.com", true), &missing, "a mail address is nobody's id")
	require.ErrorAs(t, s.Bar(t.Context(), console, "local:max", false), &missing)
}

// A person who logs out can do so at the provider as well, if that says where.
func TestLogoutAtTheProvider(t *testing.T) {
	for end, want := range map[string]string{
		"":                                     "",
		"https://login.example.com/out?a=b":    `"Out":"https://login.example.com/out?a=b\u0026client_id=weir"`,
		"http://login.example.com/out":         "",
		"javascript:alert(1)":                  "",
		"https://login.example.com/%zz?a=b#%g": "",
	} {
		c := startCompany(t)
		c.end = end
		s := start(t, sqltest.New(t), withCompany(c))
		s.grants(t, "pay", people.Grant{Kind: people.KindGroup, Subject: "payments", Role: rights.Operator})
		b := newBrowser(t)
		status, _ := b.get(s.url + "/login/start")
		require.Equal(t, http.StatusOK, status)
		status, body := b.post(s.url+"/logout", nil)
		require.Equal(t, http.StatusOK, status)
		assert.Contains(t, body, `"Kind":"out"`)
		if want == "" {
			want = `"Out":""`
		}
		assert.Contains(t, body, want, end)
		_, err := s.of(b)
		require.ErrorIs(t, err, people.ErrNobody)
	}
}

// Nothing is kept of somebody without a right while as many people are known as are kept.
func TestNobodyBeyondTheBound(t *testing.T) {
	c := startCompany(t)
	s := start(t, sqltest.New(t), withCompany(c))
	require.NoError(t, s.db.Change(t.Context(), func(ctx context.Context, c *sqldb.Change) error {
		_, err := c.Exec(ctx, `INSERT INTO weir_people (id, issuer, subject, name, seen, barred)
			WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
			SELECT 'x' || i, 'x', CAST(i AS TEXT), 'x', CAST(? AS BIGINT), 0 FROM n`, time.Now().UnixMicro())
		return err
	}))
	c.is("8", "Ben", "sales", "support")
	status, _ := newBrowser(t).get(s.url + "/login/start")
	assert.Equal(t, http.StatusForbidden, status)
	people, members := 0, 0
	require.NoError(t, s.db.Change(t.Context(), func(ctx context.Context, c *sqldb.Change) error {
		return c.Row(ctx, `SELECT (SELECT COUNT(*) FROM weir_people), (SELECT COUNT(*) FROM weir_members)`).Scan(&people, &members)
	}))
	assert.Equal(t, 20_000, people)
	assert.Zero(t, members)
}

// What a provider's answer must not be.
func TestBadLogins(t *testing.T) {
	c := startCompany(t)
	wrongKey, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	s := start(t, sqltest.New(t), withCompany(c))
	s.grants(t, "pay", people.Grant{Kind: people.KindGroup, Subject: "payments", Role: rights.Operator})
	for name, change := range map[string]func(){
		"another issuer":    func() { c.claims["iss"] = "https://evil.example" },
		"another audience":  func() { c.claims["aud"] = "other" },
		"several audiences": func() { c.claims["aud"] = []string{"weir", "other"} },
		"another party":     func() { c.claims["azp"] = "other" },
		"another nonce":     func() { c.claims["nonce"] = "of another login" },
		"no nonce":          func() { c.claims["nonce"] = "" },
		"expired":           func() { c.claims["exp"] = time.Now().Add(-time.Hour).Unix() },
		"no subject":        func() { c.claims["sub"] = "" },
		"a long subject":    func() { c.claims["sub"] = strings.Repeat("s", 256) },
		"another key":       func() { c.signer = wrongKey },
	} {
		c.is("7", "Anna", "payments")
		c.signer = c.key
		change()
		b := newBrowser(t)
		status, body := b.get(s.url + "/login/start")
		assert.Equal(t, http.StatusForbidden, status, name)
		assert.Contains(t, body, "You are not logged in", name)
		assert.Empty(t, b.session(s.url), name)
	}
	c.is("7", "Anna", "payments")
	c.signer = c.key
	status, _ := newBrowser(t).get(s.url + "/login/start")
	assert.Equal(t, http.StatusOK, status)
}

// callback begins a login, and returns the URL to which the provider leads back, which the browser has not visited.
func callback(t testing.TB, s *site, b *browser) string {
	t.Helper()
	var back string
	b.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if r.URL.Path == "/login/callback" {
			back = r.URL.String()
			return http.ErrUseLastResponse
		}
		return nil
	}
	b.get(s.url + "/login/start")
	b.CheckRedirect = nil
	require.NotEmpty(t, back)
	return back
}

// What belongs to one login and one browser is of no use in another, or a second time, even where the provider takes a
// code twice.
func TestReplayedLogins(t *testing.T) { sqltest.Each(t, replayedLogins) }

func replayedLogins(t *testing.T, location string) {
	c := startCompany(t)
	c.again = true
	s := start(t, location, withCompany(c))
	s.grants(t, "pay", people.Grant{Kind: people.KindGroup, Subject: "payments", Role: rights.Operator})

	b := newBrowser(t)
	back := callback(t, s, b)
	refused := func(b *browser, to, why string) {
		t.Helper()
		asked := c.asked.Load()
		status, _ := b.get(to)
		assert.Equal(t, http.StatusForbidden, status, why)
		assert.Equal(t, asked, c.asked.Load(), "%s: the provider is not asked", why)
	}
	refused(newBrowser(t), back, "a browser that has not begun it")
	other := newBrowser(t)
	theirs := callback(t, s, other)
	refused(other, back, "a browser that has begun another one: its session would be somebody else's")
	refused(other, theirs, "its own, but the cookie is gone after the first attempt")

	u, err := url.Parse(s.url)
	require.NoError(t, err)
	kept := b.Jar.Cookies(u)
	status, body := b.get(back)
	require.Equal(t, http.StatusOK, status, body)
	refused(b, back, "the second time: there is no cookie any more")
	for range 2 {
		thief := newBrowser(t)
		thief.Jar.SetCookies(u, kept)
		status, body = thief.get(back)
		assert.Equal(t, http.StatusForbidden, status, "with the cookie as well")
		assert.Contains(t, body, "used already")
		assert.Empty(t, thief.session(s.url))
	}

	// Two at once with everything: one is logged in.
	b = newBrowser(t)
	back = callback(t, s, b)
	kept = b.Jar.Cookies(u)
	var in atomic.Int32
	var work sync.WaitGroup
	for range 6 {
		work.Go(func() {
			twin := newBrowser(t)
			twin.Jar.SetCookies(u, kept)
			if status, _ := twin.get(back); status == http.StatusOK {
				in.Add(1)
			}
		})
	}
	work.Wait()
	assert.Equal(t, int32(1), in.Load())

	// After ten minutes it is too late.
	b = newBrowser(t)
	back = callback(t, s, b)
	s.now.ahead = 11 * time.Minute
	refused(b, back, "too late")
}

// A cookie of a login that somebody has made up, or changed, is none.
func TestForgedLoginCookie(t *testing.T) {
	c := startCompany(t)
	s := start(t, sqltest.New(t), withCompany(c))
	b := newBrowser(t)
	back := callback(t, s, b)
	u, err := url.Parse(s.url)
	require.NoError(t, err)
	ours := b.Jar.Cookies(u)[0]
	raw, err := base64.RawURLEncoding.DecodeString(ours.Value)
	require.NoError(t, err)
	assert.NotContains(t, string(raw), `"s":`)
	raw[len(raw)/2] ^= 1
	for _, value := range []string{
		"", "x", base64.RawURLEncoding.EncodeToString(raw), base64.RawURLEncoding.EncodeToString([]byte(`{"s":"a"}`)), ours.Value[:20],
	} {
		forger := newBrowser(t)
		forger.Jar.SetCookies(u, []*http.Cookie{{Name: ours.Name, Value: value, Path: "/"}})
		status, _ := forger.get(back)
		assert.Equal(t, http.StatusForbidden, status, "%.30q", value)
	}
	assert.Zero(t, c.asked.Load())
}

// A provider that is gone: sessions go on, logins say why, and it works again when it is back.
func TestDeadProvider(t *testing.T) {
	c := startCompany(t)
	c.gone.Store(true)
	s := start(t, sqltest.New(t), withCompany(c))
	anna := s.login(t, "anna", rights.Owner, "pay", 0)
	status, body := newBrowser(t).get(s.url + "/login/start")
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Contains(t, body, "The identity provider at "+strings.TrimPrefix(c.url, "http://")+" does not answer")
	_, err := s.of(anna)
	require.NoError(t, err)
	bob := s.login(t, "bob", rights.Owner, "pay", 0)
	_, err = s.of(bob)
	require.NoError(t, err, "links go on as well")

	c.gone.Store(false)
	s.ForgetProvider() // in five seconds
	b := newBrowser(t)
	back := callback(t, s, b)
	c.gone.Store(true)
	status, body = b.get(back)
	assert.Equal(t, http.StatusServiceUnavailable, status, "it is gone again before the code is used")
	assert.Contains(t, body, "does not answer")
	assert.Empty(t, b.session(s.url))
}

// Nobody is led to another server.
func TestOwnPath(t *testing.T) {
	for next, want := range map[string]string{
		"/": "/", "/apps/pay": "/apps/pay", "/apps/pay?a=b&c=%2F#x": "/apps/pay?a=b&c=%2F#x", "/a%20b": "/a%20b",
		"": "/", "apps": "/", "//evil.example": "/", "///evil.example": "/", `/\evil.example`: "/", `\\evil.example`: "/",
		"https://evil.example/": "/", "javascript:alert(1)": "/", "/\t/evil.example": "/", "/\n/evil.example": "/",
		"/%0d%0aSet-Cookie:x": "/", "/%2F%2Fevil.example": "/", "/..//evil.example": "/", "/./%5Cevil": "/",
		"http:/apps": "/", "/@evil.example": "/@evil.example", "?x": "/", "#x": "/", " /apps": "/",
		"/login": "/", "/login/start": "/", "/logout": "/", "/link": "/", "/a/../login": "/", "/" + strings.Repeat("a", 2000): "/",
	} {
		assert.Equal(t, want, people.OwnPath(next), "%q", next)
	}
}

// Wherever a page leads, a browser stays on the server. Browsers drop tabs and line ends, and take \ for /.
func FuzzOwnPath(f *testing.F) {
	for _, seed := range []string{"/apps", "//e", `/\e`, "/%2f%2fe", "https:e", "/\t/e", "/a//b", "/../e"} {
		f.Add(seed)
	}
	base, err := url.Parse("https://weir.example/login")
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, next string) {
		own := people.OwnPath(next)
		asBrowsers := strings.NewReplacer("\t", "", "\n", "", "\r", "", `\`, "/").Replace(strings.TrimSpace(own))
		to, err := base.Parse(asBrowsers)
		if err != nil || to.Host != "weir.example" || to.Scheme != "https" {
			t.Fatalf("%q leads to %v (%v)", next, to, err)
		}
		w := httptest.NewRecorder()
		http.Redirect(w, httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/login", nil), own, http.StatusSeeOther)
		if location := w.Header().Get("Location"); !strings.HasPrefix(location, "/") || strings.HasPrefix(location, "//") {
			t.Fatalf("%q is sent as %q", next, location)
		}
	})
}
