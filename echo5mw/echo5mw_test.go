package echo5mw_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/echo5mw"
	"github.com/weir-go/weir/internal/adaptertest"
	"github.com/weir-go/weir/internal/echotest"
	"github.com/weir-go/weir/keyfunc"
)

// echo5 is Echo 5, as tests for both versions know it.
var echo5 = echotest.Echo[*echo.Context]{
	Name: "echo5mw",
	New:  func() echotest.App[*echo.Context] { return app{echo.New()} },
	Limit: func(g *guard.Guard) echotest.Middleware[*echo.Context] {
		limit := echo5mw.Limit(g)
		return func(next func(*echo.Context) error) func(*echo.Context) error { return limit(next) }
	},
	Handle:   echo5mw.Handle,
	Error:    func(status int) error { return echo.NewHTTPError(status, "failed") },
	Response: (*echo.Context).Response,
	Committed: func(c *echo.Context) bool {
		res, _ := echo.UnwrapResponse(c.Response())
		return res != nil && res.Committed
	},
}

// app is an app of Echo 5.
type app struct{ *echo.Echo }

// inEcho returns m as Echo takes it.
func inEcho(m echotest.Middleware[*echo.Context]) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc { return m(next) }
}

func (a app) Use(all ...echotest.Middleware[*echo.Context]) {
	for _, m := range all {
		a.Echo.Use(inEcho(m))
	}
}

func (a app) Pre(all ...echotest.Middleware[*echo.Context]) {
	for _, m := range all {
		a.Echo.Pre(inEcho(m))
	}
}

func (a app) Match(methods []string, pattern string, handler func(*echo.Context) error, all ...echotest.Middleware[*echo.Context]) {
	var middleware []echo.MiddlewareFunc
	for _, m := range all {
		middleware = append(middleware, inEcho(m))
	}
	a.Echo.Match(methods, pattern, handler, middleware...)
}

func (a app) Group(prefix string, m echotest.Middleware[*echo.Context], pattern string, handler func(*echo.Context) error) {
	a.Echo.Group(prefix, inEcho(m)).GET(pattern, handler)
}

func (a app) Paths() (paths []string) {
	for _, r := range a.Router().Routes() {
		paths = append(paths, r.Path)
	}
	return paths
}

func (a app) OnError(handler func(c *echo.Context, err error)) { a.HTTPErrorHandler = handler }

func TestAdapter(t *testing.T)    { adaptertest.Run(t, echo5.Adapter()) }
func TestEcho(t *testing.T)       { echo5.Run(t) }
func BenchmarkLimit(b *testing.B) { adaptertest.Benchmark(b, loop) }

func TestAllocations(t *testing.T) { adaptertest.TestAllocations(t, loop, 3, 4) }

var loop = adaptertest.LoopHTTP(func(g *guard.Guard) http.Handler {
	e := echo.New()
	if g != nil {
		e.Use(echo5mw.Limit(g))
	}
	e.GET("/items/:id", func(c *echo.Context) error { return c.NoContent(http.StatusNoContent) })
	return e
})

// coded is an error with a status, as a program may have.
type coded int

func (c coded) Error() string   { return "failed" }
func (c coded) StatusCode() int { return int(c) }

// The status of an error is the one that Echo's own handler answers with.
func TestFinalOfErrors(t *testing.T) {
	var final guard.Final
	settle := func(f guard.Final, taken int64) int64 { final = f; return taken }
	g := echotest.NewGuard(t, "1000/1h", keyfunc.IP(), guard.Config{Rule: guard.Rule{Settle: settle}})
	for name, fail := range map[string]func(*echo.Context) error{
		"plain":            func(*echo.Context) error { return errors.New("failed") },
		"of the framework": func(*echo.Context) error { return echo.ErrUnauthorized },
		"with a message":   func(*echo.Context) error { return echo.NewHTTPError(http.StatusTeapot, "tea") },
		"with a cause": func(*echo.Context) error {
			return echo.NewHTTPError(http.StatusBadRequest, "bad").Wrap(echo.ErrForbidden)
		},
		"wrapped":        func(*echo.Context) error { return fmt.Errorf("login: %w", echo.ErrUnauthorized) },
		"of the program": func(*echo.Context) error { return coded(http.StatusConflict) },
		"of the program, too, wrapped twice": func(*echo.Context) error {
			return errors.Join(errors.New("first"), fmt.Errorf("second: %w", coded(http.StatusGone)))
		},
		"without a status": func(*echo.Context) error { return coded(0) },
		"after the answer": func(c *echo.Context) error {
			_ = c.String(http.StatusAccepted, "sent")
			return echo.ErrForbidden
		},
	} {
		for where, mount := range map[string]func(e *echo.Echo){
			"Use":   func(e *echo.Echo) { e.Use(echo5mw.Limit(g)); e.GET("/", fail) },
			"Pre":   func(e *echo.Echo) { e.Pre(echo5mw.Limit(g)); e.GET("/", fail) },
			"group": func(e *echo.Echo) { e.Group("", echo5mw.Limit(g)).GET("/", fail) },
			"route": func(e *echo.Echo) { e.GET("/", fail, echo5mw.Limit(g)) },
		} {
			e := echo.New()
			mount(e)
			final = guard.Final{}
			assert.Equal(t, echotest.Do(e, http.MethodGet, "/").Code, final.Status, "%s, %s", name, where)
		}
	}
}
