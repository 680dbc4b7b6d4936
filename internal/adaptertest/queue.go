package adaptertest

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
)

// A request waits in a queue of the policy for its turn; one that finds no place is refused at once.
func testQueue(t *testing.T, a Adapter) {
	g := newGuard(t, "20/1s burst 1; wait 10s", guard.Config{Rule: guard.Rule{Waiting: 3}})
	s := serve(t, a, hello(Handler{}, g))
	start := make(chan struct{})
	var mu sync.Mutex
	status := map[int]int{}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			<-start
			code := s.get("/hello").StatusCode
			mu.Lock()
			status[code]++
			mu.Unlock()
		})
	}
	close(start)
	all.Wait()
	assert.Equal(t, 20, status[http.StatusOK]+status[http.StatusTooManyRequests], "%v", status)
	assert.GreaterOrEqual(t, status[http.StatusOK], 3, "as many as have places; the one that need not wait may have had one until it knew")
}

// A client that leaves while it waits gives its place and its turn back, where the framework notices that it has left.
func testLeaveQueue(t *testing.T, a Adapter) {
	if a.NeverLeaves {
		return
	}
	store, calls, events := newRecorder(t), new(atomic.Int64), make(chan guard.Event, 10)
	g := newGuard(t, "1/1h burst 1; wait 9h", guard.Config{
		Rule: guard.Rule{Waiting: 1}, Store: store, Observe: func(e guard.Event) { events <- e },
	})
	s := serve(t, a, hello(Handler{Calls: calls}, g))
	queued := func(want bool) func() bool {
		return func() bool {
			res, err := store.Store.Take(t.Context(), core.Take{Policy: g.Policies()[0], Key: key("ip", "127.0.0.1")})
			return assert.NoError(t, err) && (res.ResetAfter > time.Hour) == want
		}
	}
	s.get("/hello").admitted(t, 1, 0)
	require.NoError(t, receive(t, events, "Observe was not called").Err)
	for range 3 { // there is one place
		ctx, leave := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := s.try(ctx, http.MethodGet, "/hello", nil)
			failed <- err
		}()
		require.Eventually(t, queued(true), patience, time.Millisecond, "it does not wait")
		leave()
		require.ErrorIs(t, receive(t, failed, "the client hangs"), context.Canceled)
		require.ErrorIs(t, receive(t, events, "the request hangs").Err, context.Canceled)
		require.Eventually(t, queued(false), patience, time.Millisecond, "its turn is lost")
	}
	assert.EqualValues(t, 1, calls.Load())
}

// Where nobody notices, as while a body is unread, it has its turn when that comes, and the place is free again.
func testLeaveQueueUnseen(t *testing.T, a Adapter) {
	half := "POST /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 131072\r\n\r\n" + strings.Repeat("x", 1<<16)
	store, events := newRecorder(t), make(chan guard.Event, 10)
	g := newGuard(t, "2/1s burst 1; wait 10s", guard.Config{
		Rule: guard.Rule{Waiting: 1}, Store: store, Observe: func(e guard.Event) { events <- e },
	})
	s := serve(t, a, App{Guards: []*guard.Guard{g}, Unread: true, Routes: []Route{{Method: http.MethodPost, Pattern: "/hello"}}})
	for n := range 3 {
		require.Equal(t, http.StatusOK, s.do(http.MethodPost, "/hello").StatusCode, "the place of the one before is free")
		require.NoError(t, receive(t, events, "Observe was not called").Err)
		conn, err := net.Dial("tcp", s.addr())
		require.NoError(t, err)
		_, err = io.WriteString(conn, half)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return store.counts()["default"] == 2*n+2 }, patience, time.Millisecond)
		require.NoError(t, conn.Close())
		e := receive(t, events, "the request hangs")
		require.NoError(t, e.Err)
		assert.True(t, e.Result.Allowed())
	}
}
