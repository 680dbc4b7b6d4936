package fibermw_test

import (
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/fibermw"
	"github.com/weir-go/weir/internal/adaptertest"
)

// Fiber goes on to a later route where a constraint does not hold, and where a handler calls Next: then an entry for
// that route does not hold, which is noticed.
func TestOverlooked(t *testing.T) {
	next := func(c *fiber.Ctx) error { return c.Next() }
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
					app.Use(fibermw.Limit(g))
					c.before(app)
					app.Post(c.taken, func(c *fiber.Ctx) error {
						*runs++
						return c.SendStatus(fiber.StatusUnauthorized)
					})
					return func(r *http.Request) int {
						res, err := app.Test(r, -1)
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
