package adaptertest

import (
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
)

// A middleware outside that recovers sees the very value.
func testPanic(t *testing.T, a Adapter) {
	for n, value := range []error{errors.New("a panic"), http.ErrAbortHandler, errors.New("a panic of what answers instead")} {
		over := a.Handle(Native{Panic: value})
		if n == 2 {
			over = guard.Degrade(over)
		}
		var recovered atomic.Value
		finals := make(chan guard.Final, 100)
		g := newGuard(t, "2/1h", guard.Config{
			Rule: guard.Rule{
				Settle:    func(f guard.Final, taken int64) int64 { finals <- f; return taken },
				OverLimit: over,
			},
		})
		outer, inner := g.With("outer", "9/1h"), g.With("inner", "9/1h")
		app := App{
			Guards:    []*guard.Guard{outer, g},
			Routes:    []Route{{Method: http.MethodGet, Pattern: "/hello", Guards: []*guard.Guard{inner}, Handler: Handler{Panic: value}}},
			Recovered: func(v any) { recovered.Store(v) },
		}
		s := serve(t, a, app)
		for remaining := 1; remaining >= 0; remaining-- {
			recovered = atomic.Value{}
			s.get("/hello").has(t, http.StatusInternalServerError, numbers(2, remaining))
			assert.Same(t, value, recovered.Load())
			assert.Len(t, finals, 3)
			for range len(finals) {
				f := receive(t, finals, "Finish was not called")
				assert.True(t, f.Panicked)
				assert.Equal(t, http.StatusInternalServerError, f.Status)
			}
		}
		recovered = atomic.Value{}
		res := s.get("/hello")
		assert.Equal(t, http.StatusInternalServerError, res.StatusCode)
		assert.Same(t, value, recovered.Load())
		assert.Equal(t, "2", res.Header.Get(limitHeader))
	}
}

// What a panicking request took is given back where Settle says so, each time.
func testPanics(t *testing.T, a Adapter) {
	var settled atomic.Int64
	g := newGuard(t, "3/1h", guard.Config{
		Rule: guard.Rule{
			Settle: func(f guard.Final, taken int64) int64 {
				if f.Panicked {
					settled.Add(1)
					return 0
				}
				return taken
			},
		},
	})
	calls := new(atomic.Int64)
	s := serve(t, a, hello(Handler{Panic: "again", Calls: calls}, g))
	for range 1000 {
		s.get("/hello").has(t, http.StatusInternalServerError, numbers(3, 2))
	}
	assert.EqualValues(t, 1000, calls.Load())
	assert.EqualValues(t, 1000, settled.Load())
}

// Settle receives the status that the client sees, also where the framework writes
// it only later, and the size of the answer, or that it is not known.
func testFinal(t *testing.T, a Adapter) {
	var mu sync.Mutex
	var last guard.Final
	g := newGuard(t, "1000/1h", guard.Config{
		Rule: guard.Rule{
			Settle: func(f guard.Final, taken int64) int64 {
				mu.Lock()
				defer mu.Unlock()
				last = f
				return taken
			},
		},
	})
	sent := make(chan struct{})
	close(sent)
	handlers := map[string]Handler{
		"/ok":      {},
		"/created": {Status: http.StatusCreated},
		"/away":    {Status: http.StatusNotFound},
		"/broken":  {Status: http.StatusBadGateway},
		"/fail404": {Status: http.StatusNotFound, Fail: true},
		"/fail503": {Status: http.StatusServiceUnavailable, Fail: true},
		"/fail":    {Fail: true},
		"/stream":  {Stream: sent},
		"/panic":   {Panic: "a panic"},
	}
	app := App{Guards: []*guard.Guard{g}}
	for path, h := range handlers {
		app.Routes = append(app.Routes, Route{Method: http.MethodGet, Pattern: path, Handler: h})
	}
	s := serve(t, a, app)
	handlers["/nothing"] = Handler{}
	for path, h := range handlers {
		res := s.get(path)
		mu.Lock()
		assert.Equal(t, res.StatusCode, last.Status, path)
		assert.Equal(t, h.Panic != nil, last.Panicked, path)
		later := h.Fail || h.Stream != nil || path == "/nothing" // for some frameworks
		if h.Panic == nil && !(later && last.Bytes == -1) {
			assert.EqualValues(t, len(res.body), last.Bytes, path)
		}
		mu.Unlock()
	}
	assert.EqualValues(t, 1000-len(handlers)-1, s.get("/ok").integer(t, remainingHeader))
}

// Settle can count failures alone.
func testFailuresCount(t *testing.T, a Adapter) {
	failures := guard.Config{
		Rule: guard.Rule{
			Settle: func(f guard.Final, taken int64) int64 {
				if f.Status >= 400 {
					return taken
				}
				return 0
			},
		},
	}
	for name, h := range map[string]Handler{
		"a status":               {Status: http.StatusUnauthorized},
		"an error of the kind":   {Status: http.StatusUnauthorized, Fail: true},
		"an error of no kind":    {Fail: true},
		"a panic":                {Panic: "a panic"},
		"a success, for control": {},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, a, App{Guards: []*guard.Guard{newGuard(t, "3/1h", failures)}, Routes: []Route{
				{Method: http.MethodGet, Pattern: "/fine"},
				{Method: http.MethodPost, Pattern: "/login", Handler: h},
			}})
			for range 5 {
				s.get("/fine").admitted(t, 3, 2)
			}
			for range 3 {
				require.NotEqual(t, http.StatusTooManyRequests, s.do(http.MethodPost, "/login").StatusCode)
			}
			if h.Status == 0 && !h.Fail && h.Panic == nil {
				s.get("/fine").admitted(t, 3, 2)
			} else {
				s.get("/fine").refused(t, 3)
			}
		})
	}
}
