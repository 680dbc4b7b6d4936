package fibertest

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/adaptertest"
	"github.com/weir-go/weir/keyfunc"
)

// Fiber goes on to a later route where a constraint does not hold, and where a handler calls Next: then an entry for
// that route does not hold, which is noticed.
func (f Fiber[C]) testOverlooked(t *testing.T) {
	next := func(c C) error { return c.Next() }
	for name, c := range map[string]struct {
		path, found, taken string
		before             func(app App[C])
	}{
		"a constraint":          {"/login", "/:id<int>", "/login", func(app App[C]) { app.Add(http.MethodPost, "/:id<int>", next) }},
		"a handler's Next":      {"/login", "/*", "/login", func(app App[C]) { app.All("/*", next) }},
		"a Next to another one": {"/x/login", "/x/*", "/x/:page", func(app App[C]) { app.All("/x/*", next) }},
	} {
		t.Run(name, func(t *testing.T) {
			adaptertest.Overlooked{
				Entry: "POST " + c.taken, Method: http.MethodPost, Path: c.path, Found: c.found, Taken: c.taken,
				Build: func(g *guard.Guard, runs *int) func(*http.Request) int {
					app := f.New(Config{})
					app.Use(f.Limit(g))
					c.before(app)
					app.Add(http.MethodPost, c.taken, func(c C) error {
						*runs++
						return c.SendStatus(http.StatusUnauthorized)
					})
					return func(r *http.Request) int {
						res, err := app.Test(r)
						if !assert.NoError(t, err) {
							return 0
						}
						assert.NoError(t, res.Body.Close())
						return res.StatusCode
					}
				},
			}.Run(t)
		})
	}
}

// Lint says at start-up which entries an earlier route with a constraint takes the requests of.
func (f Fiber[C]) testLintOfConstraints(t *testing.T) {
	g, err := guard.New(guard.Config{
		Rule:   guard.Rule{Policy: "1000/1h", Key: keyfunc.IP()},
		Routes: map[string]guard.Rule{"POST /login": {Policy: "login: 3/1h"}, "GET /items/:id": {Policy: "items: 9/1h"}},
	})
	require.NoError(t, err)
	nothing := func(C) error { return nil }
	app := f.New(Config{})
	app.Use(f.Limit(g))
	app.Add(http.MethodPost, "/:id<int>", nothing)
	app.Add(http.MethodPost, "/login", nothing)
	app.Add(http.MethodGet, "/items/:id", nothing)
	routes := app.Routes()
	warnings := g.Lint(routes)
	require.Len(t, warnings, 1, routes)
	assert.Equal(t, "earlier-route", warnings[0].Code)
	assert.Equal(t, `Routes["POST /login"]`, warnings[0].Where)
}
