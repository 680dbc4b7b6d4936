package echo5mw_test

import (
	"bufio"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/echo5mw"
	"github.com/weir-go/weir/internal/adaptertest"
	"github.com/weir-go/weir/internal/echotest"
	"github.com/weir-go/weir/keyfunc"
)

// opaque is a writer of other middleware that has no Unwrap, so that Echo's own cannot be found below it.
type opaque struct{ http.ResponseWriter }

func (o opaque) Flush() { _ = http.NewResponseController(o.ResponseWriter).Flush() }

func (o opaque) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(o.ResponseWriter).Hijack()
}

// plain is one that can do nothing besides.
type plain struct{ http.ResponseWriter }

// within puts wrap's writer around the one that it finds, and takes it away afterwards.
func within(wrap func(http.ResponseWriter) http.ResponseWriter) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			outer := c.Response()
			c.SetResponse(wrap(outer))
			defer c.SetResponse(outer)
			return next(c)
		}
	}
}

func inOpaque(w http.ResponseWriter) http.ResponseWriter { return opaque{w} }
func inPlain(w http.ResponseWriter) http.ResponseWriter  { return plain{w} }

// All that holds for an adapter holds where other middleware has put its writer in between.
func TestAdapterBehindAnotherWriter(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes as long as TestAdapter, which runs")
	}
	adaptertest.Run(t, echo5.Adapter(func(next func(*echo.Context) error) func(*echo.Context) error { return within(inOpaque)(next) }))
}

// A rule sees the status that the handler has answered with, whatever writers are around Echo's own: one that keeps it
// until the handler has returned, as Gzip's, has not written it to Echo's yet.
func TestFinalBehindAnotherWriter(t *testing.T) {
	for name, outside := range map[string]echo.MiddlewareFunc{
		"none":           within(func(w http.ResponseWriter) http.ResponseWriter { return w }),
		"without Unwrap": within(inPlain),
		"gzip":           middleware.Gzip(),
		"gzip of much":   middleware.GzipWithConfig(middleware.GzipConfig{MinLength: 1000}),
	} {
		for what, c := range map[string]struct {
			handler echo.HandlerFunc
			status  int
			bytes   int64
		}{
			"a body":            {func(c *echo.Context) error { return c.String(http.StatusUnauthorized, "wrong") }, http.StatusUnauthorized, 5},
			"JSON":              {func(c *echo.Context) error { return c.JSON(http.StatusForbidden, 17) }, http.StatusForbidden, 3},
			"no body":           {func(c *echo.Context) error { return c.NoContent(http.StatusNoContent) }, http.StatusNoContent, 0},
			"an error":          {func(*echo.Context) error { return echo.ErrUnauthorized }, http.StatusUnauthorized, -1},
			"nothing":           {func(*echo.Context) error { return nil }, http.StatusOK, 0},
			"an error too late": {func(c *echo.Context) error { _ = c.String(http.StatusAccepted, "sent"); return echo.ErrForbidden }, http.StatusAccepted, 4},
		} {
			for stacked := range 2 {
				var finals []guard.Final
				settle := func(f guard.Final, taken int64) int64 { finals = append(finals, f); return taken }
				e := echo.New()
				e.Use(outside)
				for range 1 + stacked {
					e.Use(echo5mw.Limit(echotest.NewGuard(t, "1000/1h", keyfunc.IP(), guard.Config{Rule: guard.Rule{Settle: settle}})))
				}
				e.GET("/", c.handler)
				w := httptest.NewRecorder()
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				r.Header.Set("Accept-Encoding", "gzip")
				e.ServeHTTP(w, r)
				assert.Equal(t, c.status, w.Code, "%s, %s", name, what)
				require.Len(t, finals, 1+stacked)
				for _, final := range finals {
					assert.Equal(t, c.status, final.Status, "%s, %s", name, what)
					assert.Equal(t, c.bytes, final.Bytes, "%s, %s", name, what)
				}
			}
		}
	}
}

// What Limit has put around another writer is gone when it returns, and what it has found is there again; but what
// middleware within has left there stays, as without Limit.
func TestWriterIsTakenAway(t *testing.T) {
	g := echotest.NewGuard(t, "1000/1h", keyfunc.IP(), guard.Config{})
	for name, c := range map[string]struct {
		handler echo.HandlerFunc
		stays   bool
	}{
		"answers":  {func(c *echo.Context) error { return c.NoContent(http.StatusNoContent) }, false},
		"fails":    {func(*echo.Context) error { return echo.ErrForbidden }, false},
		"panics":   {func(*echo.Context) error { panic(http.ErrAbortHandler) }, false},
		"replaces": {func(c *echo.Context) error { c.SetResponse(plain{c.Response()}); return nil }, true},
	} {
		var before, after http.ResponseWriter
		e := echo.New()
		e.Use(inEcho(echo5.Recovering(nil)), within(inPlain), func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c *echo.Context) error {
				before = c.Response()
				defer func() { after = c.Response() }()
				return next(c)
			}
		}, echo5mw.Limit(g), echo5mw.Limit(g))
		e.GET("/", c.handler)
		echotest.Do(e, http.MethodGet, "/")
		if c.stays {
			require.IsType(t, plain{}, after, name)
			assert.NotEqual(t, before, after, name)
		} else {
			assert.Equal(t, before, after, name)
		}
	}
}

// A writer that cannot flush says so behind Limit, too, rather than panic as an echo.Response does.
func TestFlush(t *testing.T) {
	g := echotest.NewGuard(t, "1000/1h", keyfunc.IP(), guard.Config{})
	for name, c := range map[string]struct {
		wrap func(http.ResponseWriter) http.ResponseWriter
		want error
	}{"can": {inOpaque, nil}, "cannot": {inPlain, http.ErrNotSupported}} {
		e := echo.New()
		e.Use(within(c.wrap), echo5mw.Limit(g))
		e.GET("/", func(c2 *echo.Context) error {
			_, err := echo.UnwrapResponse(c2.Response())
			require.NoError(t, err, "handlers find an echo.Response behind Limit")
			require.NoError(t, c2.String(http.StatusAccepted, "first"))
			assert.ErrorIs(t, http.NewResponseController(c2.Response()).Flush(), c.want, name)
			flusher, ok := c2.Response().(http.Flusher)
			require.True(t, ok)
			assert.NotPanics(t, flusher.Flush)
			return nil
		})
		w := echotest.Do(e, http.MethodGet, "/")
		assert.Equal(t, http.StatusAccepted, w.Code)
		assert.Equal(t, c.want == nil, w.Flushed, name)
	}
}
