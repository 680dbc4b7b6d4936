package people

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/alexedwards/scs/v2"

	"github.com/weir-go/weir/admin/internal/sqldb"
)

// Bounds of sessions.
const (
	idle        = 8 * time.Hour   // without a request of a person
	longest     = 24 * time.Hour  // from the login
	moved       = 5 * time.Minute // the last request is written as often
	maxSessions = 20              // of one person: the oldest ends
)

// personKey is that of the only value in a session: the person's id.
const personKey = "person"

// newSessions returns the manager of sessions. Idle ones end by what Authenticate writes, not by the manager, which
// would write at each request.
func (p *People) newSessions() *scs.SessionManager {
	m := scs.New()
	m.Lifetime = longest
	m.Store = sessionStore{p}
	m.Codec = sessionCodec{}
	m.Cookie = scs.SessionCookie{
		Name: p.cookies.session, Path: "/", Secure: p.cookies.secure, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Persist: false, // it goes with the browser, or when the server ends it
	}
	return m
}

// begin logs a person in, under a new token: one that was there before, which somebody else may know, ends.
func (p *People) begin(w http.ResponseWriter, r *http.Request, person string) error {
	ctx, err := p.sessions.Load(r.Context(), p.cookies.token(r))
	if err != nil {
		return err
	}
	if err := p.sessions.Clear(ctx); err != nil {
		return err
	}
	if err := p.sessions.RenewToken(ctx); err != nil {
		return err
	}
	p.sessions.Put(ctx, personKey, person)
	token, expiry, err := p.sessions.Commit(ctx)
	if err != nil {
		return err
	}
	p.sessions.WriteSessionCookie(ctx, w, token, expiry)
	return nil
}

// end logs a browser out.
func (p *People) end(w http.ResponseWriter, r *http.Request) error {
	ctx, err := p.sessions.Load(r.Context(), p.cookies.token(r))
	if err != nil {
		return err
	}
	if p.sessions.Exists(ctx, personKey) { // strangers cannot make anybody write
		if err := p.sessions.Destroy(ctx); err != nil {
			return err
		}
	}
	p.sessions.WriteSessionCookie(ctx, w, "", time.Time{})
	return nil
}

// sessionStore keeps sessions for scs: it finds them among what is known.
type sessionStore struct{ p *People }

// FindCtx returns a session that has not ended.
func (s sessionStore) FindCtx(ctx context.Context, token string) ([]byte, bool, error) {
	known, err := s.p.state(ctx)
	if err != nil {
		return nil, false, err
	}
	one := known.sessions[sum(token)]
	if one == nil || time.Since(one.began) >= longest {
		return nil, false, nil
	}
	b, err := sessionCodec{}.Encode(one.began.Add(longest), map[string]any{personKey: one.person})
	return b, true, err
}

// CommitCtx writes a session. Each person has but the latest maxSessions.
func (s sessionStore) CommitCtx(ctx context.Context, token string, b []byte, _ time.Time) error {
	deadline, values, err := sessionCodec{}.Decode(b)
	if err != nil {
		return err
	}
	person := values[personKey]
	return s.p.write(ctx, func(ctx context.Context, t sqldb.Tx) error {
		var hashes []string
		err := t.Each(ctx, func(row sqldb.Row) error {
			var hash string
			err := row.Scan(&hash)
			hashes = append(hashes, hash)
			return err
		}, `SELECT hash FROM weir_sessions WHERE person = ? ORDER BY began DESC, hash`, person)
		if err != nil {
			return err
		}
		for _, hash := range hashes[min(len(hashes), maxSessions-1):] {
			if _, err := t.Exec(ctx, `DELETE FROM weir_sessions WHERE hash = ?`, hash); err != nil {
				return err
			}
		}
		now := time.Now()
		_, err = t.Exec(ctx, `DELETE FROM weir_sessions WHERE began <= ? OR seen <= ?`,
			now.Add(-longest).UnixMicro(), now.Add(-idle).UnixMicro())
		if err != nil {
			return err
		}
		_, err = t.Exec(ctx, `INSERT INTO weir_sessions (hash, person, began, seen) VALUES (?, ?, ?, ?)`,
			sum(token), person, deadline.Add(-longest).UnixMicro(), now.UnixMicro())
		return err
	})
}

// DeleteCtx ends a session.
func (s sessionStore) DeleteCtx(ctx context.Context, token string) error {
	return s.p.write(ctx, func(ctx context.Context, t sqldb.Tx) error {
		_, err := t.Exec(ctx, `DELETE FROM weir_sessions WHERE hash = ?`, sum(token))
		return err
	})
}

// errNoContext reports a call that the manager does not make to a store that takes a context.
var errNoContext = errors.New("people: sessions are found, written and deleted with a context")

// Find is not called.
func (sessionStore) Find(string) ([]byte, bool, error) { return nil, false, errNoContext }

// Commit is not called.
func (sessionStore) Commit(string, []byte, time.Time) error { return errNoContext }

// Delete is not called.
func (sessionStore) Delete(string) error { return errNoContext }

// sessionCodec writes a session as its end and its person, which are columns of the table.
type sessionCodec struct{}

// Encode returns a session as text.
func (sessionCodec) Encode(deadline time.Time, values map[string]any) ([]byte, error) {
	person, _ := values[personKey].(string)
	return []byte(strconv.FormatInt(deadline.UnixMicro(), 10) + " " + person), nil
}

// Decode reads what Encode returns.
func (sessionCodec) Decode(b []byte) (time.Time, map[string]any, error) {
	at, person, _ := strings.Cut(string(b), " ")
	micro, err := strconv.ParseInt(at, 10, 64)
	return time.UnixMicro(micro), map[string]any{personKey: person}, err
}
