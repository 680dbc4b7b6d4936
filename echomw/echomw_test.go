package echomw_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/echomw"
	"github.com/weir-go/weir/internal/adaptertest"
	"github.com/weir-go/weir/internal/echotest"
	"github.com/weir-go/weir/keyfunc"
)

// echo4 is Echo 4, as tests for both versions know it.
var echo4 = echotest.Echo[echo.Context]{
	Name: "echomw",
	New:  func() echotest.App[echo.Context] { return app{echo.New()} },
	Limit: func(g *guard.Guard) echotest.Middleware[echo.Context] {
		limit := echomw.Limit(g)
		return func(next func(echo.Context) error) func(echo.Context) error { return limit(next) }
	},
	Handle:    echomw.Handle,
	Error:     func(status int) error { return echo.NewHTTPError(status, "failed") },
	Response:  func(c echo.Context) http.ResponseWriter { return c.Response() },
	Committed: func(c echo.Context) bool { return c.Response().Committed },
}

// app is an app of Echo 4.
type app struct{ *echo.Echo }

// inEcho returns m as Echo takes it.
func inEcho(m echotest.Middleware[echo.Context]) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc { return m(next) }
}

func (a app) Use(all ...echotest.Middleware[echo.Context]) {
	for _, m := range all {
		a.Echo.Use(inEcho(m))
	}
}

func (a app) Pre(all ...echotest.Middleware[echo.Context]) {
	for _, m := range all {
		a.Echo.Pre(inEcho(m))
	}
}

func (a app) Match(methods []string, pattern string, handler func(echo.Context) error, all ...echotest.Middleware[echo.Context]) {
	var middleware []echo.MiddlewareFunc
	for _, m := range all {
		middleware = append(middleware, inEcho(m))
	}
	a.Echo.Match(methods, pattern, handler, middleware...)
}

func (a app) Group(prefix string, m echotest.Middleware[echo.Context], pattern string, handler func(echo.Context) error) {
	a.Echo.Group(prefix, inEcho(m)).GET(pattern, handler)
}

func (a app) Paths() (paths []string) {
	for _, r := range a.Routes() {
		paths = append(paths, r.Path)
	}
	return paths
}

func (a app) OnError(handler func(c echo.Context, err error)) {
	a.HTTPErrorHandler = func(err error, c echo.Context) { handler(c, err) }
}

func TestAdapter(t *testing.T)    { adaptertest.Run(t, echo4.Adapter()) }
func TestEcho(t *testing.T)       { echo4.Run(t) }
func BenchmarkLimit(b *testing.B) { adaptertest.Benchmark(b, loop) }

func TestAllocations(t *testing.T) { adaptertest.TestAllocations(t, loop, 3, 4) }

var loop = adaptertest.LoopHTTP(func(g *guard.Guard) http.Handler {
	e := echo.New()
	if g != nil {
		e.Use(echomw.Limit(g))
	}
	e.GET("/items/:id", func(c echo.Context) error { return c.NoContent(http.StatusNoContent) })
	return e
})

// The status of an error is the one that Echo's own handler answers with.
func TestFinalOfErrors(t *testing.T) {
	var final guard.Final
	g := echotest.NewGuard(t, "1000/1h", keyfunc.IP(), guard.Config{Rule: guard.Rule{Settle: func(f guard.Final, taken int64) int64 { final = f; return taken }}})
	for name, fail := range map[string]func(echo.Context) error{
		"plain":            func(echo.Context) error { return errors.New("failed") },
		"of the framework": func(echo.Context) error { return echo.ErrTeapot },
		"with a cause": func(echo.Context) error {
			return echo.NewHTTPError(http.StatusBadRequest).SetInternal(echo.ErrForbidden)
		},
		"with a plain cause": func(echo.Context) error {
			return echo.NewHTTPError(http.StatusBadRequest).SetInternal(errors.New("cause"))
		},
		"after the answer": func(c echo.Context) error {
			_ = c.String(http.StatusAccepted, "sent")
			return echo.ErrForbidden
		},
	} {
		e := echo.New()
		e.Use(echomw.Limit(g))
		e.GET("/", fail)
		assert.Equal(t, echotest.Do(e, http.MethodGet, "/").Code, final.Status, name)
	}
}
