package nethttp_test

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/adaptertest"
	"github.com/weir-go/weir/internal/logtest"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

// failing is a login that always fails, and counts how often it ran.
func failing(runs *int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		*runs++
		w.WriteHeader(http.StatusUnauthorized)
	})
}

// apart is middleware through which nobody sees, and which does nothing.
func apart(h http.Handler) http.Handler { return http.HandlerFunc(h.ServeHTTP) }

// An entry that does not hold for requests that it is meant for is noticed, whatever stands between the limiter and the
// handler, and under StrictRoutes the requests are refused.
func TestOverlooked(t *testing.T) {
	chiFind := func(mux chi.Router) nethttp.Router {
		return func(r *http.Request) string {
			return mux.Find(chi.NewRouteContext(), r.Method, cmp.Or(r.URL.RawPath, r.URL.Path))
		}
	}
	type build = func(g *guard.Guard, login http.Handler) http.Handler
	inChi := func(rewrites func(http.Handler) http.Handler) build {
		return func(g *guard.Guard, login http.Handler) http.Handler {
			mux := chi.NewRouter()
			mux.Use(nethttp.Limit(g, chiFind(mux)), rewrites)
			mux.Method("POST", "/login", login)
			mux.Method("GET", "/login", login)
			return mux
		}
	}
	aroundChi := func(rewrites func(http.Handler) http.Handler) build {
		return func(g *guard.Guard, login http.Handler) http.Handler {
			mux := chi.NewRouter()
			mux.Use(rewrites)
			mux.Method("POST", "/login", login)
			mux.Method("GET", "/login", login)
			return nethttp.Limit(g, chiFind(mux))(mux)
		}
	}
	for name, c := range map[string]struct {
		entry, method, path, found, taken string
		build                             build
	}{
		"a mux within middleware": {"POST /api/login", "POST", "/api/login", "/api/", "/api/login", func(g *guard.Guard, login http.Handler) http.Handler {
			api, mux := http.NewServeMux(), http.NewServeMux()
			api.Handle("POST /api/login", login)
			mux.Handle("/api/", apart(api))
			return nethttp.Limit(g)(mux)
		}},
		"StripPrefix": {"POST /api/login", "POST", "/api/login", "/api/", "", func(g *guard.Guard, login http.Handler) http.Handler {
			api, mux := http.NewServeMux(), http.NewServeMux()
			api.Handle("POST /login", login)
			mux.Handle("/api/", http.StripPrefix("/api", api))
			return nethttp.Limit(g)(mux)
		}},
		"a route for every method": {"POST /login", "PUT", "/login", "/login", "", func(g *guard.Guard, login http.Handler) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("/login", login)
			return nethttp.Limit(g)(mux)
		}},
		"a pattern that is not registered": {"POST /login/{realm}", "POST", "/login/x", "/login/", "", func(g *guard.Guard, login http.Handler) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("POST /login/", login)
			return nethttp.Limit(g)(mux)
		}},
		"StripSlashes within": {"POST /login", "POST", "/login/", "", "/login", inChi(middleware.StripSlashes)},
		"CleanPath within":    {"POST /login", "POST", "//x/../login", "", "/login", inChi(middleware.CleanPath)},
		"URLFormat within":    {"POST /login", "POST", "/login.json", "", "", inChi(middleware.URLFormat)},
		"GetHead within":      {"GET /login", "HEAD", "/login", "", "/login", inChi(middleware.GetHead)},
		"a path that is rewritten": {"POST /login", "POST", "/signin", "", "/login", inChi(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				chi.RouteContext(r.Context()).RoutePath = "/login"
				next.ServeHTTP(w, r)
			})
		})},
		"StripSlashes": {"POST /login", "POST", "/login/", "", "", aroundChi(middleware.StripSlashes)},
		"CleanPath":    {"POST /login", "POST", "//x/../login", "", "", aroundChi(middleware.CleanPath)},
		"URLFormat":    {"POST /login", "POST", "/login.json", "", "", aroundChi(middleware.URLFormat)},
		"GetHead":      {"GET /login", "HEAD", "/login", "", "", aroundChi(middleware.GetHead)},
	} {
		t.Run(name, func(t *testing.T) {
			adaptertest.Overlooked{
				Entry: c.entry, Method: c.method, Path: c.path, Found: c.found, Taken: c.taken,
				Build: func(g *guard.Guard, runs *int) func(*http.Request) int {
					return adaptertest.Send(c.build(g, failing(runs)))
				},
			}.Run(t)
		})
	}
}

func logins(t *testing.T, said *logtest.Log, entry string) *guard.Guard {
	t.Helper()
	g, err := guard.New(guard.Config{
		Rule:         guard.Rule{Policy: "1000/1h", Key: keyfunc.IP()},
		Routes:       map[string]guard.Rule{entry: {Policy: "login: 3/1h"}},
		StrictRoutes: true,
		Log:          said.Logger(),
	})
	require.NoError(t, err)
	return g
}

// What is as it is meant to be is never suspected: requests of no route, of other routes and methods, redirects.
func TestNothingOverlooked(t *testing.T) {
	said := new(logtest.Log)
	g := logins(t, said, "POST /login")
	runs := 0
	mux, api := http.NewServeMux(), http.NewServeMux()
	mux.Handle("POST /login", failing(&runs))
	mux.Handle("GET /login", ok)
	mux.Handle("PUT /login", ok)
	mux.Handle("GET /{page}", ok)
	mux.Handle("/api/", api)
	mux.Handle("/old/", http.RedirectHandler("/login", http.StatusMovedPermanently))
	api.Handle("POST /api/login", ok)
	h := nethttp.Limit(g)(mux)
	for range 10 {
		for _, target := range []string{"GET /login", "HEAD /login", "PUT /login", "DELETE /login", "OPTIONS /login", "GET /page", "GET /api/x", "POST /api/login", "POST /page", "GET //login", "POST /old/login", "POST /"} {
			method, path, _ := strings.Cut(target, " ")
			r := httptest.NewRequest(method, "http://example.com/", nil)
			r.URL.Path = path
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			assert.NotEqual(t, 503, w.Code, target)
		}
	}
	for range 10 {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/login", nil))
	}
	assert.Equal(t, 3, runs)
	assert.Empty(t, said.With(""))
}

// Entries for the routes of a mux within another hold.
func TestNestedMux(t *testing.T) {
	said := new(logtest.Log)
	g := logins(t, said, "POST /api/login")
	runs := 0
	mux, api, inner := http.NewServeMux(), http.NewServeMux(), http.NewServeMux()
	inner.Handle("POST /api/login", failing(&runs))
	api.Handle("/api/", nethttp.Limit(guard.Must("1000/1h", keyfunc.IP()))(inner))
	mux.Handle("/", api)
	h := nethttp.Limit(g)(mux)
	for range 10 {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/api/login", nil))
	}
	assert.Equal(t, 3, runs)
	assert.Empty(t, said.With(""))
}
