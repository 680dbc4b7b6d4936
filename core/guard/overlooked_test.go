package guard_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/race"
	"github.com/weir-go/weir/keyfunc"
)

// routed is an exchange of a framework that finds one route, and takes another.
type routed struct {
	*exchange
	path, taken string
	every       bool
	status      int
}

func (x *routed) Path() string                       { return x.path }
func (x *routed) Routed() (pattern string, all bool) { return x.taken, x.every }
func (x *routed) Next(context.Context) error         { x.said = "passed"; return nil }
func (x *routed) Final(error, bool) guard.Final      { return guard.Final{Status: x.status} }

// What is suspected and what is not: the found route, the one that is taken, the path and the status decide.
func TestOverlooked(t *testing.T) {
	for _, c := range []struct {
		entry, method, found, path, taken string
		status                            int
		want                              bool
	}{
		// the path alone
		{"POST /login", "POST", "", "/login", "", 401, true},
		{"POST /login", "POST", "", "/LOGIN/", "", 401, true},
		{"POST /login", "POST", "", "//./login", "", 401, true},
		{"POST /login", "POST", "", "/login.json", "", 401, true},
		{"POST /login", "POST", "", "/login", "", 404, false},
		{"POST /login", "POST", "", "/login/", "", 308, false},
		{"POST /login", "GET", "", "/login", "", 200, false},
		{"GET /login", "HEAD", "", "/login", "", 200, true},
		{"/login", "OPTIONS", "", "/login", "", 204, false},
		{"POST /login", "POST", "", "/logins", "", 200, false},
		{"POST /login", "POST", "", "/x/login", "", 200, false},
		{"POST /login", "POST", "", "/login/x", "", 200, false},
		{"/login/{realm}", "POST", "", "/login/x", "", 200, true},
		{"/login/{realm}", "POST", "", "/login", "", 200, false},
		{"/files/*", "GET", "", "/files/a/b", "", 200, true},
		{"/", "GET", "", "/", "", 200, true},
		{"/*", "GET", "", "/login", "", 200, false},
		// routes for more paths
		{"POST /login", "POST", "/", "/login", "/", 401, true},
		{"POST /login", "POST", "/{page}", "/login", "/{page}", 401, true},
		{"POST /login", "POST", "/:page", "/login", "", 401, true},
		{"POST /login", "POST", "/*any", "/login", "", 401, true},
		{"POST /api/login", "POST", "/api/", "/api/login", "/api/", 401, true},
		{"POST /api/login", "POST", "/{a}/{b}", "/api/login", "", 401, true},
		{"POST /login", "POST", "/{page}", "/login.json", "/{page}", 200, false},
		{"/files/*", "GET", "/", "/files/a", "/", 200, true},
		{"/files/*", "GET", "/{dir}/{name}", "/files/a", "", 200, true},
		{"/login", "GET", "/login/", "/login/", "/login/", 200, true},
		// and for others
		{"/items/{id}", "GET", "/items/new", "/items/new", "/items/new", 200, false},
		{"/items/{id}", "GET", "/items/{name}", "/items/new", "/items/{name}", 200, false},
		{"/items/{id}", "GET", "/items/{id}/", "/items/new", "", 200, true},
		{"/files/*", "GET", "/files/{path...}", "/files/x", "", 200, false},
		// hosts
		{"example.org/login", "GET", "/login", "/login", "", 200, true},
		{"example.com/login", "GET", "/login", "/login", "", 200, false},
		// another route is taken
		{"POST /login", "POST", "", "/signin", "/login", 404, true},
		{"POST /login", "POST", "/:id<int>", "/login", "/login", 401, true},
		{"POST /login", "POST", "/x", "/x", "/y", 401, false},
		{"/x", "POST", "/x", "/x", "/y", 200, true},
		{"/x", "POST", "/x", "/x", "/x/", 200, false},
		{"/x/{id}", "POST", "/x/{id}", "/x/1", "/x/{name}", 200, false},
		{"/x/*", "POST", "/x/", "/x/1", "/x/{name}", 200, false},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			for _, strict := range []bool{false, true} {
				said := new(records)
				g := newGuard(t, guard.Config{
					Rule:   guard.Rule{Policy: "1000/1h"},
					Routes: map[string]guard.Rule{c.entry: {Policy: "entry: 900/1h"}}, StrictRoutes: strict, Log: slog.New(said),
				})
				passed := 0
				for range 5 {
					r := from(alice)
					r.method, r.route = c.method, c.found
					x := &routed{&exchange{request: r, header: header{}}, c.path, c.taken, false, c.status}
					assert.NoError(t, g.Serve(x))
					if x.said == "passed" {
						passed++
					} else {
						assert.Contains(t, x.said, "503")
					}
				}
				switch {
				case !strict && c.want:
					assert.Equal(t, []string{"overlooked-entry"}, said.codes())
				case !strict:
					assert.Empty(t, said.all())
				case c.want:
					assert.LessOrEqual(t, passed, 1)
				}
				if !strict {
					assert.Equal(t, 5, passed)
				}
			}
		})
	}
}

// An entry that only lifts limits is evaded by nobody: the log has a line of it, and nobody is refused.
func TestOverlookedExemption(t *testing.T) {
	said := new(records)
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1000/1h"}, Routes: map[string]guard.Rule{"/health": {Instead: true}}, StrictRoutes: true, Log: slog.New(said)})
	for range 3 {
		r := from(alice)
		r.route = ""
		x := &routed{&exchange{request: r, header: header{}}, "/health", "", false, 200}
		assert.NoError(t, g.Serve(x))
		assert.Equal(t, "passed", x.said)
	}
	assert.Equal(t, []string{"overlooked-entry"}, said.codes())
}

// A route for every method has one that names another, which is no matter for the usual pair of a form.
func TestOverlookedMethod(t *testing.T) {
	for _, c := range []struct {
		entry, method string
		every         bool
		status        int
		want          bool
	}{
		{"POST /login", "PUT", true, 401, true},
		{"POST /login", "BREW", true, 401, true},
		{"POST /login", "PUT", false, 401, false},
		{"POST /login", "PUT", true, 405, false},
		{"POST /login", "GET", true, 200, false},
		{"GET /login", "PUT", true, 200, false},
		{"/login", "PUT", true, 200, false},
	} {
		said := new(records)
		g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1000/1h"}, Routes: map[string]guard.Rule{c.entry: {Policy: "entry: 900/1h"}}, StrictRoutes: true, Log: slog.New(said)})
		passed := map[string]int{}
		for range 5 {
			for _, method := range []string{c.method, "GET", "POST"} {
				r := from(alice)
				r.method, r.route = method, "/login"
				x := &routed{&exchange{request: r, header: header{}}, "/login", "/login", c.every, c.status}
				assert.NoError(t, g.Serve(x))
				if x.said == "passed" {
					passed[method]++
				}
			}
		}
		if c.want {
			assert.Equal(t, map[string]int{c.method: 1, "GET": 5, "POST": 5}, passed)
			assert.Equal(t, []string{"overlooked-entry"}, said.codes())
		} else {
			assert.Empty(t, said.all(), c)
			assert.Len(t, passed, len(map[string]bool{c.method: true, "GET": true, "POST": true}))
		}
	}
}

// What StrictRoutes remembers is bounded, whatever routes a program finds, and many requests cost no memory.
func TestOverlookedIsBounded(t *testing.T) {
	g := newGuard(t, guard.Config{
		Rule:   guard.Rule{Policy: "1000000/1h", Key: keyfunc.IP()},
		Routes: map[string]guard.Rule{"/login": {Policy: "entry: 1000000/1h"}}, StrictRoutes: true, Log: slog.New(slog.DiscardHandler),
	})
	for i := range 3000 {
		r := from(alice)
		r.route = fmt.Sprint("/x", i)
		assert.NoError(t, g.Serve(&routed{&exchange{request: r, header: header{}}, r.route, "/login", false, http.StatusOK}))
	}
	assert.Equal(t, 1000, guard.Closed(g))
	if race.Enabled {
		return
	}
	g = newGuard(t, guard.Config{
		Rule:   guard.Rule{Policy: "1000000/1h", Key: keyfunc.IP()},
		Routes: map[string]guard.Rule{"/login": {Policy: "entry: 1000000/1h"}, "/api/{x}/y": {Policy: "other: 1000000/1h"}},
	})
	r := from(alice)
	r.route = "/{a}/{b}"
	assert.Zero(t, testing.AllocsPerRun(2000, func() { g.Check(r) }))
}

// Whatever patterns a router has, and whatever paths come, an entry for the route that was found and taken is not
// suspected, and a literal one is if it is passed by.
func TestOverlookedProperties(t *testing.T) {
	part := rapid.SampledFrom([]string{"a", "b", "A", "{x}", ":x", "*", "*x", "+", "{x...}", ":x<int>", "a.b", "", ".", "..", "{$}", "é"})
	pattern := rapid.Custom(func(t *rapid.T) string {
		host := rapid.SampledFrom([]string{"", "", "example.org"}).Draw(t, "host")
		return host + "/" + strings.Join(rapid.SliceOfN(part, 0, 4).Draw(t, "parts"), "/")
	})
	literal := rapid.Custom(func(t *rapid.T) string {
		return "/" + strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "a.b", "é"}), 1, 4).Draw(t, "parts"), "/")
	})
	serve := func(t *rapid.T, entry, found, path, taken string) []string {
		said := new(records)
		g, err := guard.New(guard.Config{
			Rule:   guard.Rule{Policy: "1000/1h", Key: keyfunc.Const("all")},
			Routes: map[string]guard.Rule{entry: {Policy: "entry: 900/1h"}}, Log: slog.New(said),
		})
		require.NoError(t, err)
		r := from(alice)
		r.route = found
		assert.NoError(t, g.Serve(&routed{&exchange{request: r, header: header{}}, path, taken, false, http.StatusOK}))
		return said.codes()
	}
	rapid.Check(t, func(t *rapid.T) {
		entry, path := pattern.Draw(t, "entry"), rapid.OneOf(pattern, rapid.String()).Draw(t, "path")
		_ = serve(t, entry, pattern.Draw(t, "found"), path, pattern.Draw(t, "taken")) // it does not panic
		assert.Empty(t, serve(t, entry, entry, path, rapid.SampledFrom([]string{"", entry}).Draw(t, "its own")))
	})
	rapid.Check(t, func(t *rapid.T) {
		entry := literal.Draw(t, "entry")
		path := entry + rapid.SampledFrom([]string{"", "/", ".json", "//", "/."}).Draw(t, "end")
		assert.NotEmpty(t, serve(t, entry, "", path, ""))
		assert.NotEmpty(t, serve(t, entry, "", "/elsewhere", entry))
	})
}
