package echo5mw_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/echo5mw"
	"github.com/weir-go/weir/internal/adaptertest"
	"github.com/weir-go/weir/keyfunc"
)

func TestAdapter(t *testing.T) { testAdapter(t) }

// testAdapter runs the tests of all adapters with middleware outside of the guards.
func testAdapter(t *testing.T, outside ...echo.MiddlewareFunc) {
	t.Helper()
	adaptertest.Run(t, adaptertest.Adapter{
		Name:      "echo5mw",
		Serve:     func(t testing.TB, app adaptertest.App) string { return serve(t, app, outside) },
		Handle:    handle,
		HandleNil: func() guard.OverLimit { return echo5mw.Handle(nil) },
		Pattern:   pattern,
		IsNative:  func(r any) bool { _, ok := r.(*echo.Context); return ok },
	})
}

var wildcard, rest = regexp.MustCompile(`\{(\w+)\}`), regexp.MustCompile(`\{(\w+)\.\.\.\}`)

func pattern(p string) string {
	return rest.ReplaceAllString(wildcard.ReplaceAllString(p, ":$1"), "*")
}

func serve(t testing.TB, app adaptertest.App, outside []echo.MiddlewareFunc) string {
	t.Helper()
	e := echo.New()
	e.Use(recovering(app.Recovered), leaving(app.Left), login)
	e.Use(outside...)
	e.Use(limited(app.Guards)...)
	for _, r := range app.Routes {
		methods := []string{r.Method}
		if r.Method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
		e.Match(methods, pattern(r.Pattern), handler(r.Handler), limited(r.Guards)...)
	}
	return adaptertest.ServeHTTP(t, e)
}

func limited(guards []*guard.Guard) (out []echo.MiddlewareFunc) {
	for _, g := range guards {
		out = append(out, echo5mw.Limit(g))
	}
	return out
}

func recovering(recovered func(any)) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) (err error) {
			defer func() {
				if value := recover(); value != nil {
					if recovered != nil {
						recovered(value)
					}
					err = echo.ErrInternalServerError
				}
			}()
			return next(c)
		}
	}
}

func leaving(left func(context.Context)) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			if left != nil {
				defer func() { left(c.Request().Context()) }()
			}
			return next(c)
		}
	}
}

func login(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		r := c.Request()
		if user := r.Header.Get(adaptertest.UserInStore); user != "" {
			c.Set(adaptertest.StoreKey, user)
		}
		if user := r.Header.Get(adaptertest.UserInContext); user != "" {
			c.SetRequest(r.WithContext(context.WithValue(r.Context(), adaptertest.ContextKey{}, user)))
		}
		if peer := r.Header.Get(adaptertest.RewrittenPeer); peer != "" {
			c.Request().RemoteAddr = peer
		}
		return next(c)
	}
}

func handler(h adaptertest.Handler) echo.HandlerFunc {
	return func(c *echo.Context) error {
		h.Called(c.Request().Context(), c.Request().Context())
		if h.Upload != nil {
			err := c.Request().ParseMultipartForm(0)
			h.Upload(c.Request().MultipartForm, err)
		}
		h.Header.Each(c.Response().Header().Set)
		switch {
		case h.Panic != nil:
			panic(h.Panic)
		case h.Hijack != nil:
			conn, _, err := http.NewResponseController(c.Response()).Hijack()
			if err != nil {
				return err
			}
			defer conn.Close()
			h.Hijack(c.Request().Context(), conn)
			return nil
		case h.Stream != nil:
			_, _ = c.Response().Write([]byte("first"))
			_ = http.NewResponseController(c.Response()).Flush()
			<-h.Stream
			_, _ = c.Response().Write([]byte("last"))
			return nil
		case h.Fail && h.Status == 0:
			return errors.New("failed")
		case h.Fail:
			return echo.NewHTTPError(h.Status, "failed")
		default:
			return c.String(h.Code(), "ok")
		}
	}
}

func handle(n adaptertest.Native) guard.OverLimit {
	return echo5mw.Handle(func(c *echo.Context, v *guard.Verdict) error {
		c.Response().Header().Set("X-Native", v.Policy)
		n.Header.Each(c.Response().Header().Set)
		n.Edit(v)
		switch {
		case n.Panic != nil:
			panic(n.Panic)
		case n.Fail:
			return echo.NewHTTPError(n.Status, "failed")
		case n.Body != "":
			_, err := c.Response().Write([]byte(n.Body))
			return err
		case n.Status != 0:
			return c.String(n.Status, "native")
		}
		return nil
	})
}

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

func newGuard(t *testing.T, policy string, key keyfunc.Func, c guard.Config) *guard.Guard {
	t.Helper()
	c.Policy, c.Key, c.Log = policy, key, slog.New(slog.DiscardHandler)
	g, err := guard.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, g.Close()) })
	return g
}

func do(h http.Handler, method, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	return w
}

// What Path says in Echo's odd corners is always of the routing table.
func TestRoute(t *testing.T) {
	var route string
	g := newGuard(t, "1000/1h", keyfunc.Custom("probe", func(r keyfunc.Request) (string, error) {
		route = r.Route()
		return "key", nil
	}), guard.Config{})
	for name, c := range map[string]struct {
		mount func(*echo.Echo)
		want  map[string]string
	}{
		"Use": {func(e *echo.Echo) { e.Use(echo5mw.Limit(g)) }, map[string]string{
			"GET /items/1": "/items/:id", "GET /items/1/": "/items/:id", "GET /items/a%2Fb": "/items/:id", "GET /nothing": "",
			"POST /items/1": "/items/:id", // 405
			"GET /v1/users": "/v1/users", "GET /v1/nothing": "/v1/*",
		}},
		"Pre": {func(e *echo.Echo) { e.Pre(echo5mw.Limit(g)) }, map[string]string{"GET /items/1": "", "GET /nothing": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			e := echo.New()
			c.mount(e)
			ok := func(c *echo.Context) error { return c.NoContent(http.StatusNoContent) }
			e.GET("/items/:id", ok)
			e.Group("/v1", recovering(nil)).GET("/users", ok)
			for request, want := range c.want {
				var method, target string
				_, err := fmt.Sscan(request, &method, &target)
				require.NoError(t, err)
				registered := func(r echo.RouteInfo) bool { return r.Path == want }
				if want == "/v1/*" && !slices.ContainsFunc(e.Router().Routes(), registered) {
					want = "" // before Echo 5.3, a group registers none
				}
				route = "not asked"
				do(e, method, target)
				assert.Equal(t, want, route, request)
			}
		})
	}
}

// Middleware outside sees a refusal as an answer that is sent, and an error of a
// native handler as an error.
func TestOutside(t *testing.T) {
	failed := errors.New("failed")
	for name, c := range map[string]struct {
		over      guard.OverLimit
		committed bool
		err       error
	}{
		"plain":  {nil, true, nil},
		"silent": {echo5mw.Handle(func(*echo.Context, *guard.Verdict) error { return nil }), true, nil},
		"error":  {echo5mw.Handle(func(*echo.Context, *guard.Verdict) error { return failed }), false, failed},
	} {
		t.Run(name, func(t *testing.T) {
			e := echo.New()
			var committed bool
			var err error
			e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c *echo.Context) error {
					err = next(c)
					res, _ := echo.UnwrapResponse(c.Response())
					committed = res != nil && res.Committed
					return err
				}
			}, echo5mw.Limit(newGuard(t, "1/1h", keyfunc.IP(), guard.Config{Rule: guard.Rule{OverLimit: c.over}})))
			do(e, http.MethodGet, "/")
			do(e, http.MethodGet, "/")
			assert.Equal(t, c.committed, committed)
			assert.Equal(t, c.err, err)
		})
	}
}

// coded is an error with a status, as a program may have.
type coded int

func (c coded) Error() string   { return "failed" }
func (c coded) StatusCode() int { return int(c) }

// The status of an error is the one that Echo's own handler answers with.
func TestFinalOfErrors(t *testing.T) {
	var final guard.Final
	settle := func(f guard.Final, taken int64) int64 { final = f; return taken }
	g := newGuard(t, "1000/1h", keyfunc.IP(), guard.Config{Rule: guard.Rule{Settle: settle}})
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
			assert.Equal(t, do(e, http.MethodGet, "/").Code, final.Status, "%s, %s", name, where)
		}
	}
}

func TestLimitNeedsGuard(t *testing.T) {
	assert.Panics(t, func() { echo5mw.Limit(nil) })
}
