package adaptertest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
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

// However many come at once, exactly the limit is admitted, and each number of
// remaining units is answered once.
func testConcurrent(t *testing.T, a Adapter) {
	const limit, clients, each = 60, 100, 3
	calls := new(atomic.Int64)
	key := keyfunc.Join(keyfunc.IP(), keyfunc.Route())
	s := serve(t, a, hello(Handler{Calls: calls}, newGuard(t, "60/24h", guard.Config{Rule: guard.Rule{Key: key}})))
	var mu sync.Mutex
	statuses, remaining := map[int]int{}, map[string]int{}
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for range each {
				res, err := s.try(t.Context(), http.MethodGet, "/hello", nil)
				if !assert.NoError(t, err) {
					return
				}
				mu.Lock()
				statuses[res.StatusCode]++
				if res.StatusCode == http.StatusOK {
					remaining[res.Header.Get(remainingHeader)]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	assert.Equal(t, map[int]int{http.StatusOK: limit, http.StatusTooManyRequests: clients*each - limit}, statuses)
	assert.Len(t, remaining, limit)
	assert.EqualValues(t, limit, calls.Load())
}

// Of 10 MB, 64 KB are sent, and the answer is there.
func testUnread(t *testing.T, a Adapter) {
	app := App{Guards: []*guard.Guard{newGuard(t, "1/1h", guard.Config{})}, Unread: true, Routes: []Route{
		{Method: http.MethodPost, Pattern: "/upload"},
	}}
	s := serve(t, a, app)
	s.do(http.MethodPost, "/upload").admitted(t, 1, 0)
	conn, err := net.Dial("tcp", s.addr())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(conn, "POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 10485760\r\n\r\n"+strings.Repeat("x", 1<<16))
	require.NoError(t, err)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	answer{Response: res}.refused(t, 1)
	require.NoError(t, res.Body.Close())
}

// waiting is a store that answers no one before he leaves.
type waiting struct {
	broken
	asked chan struct{}
}

func (w waiting) Take(ctx context.Context, _ core.Take) (core.Result, error) {
	w.asked <- struct{}{}
	<-ctx.Done()
	return core.Result{}, ctx.Err()
}

// A client that leaves frees what it held,
// where the framework notices, and in no case harms others.
func testLeave(t *testing.T, a Adapter) {
	s := serve(t, a, hello(Handler{}, newGuard(t, "1000/1h", guard.Config{})))
	for range 50 {
		conn, err := net.Dial("tcp", s.addr())
		require.NoError(t, err)
		_, err = io.WriteString(conn, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n")
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	}
	assert.Equal(t, http.StatusOK, s.get("/hello").StatusCode)
	if a.NeverLeaves {
		return
	}

	calls, events := new(atomic.Int64), make(chan guard.Event, 1)
	store := waiting{asked: make(chan struct{}, 1)}
	s = serve(t, a, hello(Handler{Calls: calls}, newGuard(t, "1/1h; fail open", guard.Config{
		Store:   store,
		Observe: func(e guard.Event) { events <- e },
	})))
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	failed := make(chan error, 1)
	go func() {
		_, err := s.try(ctx, http.MethodGet, "/hello", nil)
		failed <- err
	}()
	receive(t, store.asked, "the store was not asked")
	leave()
	require.ErrorIs(t, receive(t, failed, "the client hangs"), context.Canceled)
	e := receive(t, events, "the request hangs")
	require.ErrorIs(t, e.Err, context.Canceled)
	failure := (*core.StoreError)(nil)
	assert.False(t, errors.As(e.Err, &failure), "it is no failure of the store")
	assert.Zero(t, calls.Load())
}

// Close leaves nothing running, and the guard goes on deciding.
func testClose(t *testing.T, a Adapter) {
	before := weirs()
	g := newGuard(t, "50/1h", guard.Config{
		Rule: guard.Rule{
			Settle: func(guard.Final, int64) int64 { return 0 },
		},
		Store: newRecorder(t),
	})
	s := serve(t, a, hello(Handler{}, g))
	for range 20 {
		assert.Equal(t, http.StatusOK, s.get("/hello").StatusCode) // and gives it back, without waiting for that
	}
	require.NoError(t, g.Close())
	require.NoError(t, g.Close())
	require.Eventually(t, func() bool { return weirs() <= before }, patience, time.Millisecond, "goroutines are left behind")
	assert.Equal(t, http.StatusOK, s.get("/hello").StatusCode) // it goes on deciding
}

// weirs returns the number of goroutines that were started by weir, not by a server or a test.
func weirs() (n int) {
	stacks := make([]byte, 1<<20)
	for len(stacks) == runtime.Stack(stacks, true) {
		stacks = make([]byte, 2*len(stacks))
	}
	stacks = stacks[:runtime.Stack(stacks, true)]
	for line := range strings.Lines(string(stacks)) {
		if strings.HasPrefix(line, "created by github.com/weir-go/weir/") &&
			!strings.Contains(line, "/internal/") && !strings.Contains(line, "_test.") {
			n++
		}
	}
	return n
}
