package fiber3mw_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/timeout"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/fiber3mw"
	"github.com/weir-go/weir/internal/fibertest"
	"github.com/weir-go/weir/keyfunc"
)

// Fiber's timeout answers while the handler still runs, with all that belongs to the request. The end of the request
// is that of the timeout, the headers are in its answer, and what the handler uses is left alone: the race detector sees
// it otherwise.
func TestTimeout(t *testing.T) {
	for name, c := range map[string]struct {
		late   func(fiber.Ctx) error
		status int
		body   string
	}{
		"Fiber's answer": {nil, http.StatusRequestTimeout, "Request Timeout"},
		"another answer": {
			func(c fiber.Ctx) error { return c.Status(http.StatusGatewayTimeout).SendString("late") },
			http.StatusGatewayTimeout, "late",
		},
	} {
		t.Run(name, func(t *testing.T) {
			ends, stop := make(chan guard.Final, 10), make(chan struct{})
			var handlers sync.WaitGroup
			defer handlers.Wait()
			defer close(stop)
			g, err := guard.New(guard.Config{
				Rule: guard.Rule{
					Policy: "9/1h, 1 concurrent", Key: keyfunc.Const("all"),
					Settle: func(f guard.Final, taken int64) int64 { ends <- f; return taken },
				},
				Routes: map[string]guard.Rule{"/other": {Policy: "other: 9/1h"}}, // so that routes are compared
			})
			require.NoError(t, err)
			f := fiber.New()
			f.Use(fiber3mw.Limit(g))
			handlers.Add(1)
			f.Get("/slow", timeout.New(func(c fiber.Ctx) error {
				defer handlers.Done()
				permit := c.Locals(guard.ContextKey)
				<-c.Context().Done()
				assert.NoError(t, c.Next())
				c.RequestCtx().Hijack(func(net.Conn) { t.Error("the connection is not this handler's") })
				for {
					select {
					case <-stop:
						return nil
					default:
						assert.Error(t, c.Context().Err())
						assert.Same(t, permit, c.Locals(guard.ContextKey))
					}
				}
			}, timeout.Config{Timeout: time.Millisecond, OnTimeout: c.late}))
			f.Get("/:any", func(fiber.Ctx) error { return nil })
			status, body := fibertest.Get(t, app{f}, "/slow")
			assert.Equal(t, c.status, status)
			assert.Equal(t, c.body, body)
			end := <-ends
			assert.Equal(t, c.status, end.Status)
			assert.False(t, end.Panicked)
		})
	}
}

// Inside of a timeout, the permit is held until the handler has returned, long after the answer.
func TestTimeoutAround(t *testing.T) {
	ends, stop, begun := make(chan guard.Final, 10), make(chan struct{}), make(chan struct{})
	g, err := guard.New(guard.Config{Rule: guard.Rule{
		Policy: "9/1h, 1 concurrent", Key: keyfunc.Const("all"),
		Settle: func(f guard.Final, taken int64) int64 { ends <- f; return taken },
	}})
	require.NoError(t, err)
	f := fiber.New()
	limit := fiber3mw.Limit(g)
	f.Use("/slow", func(c fiber.Ctx) error { // the timeout comes when the handler runs, however busy the machine is
		ctx, timeOut := context.WithCancel(c.Context())
		go func() { <-begun; timeOut() }()
		c.SetContext(ctx)
		return c.Next()
	})
	f.Get("/slow", timeout.New(func(c fiber.Ctx) error { return c.Next() }, timeout.Config{
		Timeout:   time.Hour,
		OnTimeout: func(c fiber.Ctx) error { return c.SendStatus(http.StatusGatewayTimeout) },
	}), limit, func(c fiber.Ctx) error {
		close(begun)
		<-stop
		return c.SendStatus(http.StatusAccepted) // which nobody sees
	})
	f.Get("/", limit, func(c fiber.Ctx) error { return c.SendStatus(http.StatusOK) })
	status, _ := fibertest.Get(t, app{f}, "/slow")
	assert.Equal(t, http.StatusGatewayTimeout, status)
	status, _ = fibertest.Get(t, app{f}, "/")
	assert.Equal(t, http.StatusTooManyRequests, status, "the handler still runs")
	assert.Empty(t, ends)
	close(stop)
	assert.Equal(t, http.StatusAccepted, (<-ends).Status)
	require.Eventually(t, func() bool { status, _ = fibertest.Get(t, app{f}, "/"); return status == http.StatusOK }, time.Minute, time.Millisecond)
}

// A degraded answer of the timeout is not for caches either, whatever was set before.
func TestTimeoutOfDegraded(t *testing.T) {
	f := fiber.New()
	f.Use(fiber3mw.Limit(fibertest.NewGuard(t, keyfunc.Const("all"), guard.Config{Rule: guard.Rule{OverLimit: guard.Degrade()}})))
	stop := make(chan struct{})
	defer close(stop)
	f.Get("/slow", func(c fiber.Ctx) error {
		c.Set(fiber.HeaderCacheControl, "public, max-age=60")
		return c.Next()
	}, timeout.New(func(fiber.Ctx) error { <-stop; return nil }, timeout.Config{Timeout: time.Millisecond}))
	fibertest.Get(t, app{f}, "/nothing")
	res, err := f.Test(httptest.NewRequest(http.MethodGet, "/slow", nil), fiber.TestConfig{})
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	assert.Equal(t, http.StatusRequestTimeout, res.StatusCode)
	assert.Equal(t, "no-store", res.Header.Get(fiber.HeaderCacheControl))
}
