package fiber3mw_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/fiber3mw"
	"github.com/weir-go/weir/internal/adaptertest"
	"github.com/weir-go/weir/internal/fibertest"
	"github.com/weir-go/weir/keyfunc"
)

// tenant is an application's own context.
type tenant struct{ *fiber.DefaultCtx }

func newTenant(app *fiber.App) fiber.CustomCtx { return &tenant{fiber.NewDefaultCtx(app)} }

// ID is a method that Fiber's context has not.
func (c *tenant) ID() string { return strings.Clone(c.Get("X-Tenant")) }

// newApps has the ways to make an app: with Fiber's context, and with an application's own.
var newApps = map[string]func(...fiber.Config) *fiber.App{
	"fiber's context": fiber.New,
	"a custom one":    func(c ...fiber.Config) *fiber.App { return fiber.NewWithCustomCtx(newTenant, c...) },
}

// An application's own context comes to key functions, over-limit handlers and handlers as it is.
func TestCustomContext(t *testing.T) {
	f := newApps["a custom one"]()
	g := fibertest.NewGuard(t, keyfunc.Custom("tenant", func(r keyfunc.Request) (string, error) {
		c, ok := r.Native().(*tenant)
		if !ok {
			return "", errors.New("not the application's context")
		}
		return c.ID(), nil
	}), guard.Config{Rule: guard.Rule{OverLimit: fiber3mw.Handle(func(c fiber.Ctx, v *guard.Verdict) error {
		return c.Status(v.Status).SendString("enough for " + c.(*tenant).ID())
	})}})
	f.Get("/items/:id", fiber3mw.Limit(g), func(c fiber.Ctx) error {
		return c.SendString("item of " + c.(*tenant).ID())
	})
	for _, want := range []struct {
		tenant string
		status int
		body   string
	}{
		{"a", http.StatusOK, "item of a"},
		{"a", http.StatusTooManyRequests, "enough for a"},
		{"b", http.StatusOK, "item of b"},
	} {
		status, body := fibertest.Get(t, app{f}, "/items/1", "X-Tenant", want.tenant)
		assert.Equal(t, want.status, status)
		assert.Equal(t, want.body, body)
	}
}

// Requests that come from net/http by Fiber's adaptor, whose header was never read from a connection, are counted.
func TestAdaptor(t *testing.T) {
	for name, newApp := range newApps {
		f := newApp()
		f.Use("/*", fiber3mw.Limit(fibertest.NewGuard(t, keyfunc.IP(), guard.Config{})))
		f.Get("/", func(c fiber.Ctx) error { return c.SendString("hello") })
		h := adaptor.FiberApp(f)
		for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
			r.Host = ""
			h.ServeHTTP(w, r)
			assert.Equal(t, want, w.Code, name)
		}
	}
}

func TestAdapterWithCustomContext(t *testing.T) {
	if testing.Short() {
		t.Skip("it is TestAdapter once more")
	}
	adaptertest.Run(t, fiber3(newApps["a custom one"]).Adapter())
}
