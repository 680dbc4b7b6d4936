package nethttp_test

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

// asked is the key part of the route for a request through h.
func asked(h http.Handler, keys func() []string, method, target string) string {
	r := httptest.NewRequest(method, target, nil)
	h.ServeHTTP(httptest.NewRecorder(), r)
	got := keys()
	if len(got) != 1 {
		return "counted other than once"
	}
	return got[0]
}

func routeKey(pattern string) string {
	var k keyfunc.Key
	k.Add("route", pattern)
	return k.String()
}

func TestMux(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", ok)
	mux.Handle("POST  /items/{id}", ok)
	mux.Handle("DELETE\texample.org/items/{id}", ok)
	mux.Handle("example.org/hosted/", ok)
	mux.Handle("/tree/{name}/", ok)
	mux.Handle("/{$}", ok)
	mux.Handle("CONNECT /tunnel", ok)
	mux.Handle("GET /list/{id}", ok)
	mux.Handle("/list/", ok)
	g, keys := newGuard(t, keyfunc.Route(), guard.Config{})
	other, _ := newGuard(t, keyfunc.IP(), guard.Config{})
	through := func(h http.Handler) http.Handler { return http.HandlerFunc(h.ServeHTTP) }
	for name, h := range map[string]http.Handler{
		"seen by itself": nethttp.Limit(g)(mux),
		"seen through":   nethttp.Limit(g)(nethttp.Limit(other)(mux)),
		"given":          nethttp.Limit(g, nethttp.Mux(mux))(through(mux)),
		"given last":     nethttp.Limit(g, func(*http.Request) string { return "" }, nethttp.Mux(mux))(through(mux)),
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range []struct{ method, target, want string }{
				{"GET", "/items/1", "/items/{id}"},
				{"GET", "/items/2?x=y", "/items/{id}"},
				{"HEAD", "/items/1", "/items/{id}"},
				{"POST", "/items/1", "/items/{id}"},
				{"DELETE", "http://example.org/items/1", "example.org/items/{id}"},
				{"DELETE", "/items/1", ""}, // another host
				{"PUT", "/items/1", ""},    // no such method
				{"BREW", "/items/1", ""},
				{"GET", "http://example.org/hosted/deep/er", "example.org/hosted/"},
				{"GET", "/tree/oak/leaf", "/tree/{name}/"},
				{"GET", "/tree/oak", "/tree/{name}/"},      // redirected
				{"GET", "//tree/./oak//", "/tree/{name}/"}, // redirected
				{"CONNECT", "/tree/oak", ""},               // for which the mux itself says "/tree/oak/"
				{"CONNECT", "/tree/oak/leaf", "/tree/{name}/"},
				{"CONNECT", "/tunnel", "/tunnel"},
				{"CONNECT", "/list/5", "/list/"},
				{"GET", "/list/5", "/list/{id}"},
				{"GET", "/", "/{$}"},
				{"GET", "/nothing", ""},
				{"GET", "/items/1/", ""},
			} {
				assert.Equal(t, routeKey(c.want), asked(h, keys, c.method, c.target), "%s %s", c.method, c.target)
			}
		})
	}
}

// Within a mux, the pattern that it has found is the route, unless there is a mux
// within.
func TestWithinMux(t *testing.T) {
	g, keys := newGuard(t, keyfunc.Route(), guard.Config{})
	api := http.NewServeMux()
	api.Handle("GET /api/items/{id}", ok)
	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", nethttp.Limit(g)(ok))
	mux.Handle("/api/", nethttp.Limit(g)(api))
	mux.Handle("/v1/", http.StripPrefix("/v1", nethttp.Limit(g)(api)))
	for target, want := range map[string]string{
		"/items/1":        "/items/{id}",
		"/api/items/1":    "/api/items/{id}",
		"/api/nothing":    "/api/",
		"/v1/api/items/1": "/api/items/{id}",
		"/v1/nothing":     "/v1/",
	} {
		assert.Equal(t, routeKey(want), asked(mux, keys, http.MethodGet, target), target)
	}
}

// The first router with an answer is believed.
func TestRouterOrder(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("/", ok)
	g, keys := newGuard(t, keyfunc.Route(), guard.Config{})
	h := nethttp.Limit(g,
		func(*http.Request) string { return "" },
		func(*http.Request) string { return "/second" },
		func(*http.Request) string { t.Error("the third is asked"); return "/third" },
	)(mux)
	assert.Equal(t, "route=/second", asked(h, keys, http.MethodGet, "/x"))
}

// A middleware outside sees what the mux within has found and the handler has parsed,
// also where the request had to be copied.
func TestPatternComesBack(t *testing.T) {
	g, _ := newGuard(t, keyfunc.IP(), guard.Config{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /items/{id}", func(_ http.ResponseWriter, r *http.Request) { assert.Equal(t, "y", r.FormValue("x")) })
	mux.HandleFunc("GET /panic/{id}", func(http.ResponseWriter, *http.Request) { panic("a panic") })
	h := nethttp.Limit(g)(nethttp.Limit(g)(mux)) // from the second request on, the outer one marks the context
	for range 3 {
		r := httptest.NewRequest(http.MethodGet, "/items/1?x=y", nil)
		ctx := r.Context()
		h.ServeHTTP(httptest.NewRecorder(), r)
		assert.Equal(t, "GET /items/{id}", r.Pattern)
		assert.Equal(t, "1", r.PathValue("id"))
		assert.Equal(t, "y", r.Form.Get("x"))
		assert.Equal(t, ctx, r.Context())

		r = httptest.NewRequest(http.MethodGet, "/panic/1", nil)
		assert.PanicsWithValue(t, "a panic", func() { h.ServeHTTP(httptest.NewRecorder(), r) })
		assert.Equal(t, "GET /panic/{id}", r.Pattern)
	}
}

// The lines in Router's comment, with a real chi.
func TestChi(t *testing.T) {
	mux := chi.NewRouter()
	find := func(r *http.Request) string {
		method, path := r.Method, cmp.Or(r.URL.RawPath, r.URL.Path)
		if c := chi.RouteContext(r.Context()); c != nil {
			method, path = cmp.Or(c.RouteMethod, method), cmp.Or(c.RoutePath, path)
		}
		return mux.Find(chi.NewRouteContext(), method, path)
	}
	g, keys := newGuard(t, keyfunc.Route(), guard.Config{})
	mux.Use(nethttp.Limit(g, find))
	mux.Get("/items/{id}", ok)
	mux.Post("/items/{id:[a-z]+}", ok)
	mux.Route("/v1", func(r chi.Router) {
		r.Get("/users/{id}", ok)
		r.Mount("/deep", func() http.Handler {
			deep := chi.NewRouter()
			deep.Get("/er/{x}/*", ok)
			return deep
		}())
	})
	for _, c := range []struct{ method, target, want string }{
		{"GET", "/items/1", "/items/{id}"},
		{"GET", "/items/a%2Fb", "/items/{id}"},
		{"GET", "/items/%31", "/items/{id}"},
		{"POST", "/items/abc", "/items/{id:[a-z]+}"},
		{"POST", "/items/123", ""},
		{"GET", "/v1/users/7", "/v1/users/{id}"},
		{"GET", "/v1/deep/er/x/y/z", "/v1/deep/er/{x}/*"},
		{"GET", "/v1/nothing", ""},
		{"GET", "/nothing", ""},
		{"PUT", "/items/1", ""},
		{"BREW", "/items/1", ""},
	} {
		assert.Equal(t, routeKey(c.want), asked(mux, keys, c.method, c.target), "%s %s", c.method, c.target)
	}
}

// Behind middleware that rewrites paths and methods, the route is the one that chi will take.
func TestChiThatRewrites(t *testing.T) {
	mux := chi.NewRouter()
	g, keys := newGuard(t, keyfunc.Route(), guard.Config{})
	mux.Use(middleware.CleanPath, middleware.StripSlashes, middleware.URLFormat, middleware.GetHead, nethttp.Limit(g, func(r *http.Request) string {
		method, path := r.Method, cmp.Or(r.URL.RawPath, r.URL.Path)
		if c := chi.RouteContext(r.Context()); c != nil {
			method, path = cmp.Or(c.RouteMethod, method), cmp.Or(c.RoutePath, path)
		}
		return mux.Find(chi.NewRouteContext(), method, path)
	}))
	mux.Get("/items/{id}", ok)
	mux.Route("/v1", func(r chi.Router) { r.Get("/items/{id}", ok) })
	for _, target := range []string{"/items/1", "/items/1/", "//items/x/../1", "/items/1.json", "/v1/items/1/"} {
		want := "/items/{id}"
		if target == "/v1/items/1/" {
			want = "/v1/items/{id}"
		}
		for _, method := range []string{"GET", "HEAD"} {
			r := httptest.NewRequest(method, "http://example.org/", nil)
			r.URL.Path = target
			mux.ServeHTTP(httptest.NewRecorder(), r)
			assert.Equal(t, []string{routeKey(want)}, keys(), "%s %s", method, target)
		}
	}
}
