package fibermw_test

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/fibermw"
	"github.com/weir-go/weir/keyfunc"
)

// hijacking serves connections that keep their permit, as the package's documentation says, and returns the status
// of a request for one. Served is called for a connection that was taken over.
func hijacking(t *testing.T, policy string, served func(held context.Context)) func(closing bool) int {
	t.Helper()
	g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: policy, Key: keyfunc.Const("all")}})
	require.NoError(t, err)
	f := fiber.New(fiber.Config{DisableStartupMessage: true})
	f.Get("/stream", fibermw.Limit(g), func(c *fiber.Ctx) error {
		permit := guard.Detach(c.UserContext())
		c.Context().Hijack(func(net.Conn) {
			held, release := permit.Claim(context.Background())
			defer release()
			served(held)
		})
		return nil
	})
	url := "http://" + listen(t, f, "tcp", "127.0.0.1:0") + "/stream"
	return func(closing bool) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if !assert.NoError(t, err) {
			return 0
		}
		r.Close = closing
		transport := &http.Transport{} // one for each: the client takes a connection that was taken over for idle
		t.Cleanup(transport.CloseIdleConnections)
		res, err := (&http.Client{Transport: transport}).Do(r)
		if !assert.NoError(t, err) {
			return 0
		}
		assert.NoError(t, res.Body.Close())
		return res.StatusCode
	}
}

// Fiber does not call a hijack handler after "Connection: close". The permit comes back all the same.
func TestHijackNeverCalled(t *testing.T) {
	get := hijacking(t, "1 concurrent lease 100ms", func(context.Context) { t.Error("it was called: the test shows nothing") })
	for range 3 {
		require.Eventually(t, func() bool { return get(true) == http.StatusOK }, time.Minute, 10*time.Millisecond)
	}
}

// A connection that was taken over keeps its permit as long as its handler runs.
func TestHijackKeepsPermit(t *testing.T) {
	serving, done := make(chan context.Context, 1), make(chan struct{})
	get := hijacking(t, "1 concurrent lease 1h", func(held context.Context) {
		serving <- held
		<-done
	})
	assert.Equal(t, http.StatusOK, get(false))
	held := <-serving
	require.NoError(t, held.Err())
	assert.Equal(t, http.StatusTooManyRequests, get(true))
	close(done)
	require.Eventually(t, func() bool { return get(true) == http.StatusOK }, time.Minute, time.Millisecond)
	assert.ErrorIs(t, held.Err(), context.Canceled)
}
