package people

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/weir-go/weir/admin/internal/sqldb"
)

// loginLasts is the time in which somebody must come back from the provider.
const loginLasts = 10 * time.Minute

// cookies are the names of the two cookies, and how one of them is sealed.
type cookies struct {
	session, login string
	secure         bool
	seal           cipher.AEAD
}

// newCookies returns the cookies of a server. Those of https have the prefix by which browsers refuse them from any
// other server. Over http on the same machine, Safari keeps no Secure cookie, and so no name with that prefix either;
// as all ports share their cookies there, the port is in the name.
func newCookies(public *url.URL, seal cipher.AEAD) cookies {
	if public.Scheme == "https" {
		return cookies{"__Host-weir", "__Host-weir-login", true, seal}
	}
	return cookies{"weir-" + public.Port(), "weir-login-" + public.Port(), false, seal}
}

// token returns the token of a request's session, or "".
func (c cookies) token(r *http.Request) string {
	cookie, err := r.Cookie(c.session)
	if err != nil || !isSecret(cookie.Value) {
		return ""
	}
	return cookie.Value
}

// pending is a login for which somebody was sent to the provider. It stands in a sealed cookie: strangers can begin as
// many as they like, and nothing is kept of them here.
type pending struct {
	State    string    `json:"s"`
	Nonce    string    `json:"n"`
	Verifier string    `json:"v"`
	Next     string    `json:"to"` // the page to return to
	Ends     time.Time `json:"e"`
}

// setLogin sends a login's cookie.
func (c cookies) setLogin(w http.ResponseWriter, p pending) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	nonce := make([]byte, c.seal.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	value := base64.RawURLEncoding.EncodeToString(c.seal.Seal(nonce, nonce, text, []byte(c.login)))
	http.SetCookie(w, c.loginCookie(value, int(loginLasts/time.Second)))
	return nil
}

// endLogin lets the browser forget a login's cookie.
func (c cookies) endLogin(w http.ResponseWriter) { http.SetCookie(w, c.loginCookie("", -1)) }

func (c cookies) loginCookie(value string, maxAge int) *http.Cookie {
	return &http.Cookie{
		Name: c.login, Value: value, Path: "/", MaxAge: maxAge,
		Secure: c.secure, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	}
}

// pendingLogin returns the login of a request's cookie, or false if there is none that could be gone on with.
func (c cookies) pendingLogin(r *http.Request, now time.Time) (p pending, ok bool) {
	cookie, err := r.Cookie(c.login)
	if err != nil {
		return p, false
	}
	b, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil || len(b) < c.seal.NonceSize() {
		return p, false
	}
	n := c.seal.NonceSize()
	text, err := c.seal.Open(nil, b[:n], b[n:], []byte(c.login))
	if err != nil || json.Unmarshal(text, &p) != nil {
		return p, false
	}
	return p, now.Before(p.Ends)
}

// sealing returns the key of all processes for the cookies of logins.
func (p *People) sealing(ctx context.Context) (cipher.AEAD, error) {
	var text string
	err := p.db.Change(ctx, func(ctx context.Context, c *sqldb.Change) error {
		err := c.Row(ctx, `SELECT secret FROM weir_seal WHERE id = 1`).Scan(&text)
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		key := make([]byte, 32)
		_, _ = rand.Read(key) // never fails
		text = hex.EncodeToString(key)
		_, err = c.Exec(ctx, `INSERT INTO weir_seal (id, secret) VALUES (1, ?)`, text)
		return err
	})
	if err != nil {
		return nil, err
	}
	key, err := hex.DecodeString(text)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}
