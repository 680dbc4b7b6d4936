package echomw_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/echomw"
	"github.com/weir-go/weir/internal/adaptertest"
	"github.com/weir-go/weir/internal/logtest"
	"github.com/weir-go/weir/keyfunc"
)

// Echo's routes have no host, and before the router, there is no route: an entry that counts on either is noticed.
func TestOverlooked(t *testing.T) {
	for name, c := range map[string]struct {
		entry, path, found, taken string
		mount                     func(e *echo.Echo, limit echo.MiddlewareFunc)
	}{
		"another host":      {"POST example.com/login", "/login", "/login", "", func(e *echo.Echo, limit echo.MiddlewareFunc) { e.Use(limit) }},
		"before the router": {"POST /login", "/login", "", "/login", func(e *echo.Echo, limit echo.MiddlewareFunc) { e.Pre(limit) }},
		"a path that is rewritten later": {"POST /login", "/signin", "", "/login", func(e *echo.Echo, limit echo.MiddlewareFunc) {
			e.Pre(limit, func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error {
					c.Request().URL.Path = "/login"
					return next(c)
				}
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			adaptertest.Overlooked{
				Entry: c.entry, Method: http.MethodPost, Path: c.path, Found: c.found, Taken: c.taken,
				Build: func(g *guard.Guard, runs *int) func(*http.Request) int {
					e := echo.New()
					c.mount(e, echomw.Limit(g))
					e.Host("example.com").POST("/login", func(c echo.Context) error {
						*runs++
						return c.NoContent(http.StatusUnauthorized)
					})
					return adaptertest.Send(e)
				},
			}.Run(t)
		})
	}
}

// The routes of all hosts are held by an entry, and known to Lint if they are given.
func TestHosts(t *testing.T) {
	said := new(logtest.Log)
	g, err := guard.New(guard.Config{
		Rule:   guard.Rule{Policy: "1000/1h", Key: keyfunc.IP()},
		Routes: map[string]guard.Rule{"POST /login": {Policy: "login: 3/1h"}},
		Log:    said.Logger(),
	})
	require.NoError(t, err)
	e, runs := echo.New(), 0
	e.Use(echomw.Limit(g))
	e.Host("example.com").POST("/login", func(echo.Context) error {
		runs++
		return nil
	})
	send := adaptertest.Send(e)
	for range 10 {
		r, err := http.NewRequest(http.MethodPost, "http://example.com/login", nil)
		require.NoError(t, err)
		r.RemoteAddr = "203.0.113.7:1234"
		send(r)
	}
	assert.Equal(t, 3, runs)
	assert.Empty(t, said.With(""))

	var routes []string
	for _, router := range e.Routers() {
		for _, r := range router.Routes() {
			routes = append(routes, r.Method+" "+r.Path)
		}
	}
	slices.Sort(routes)
	assert.Empty(t, g.Lint(routes), routes)
}
