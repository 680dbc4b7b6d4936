package adaptertest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

// taken is the first line on a connection that was taken over.
const taken = "taken\n"

// takeOver asks for a connection that is taken over, and returns when it was.
func (s *server) takeOver(path string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(s.t.Context(), "tcp", s.addr())
	if err != nil {
		return nil, err
	}
	if err = conn.SetDeadline(time.Now().Add(patience)); err == nil {
		_, err = io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n")
	}
	for r, line := bufio.NewReader(conn), ""; err == nil && line != taken; {
		line, err = r.ReadString('\n') // a framework may answer before
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// A body that is written as it comes holds the permit until all of it is written, also where the handler has returned
// long before.
func testPermitOfStream(t *testing.T, a Adapter) {
	last := make(chan struct{})
	g := newGuard(t, "1 concurrent lease 1h", guard.Config{})
	s := serve(t, a, App{Guards: []*guard.Guard{g}, Routes: []Route{
		{Method: http.MethodGet, Pattern: "/stream", Handler: Handler{Stream: last, Detached: true}},
		{Method: http.MethodGet, Pattern: "/hello"},
	}})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/stream", nil)
	require.NoError(t, err)
	res, err := s.client.Do(r)
	require.NoError(t, err)
	body := bufio.NewReader(res.Body)
	_, err = body.Peek(len("first"))
	require.NoError(t, err)
	for range 3 {
		assert.Equal(t, http.StatusTooManyRequests, s.get("/hello").StatusCode)
	}
	close(last)
	whole, err := io.ReadAll(body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	assert.Equal(t, "firstlast", string(whole))
	require.Eventually(t, func() bool { return s.get("/hello").StatusCode == http.StatusOK }, patience, time.Millisecond)
}

// So does a connection that was taken over, until it is served no more.
func testPermitOfHijacked(t *testing.T, a Adapter) {
	g := newGuard(t, "1 concurrent lease 1h", guard.Config{})
	contexts := make(chan context.Context, 10)
	s := serve(t, a, App{Guards: []*guard.Guard{g}, Routes: []Route{
		{Method: http.MethodGet, Pattern: "/hijack", Handler: Handler{Hijack: func(held context.Context, conn net.Conn) {
			contexts <- held
			_, _ = io.WriteString(conn, taken)
			_, _ = io.Copy(io.Discard, conn) // until the client has left
		}}},
		{Method: http.MethodGet, Pattern: "/hello"},
	}})
	for range 3 {
		var conn net.Conn
		require.Eventually(t, func() (ok bool) {
			var err error
			conn, err = s.takeOver("/hijack")
			return err == nil
		}, patience, time.Millisecond)
		held := receive(t, contexts, "it was not served")
		require.NoError(t, held.Err())
		assert.Equal(t, http.StatusTooManyRequests, s.get("/hello").StatusCode)
		require.NoError(t, conn.Close())
		require.Eventually(t, func() bool { return s.get("/hello").StatusCode == http.StatusOK }, patience, time.Millisecond)
		require.Error(t, held.Err())
	}
}

// Of a thousand requests of each kind nothing is left, whatever becomes of them: no permit, no unit, no settlement, and
// no goroutine.
func testNothingLeft(t *testing.T, a Adapter) {
	t.Run("before", func(t *testing.T) { // what starts with a framework stays
		serve(t, a, hello(Handler{})).get("/hello")
	})
	before := quiet(0)
	t.Run("a thousand of each", func(t *testing.T) { thousands(t, a) })
	if after := quiet(before); after > before {
		stacks := make([]byte, 1<<20)
		t.Errorf("%d goroutines before, %d after:\n%s", before, after, stacks[:runtime.Stack(stacks, true)])
	}
}

// quiet waits until there are not more than so many goroutines, or until they do not become fewer, and returns how many
// there are.
func quiet(enough int) (n int) {
	const pause = 10 * time.Millisecond
	n = runtime.NumGoroutine()
	for still := time.Duration(0); n > enough && (still < 20*pause || enough > 0 && still < patience); still += pause {
		<-time.After(pause)
		if now := runtime.NumGoroutine(); now < n {
			n, still = now, 0
		}
	}
	return n
}

func thousands(t *testing.T, a Adapter) {
	const workers, each = 20, 50
	memory, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	var admitted, settled, panicked, ended, lost atomic.Int64
	g := newGuard(t, "all: 1000000/1000h fixed-window, 100 concurrent lease 1h", guard.Config{
		Rule: guard.Rule{
			Key: keyfunc.Const("all"),
			Settle: func(f guard.Final, _ int64) int64 {
				if f.Panicked {
					panicked.Add(1)
				}
				return 0
			},
		},
		Store: memory,
		Observe: func(e guard.Event) {
			switch {
			case e.Settled:
				settled.Add(1)
			case e.Result.Allowed():
				admitted.Add(1)
			}
		},
	})

	begun, left := [workers]chan struct{}{}, [workers]chan struct{}{}
	for i := range workers {
		begun[i], left[i] = make(chan struct{}), make(chan struct{})
	}
	worker := func(ctx context.Context) (i int) {
		text, _ := ctx.Value(ContextKey{}).(string)
		_, err := fmt.Sscan(text, &i)
		assert.NoError(t, err)
		return i
	}
	stream := make(chan struct{})
	s := serve(t, a, App{Guards: []*guard.Guard{g}, Routes: []Route{
		{Method: http.MethodGet, Pattern: "/panic", Handler: Handler{Panic: "again"}},
		{Method: http.MethodGet, Pattern: "/error", Handler: Handler{Fail: true}},
		{Method: http.MethodGet, Pattern: "/stream", Handler: Handler{Stream: stream, Detached: true}},
		{Method: http.MethodGet, Pattern: "/cancelled", Handler: Handler{Do: func(ctx context.Context) {
			i := worker(ctx)
			begun[i] <- struct{}{}
			gone := ctx.Done()
			if a.NeverLeaves {
				gone = nil
			}
			select {
			case <-left[i]:
			case <-gone:
				ended.Add(1)
			}
		}}},
		{Method: http.MethodGet, Pattern: "/hijack", Handler: Handler{Hijack: func(held context.Context, conn net.Conn) {
			if held.Err() != nil {
				lost.Add(1)
			}
			_, _ = io.WriteString(conn, taken)
			_, _ = io.Copy(io.Discard, conn)
		}}},
		{Method: http.MethodGet, Pattern: "/detached", Handler: Handler{Do: func(ctx context.Context) {
			_, release := guard.Detach(ctx).Claim(context.WithoutCancel(ctx))
			go release()
		}}},
	}})

	// A client that leaves as soon as its request is being served. Its connections are not those of others, which may see
	// the end of one.
	leaving := s.another()
	cancelled := func(i int) {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		failed := make(chan error, 1)
		go func() {
			_, err := leaving.try(ctx, http.MethodGet, "/cancelled", nil, UserInContext, fmt.Sprint(i))
			failed <- err
		}()
		receive(t, begun[i], "the request was not served")
		leave()
		assert.ErrorIs(t, receive(t, failed, "the client hangs"), context.Canceled)
		if a.NeverLeaves {
			left[i] <- struct{}{}
		}
	}
	// A stream to its end, and one that the client leaves. Which of those that are under way goes on is open.
	streamed := func(i int) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/stream", nil)
		if !assert.NoError(t, err) {
			return
		}
		res, err := s.client.Do(r)
		if !assert.NoError(t, err) {
			return
		}
		defer res.Body.Close()
		_, err = io.ReadFull(res.Body, make([]byte, len("first")))
		assert.NoError(t, err)
		if i%2 == 0 {
			assert.NoError(t, res.Body.Close())
		}
		stream <- struct{}{}
		if i%2 == 1 {
			rest, err := io.ReadAll(res.Body)
			assert.NoError(t, err)
			assert.Equal(t, "last", string(rest))
		}
	}
	hijacked := func() {
		if conn, err := s.takeOver("/hijack"); assert.NoError(t, err) {
			assert.NoError(t, conn.Close())
		}
	}
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			for n := range each {
				for _, path := range []string{"/panic", "/error", "/detached"} {
					_, err := s.try(t.Context(), http.MethodGet, path, nil)
					assert.NoError(t, err)
				}
				cancelled(i)
				streamed(n)
				hijacked()
			}
		})
	}
	all.Wait()

	p := g.Policies()[0]
	require.Eventually(t, func() bool {
		res, err := memory.Take(t.Context(), core.Take{Policy: p, Key: "const=all"})
		require.NoError(t, err)
		free, err := memory.Acquire(t.Context(), core.Permit{Policy: p, Key: "const=all", ID: "probe", Weight: 101})
		require.NoError(t, err)
		return settled.Load() == 6*workers*each && res.Remaining == 1_000_000 && free.Remaining == 100
	}, patience, time.Millisecond)
	assert.EqualValues(t, 6*workers*each, admitted.Load())
	assert.EqualValues(t, workers*each, panicked.Load())
	assert.Zero(t, lost.Load(), "a permit was lost")
	if !a.NeverLeaves {
		assert.EqualValues(t, workers*each, ended.Load(), "the client's leaving ends the context")
	}
}
