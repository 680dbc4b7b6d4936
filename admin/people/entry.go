package people

import (
	"context"
	"crypto/subtle"
	"errors"
	"math"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/oauth2"

	"github.com/weir-go/weir/admin/audit"
	"github.com/weir-go/weir/admin/internal/sqldb"
)

// The paths of Handler.
const (
	pathLogin    = "/login"
	pathStart    = "/login/start"
	pathCallback = "/login/callback"
	pathLogout   = "/logout"
	pathLink     = "/link"
)

// maxForm bounds the body of a form.
const maxForm = 4 << 10

// ScreenKind is that of a page about entering.
type ScreenKind string

// The pages about entering.
const (
	ScreenLogin    ScreenKind = "login"     // the ways to log in; Message has why an attempt failed, if it did
	ScreenLink     ScreenKind = "link"      // a form with the code of a link, which is also the fragment of the URL
	ScreenNoRights ScreenKind = "no-rights" // somebody who has logged in, but has no right
	ScreenOut      ScreenKind = "out"       // somebody who has logged out
	ScreenMissing  ScreenKind = "missing"   // something that is needed does not answer
)

// Screen is a page about entering, which Options.Render writes.
type Screen struct {
	Kind     ScreenKind
	Message  string // what happened, and what to do; plain text
	Provider string // host of the identity provider, or "" if there is none
	Start    string // path of the link that leads to the provider; a link, since a form could not lead there
	Out      string // URL at which the provider logs people out, on ScreenOut; a link as well, or "" if it has none
	Post     string // path of the form; its field "secret" has the code of a link
	Person   string // ID, on ScreenNoRights: whoever gives a right needs it
	Name     string
}

// Handler serves /login and what is below it, /logout and /link. Nothing but a login that comes back from the provider
// is done by GET.
func (p *People) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+pathLogin, p.serveLogin)
	mux.HandleFunc("GET "+pathStart, p.serveStart)
	mux.HandleFunc("GET "+pathCallback, p.serveCallback)
	mux.HandleFunc("POST "+pathLogout, p.serveLogout)
	mux.HandleFunc("GET "+pathLink, p.serveLink)
	mux.HandleFunc("POST "+pathLink, p.serveRedeem)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Referrer-Policy", "no-referrer") // the callback's URL has a code
		if r.Method == http.MethodHead {
			w.Header().Set("Allow", "GET, POST")
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// screen returns a page with what all of them have.
func (p *People) screen(kind ScreenKind, message, next string) Screen {
	s := Screen{Kind: kind, Message: message, Post: pathLink}
	if p.provider != nil {
		s.Provider = p.provider.host
		s.Start = pathStart
		if next = OwnPath(next); next != "/" {
			s.Start += "?" + url.Values{"next": {next}}.Encode()
		}
	}
	return s
}

func (p *People) serveLogin(w http.ResponseWriter, r *http.Request) {
	p.render(w, r, http.StatusOK, p.screen(ScreenLogin, "", r.URL.Query().Get("next")))
}

func (p *People) serveLink(w http.ResponseWriter, r *http.Request) {
	p.render(w, r, http.StatusOK, p.screen(ScreenLink, "", ""))
}

// serveStart sends a person to the provider.
func (p *People) serveStart(w http.ResponseWriter, r *http.Request) {
	next := OwnPath(r.URL.Query().Get("next"))
	if p.provider == nil {
		p.render(w, r, http.StatusNotFound, p.screen(ScreenLogin, "There is no identity provider here; use a link.", next))
		return
	}
	began := pending{
		State: secret(), Nonce: secret(), Verifier: oauth2.GenerateVerifier(), Next: next, Ends: p.now().Add(loginLasts),
	}
	to, err := p.provider.start(r.Context(), began)
	if err == nil {
		err = p.cookies.setLogin(w, began)
	}
	if err != nil {
		p.missing(w, r, err)
		return
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// serveCallback logs in whoever comes back from the provider.
func (p *People) serveCallback(w http.ResponseWriter, r *http.Request) {
	p.cookies.endLogin(w)
	began, ok := p.cookies.pendingLogin(r, p.now())
	query := r.URL.Query()
	state, code := query.Get("state"), query.Get("code")
	switch {
	case p.provider == nil:
		p.render(w, r, http.StatusNotFound, p.screen(ScreenLogin, "There is no identity provider here; use a link.", ""))
		return
	case !ok || len(query["state"]) != 1 || subtle.ConstantTimeCompare([]byte(state), []byte(began.State)) != 1:
		p.wrong(w, r, "This login was not begun in this browser, or more than ten minutes ago. Log in again.", "")
		return
	case query.Has("error") || len(query["code"]) != 1 || code == "":
		why := line(query.Get("error"), 40)
		p.wrong(w, r, strings.TrimSpace("The provider did not log you in. "+why), began.Next)
		return
	}
	succeeded, err := p.attempts.login(r)
	if err != nil {
		p.tooMany(w, r, err)
		return
	}
	l, err := p.provider.finish(r.Context(), began, code)
	var wrong *loginError
	switch {
	case errors.As(err, &wrong):
		p.log.Warn("weir-admin: a login failed", "error", err)
		p.render(w, r, http.StatusForbidden, p.screen(ScreenLogin, "You are not logged in: "+wrong.why+".", began.Next))
		return
	case err != nil:
		succeeded() // it is not the person's fault
		p.missing(w, r, err)
		return
	}
	p.arrive(w, r, began, l, succeeded)
}

// arrive begins the session of somebody whom the provider has named.
func (p *People) arrive(w http.ResponseWriter, r *http.Request, began pending, l login, succeeded func()) {
	id := ID(l.issuer, l.subject)
	again, allowed := false, false
	err := p.db.Change(r.Context(), func(ctx context.Context, c *sqldb.Change) error {
		var n int
		err := c.Row(ctx, `SELECT COUNT(*) FROM weir_logins WHERE hash = ?`, sum(began.State)).Scan(&n)
		if err != nil || n > 0 {
			again = n > 0
			return err
		}
		if err := p.tidy(ctx, c.Tx); err != nil {
			return err
		}
		_, err = c.Exec(ctx, `INSERT INTO weir_logins (hash, ends) VALUES (?, ?)`, sum(began.State), micro(began.Ends))
		if err != nil {
			return err
		}
		who, err := p.enter(ctx, c.Tx, id, l)
		if err != nil {
			return err
		}
		if allowed = anything(who); !allowed { // the audit is for those who may do something
			return p.changed(ctx, c, By{Person: who}, audit.Row{})
		}
		return p.changed(ctx, c, By{Person: who}, audit.Row{Action: "enter"}, map[string]any{"by": p.provider.host})
	})
	switch {
	case err != nil:
		succeeded()
		p.missing(w, r, err)
		return
	case again:
		p.wrong(w, r, "This login was used already. Log in again.", "")
		return
	}
	succeeded()
	if !allowed {
		s := p.screen(ScreenNoRights, "You are logged in, but nobody has given you a right here. "+
			"Ask an admin, or an owner of your app, and send them your id.", "")
		s.Person, s.Name = id, l.name
		p.render(w, r, http.StatusForbidden, s)
		return
	}
	p.welcome(w, r, id, began.Next)
}

// tidy deletes what has ended.
func (p *People) tidy(ctx context.Context, t sqldb.Tx) error {
	now := p.now()
	if _, err := t.Exec(ctx, `DELETE FROM weir_logins WHERE ends <= ?`, now.UnixMicro()); err != nil {
		return err
	}
	// People with a right through a group log in again; those with grants and tokens of their own stay.
	const idlers = `FROM weir_people WHERE seen <= ? AND barred = 0
		AND NOT EXISTS (SELECT 1 FROM weir_grants g WHERE g.kind = 'person' AND g.subject = weir_people.id)
		AND NOT EXISTS (SELECT 1 FROM weir_tokens t WHERE t.maker = weir_people.id)`
	long := now.Add(-forgotten).UnixMicro()
	if _, err := t.Exec(ctx, `DELETE FROM weir_members WHERE person IN (SELECT id `+idlers+`)`, long); err != nil {
		return err
	}
	_, err := t.Exec(ctx, `DELETE `+idlers, long)
	return err
}

// welcome begins a session and leads to a page.
func (p *People) welcome(w http.ResponseWriter, r *http.Request, person, next string) {
	if err := p.begin(w, r, person); err != nil {
		p.missing(w, r, err)
		return
	}
	http.Redirect(w, r, OwnPath(next), http.StatusSeeOther)
}

// serveRedeem begins the session of a link.
func (p *People) serveRedeem(w http.ResponseWriter, r *http.Request) {
	if err := p.sameSite(r); err != nil {
		p.render(w, r, http.StatusForbidden, p.screen(ScreenLink, "This form was not sent by a page of this server. Send it again from here.", ""))
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	code := strings.TrimSpace(r.PostFormValue("secret"))
	if _, after, found := strings.Cut(code, "#"); found { // the whole URL
		code = after
	}
	if !isSecret(code) {
		p.wrong(w, r, "This is no code of a link. Copy it whole.", "")
		return
	}
	person, found, err := p.redeem(r, code)
	switch {
	case errors.As(err, new(*TooManyError)):
		p.tooMany(w, r, err)
	case errors.Is(err, errNoRights):
		s := p.screen(ScreenNoRights, "Nobody has given you a right here, or it was taken away. Ask an admin, and send them your id.", "")
		s.Person = person
		p.render(w, r, http.StatusForbidden, s)
	case err != nil:
		p.missing(w, r, err)
	case !found:
		p.render(w, r, http.StatusForbidden, p.screen(ScreenLink,
			"There is no such link any more: each can be used once, within ten minutes. Ask for another one.", ""))
	default:
		p.welcome(w, r, person, "/")
	}
}

// serveLogout ends a session.
func (p *People) serveLogout(w http.ResponseWriter, r *http.Request) {
	if err := p.sameSite(r); err != nil {
		p.render(w, r, http.StatusForbidden, p.screen(ScreenLogin, "This was not sent by a page of this server. You are still logged in.", ""))
		return
	}
	if err := p.end(w, r); err != nil {
		p.missing(w, r, err)
		return
	}
	s := p.screen(ScreenOut, "You are logged out.", "")
	if p.provider != nil {
		s.Out = p.provider.logout()
	}
	p.render(w, r, http.StatusOK, s)
}

// wrong answers an attempt that was wrong, and counts it.
func (p *People) wrong(w http.ResponseWriter, r *http.Request, message, next string) {
	if _, err := p.attempts.wrong(r); err != nil {
		p.tooMany(w, r, err)
		return
	}
	kind := ScreenLogin
	if r.URL.Path == pathLink {
		kind = ScreenLink
	}
	p.render(w, r, http.StatusForbidden, p.screen(kind, message, next))
}

// tooMany answers an address that has tried too often.
func (p *People) tooMany(w http.ResponseWriter, r *http.Request, err error) {
	var many *TooManyError
	if !errors.As(err, &many) {
		p.missing(w, r, err)
		return
	}
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(many.RetryAfter.Seconds()))))
	p.render(w, r, http.StatusTooManyRequests, p.screen(ScreenLogin,
		"Too many attempts to enter came from your address. Wait "+wait(many.RetryAfter)+" and try again.", ""))
}

func wait(d time.Duration) string {
	if seconds := int(math.Ceil(d.Seconds())); seconds != 1 {
		return strconv.Itoa(seconds) + " seconds"
	}
	return "a second"
}

// missing answers when something that is needed does not answer.
func (p *People) missing(w http.ResponseWriter, r *http.Request, err error) {
	message := "Something is wrong here; the log of the server says what. Nobody can log in until it is mended."
	var unavailable *sqldb.UnavailableError
	var gone *providerError
	switch {
	case errors.As(err, &unavailable) || errors.Is(err, sqldb.ErrUnknown):
		message = "The database of this server does not answer, so that nobody can log in. Try again in a minute."
	case errors.As(err, &gone):
		message = "The identity provider at " + gone.host + " does not answer, so that nobody can log in by it. " +
			"Those who are logged in still are. Try again in a minute, or ask for a link."
	}
	p.log.Error("weir-admin: nobody can log in", "error", err)
	w.Header().Set("Retry-After", "10")
	p.render(w, r, http.StatusServiceUnavailable, p.screen(ScreenMissing, message, ""))
}

// OwnPath returns a path of this server as it is, and "/" for anything else, such as the URL of another server. The
// pages about entering are left out, since nobody wants to return there.
func OwnPath(next string) string {
	u, err := url.Parse(next)
	switch {
	case err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "",
		!strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//"),
		len(next) > 1000,
		strings.Contains(next, `\`), // browsers read it as /
		strings.ContainsFunc(next, func(r rune) bool { return unicode.IsControl(r) || r == unicode.ReplacementChar }):
		return "/"
	}
	// A redirect's path is cleaned, and may be //evil.example after that.
	clean := path.Clean(u.Path)
	for _, own := range []string{pathLogin, pathLogout, pathLink} {
		if clean == own || strings.HasPrefix(clean, own+"/") {
			return "/"
		}
	}
	if strings.Contains(u.Path, "//") || strings.Contains(u.Path, `\`) || strings.ContainsFunc(u.Path, unicode.IsControl) {
		return "/"
	}
	return next
}
