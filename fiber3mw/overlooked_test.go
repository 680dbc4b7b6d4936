package fiber3mw_test

import (
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/fiber3mw"
	"github.com/weir-go/weir/internal/adaptertest"
	"github.com/weir-go/weir/keyfunc"
)

// Fiber goes on to a later route where a constraint does not hold, and where a handler calls Next: then an entry for
// that route does not hold, which is noticed.
func TestOverlooked(t *testing.T) {
	next := func(c fiber.Ctx) error { return c.Next() }
	for name, c := range map[string]struct {
		path, found, taken string
		before             func(app *fiber.App)
	}{
		"a constraint":          {"/login", "/:id<int>", "/login", func(app *fiber.App) { app.Post("/:id<int>", next) }},
		"a handler's Next":      {"/login", "/*", "/login", func(app *fiber.App) { app.All("/*", next) }},
		"a Next to another one": {"/x/login", "/x/*", "/x/:page", func(app *fiber.App) { app.All("/x/*", next) }},
	} {
		t.Run(name, func(t *testing.T) {
			adaptertest.Overlooked{
				Entry: "POST " + c.taken, Method: http.MethodPost, Path: c.path, Found: c.found, Taken: c.taken,
				Build: func(g *guard.Guard, runs *int) func(*http.Request) int {
					app := fiber.New()
					app.Use(fiber3mw.Limit(g))
					c.before(app)
					app.Post(c.taken, func(c fiber.Ctx) error {
						*runs++
						return c.SendStatus(fiber.StatusUnauthorized)
					})
					return func(r *http.Request) int {
						res, err := app.Test(r, fiber.TestConfig{})
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
func TestLintOfConstraints(t *testing.T) {
	g, err := guard.New(guard.Config{
		Rule:   guard.Rule{Policy: "1000/1h", Key: keyfunc.IP()},
		Routes: map[string]guard.Rule{"POST /login": {Policy: "login: 3/1h"}, "GET /items/:id": {Policy: "items: 9/1h"}},
	})
	require.NoError(t, err)
	nothing := func(fiber.Ctx) error { return nil }
	app := fiber.New()
	app.Use(fiber3mw.Limit(g))
	app.Post("/:id<int>", nothing)
	app.Post("/login", nothing)
	app.Get("/items/:id", nothing)
	var routes []string
	for _, r := range app.GetRoutes(true) {
		routes = append(routes, r.Method+" "+r.Path)
	}
	warnings := g.Lint(routes)
	require.Len(t, warnings, 1, routes)
	assert.Equal(t, "earlier-route", warnings[0].Code)
	assert.Equal(t, `Routes["POST /login"]`, warnings[0].Where)
}
