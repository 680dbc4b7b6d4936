package fibermw_test

import (
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v2"
	fiberrecover "github.com/gofiber/fiber/v2/middleware/recover"

	"github.com/weir-go/weir/fibermw"
	"github.com/weir-go/weir/internal/adaptertest"
	"github.com/weir-go/weir/internal/fibertest"
)

// fiber2 is Fiber 2, as tests for both versions know it.
var fiber2 = fibertest.Fiber[*fiber.Ctx]{
	Name: "fibermw",
	New: func(c fibertest.Config) fibertest.App[*fiber.Ctx] {
		return app{fiber.New(fiber.Config{
			DisableStartupMessage: true, CaseSensitive: c.CaseSensitive, StreamRequestBody: c.StreamRequestBody,
		})}
	},
	Limit:      fibermw.Limit,
	Handle:     fibermw.Handle,
	Recover:    fiberrecover.New(),
	Error:      func(status int) error { return fiber.NewError(status, "failed") },
	Context:    (*fiber.Ctx).UserContext,
	SetContext: (*fiber.Ctx).SetUserContext,
	RequestCtx: (*fiber.Ctx).Context,
	Native:     func(c *fiber.Ctx) context.Context { return c.Context() },
}

// app is an app of Fiber 2.
type app struct{ *fiber.App }

func (a app) Use(handlers ...fiber.Handler) {
	for _, h := range handlers {
		a.App.Use(h)
	}
}

func (a app) Add(method, pattern string, handlers ...fiber.Handler) {
	if method == http.MethodGet {
		a.Get(pattern, handlers...) // which also answers HEAD
	} else {
		a.App.Add(method, pattern, handlers...)
	}
}

func (a app) All(pattern string, handler fiber.Handler) { a.App.All(pattern, handler) }

func (a app) Routes() (routes []string) {
	for _, r := range a.GetRoutes(true) {
		routes = append(routes, r.Method+" "+r.Path)
	}
	return routes
}

func (a app) Test(r *http.Request) (*http.Response, error) { return a.App.Test(r, -1) }
func (a app) Serve(listener net.Listener) error            { return a.Listener(listener) }

func TestAdapter(t *testing.T)     { adaptertest.Run(t, fiber2.Adapter()) }
func TestFiber(t *testing.T)       { fiber2.Run(t) }
func BenchmarkLimit(b *testing.B)  { adaptertest.Benchmark(b, fiber2.Loop) }
func TestAllocations(t *testing.T) { adaptertest.TestAllocations(t, fiber2.Loop, 0, 0) }
