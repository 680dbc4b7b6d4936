package people

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/weir-go/weir/admin/internal/sqldb"
	"github.com/weir-go/weir/admin/rights"
)

// Authenticate returns who sends a request, by the token in "Authorization: Bearer" or by the session of its cookie,
// with the rights of now. A request without a right token never has the session's rights. The error is [ErrNobody],
// [ErrToken], a *[TooManyError], a *[CrossSiteError], or, as long as the database does not answer, an
// *[sqldb.UnavailableError]; whatever it is, there is no right.
func (p *People) Authenticate(r *http.Request) (*rights.Person, error) {
	if lines := r.Header.Values("Authorization"); len(lines) > 0 {
		return p.byToken(r, lines)
	}
	secret := p.cookies.token(r)
	if secret == "" {
		return nil, ErrNobody
	}
	if err := p.sameSite(r); err != nil {
		return nil, err
	}
	s, err := p.state(r.Context())
	if err != nil {
		return nil, err
	}
	if s.sessions[sum(secret)] == nil {
		if s, err = p.newest(r.Context()); err != nil {
			return nil, err
		}
	}
	one := s.sessions[sum(secret)]
	if one == nil || time.Since(one.began) >= longest || s.people[one.person] == nil {
		return nil, ErrNobody
	}
	switch awake, err := p.awake(r, sum(secret), one); {
	case err != nil:
		return nil, err
	case !awake:
		return nil, ErrNobody
	}
	who := s.people[one.person].rights(p.now(), true)
	if !anything(who) {
		return nil, ErrNobody
	}
	return who, nil
}

func (p *People) byToken(r *http.Request, lines []string) (*rights.Person, error) {
	s, err := p.state(r.Context())
	if err != nil {
		return nil, err
	}
	scheme, text, _ := strings.Cut(lines[0], " ")
	text = strings.TrimSpace(text)
	if len(lines) != 1 || !strings.EqualFold(scheme, "Bearer") || !isToken(text) {
		text = ""
	}
	if t, who := p.tokenOf(s, text); who != nil {
		p.useToken(r.Context(), t)
		return who, nil
	}
	right, err := p.attempts.wrong(r)
	switch {
	case err != nil:
		return nil, err
	case s.tokens[sum(text)] != nil || text == "":
		return nil, ErrToken
	}
	if s, err = p.newest(r.Context()); err != nil {
		right()
		return nil, err
	}
	t, who := p.tokenOf(s, text)
	if who == nil {
		return nil, ErrToken
	}
	right()
	p.useToken(r.Context(), t)
	return who, nil
}

// tokenOf returns the token of a secret with its rights, or nil.
func (p *People) tokenOf(s *state, secret string) (*token, *rights.Person) {
	t := s.tokens[sum(secret)]
	if t == nil || !p.now().Before(t.ends) || s.people[t.maker] == nil {
		return nil, nil
	}
	if who := t.rights(s.people[t.maker], p.now()); anything(who) {
		return t, who
	}
	return nil, nil
}

// useToken writes that a token is used, to the hour. A request does not fail if that fails.
func (p *People) useToken(ctx context.Context, t *token) {
	now, last := p.now().Truncate(used).UnixMicro(), t.used.Load()
	if now <= last || !t.used.CompareAndSwap(last, now) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	err := p.db.Write(ctx, func(ctx context.Context, tx sqldb.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE weir_tokens SET used = ? WHERE id = ? AND used < ?`, now, t.id, now)
		return err
	})
	if err != nil {
		p.log.Warn("weir-admin: the last use of a token was not written", "token", t.id, "error", err)
	}
}

// awake reports whether a person uses a session, and writes that now and then. A page that asks again and again whether
// anything is new does not count as a person.
func (p *People) awake(r *http.Request, hash string, one *session) (bool, error) {
	now := time.Now()
	last := one.seen.Load()
	if now.Sub(time.UnixMicro(last)) >= idle { // another process may have seen it since
		var seen int64
		err := p.db.Read(r.Context(), func(ctx context.Context, t sqldb.Tx) error {
			return t.Row(ctx, `SELECT COALESCE(MAX(seen), 0) FROM weir_sessions WHERE hash = ?`, hash).Scan(&seen)
		})
		if err != nil {
			return false, err
		}
		if now.Sub(time.UnixMicro(seen)) >= idle {
			return false, nil
		}
		one.seen.CompareAndSwap(last, seen)
		last = seen
	}
	poll := r.Method == http.MethodGet && r.Header.Get("Hx-Request") != ""
	if poll || now.Sub(time.UnixMicro(last)) < moved || !one.seen.CompareAndSwap(last, now.UnixMicro()) {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), within)
	defer cancel()
	err := p.db.Write(ctx, func(ctx context.Context, t sqldb.Tx) error {
		_, err := t.Exec(ctx, `UPDATE weir_sessions SET seen = ? WHERE hash = ? AND seen < ?`, now.UnixMicro(), hash, now.UnixMicro())
		return err
	})
	if err != nil {
		p.log.Warn("weir-admin: the last use of a session was not written", "error", err)
	}
	return true, nil
}

// sameSite returns an error for a request that changes something and that no browser says comes from this server. A
// request without either header may come from an old browser, and so from any site.
func (p *People) sameSite(r *http.Request) error {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return nil
	}
	site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
	switch {
	case len(r.Header.Values("Sec-Fetch-Site")) > 1 || len(r.Header.Values("Origin")) > 1:
		return &CrossSiteError{"Sec-Fetch-Site or Origin twice"}
	case site == "same-origin" && (origin == "" || origin == "null"): // null, because the pages send no referrer
		return nil
	case origin != "" && origin != p.origin && !sameHost(origin, r.Host):
		return &CrossSiteError{"the Origin of another site"}
	case site == "same-origin":
		return nil
	case site != "":
		return &CrossSiteError{"Sec-Fetch-Site: " + line(site, 20)}
	case origin == "":
		return &CrossSiteError{"neither Sec-Fetch-Site nor Origin"}
	}
	return nil
}

// sameHost reports whether an origin is the host that a request was sent to.
func sameHost(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && u.Host == host
}
