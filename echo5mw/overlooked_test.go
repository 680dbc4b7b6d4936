package echo5mw_test

import (
	"net/http"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/echo5mw"
	"github.com/weir-go/weir/internal/adaptertest"
	"github.com/weir-go/weir/internal/logtest"
	"github.com/weir-go/weir/keyfunc"
)

// Echo's routes have no host, before the router, there is no route, and one for every method is held by no entry that
// names one: an entry that counts on either is noticed.
func TestOverlooked(t *testing.T) {
	for name, c := range map[string]struct {
		entry, method, path, found, taken string
		pre                               bool
		within                            []echo.MiddlewareFunc
	}{
		"another host":      {"POST example.com/login", http.MethodPost, "/login", "/login", "", false, nil},
		"before the router": {"POST /login", http.MethodPost, "/login", "", "/login", true, nil},
		"a path that is rewritten later": {"POST /login", http.MethodPost, "/signin", "", "/login", true, []echo.MiddlewareFunc{
			func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c *echo.Context) error {
					c.Request().URL.Path = "/login"
					return next(c)
				}
			},
		}},
		"a route for every method": {"POST /login", http.MethodPut, "/login", "/login", "", false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			adaptertest.Overlooked{
				Entry: c.entry, Method: c.method, Path: c.path, Found: c.found, Taken: c.taken,
				Build: func(g *guard.Guard, runs *int) func(*http.Request) int {
					e := echo.New()
					if c.pre {
						e.Pre(append([]echo.MiddlewareFunc{echo5mw.Limit(g)}, c.within...)...)
					} else {
						e.Use(echo5mw.Limit(g))
					}
					e.Any("/login", func(c *echo.Context) error {
						*runs++
						return c.NoContent(http.StatusUnauthorized)
					})
					return adaptertest.Send(echo.NewVirtualHostHandler(map[string]*echo.Echo{"example.com": e}))
				},
			}.Run(t)
		})
	}
}

// The routes of a host are held by an entry, and known to Lint if they are given.
func TestHosts(t *testing.T) {
	said := new(logtest.Log)
	g, err := guard.New(guard.Config{
		Rule:   guard.Rule{Policy: "1000/1h", Key: keyfunc.IP()},
		Routes: map[string]guard.Rule{"POST /login": {Policy: "login: 3/1h"}},
		Log:    said.Logger(),
	})
	require.NoError(t, err)
	e, runs := echo.New(), 0
	e.Use(echo5mw.Limit(g))
	e.POST("/login", func(*echo.Context) error {
		runs++
		return nil
	})
	send := adaptertest.Send(echo.NewVirtualHostHandler(map[string]*echo.Echo{"example.com": e}))
	for range 10 {
		r, err := http.NewRequest(http.MethodPost, "http://example.com/login", nil)
		require.NoError(t, err)
		r.RemoteAddr = "203.0.113.7:1234"
		send(r)
	}
	assert.Equal(t, 3, runs)
	assert.Empty(t, said.With(""))

	var routes []string
	for _, r := range e.Router().Routes() {
		routes = append(routes, r.Method+" "+r.Path)
	}
	assert.Empty(t, g.Lint(routes), routes)
}
