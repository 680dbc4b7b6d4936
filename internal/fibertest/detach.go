package fibertest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/logtest"
	"github.com/weir-go/weir/keyfunc"
)

// A detached permit comes back although the server never calls the handler of a connection that is to be hijacked,
// as on "Connection: close", and after a panic; and while that handler runs it is held.
func (f Fiber[C]) testDetachedPermitComesBack(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		path, header string
		held         bool // until the client leaves
	}{
		"hijacked":       {"/hijack", "", true},
		"never called":   {"/hijack", "Connection: close\r\n", false},
		"never claimed":  {"/forget", "", false},
		"panics":         {"/panic", "", false},
		"panics, closed": {"/panic", "Connection: close\r\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy := "1 concurrent lease 200ms"
			if test.held { // a busy machine may not come to renew so short a lease
				policy = "1 concurrent lease 10s"
			}
			g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: policy, Key: keyfunc.Const("k")}})
			require.NoError(t, err)
			app := f.New(Config{})
			app.Use(f.Recover, f.Limit(g))
			app.Add(http.MethodGet, "/", func(c C) error { return c.SendString("free") })
			app.Add(http.MethodGet, "/hijack", func(c C) error {
				permit := guard.Detach(f.Context(c))
				f.RequestCtx(c).Hijack(func(conn net.Conn) {
					_, release := permit.Claim(context.Background())
					defer release()
					_, err := conn.Read(make([]byte, 1)) // until the client leaves
					assert.Error(t, err)
				})
				return nil
			})
			app.Add(http.MethodGet, "/forget", func(c C) error { guard.Detach(f.Context(c)); return nil })
			app.Add(http.MethodGet, "/panic", func(c C) error {
				guard.Detach(f.Context(c))
				panic("a handler")
			})
			addr := Listen(t, app, "tcp", "127.0.0.1:0")
			dial := func(path, header string) net.Conn {
				conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
				require.NoError(t, err)
				_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: example.org\r\n%s\r\n", path, header)
				require.NoError(t, err)
				return conn
			}
			status := func() int {
				conn := dial("/", "Connection: close\r\n")
				defer conn.Close()
				res, err := http.ReadResponse(bufio.NewReader(conn), nil)
				require.NoError(t, err)
				require.NoError(t, res.Body.Close())
				return res.StatusCode
			}
			const long = 30 * time.Second
			conn := dial(test.path, test.header)
			if test.held {
				res, err := http.ReadResponse(bufio.NewReader(conn), nil) // before anybody else asks for the permit
				require.NoError(t, err)
				require.NoError(t, res.Body.Close())
				require.Equal(t, http.StatusOK, res.StatusCode)
				for range 100 {
					require.Equal(t, http.StatusTooManyRequests, status())
				}
			} else { // the answer, or the end: the handler is over
				require.NoError(t, conn.SetReadDeadline(time.Now().Add(long)))
				_, err := conn.Read(make([]byte, 1))
				require.NoError(t, err)
			}
			require.NoError(t, conn.Close())
			require.Eventually(t, func() bool { return status() == http.StatusOK }, long, 5*time.Millisecond)
		})
	}
}

// hijacking serves connections that keep their permit, as the package's documentation says, and returns the status
// of a request for one. Served is called for a connection that was taken over.
func (f Fiber[C]) hijacking(t *testing.T, policy string, served func(held context.Context)) func(closing bool) int {
	t.Helper()
	g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: policy, Key: keyfunc.Const("all")}})
	require.NoError(t, err)
	app := f.New(Config{})
	app.Add(http.MethodGet, "/stream", f.Limit(g), func(c C) error {
		permit := guard.Detach(f.Context(c))
		f.RequestCtx(c).Hijack(func(net.Conn) {
			held, release := permit.Claim(context.Background())
			defer release()
			served(held)
		})
		return nil
	})
	url := "http://" + Listen(t, app, "tcp", "127.0.0.1:0") + "/stream"
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
func (f Fiber[C]) testHijackNeverCalled(t *testing.T) {
	get := f.hijacking(t, "1 concurrent lease 100ms", func(context.Context) { t.Error("it was called: the test shows nothing") })
	for range 3 {
		require.Eventually(t, func() bool { return get(true) == http.StatusOK }, time.Minute, 10*time.Millisecond)
	}
}

// A connection that was taken over keeps its permit as long as its handler runs.
func (f Fiber[C]) testHijackKeepsPermit(t *testing.T) {
	serving, done := make(chan context.Context, 1), make(chan struct{})
	get := f.hijacking(t, "1 concurrent lease 1h", func(held context.Context) {
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
func (f Fiber[C]) testStreamReports(t *testing.T) {
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
	app := f.New(Config{})
	app.Use(func(c C) error {
		defer func() { returned <- struct{}{} }()
		return c.Next()
	})
	app.Add(http.MethodGet, "/chat", f.Limit(g), func(c C) error {
		stream := guard.Detach(f.Context(c))
		f.RequestCtx(c).SetBodyStreamWriter(func(w *bufio.Writer) {
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
	url := "http://" + Listen(t, app, "tcp", "127.0.0.1:0") + "/chat"
	for _, want := range []int64{70, 40, 10} {
		status, body := fetch(t, url)
		require.Equal(t, http.StatusOK, status)
		assert.Equal(t, strings.Repeat("token ", 30), body)
		require.Eventually(t, func() bool { return left() == want }, time.Minute, time.Millisecond)
	}
}

// A connection that was taken over without Detach has given back its permit: the log says so, once.
func (f Fiber[C]) testHijackWithoutDetach(t *testing.T) {
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
		app := f.New(Config{})
		app.Add(http.MethodGet, "/stream", f.Limit(g), func(ctx C) error {
			permit := (*guard.Detached)(nil)
			if c.detach {
				permit = guard.Detach(f.Context(ctx))
			}
			f.RequestCtx(ctx).Hijack(func(net.Conn) {
				_, release := permit.Claim(context.Background())
				release()
			})
			return nil
		})
		url := "http://" + Listen(t, app, "tcp", "127.0.0.1:0") + "/stream"
		for range 2 {
			fetch(t, url)
		}
		assert.Len(t, said.With("code=permit-not-kept"), c.want, name)
	}
}

// fetch asks for a URL by a connection of its own, because the client takes one that was taken over for idle.
func fetch(t *testing.T, url string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	res, err := (&http.Client{Transport: transport}).Do(r)
	require.NoError(t, err)
	read, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res.StatusCode, string(read)
}
