// Package echotest is the behaviour that the adapters of Echo 4 and 5 share beyond that of all adapters, as tests that
// each of them runs. It knows neither version of Echo: an [Echo] translates what the two call differently.
package echotest

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

// Ctx has the methods that echo.Context of Echo 4 and *echo.Context of Echo 5 have in common, as far as tests need them.
type Ctx interface {
	Request() *http.Request
	SetRequest(r *http.Request)
	Set(key string, value any)
	String(status int, body string) error
	NoContent(status int) error
}

// Middleware is echo.MiddlewareFunc.
type Middleware[C Ctx] func(next func(C) error) func(C) error

// App is an *echo.Echo.
type App[C Ctx] interface {
	http.Handler
	// Use adds middleware behind the router, and Pre before it.
	Use(middleware ...Middleware[C])
	Pre(middleware ...Middleware[C])
	// Match adds a route for several methods.
	Match(methods []string, pattern string, handler func(C) error, middleware ...Middleware[C])
	// Group adds a group with middleware, and in it a route of GET.
	Group(prefix string, middleware Middleware[C], pattern string, handler func(C) error)
	// Paths returns the paths of all routes.
	Paths() []string
	// OnError sets the handler of errors.
	OnError(handler func(c C, err error))
}

// Echo is a version of Echo with the adapter for it.
type Echo[C Ctx] struct {
	// Name is the adapter's.
	Name string
	New  func() App[C]
	// Limit and Handle are those of the adapter.
	Limit  func(*guard.Guard) Middleware[C]
	Handle func(func(C, *guard.Verdict) error) guard.OverLimit
	// Error returns Echo's error of a status.
	Error func(status int) error
	// Response returns the writer of the answer, and Committed reports whether its header was sent.
	Response  func(C) http.ResponseWriter
	Committed func(C) bool
}

// Run tests what the adapters of Echo share.
func (e Echo[C]) Run(t *testing.T) {
	t.Helper()
	t.Run("Limit without a guard", func(t *testing.T) { assert.Panics(t, func() { e.Limit(nil) }) })
	t.Run("routes in odd corners", e.testRoute)
	t.Run("middleware outside", e.testOutside)
	t.Run("an error of the program", e.testFinalError)
}

// What Path says in Echo's odd corners is always of the routing table.
func (e Echo[C]) testRoute(t *testing.T) {
	var route string
	g := NewGuard(t, "1000/1h", keyfunc.Custom("probe", func(r keyfunc.Request) (string, error) {
		route = r.Route()
		return "key", nil
	}), guard.Config{})
	for name, c := range map[string]struct {
		mount func(App[C])
		want  map[string]string
	}{
		"Use": {func(app App[C]) { app.Use(e.Limit(g)) }, map[string]string{
			"GET /items/1": "/items/:id", "GET /items/1/": "/items/:id", "GET /items/a%2Fb": "/items/:id", "GET /nothing": "",
			"POST /items/1": "/items/:id", // 405
			"GET /v1/users": "/v1/users", "GET /v1/nothing": "/v1/*",
		}},
		"Pre": {func(app App[C]) { app.Pre(e.Limit(g)) }, map[string]string{"GET /items/1": "", "GET /nothing": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			app := e.New()
			c.mount(app)
			ok := func(c C) error { return c.NoContent(http.StatusNoContent) }
			app.Match([]string{http.MethodGet}, "/items/:id", ok)
			app.Group("/v1", e.Recovering(nil), "/users", ok)
			for request, want := range c.want {
				var method, target string
				_, err := fmt.Sscan(request, &method, &target)
				require.NoError(t, err)
				if want == "/v1/*" && !slices.Contains(app.Paths(), want) {
					want = "" // from Echo 5.0 to 5.2, a group registers none
				}
				route = "not asked"
				Do(app, method, target)
				assert.Equal(t, want, route, request)
			}
		})
	}
}

// Middleware outside sees a refusal as an answer that is sent, and an error of a
// native handler as an error.
func (e Echo[C]) testOutside(t *testing.T) {
	failed := errors.New("failed")
	for name, c := range map[string]struct {
		over      guard.OverLimit
		committed bool
		err       error
	}{
		"plain":  {nil, true, nil},
		"silent": {e.Handle(func(C, *guard.Verdict) error { return nil }), true, nil},
		"error":  {e.Handle(func(C, *guard.Verdict) error { return failed }), false, failed},
	} {
		t.Run(name, func(t *testing.T) {
			app := e.New()
			var committed bool
			var err error
			app.Use(func(next func(C) error) func(C) error {
				return func(c C) error {
					err = next(c)
					committed = e.Committed(c)
					return err
				}
			}, e.Limit(NewGuard(t, "1/1h", keyfunc.IP(), guard.Config{Rule: guard.Rule{OverLimit: c.over}})))
			Do(app, http.MethodGet, "/")
			Do(app, http.MethodGet, "/")
			assert.Equal(t, c.committed, committed)
			assert.Equal(t, c.err, err)
		})
	}
}

// An error that only the program's error handler makes a status of counts by Final.Err.
func (e Echo[C]) testFinalError(t *testing.T) {
	bad := errors.New("wrong password")
	var statuses []int
	g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "login: 2/1h", Key: keyfunc.IP(), After: func(f guard.Final) int64 {
		if statuses = append(statuses, f.Status); errors.Is(f.Err, bad) {
			return 1
		}
		return 0
	}}})
	require.NoError(t, err)
	app := e.New()
	app.OnError(func(c C, err error) {
		if errors.Is(err, bad) {
			_ = c.NoContent(http.StatusUnauthorized)
		}
	})
	app.Match([]string{http.MethodPost}, "/login", func(C) error { return bad }, e.Limit(g))
	app.Match([]string{http.MethodPost}, "/fine", func(C) error { return nil }, e.Limit(g))
	var got []int
	for _, path := range []string{"/fine", "/login", "/login", "/login", "/fine"} {
		got = append(got, Do(app, http.MethodPost, path).Code)
	}
	assert.Equal(t, []int{200, 401, 401, 429, 429}, got)
	assert.Equal(t, []int{200, 500, 500}, statuses)
}

// NewGuard makes a Guard that logs nothing.
func NewGuard(t *testing.T, policy string, key keyfunc.Func, c guard.Config) *guard.Guard {
	t.Helper()
	c.Policy, c.Key, c.Log = policy, key, slog.New(slog.DiscardHandler)
	g, err := guard.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, g.Close()) })
	return g
}

// Do sends a request without a network.
func Do(h http.Handler, method, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	return w
}
