package fiber3mw_test

import (
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v3"
	fiberrecover "github.com/gofiber/fiber/v3/middleware/recover"
	"github.com/valyala/fasthttp"

	"github.com/weir-go/weir/fiber3mw"
	"github.com/weir-go/weir/internal/adaptertest"
	"github.com/weir-go/weir/internal/fibertest"
)

// fiber3 returns Fiber 3, as tests for both versions know it, with apps that newApp makes.
func fiber3(newApp func(...fiber.Config) *fiber.App) fibertest.Fiber[fiber.Ctx] {
	return fibertest.Fiber[fiber.Ctx]{
		Name: "fiber3mw",
		New: func(c fibertest.Config) fibertest.App[fiber.Ctx] {
			return app{newApp(fiber.Config{CaseSensitive: c.CaseSensitive, StreamRequestBody: c.StreamRequestBody})}
		},
		Limit:      fiber3mw.Limit,
		Handle:     fiber3mw.Handle,
		Recover:    fiberrecover.New(),
		Error:      func(status int) error { return fiber.NewError(status, "failed") },
		Context:    fiber.Ctx.Context,
		SetContext: fiber.Ctx.SetContext,
		RequestCtx: func(c fiber.Ctx) *fasthttp.RequestCtx { return c.RequestCtx() },
		Native:     func(c fiber.Ctx) context.Context { return c },
	}
}

// app is an app of Fiber 3.
type app struct{ *fiber.App }

func (a app) Use(handlers ...fiber.Handler) {
	for _, h := range handlers {
		a.App.Use(h)
	}
}

func (a app) Add(method, pattern string, handlers ...fiber.Handler) {
	more := make([]any, 0, len(handlers))
	for _, h := range handlers[1:] {
		more = append(more, h)
	}
	a.App.Add([]string{method}, pattern, handlers[0], more...) // of GET, Fiber also makes HEAD
}

func (a app) All(pattern string, handler fiber.Handler) { a.App.All(pattern, handler) }

func (a app) Routes() (routes []string) {
	for _, r := range a.GetRoutes(true) {
		routes = append(routes, r.Method+" "+r.Path)
	}
	return routes
}

func (a app) Test(r *http.Request) (*http.Response, error) { return a.App.Test(r, fiber.TestConfig{}) }

func (a app) Serve(listener net.Listener) error {
	return a.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true})
}

func TestAdapter(t *testing.T)     { adaptertest.Run(t, fiber3(fiber.New).Adapter()) }
func TestFiber(t *testing.T)       { fiber3(fiber.New).Run(t) }
func BenchmarkLimit(b *testing.B)  { adaptertest.Benchmark(b, fiber3(fiber.New).Loop) }
func TestAllocations(t *testing.T) { adaptertest.TestAllocations(t, fiber3(fiber.New).Loop, 0, 0) }
