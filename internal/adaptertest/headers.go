package adaptertest

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/logtest"
)

// Remaining counts down to 0, waits are rounded up, and a refusal is not to be cached.
func testHeaders(t *testing.T, a Adapter) {
	calls := new(atomic.Int64)
	s := serve(t, a, hello(Handler{Calls: calls}, newGuard(t, "3/1h", guard.Config{})))
	before := time.Now()
	for remaining := 2; remaining >= 0; remaining-- {
		res := s.get("/hello")
		res.admitted(t, 3, remaining)
		assert.Equal(t, "ok", res.body)
		assertReset(t, res, before, time.Duration(3-remaining)*20*time.Minute)
	}
	for range 3 {
		res := s.get("/hello")
		res.refused(t, 3)
		assert.Equal(t, "text/plain; charset=utf-8", res.Header.Get("Content-Type"))
		assert.Equal(t, "too many requests\n", res.body)
		assert.InDelta(t, 20*60, res.integer(t, retryHeader), 30)
		assertReset(t, res, before, time.Hour)
	}
	assert.EqualValues(t, 3, calls.Load())
}

// assertReset checks that the reset is a Unix time, after from begin, give or take
// what the test itself took.
func assertReset(t *testing.T, res answer, begin time.Time, after time.Duration) {
	t.Helper()
	reset := time.Unix(res.integer(t, resetHeader), 0)
	assert.False(t, reset.Before(begin.Add(after-time.Minute)), "%v", reset)
	assert.False(t, reset.After(time.Now().Add(after+2*time.Second)), "%v", reset)
}

// What never fits has no Retry-After.
func testNeverFits(t *testing.T, a Adapter) {
	s := serve(t, a, hello(Handler{}, newGuard(t, "3/1h", guard.Config{Rule: guard.Rule{Cost: cost(100)}})))
	want := numbers(3, 3)
	want[cacheHeader], want[varyHeader] = "no-store", "Accept"
	s.get("/hello").has(t, http.StatusTooManyRequests, want)
}

// A stream has the headers at its beginning, and is not held back.
func testStream(t *testing.T, a Adapter) {
	for _, settle := range []func(guard.Final, int64) int64{nil, all} { // without and with a wrapped writer
		last := make(chan struct{})
		s := serve(t, a, hello(Handler{Stream: last}, newGuard(t, "3/1h", guard.Config{Rule: guard.Rule{Settle: settle}})))
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/hello", nil)
		require.NoError(t, err)
		res, err := s.client.Do(r)
		require.NoError(t, err)
		body := bufio.NewReader(res.Body)
		first := make([]byte, len("first"))
		_, err = io.ReadFull(body, first)
		require.NoError(t, err)
		assert.Equal(t, "first", string(first))
		answer{Response: res}.admitted(t, 3, 2)
		close(last)
		rest, err := io.ReadAll(body)
		require.NoError(t, err)
		assert.Equal(t, "last", string(rest))
		require.NoError(t, res.Body.Close())
	}
}

// A header that the handler sets is the handler's.
func testOwnHeader(t *testing.T, a Adapter) {
	s := serve(t, a, hello(Handler{Header: Fields{{limitHeader, "7777"}}}, newGuard(t, "3/1h", guard.Config{})))
	s.get("/hello").admitted(t, 7777, 2)
}

// Rules add up, no header is doubled.
func testStacked(t *testing.T, a Adapter) {
	outer := newGuard(t, "10/1h", guard.Config{})
	login := outer.With("login", "2/1h")
	loose := outer.With("loose", "100/1h")
	s := serve(t, a, App{Guards: []*guard.Guard{outer}, Routes: []Route{
		{Method: http.MethodGet, Pattern: "/hello"},
		{Method: http.MethodGet, Pattern: "/loose", Guards: []*guard.Guard{loose}},
		{Method: http.MethodPost, Pattern: "/login", Guards: []*guard.Guard{loose, login}},
	}})
	s.do(http.MethodPost, "/login").admitted(t, 2, 1)
	s.get("/hello").admitted(t, 10, 8)
	s.do(http.MethodPost, "/login").admitted(t, 2, 0)
	s.do(http.MethodPost, "/login").refused(t, 2)
	s.get("/loose").admitted(t, 10, 5)
	for range 5 {
		s.get("/hello")
	}
	s.get("/hello").refused(t, 10)
	s.do(http.MethodPost, "/login").refused(t, 10) // by the outer: the inner is not asked
}

// Guards that look alike are not one guard mounted twice.
func testSameNumbers(t *testing.T, a Adapter) {
	store, l := newRecorder(t), new(logtest.Log)
	outer := newGuard(t, "5/1h", guard.Config{Store: store, Log: l.Logger()})
	s := serve(t, a, hello(Handler{}, outer, outer.With("other", "5/1h")))
	for remaining := 4; remaining >= 0; remaining-- {
		s.get("/hello").admitted(t, 5, remaining)
	}
	assert.Equal(t, map[string]int{"default": 5, "other": 5}, store.counts())
	assert.Empty(t, l.With("twice"))
}

// It counts as often as it is mounted, and that is said once, whichever headers show it.
func testTwice(t *testing.T, a Adapter) {
	for _, style := range []guard.Headers{{}, {XRateLimit: guard.NoXRateLimit, RateLimit: true}} {
		l := new(logtest.Log)
		g := newGuard(t, "9/1h", guard.Config{Headers: style, Log: l.Logger()})
		s := serve(t, a, App{Guards: []*guard.Guard{g, g}, Routes: []Route{
			{Method: http.MethodGet, Pattern: "/hello", Guards: []*guard.Guard{g}},
		}})
		for remaining := 6; remaining >= 0; remaining -= 3 {
			if res := s.get("/hello"); style.RateLimit {
				assert.Contains(t, res.Header.Get(listHeader), `"default";r=`+strconv.Itoa(remaining)+";")
			} else {
				res.admitted(t, 9, remaining)
			}
		}
		assert.Equal(t, http.StatusTooManyRequests, s.get("/hello").StatusCode)
		assert.Len(t, l.With("mounted twice"), 1)
	}
}

// One count, and to a refused HEAD no body, but its size.
func testHead(t *testing.T, a Adapter) {
	s := serve(t, a, hello(Handler{}, newGuard(t, "2/1h", guard.Config{})))
	s.do(http.MethodHead, "/hello").admitted(t, 2, 1)
	s.get("/hello").admitted(t, 2, 0)

	// On one connection, a body where none belongs would spoil the next answer.
	conn, err := net.Dial("tcp", s.addr())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	r := bufio.NewReader(conn)
	const refusal = "too many requests\n"
	for _, method := range []string{http.MethodHead, http.MethodHead, http.MethodGet} {
		_, err = io.WriteString(conn, method+" /hello HTTP/1.1\r\nHost: x\r\n\r\n")
		require.NoError(t, err)
		res, err := http.ReadResponse(r, &http.Request{Method: method})
		require.NoError(t, err)
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		answer{Response: res}.refused(t, 2)
		assert.EqualValues(t, len(refusal), res.ContentLength, method)
		if method == http.MethodHead {
			assert.Empty(t, body)
		} else {
			assert.Equal(t, refusal, string(body))
		}
	}
}
