package guard_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

// Entries whose names would be alike may have names of their own.
func TestRoutesNamed(t *testing.T) {
	g := newGuard(t, guard.Config{Rule: guard.Rule{Key: keyfunc.IP()}, Routes: map[string]guard.Rule{
		"/items/{id}": {Policy: "1/1s"}, "/items/:id": {Policy: "items: 2/1s"}, "/items-id": {Policy: "other: 3/1s"},
	}})
	said := g.Describe([]string{"/items/{id}", "/items/:id", "/items-id"})
	for _, want := range []string{"items-id: 1/1s", "items: 2/1s", "other: 3/1s"} {
		assert.Contains(t, said, want)
	}
}

// A key that is the pattern of no router is refused, with what was probably meant.
func TestRoutesThatNoRouterHas(t *testing.T) {
	for key, want := range map[string]string{
		"GET/health":  `guard: Routes["GET/health"]: no space after the method; did you mean "GET /health"?`,
		"login":       `guard: Routes["login"]: a pattern has a "/"; did you mean "/login"?`,
		"POST login":  `guard: Routes["POST login"]: a pattern has a "/"; did you mean "POST /login"?`,
		"*":           `guard: Routes["*"]: a pattern has a "/"; did you mean "/*"?`,
		"POST,GET /y": `guard: Routes["POST,GET /y"]: "POST,GET" is not one method; give an entry to each, as in "POST /y", or leave the method out for all`,
	} {
		_, err := guard.New(guard.Config{Rule: guard.Rule{Key: keyfunc.IP()}, Routes: map[string]guard.Rule{key: {Policy: "1/1m"}}})
		require.EqualError(t, err, want)
	}
	for _, key := range []string{"example.com/x", "GET example.com/", "/*", "localhost/", "PROPFIND /a", "M-SEARCH /a", "/GET/health", "/a|b", "/{path...}"} {
		newGuard(t, guard.Config{Routes: map[string]guard.Rule{key: {Policy: "1/1m"}}})
	}
}

// A table of routes adds to what holds for every request, or stands in its place; the most specific entry counts.
func TestRoutes(t *testing.T) {
	store := newCounting(t)
	g := newGuard(t, guard.Config{
		Rule: guard.Rule{Policy: "1000/1h"},
		Routes: map[string]guard.Rule{
			"POST /login":    {Policy: "5/1m; fail closed"},
			"/files/*":       {Policy: "files: 1000/1m", Instead: true},
			"/files/big/*":   {Policy: "big: 10/1m"},
			"GET /files/*":   {Policy: "reading: 50/1m", Instead: true},
			"/files/big/one": {Policy: "one: 10/1m", Instead: true},
			"GET /health":    {Instead: true},
			"/teams/{team}":  {Policy: "team: 10/1m"},
		},
		Store: store,
	})
	for _, c := range []struct{ method, route, asked string }{
		{"GET", "/", "default"},
		{"POST", "/login", "post-login default"},
		{"GET", "/login", "default"},
		{"PUT", "/files/{name}", "files"},
		{"GET", "/files/{name}", "reading"},
		{"HEAD", "/files/{name}", "reading"},
		{"GET", "/files/big/{name}", "big default"},
		{"GET", "/files/big/one", "one"},
		{"GET", "/files", "default"},
		{"GET", "/health", ""},
		{"HEAD", "/health", ""},
		{"PUT", "/health", "default"},
		{"GET", "/teams/{team}", "team default"},
		{"GET", "/teams/7", "default"},
		{"GET", "", "default"},
	} {
		r := from(alice)
		r.method, r.route = c.method, c.route
		v := g.Check(r)
		assert.Equal(t, guard.Pass, v.Action)
		asked, _ := store.told()
		assert.Equal(t, c.asked, asked, "%s %s", c.method, c.route)
	}
	only := newGuard(t, guard.Config{Rule: guard.Rule{}, Routes: map[string]guard.Rule{"/login": {Policy: "1/1h"}}})
	r := from(alice)
	assert.Equal(t, guard.Pass, first(only.Check(r)).Action, "nothing holds elsewhere")
	r.route = "/login"
	assert.Equal(t, guard.Pass, first(only.Check(r)).Action)
	assert.Equal(t, guard.Reply, first(only.Check(r)).Action)
}

func first(v guard.Verdict) guard.Verdict { return v }
