package people

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// OIDC is an OpenID Connect provider, and this program as it knows it. At the provider the program is a confidential
// client, or a public one without a secret, with PublicURL and "/login/callback" as its redirect URL.
type OIDC struct {
	Issuer       string
	ClientID     string
	ClientSecret string
	Scopes       []string // in addition to "openid"; none are "profile"
	GroupsClaim  string   // in the ID token, with the names of the person's groups; "" is "groups"
}

// Bounds of what is asked of a provider.
const (
	providerWithin = 10 * time.Second // for one answer
	providerAgain  = 5 * time.Second  // after it has failed, until it is asked again
	providerKept   = time.Hour        // what it says of itself
	providerMost   = 1 << 20          // bytes of one answer
)

// provider is an identity provider that may be gone, and come back.
type provider struct {
	o      OIDC
	host   string
	client *http.Client
	config oauth2.Config

	mu     sync.Mutex
	found  *oidc.Provider // nil until it has answered
	asked  time.Time      // when it did so last, or failed to
	failed error          // of the last time
}

func newProvider(o OIDC, origin string) (*provider, error) {
	u, err := url.Parse(o.Issuer)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())):
		return nil, fmt.Errorf("people: found the issuer %q; give the https URL of the provider", o.Issuer)
	case o.ClientID == "":
		return nil, errors.New("people: the client id is missing; give the one under which the provider knows this program")
	}
	if o.GroupsClaim == "" {
		o.GroupsClaim = "groups"
	}
	if len(o.Scopes) == 0 {
		o.Scopes = []string{"profile"}
	}
	return &provider{
		o: o, host: u.Host,
		client: &http.Client{Timeout: providerWithin, Transport: bounded{http.DefaultTransport}, CheckRedirect: sameServer},
		config: oauth2.Config{
			ClientID: o.ClientID, ClientSecret: o.ClientSecret, RedirectURL: origin + pathCallback,
			Scopes: slices.Compact(append([]string{oidc.ScopeOpenID}, o.Scopes...)),
		},
	}, nil
}

// sameServer keeps a provider from sending a secret on: what is asked of it is answered by its own host.
func sameServer(r *http.Request, before []*http.Request) error {
	if first := before[0]; len(before) > 3 || r.URL.Host != first.URL.Host || r.URL.Scheme != first.URL.Scheme {
		return http.ErrUseLastResponse
	}
	return nil
}

// bounded cuts answers that are too long, which are then no JSON.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, providerMost), resp.Body}
	}
	return resp, err
}

// providerError reports that the provider does not answer as it should.
type providerError struct {
	host string
	err  error
}

func (e *providerError) Error() string {
	return fmt.Sprintf("the identity provider at %s does not answer as it should: %s", e.host, line(e.err.Error(), 300))
}

// Unwrap returns the error of the attempt.
func (e *providerError) Unwrap() error { return e.err }

// get returns the provider. What it has said of itself holds for an hour, and longer while it does not answer.
func (p *provider) get(ctx context.Context) (*oidc.Provider, error) {
	p.mu.Lock()
	defer p.mu.Unlock() // held while it is asked, so that a crowd asks once
	age := time.Since(p.asked)
	switch {
	case p.found != nil && (age < providerKept && p.failed == nil || age < providerAgain):
		return p.found, nil
	case p.found == nil && p.failed != nil && age < providerAgain:
		return nil, p.failed
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), providerWithin)
	defer cancel()
	found, err := oidc.NewProvider(oidc.ClientContext(ctx, p.client), p.o.Issuer)
	p.asked = time.Now()
	if err != nil {
		p.failed = &providerError{p.host, err}
		if p.found == nil {
			return nil, p.failed
		}
		return p.found, nil
	}
	p.found, p.failed = found, nil
	return found, nil
}

// start returns the URL that a person is sent to.
func (p *provider) start(ctx context.Context, login pending) (string, error) {
	found, err := p.get(ctx)
	if err != nil {
		return "", err
	}
	config := p.config
	config.Endpoint = found.Endpoint()
	return config.AuthCodeURL(login.State, oidc.Nonce(login.Nonce), oauth2.S256ChallengeOption(login.Verifier)), nil
}

// logout returns the URL at which the provider logs people out (OpenID Connect RP-Initiated Logout 1.0), or "" if it is
// not known to have one. It asks the person, since no ID token is kept that would spare the question.
func (p *provider) logout() string {
	if !p.mu.TryLock() { // somebody waits for its answer; nobody waits to be logged out
		return ""
	}
	defer p.mu.Unlock()
	var says struct {
		End string `json:"end_session_endpoint"`
	}
	if p.found == nil || p.found.Claims(&says) != nil {
		return ""
	}
	u, err := url.Parse(says.End)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())) {
		return ""
	}
	query := u.Query()
	query.Set("client_id", p.o.ClientID)
	u.RawQuery = query.Encode()
	return u.String()
}

// loginError reports an answer of the provider with which nobody can be logged in.
type loginError struct{ why string }

func (e *loginError) Error() string { return e.why }

// finish returns the person that the provider answers for with a code. The error is an *loginError for an answer that
// names nobody, or a *providerError.
func (p *provider) finish(ctx context.Context, began pending, code string) (l login, err error) {
	found, err := p.get(ctx)
	if err != nil {
		return l, err
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, p.client), providerWithin)
	defer cancel()
	config := p.config
	config.Endpoint = found.Endpoint()
	config.Endpoint.AuthStyle = p.style(found)
	answer, err := config.Exchange(ctx, code, oauth2.VerifierOption(began.Verifier))
	if err != nil {
		var refused *oauth2.RetrieveError
		if errors.As(err, &refused) && refused.Response != nil && refused.Response.StatusCode < http.StatusInternalServerError {
			return l, &loginError{"the provider refused the code: " + cmp.Or(line(refused.ErrorCode, 40), "without a reason")}
		}
		return l, &providerError{p.host, err}
	}
	raw, ok := answer.Extra("id_token").(string)
	if !ok {
		return l, &loginError{"the provider's answer has no ID token"}
	}
	token, err := found.VerifierContext(oidc.ClientContext(context.WithoutCancel(ctx), p.client),
		&oidc.Config{ClientID: p.o.ClientID}).Verify(ctx, raw)
	switch {
	case err != nil:
		return l, &loginError{"the ID token is not good: " + line(err.Error(), 200)}
	case subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(began.Nonce)) != 1:
		return l, &loginError{"the ID token is that of another login"}
	case token.Subject == "" || len(token.Subject) > maxLine || len(token.Issuer) > maxLine:
		return l, &loginError{"the ID token has no subject of 1 to 255 bytes"}
	}
	return p.claims(token)
}

// style returns how the provider wants to see the secret, so that a code is not sent twice to find that out.
func (p *provider) style(found *oidc.Provider) oauth2.AuthStyle {
	var says struct {
		Methods []string `json:"token_endpoint_auth_methods_supported"`
	}
	if p.o.ClientSecret == "" {
		return oauth2.AuthStyleInParams
	}
	err := found.Claims(&says)
	if err == nil && !slices.Contains(says.Methods, "client_secret_basic") && slices.Contains(says.Methods, "client_secret_post") {
		return oauth2.AuthStyleInParams
	}
	return oauth2.AuthStyleInHeader // that of a provider that does not say
}

// claims reads who somebody is.
func (p *provider) claims(token *oidc.IDToken) (login, error) {
	var claims map[string]json.RawMessage
	if err := token.Claims(&claims); err != nil {
		return login{}, &loginError{"the ID token cannot be read"}
	}
	text := func(name string) string {
		var s string
		_ = json.Unmarshal(claims[name], &s) // "" if it is no text
		return s
	}
	if azp := text("azp"); len(token.Audience) > 1 && azp != p.o.ClientID || azp != "" && azp != p.o.ClientID {
		return login{}, &loginError{"the ID token is for another program"}
	}
	l := login{issuer: token.Issuer, subject: token.Subject}
	// Only for show: it may be anything, also the name of somebody else.
	l.name = line(cmp.Or(text("name"), text("preferred_username"), text("email"), token.Subject), maxShown)
	var groups []string
	if json.Unmarshal(claims[p.o.GroupsClaim], &groups) != nil {
		groups = []string{text(p.o.GroupsClaim)}
	}
	groups = slices.DeleteFunc(groups, func(g string) bool { return !isLine(g) })
	slices.Sort(groups)
	groups = slices.Compact(groups)
	l.groups = groups[:min(len(groups), maxGroups)]
	return l, nil
}
