package fiber3mw_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/fiber3mw"
	"github.com/weir-go/weir/internal/logtest"
	"github.com/weir-go/weir/keyfunc"
)

// hijacking serves connections that keep their permit, as the package's documentation says, and returns the status
// of a request for one. Served is called for a connection that was taken over.
func hijacking(t *testing.T, policy string, served func(held context.Context)) func(closing bool) int {
	t.Helper()
	g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: policy, Key: keyfunc.Const("all")}})
	require.NoError(t, err)
	f := fiber.New()
	f.Get("/stream", fiber3mw.Limit(g), func(c fiber.Ctx) error {
		permit := guard.Detach(c.Context())
		c.RequestCtx().Hijack(func(net.Conn) {
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

// A stream is written after the handler has returned, and reports then what it uses.
func TestStreamReports(t *testing.T) {
	store, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	g, err := guard.New(guard.Config{Store: store, Rule: guard.Rule{
		Policy: "tokens: 100/1000h",
		Key:    keyfunc.Const("all"),
		Cost:   func(keyfunc.Request) int64 { return 20 },
		Settle: guard.Reported,
	}})
	require.NoError(t, err)
	l, err := enforce.New(store, g.Policies()[0], enforce.Options{})
	require.NoError(t, err)
	left := func() int64 {
		res, err := l.Peek(t.Context(), "const=all")
		require.NoError(t, err)
		return res.Remaining
	}
	returned := make(chan struct{}, 1)
	f := fiber.New()
	f.Use(func(c fiber.Ctx) error {
		defer func() { returned <- struct{}{} }()
		return c.Next()
	})
	f.Get("/chat", fiber3mw.Limit(g), func(c fiber.Ctx) error {
		stream := guard.Detach(c.Context())
		c.RequestCtx().SetBodyStreamWriter(func(w *bufio.Writer) {
			<-returned
			held, release := stream.Claim(context.Background())
			defer release()
			for range 20 + 10 {
				_, _ = w.WriteString("token ")
				guard.Report(held, 1)
			}
		})
		return nil
	})
	url := "http://" + listen(t, f, "tcp", "127.0.0.1:0") + "/chat"
	for _, want := range []int64{70, 40, 10} {
		res, err := http.Get(url)
		require.NoError(t, err)
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, http.StatusOK, res.StatusCode)
		assert.Equal(t, strings.Repeat("token ", 30), string(body))
		require.Eventually(t, func() bool { return left() == want }, time.Minute, time.Millisecond)
	}
}

// A connection that was taken over without Detach has given back its permit: the log says so, once.
func TestHijackWithoutDetach(t *testing.T) {
	for name, c := range map[string]struct {
		policy string
		detach bool
		want   int
	}{
		"forgotten":  {"2 concurrent", false, 1},
		"detached":   {"2 concurrent", true, 0},
		"no permits": {"9/1h", false, 0},
	} {
		said := new(logtest.Log)
		g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: c.policy, Key: keyfunc.IP()}, Log: said.Logger()})
		require.NoError(t, err)
		f := fiber.New()
		f.Get("/stream", fiber3mw.Limit(g), func(ctx fiber.Ctx) error {
			permit := (*guard.Detached)(nil)
			if c.detach {
				permit = guard.Detach(ctx.Context())
			}
			ctx.RequestCtx().Hijack(func(net.Conn) {
				_, release := permit.Claim(context.Background())
				release()
			})
			return nil
		})
		url := "http://" + listen(t, f, "tcp", "127.0.0.1:0") + "/stream"
		for range 2 {
			res, err := http.Get(url)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
		}
		assert.Len(t, said.With("code=permit-not-kept"), c.want, name)
	}
}
