package recipes

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/gorilla/mux"
	"github.com/julienschmidt/httprouter"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })

// byRoute allows each address two requests an hour to a route, and three logins.
func byRoute(login string) *guard.Guard {
	g, err := guard.New(guard.Config{
		Rule:   guard.Rule{Policy: "2/1h", Key: keyfunc.Join(keyfunc.IP(), keyfunc.Route())},
		Routes: map[string]guard.Rule{login: {Policy: "login: 3/1h", Instead: true}},
	})
	if err != nil {
		panic(err)
	}
	return g
}

// send prints the answers to requests such as "POST /login": the status and the limit.
func send(h http.Handler, requests ...string) {
	for _, text := range requests {
		method, path, _ := strings.Cut(text, " ")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		fmt.Println(text, w.Code, "limit", w.Header().Get("X-RateLimit-Limit"))
	}
}

// Routes of chi, for a limit in front of them all, after middleware that rewrites what chi will route by.
func Example_chi() {
	g := byRoute("POST /login/{realm}")
	router := chi.NewRouter()
	limit := nethttp.Limit(g, func(r *http.Request) string {
		method, path := r.Method, cmp.Or(r.URL.RawPath, r.URL.Path)
		if c := chi.RouteContext(r.Context()); c != nil { // what StripSlashes, CleanPath, URLFormat and GetHead have left
			method, path = cmp.Or(c.RouteMethod, method), cmp.Or(c.RoutePath, path)
		}
		return router.Find(chi.NewRouteContext(), method, path)
	})
	router.Use(middleware.CleanPath, middleware.StripSlashes, middleware.GetHead, limit)
	router.Get("/items/{id}", hello)
	router.Post("/login/{realm}", hello)

	send(router, "GET /items/1", "HEAD /items/2", "GET /items//3/", "POST /login/a/", "GET /nowhere", "GET /nothing", "GET /never")
	// Output:
	// GET /items/1 200 limit 2
	// HEAD /items/2 200 limit 2
	// GET /items//3/ 429 limit 2
	// POST /login/a/ 200 limit 3
	// GET /nowhere 404 limit 2
	// GET /nothing 404 limit 2
	// GET /never 429 limit 2
}

// Routes of gorilla/mux, for a limit that stands before its router.
func Example_gorillaMux() {
	g := byRoute("POST /login/{realm}")
	router := mux.NewRouter()
	router.Handle("/items/{id:[0-9]+}", hello).Methods(http.MethodGet, http.MethodHead)
	router.Handle("/login/{realm}", hello).Methods(http.MethodPost)

	limit := nethttp.Limit(g, func(r *http.Request) string {
		var match mux.RouteMatch
		if !router.Match(r, &match) || match.Route == nil {
			return ""
		}
		pattern, _ := match.Route.GetPathTemplate()
		return pattern
	})
	handler := limit(router)

	send(handler, "GET /items/1", "GET /items/2", "HEAD /items/3", "POST /login/a", "GET /items/a", "DELETE /items/1", "GET /never")
	// Output:
	// GET /items/1 200 limit 2
	// GET /items/2 200 limit 2
	// HEAD /items/3 429 limit 2
	// POST /login/a 200 limit 3
	// GET /items/a 404 limit 2
	// DELETE /items/1 405 limit 2
	// GET /never 429 limit 2
}

// Routes of httprouter, which tells nobody the pattern of a request: so the limit stands before each handler and knows it
// from there. Requests that match no route are not counted.
func Example_httprouter() {
	g := byRoute("POST /login/:realm")
	router := httprouter.New()

	handle := func(method, pattern string, h http.Handler) {
		route := func(*http.Request) string { return pattern }
		router.Handler(method, pattern, nethttp.Limit(g, route)(h))
	}
	handle(http.MethodGet, "/items/:id", hello)
	handle(http.MethodPost, "/login/:realm", hello)

	send(router, "GET /items/1", "GET /items/2", "GET /items/3", "POST /login/a", "POST /login/b", "GET /nowhere")
	// Output:
	// GET /items/1 200 limit 2
	// GET /items/2 200 limit 2
	// GET /items/3 429 limit 2
	// POST /login/a 200 limit 3
	// POST /login/b 200 limit 3
	// GET /nowhere 404 limit
}
