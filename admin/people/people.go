package people

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/alexedwards/scs/v2"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/rights"
)

// Options are those of New.
type Options struct {
	DB *sqldb.DB
	// Audit receives what is changed, in the change's own transaction.
	Audit *audit.Log
	// PublicURL is the URL under which browsers reach the server, without a path: "https://weir.example.com", or for a
	// server on the same machine "http://127.0.0.1:8090". Browsers keep no cookies safe for any other.
	PublicURL string
	// OIDC is the provider that people log in with. nil leaves links as the only way.
	OIDC *OIDC
	// Trusted are the networks of the proxies in front, whose X-Forwarded-For names the client; see keyfunc.ForwardedIP.
	Trusted []netip.Prefix
	// Render writes a page about entering. nil writes its message as text, for programs that do not serve Handler.
	Render func(w http.ResponseWriter, r *http.Request, status int, s Screen)
	// Log receives what no client sees; nil is slog.Default().
	Log *slog.Logger
	// Now is the clock of grants, tokens and links; nil is time.Now. That of sessions is always time.Now.
	Now func() time.Time
}

// People knows who people are. It is safe for concurrent use, and several processes may share one database.
type People struct {
	db       *sqldb.DB
	audit    *audit.Log
	log      *slog.Logger
	now      func() time.Time
	origin   string // of PublicURL
	render   func(http.ResponseWriter, *http.Request, int, Screen)
	attempts *attempts
	sessions *scs.SessionManager
	cookies  cookies
	provider *provider // nil without one

	known   atomic.Pointer[state]
	reading chan struct{} // held while a state is read
	failed  atomic.Pointer[failure]
	changes atomic.Int64 // of this process, which make what is known old
}

// New returns the people of a database.
func New(ctx context.Context, o Options) (*People, error) {
	if o.DB == nil || o.Audit == nil {
		return nil, errors.New("people: DB or Audit is nil; give an open database, and the audit in it")
	}
	public, err := parsePublic(o.PublicURL)
	if err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Render == nil {
		o.Render = func(w http.ResponseWriter, _ *http.Request, status int, s Screen) { http.Error(w, s.Message, status) }
	}
	p := &People{
		db: o.DB, audit: o.Audit, log: o.Log, now: o.Now, render: o.Render,
		origin: public.Scheme + "://" + public.Host, reading: make(chan struct{}, 1),
	}
	if p.attempts, err = newAttempts(o.Trusted, o.Log); err != nil {
		return nil, err
	}
	seal, err := p.sealing(ctx)
	if err != nil {
		return nil, fmt.Errorf("people: the key of cookies: %w", err)
	}
	p.cookies = newCookies(public, seal)
	p.sessions = p.newSessions()
	if o.OIDC != nil {
		if p.provider, err = newProvider(*o.OIDC, p.origin); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Console is the person as whom the commands of the program act: whoever can open the database may do everything.
func Console() *rights.Person { return &rights.Person{ID: consoleID, Name: "weir-admin", Admin: true} }

// consoleID is no identity that anybody could log in with.
const consoleID = "console"

// parsePublic reads a public URL. Over plain http browsers send neither secure cookies nor Sec-Fetch-Site, except to
// the machine that they run on.
func parsePublic(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.User != nil:
		return nil, fmt.Errorf("people: found the public URL %q; give one such as \"https://weir.example.com\"", text)
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("people: found the public URL %q with a path; give it without one, since its cookies "+
			"are those of the whole host", text)
	case u.Scheme == "https", u.Scheme == "http" && loopback(u.Hostname()):
		return u, nil
	}
	return nil, fmt.Errorf("people: found the public URL %q; give one with https, since browsers keep cookies safe there "+
		"alone, or an http one of 127.0.0.1, [::1] or localhost", text)
}

// loopback reports whether a host is the machine of the browser.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
