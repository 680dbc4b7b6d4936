package adaptertest

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/logtest"
	"github.com/weir-go/weir/keyfunc"
)

func cost(units int64) func(keyfunc.Request) int64 {
	return func(keyfunc.Request) int64 { return units }
}

// all is a Settle that gives nothing back.
func all(_ guard.Final, taken int64) int64 { return taken }

// over serves GET /hello behind a guard with that handler, over its limit.
func over(t *testing.T, a Adapter, c guard.Config, h Handler) *server {
	t.Helper()
	s := serve(t, a, hello(h, newGuard(t, "1/1h", c)))
	s.get("/hello").admitted(t, 1, 0)
	return s
}

// refusal are the headers of a refusal by a handler of a limit of 1, and one more.
func refusal(name, value string) map[string]string {
	want := numbers(1, 0)
	want[retryHeader], want[cacheHeader] = anything, "no-store"
	if name != "" {
		want[name] = value
	}
	return want
}

// degraded are the headers of an answer that is given instead, which has no Retry-After.
func degraded(name, value string) map[string]string {
	want := refusal(name, value)
	delete(want, retryHeader)
	return want
}

func testNative(t *testing.T, a Adapter) {
	calls := new(atomic.Int64)
	for _, n := range []Native{
		{Status: http.StatusTeapot},
		{Status: http.StatusOK},
		{Status: http.StatusTeapot, Fail: true},
	} {
		calls.Store(0)
		s := over(t, a, guard.Config{Rule: guard.Rule{OverLimit: a.Handle(n)}}, Handler{Calls: calls})
		for range 2 {
			res := s.get("/hello")
			res.has(t, n.Status, refusal("X-Native", "default"))
			if !n.Fail {
				assert.Equal(t, "native", res.body)
			}
		}
		assert.Empty(t, s.do(http.MethodHead, "/hello").body)
		assert.EqualValues(t, 1, calls.Load(), "the request goes on after %+v", n)
	}
}

// A native handler that writes nothing still refuses, and Handle(nil) is a mistake.
func testNativeSilent(t *testing.T, a Adapter) {
	calls := new(atomic.Int64)
	s := over(t, a, guard.Config{Rule: guard.Rule{OverLimit: a.Handle(Native{})}}, Handler{Calls: calls})
	res := s.get("/hello")
	res.has(t, http.StatusTooManyRequests, refusal("X-Native", "default"))
	assert.Equal(t, "too many requests\n", res.body)
	assert.Equal(t, http.StatusTooManyRequests, s.do(http.MethodHead, "/hello").StatusCode)
	assert.EqualValues(t, 1, calls.Load())

	for status, want := range map[int]int{420: 420, 0: 429, 42: 429, 1000: 429} {
		change := func(v *guard.Verdict) { v.Status, v.Body = status, []byte("calm") }
		res = over(t, a, guard.Config{Rule: guard.Rule{OverLimit: a.Handle(Native{Change: change})}}, Handler{}).get("/hello")
		assert.Equal(t, want, res.StatusCode, status)
		assert.Equal(t, "calm", res.body)
	}

	_, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "1/1h", Key: keyfunc.IP(), OverLimit: a.HandleNil()}})
	assert.ErrorContains(t, err, a.Name+".Handle")
}

// The native handler of another framework is not called, and the request is refused.
func testNativeMisplaced(t *testing.T, a Adapter) {
	calls, l := new(atomic.Int64), new(logtest.Log)
	foreign := guard.HandleNative("elsewhere.Handle", func() { t.Error("it was called") })
	s := over(t, a, guard.Config{Rule: guard.Rule{OverLimit: foreign}, Log: l.Logger()}, Handler{Calls: calls})
	for range 3 {
		res := s.get("/hello")
		res.has(t, http.StatusTooManyRequests, refusal("", ""))
		assert.Equal(t, "too many requests\n", res.body)
	}
	assert.EqualValues(t, 1, calls.Load())
	if lines := l.With("another framework"); assert.Len(t, lines, 1) {
		assert.Contains(t, lines[0], "framework="+a.Name)
		assert.Contains(t, lines[0], "handler=elsewhere.Handle")
	}
}

func testZeroVerdict(t *testing.T, a Adapter) {
	for name, verdict := range map[string]guard.Verdict{
		"zero":              {},
		"native of nothing": {Action: guard.Native},
		"no status":         {Status: 42},
		"no action":         {Action: 42},
	} {
		t.Run(name, func(t *testing.T) {
			calls := new(atomic.Int64)
			handler := guard.HandlerFunc("zero", func(*guard.Refusal) guard.Verdict { return verdict })
			s := over(t, a, guard.Config{Rule: guard.Rule{OverLimit: handler}}, Handler{Calls: calls})
			res := s.get("/hello")
			res.has(t, http.StatusTooManyRequests, refusal("", ""))
			assert.Empty(t, res.body)
			assert.EqualValues(t, 1, calls.Load())
		})
	}
	t.Run("another status", func(t *testing.T) {
		s := over(t, a, guard.Config{Rule: guard.Rule{OverLimit: guard.Reject(guard.RejectOptions{Status: 420})}}, Handler{})
		s.get("/hello").has(t, 420, refusal(varyHeader, "Accept"))
	})
	t.Run("another header", func(t *testing.T) {
		s := over(t, a, guard.Config{
			Rule: guard.Rule{
				OverLimit: guard.HandlerFunc("see", func(*guard.Refusal) guard.Verdict {
					v := guard.Verdict{Status: http.StatusSeeOther, Body: []byte("see")}
					v.SetField("Location", "/queue")
					v.SetField("Retry-After", "7")
					return v
				}),
			},
		}, Handler{})
		want := refusal("Location", "/queue")
		want[retryHeader] = "7"
		res := s.get("/hello")
		res.has(t, http.StatusSeeOther, want)
		assert.Equal(t, "see", res.body)
	})
}

// An over-limit handler may let the request pass, such as to serve it less.
func testPassingVerdict(t *testing.T, a Adapter) {
	s := over(t, a, guard.Config{
		Rule: guard.Rule{
			OverLimit: guard.HandlerFunc("pass", func(*guard.Refusal) guard.Verdict {
				return guard.Verdict{Action: guard.Pass}
			}),
		},
	}, Handler{})
	res := s.get("/hello")
	res.admitted(t, 1, 0)
	assert.Equal(t, "ok", res.body)
}

// A request without a key is refused, counted with all others that have none, or let pass.
func testNoKey(t *testing.T, a Adapter) {
	noStore := map[string]string{cacheHeader: "no-store", varyHeader: "Accept"}
	for noKey, check := range map[guard.NoKey]func(*testing.T, *server, *recorder){
		guard.NoKeyRefuse: func(t *testing.T, s *server, store *recorder) {
			s.get("/hello").has(t, http.StatusForbidden, noStore)
			assert.Empty(t, store.keys())
		},
		guard.NoKeyShared: func(t *testing.T, s *server, store *recorder) {
			s.get("/hello").admitted(t, 1, 0)
			s.get("/hello").refused(t, 1)
			assert.Len(t, store.keys(), 1)
		},
		guard.NoKeyPass: func(t *testing.T, s *server, store *recorder) {
			for range 3 {
				s.get("/hello").has(t, http.StatusOK, uncounted())
			}
			assert.Empty(t, store.keys())
		},
	} {
		var missing atomic.Int64
		store := newRecorder(t)
		s := serve(t, a, hello(Handler{}, newGuard(t, "1/1h", guard.Config{
			Rule: guard.Rule{
				Key:   keyfunc.Header("X-Api-Key"),
				NoKey: noKey,
			},
			Store: store,
			Observe: func(e guard.Event) {
				if errors.Is(e.Err, keyfunc.ErrNoKey) {
					missing.Add(1)
				}
			},
		})))
		check(t, s, store)
		s.get("/hello", "X-Api-Key", "k").admitted(t, 1, 0) // in any case
		assert.NotZero(t, missing.Load())
	}
}

// No key function opens the door by failing. It is as if there were no key.
func testKeyError(t *testing.T, a Adapter) {
	calls, value := new(atomic.Int64), errors.New("a panic")
	var recovered atomic.Value
	l := new(logtest.Log)
	g := newGuard(t, "1/1h", guard.Config{
		Rule: guard.Rule{
			Key: keyfunc.Custom("probe", func(r keyfunc.Request) (string, error) {
				if len(r.Header("X-Panic")) > 0 {
					panic(value)
				}
				return "", errors.New("no luck")
			}),
		},
		Log: l.Logger(),
	})
	app := hello(Handler{Calls: calls}, g)
	app.Recovered = func(v any) { recovered.Store(v) }
	s := serve(t, a, app)
	for range 2 {
		s.get("/hello").has(t, http.StatusForbidden, map[string]string{cacheHeader: "no-store", varyHeader: "Accept"})
		assert.Equal(t, http.StatusInternalServerError, s.get("/hello", "X-Panic", "1").StatusCode)
		assert.Same(t, value, recovered.Load())
	}
	assert.Zero(t, calls.Load())
	assert.Len(t, l.With("no luck"), 1)
}

// The fail word decides where the store fails.
func testStoreFails(t *testing.T, a Adapter) {
	for policy, check := range map[string]func(*testing.T, *server){
		"2/1h; fail open": func(t *testing.T, s *server) {
			for range 5 {
				s.get("/hello").has(t, http.StatusOK, uncounted())
			}
		},
		"2/1h; fail closed": func(t *testing.T, s *server) {
			for range 5 {
				s.get("/hello").has(t, http.StatusServiceUnavailable, map[string]string{retryHeader: "1", cacheHeader: "no-store", varyHeader: "Accept"})
			}
		},
		"2/1h; fail local": func(t *testing.T, s *server) {
			s.get("/hello").admitted(t, 2, 1)
			s.get("/hello").admitted(t, 2, 0)
			s.get("/hello").refused(t, 2)
		},
	} {
		t.Run(policy, func(t *testing.T) {
			l := new(logtest.Log)
			s := serve(t, a, hello(Handler{}, newGuard(t, policy, guard.Config{Store: broken{}, Log: l.Logger()})))
			check(t, s)
			assert.NotEmpty(t, l.With("store failed"))
		})
	}
}

func testSkip(t *testing.T, a Adapter) {
	skip := func(r keyfunc.Request) bool { return r.Path() == "/healthz" }
	g := newGuard(t, "1/1h", guard.Config{Rule: guard.Rule{Skip: skip}})
	bare := []Route{
		{Method: http.MethodGet, Pattern: "/healthz"},
		{Method: http.MethodGet, Pattern: "/hello"},
	}
	s := serve(t, a, App{Guards: []*guard.Guard{g}, Routes: bare})
	untouched := serve(t, a, App{Routes: bare}).get("/healthz")
	for range 3 {
		res := s.get("/healthz")
		res.has(t, http.StatusOK, uncounted())
		res.Header.Del("Date")
		untouched.Header.Del("Date")
		require.Equal(t, untouched.Header, res.Header)
	}
	s.get("/hello").admitted(t, 1, 0)
	s.get("/hello").refused(t, 1)
}
