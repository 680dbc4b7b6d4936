package adaptertest

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/logtest"
	"github.com/weir-go/weir/keyfunc"
)

// A refusal is not an answer of 200 because its handler says no status.
func testNativeBody(t *testing.T, a Adapter) {
	s := over(t, a, guard.Config{Rule: guard.Rule{OverLimit: a.Handle(Native{Body: "native"})}}, Handler{})
	res := s.get("/hello")
	res.has(t, http.StatusTooManyRequests, refusal("X-Native", "default"))
	assert.Equal(t, "native", res.body)

	s = serve(t, a, hello(Handler{}, newGuard(t, "1/1h; fail closed", guard.Config{
		Rule:  guard.Rule{OverLimit: a.Handle(Native{Body: "native"})},
		Store: broken{},
		Log:   slog.New(slog.DiscardHandler),
	})))
	res = s.get("/hello")
	res.has(t, http.StatusServiceUnavailable, map[string]string{retryHeader: "1", cacheHeader: "no-store", "X-Native": "default"})
	assert.Equal(t, "native", res.body)
}

func testAccepted(t *testing.T, a Adapter) {
	s := over(t, a, guard.Config{}, Handler{})
	for accept, want := range map[string]struct{ contentType, body string }{
		"*/*":              {"text/plain; charset=utf-8", "too many requests\n"},
		"application/json": {"application/json", `{"error":"too many requests","policy":"default"}` + "\n"},
		"application/problem+json": {"application/problem+json", `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
			`"title":"Request cannot be satisfied as assigned quota has been exceeded","detail":"too many requests","violated-policies":["default"]}` + "\n"},
	} {
		for range 2 {
			res := s.get("/hello", "Accept", accept)
			res.refused(t, 1)
			assert.Equal(t, []string{want.contentType}, res.Header["Content-Type"])
			assert.Equal(t, want.body, res.body)
			assert.Equal(t, want.body[0] == '{', json.Valid([]byte(res.body)))
			head := s.do(http.MethodHead, "/hello", "Accept", accept)
			assert.EqualValues(t, len(want.body), head.ContentLength)
		}
	}
	split := s.get("/hello", "Accept", "text/html", "Accept", "application/json")
	assert.Equal(t, "application/json", split.Header.Get("Content-Type"), "of two lines")

	const browser = "text/html,image/avif,image/webp,image/apng,application/xml;q=0.9,application/xhtml+xml"
	for many, want := range map[string]string{
		browser + strings.Repeat(",image/png", 9) + ",application/json":  "application/json",
		browser + strings.Repeat(",image/png", 10) + ",application/json": "text/plain; charset=utf-8", // it is the 17th
		"x" + strings.Repeat(" ", 1024) + ",application/json":            "text/plain; charset=utf-8", // behind the first KiB
	} {
		assert.Equal(t, want, s.get("/hello", "Accept", many).Header.Get("Content-Type"), many)
	}

	// Others may vary the answer too.
	outer := newGuard(t, "outer: 1/1h", guard.Config{Rule: guard.Rule{OverLimit: guard.HandlerFunc("pass", func(*guard.Refusal) guard.Verdict {
		v := guard.Verdict{Action: guard.Pass}
		v.SetField("Vary", "Origin")
		return v
	})}})
	s = serve(t, a, hello(Handler{}, outer, newGuard(t, "1/1h", guard.Config{})))
	s.get("/hello").admitted(t, 1, 0)
	assert.Equal(t, []string{"Origin, Accept"}, s.get("/hello").Header["Vary"])
}

// A call of gRPC is refused in gRPC's way. What only claims to be one is refused like every request, so that logs and
// bans outside see the status.
func testGRPC(t *testing.T, a Adapter) {
	app := func(g *guard.Guard) App {
		var routes []Route
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			routes = append(routes, Route{Method: method, Pattern: "/mail.Service/Send"})
		}
		return App{Guards: []*guard.Guard{g}, Routes: routes}
	}
	s := serve(t, a, app(newGuard(t, "1/1h", guard.Config{})))
	call := func(s *server, method, contentType string) answer {
		return s.do(method, "/mail.Service/Send", "Content-Type", contentType, "Te", "trailers")
	}
	call(s, http.MethodPost, "application/grpc").admitted(t, 1, 0)
	call(s, http.MethodPost, "application/grpc").refused(t, 1)
	call(s, http.MethodGet, "application/grpc").refused(t, 1)
	if a.HTTP1Only {
		return
	}
	over2 := s.overHTTP2()
	res := call(over2, http.MethodPost, "application/grpc+proto")
	want := refusal("Grpc-Status", "8")
	want["Grpc-Message"] = "too many requests"
	res.has(t, http.StatusOK, want)
	assert.Equal(t, 2, res.ProtoMajor)
	assert.Equal(t, "application/grpc", res.Header.Get("Content-Type"))
	assert.Empty(t, res.body)
	assert.Zero(t, res.ContentLength)
	call(over2, http.MethodPost, "application/grpc-web").refused(t, 1)
	call(over2, http.MethodGet, "application/grpc").refused(t, 1)

	s = serve(t, a, app(newGuard(t, "1/1h; fail closed", guard.Config{Store: broken{}, Log: slog.New(slog.DiscardHandler)})))
	call(s.overHTTP2(), http.MethodPost, "application/grpc").has(t, http.StatusOK, map[string]string{
		"Grpc-Status": "14", "Grpc-Message": "the rate limiter cannot decide at the moment", retryHeader: "1", cacheHeader: "no-store",
	})
}

// The request goes on, knows it, and holds permits if there are some.
func testDegrade(t *testing.T, a Adapter) {
	for policy, rules := range map[string][]guard.Rule{
		"1/1h":  nil,
		"1/24h": {{Policy: "permits: 5 concurrent", Key: keyfunc.Const("all")}},
	} {
		var degraded, calls atomic.Int64
		h := Handler{Calls: &calls, Do: func(ctx context.Context) {
			if guard.Degraded(ctx) {
				degraded.Add(1)
			}
		}}
		inner := newGuard(t, "inner: 9/1h", guard.Config{})
		g := newGuard(t, policy, guard.Config{Rule: guard.Rule{OverLimit: guard.Degrade()}, Rules: rules})
		s := serve(t, a, hello(h, g, inner))
		s.get("/hello").admitted(t, 1, 0)
		assert.Zero(t, degraded.Load())
		for range 2 {
			res := s.get("/hello")
			want := numbers(1, 0)
			want[cacheHeader] = "no-store"
			res.has(t, http.StatusOK, want)
			assert.Equal(t, "ok", res.body)
		}
		assert.EqualValues(t, 2, degraded.Load())
		assert.EqualValues(t, 3, calls.Load())
	}
}

// What a refused or degraded answer says to caches stands, whatever handlers and middleware outside say, and when.
func testCaches(t *testing.T, a Adapter) {
	cached := Fields{
		{cacheHeader, "public, max-age=3600"},
		{"CDN-Cache-Control", "max-age=3600"},
		{"Cloudflare-CDN-Cache-Control", "max-age=3600"},
		{"Surrogate-Control", "max-age=3600"},
		{"X-Accel-Expires", "3600"},
		{"Expires", "Fri, 15 Jan 2100 08:00:00 GMT"},
		{"ETag", `"full"`},
		{"Last-Modified", "Fri, 15 Jan 2010 08:00:00 GMT"},
		{"X-Other", "1"},
	}
	done := make(chan struct{})
	close(done)
	set := guard.HandlerFunc("set", func(*guard.Refusal) guard.Verdict {
		v := guard.Verdict{Action: guard.Reply, Body: []byte("set")}
		cached.Each(v.SetField)
		return v
	})
	for name, c := range map[string]struct {
		over    guard.OverLimit
		handler Handler
		status  int
		wait    bool
	}{
		"degraded":                   {guard.Degrade(), Handler{Header: cached}, 200, false},
		"degraded, not modified":     {guard.Degrade(), Handler{Header: cached, Status: 304}, 304, false},
		"degraded, a stream":         {guard.Degrade(), Handler{Header: cached, Stream: done}, 200, false},
		"degraded, an error":         {guard.Degrade(), Handler{Header: cached, Status: 502, Fail: true}, 502, false},
		"degraded, an unknown error": {guard.Degrade(), Handler{Header: cached, Fail: true}, 500, false},
		"degraded, a panic":          {guard.Degrade(), Handler{Header: cached, Panic: "a panic"}, 500, false},
		"instead":                    {guard.Degrade(a.Handle(Native{Header: cached, Body: "cached"})), Handler{}, 200, false},
		"instead, another status":    {guard.Degrade(a.Handle(Native{Header: cached, Status: 203})), Handler{}, 203, false},
		"instead, nothing":           {guard.Degrade(a.Handle(Native{Header: cached})), Handler{}, 200, false},
		"instead, an error":          {guard.Degrade(a.Handle(Native{Header: cached, Status: 502, Fail: true})), Handler{}, 502, false},
		"instead, a function":        {guard.Degrade(set), Handler{}, 200, false},
		"native":                     {a.Handle(Native{Header: cached, Status: 429}), Handler{}, 429, true},
		"native, nothing":            {a.Handle(Native{Header: cached}), Handler{}, 429, true},
		"native, a panic":            {a.Handle(Native{Header: cached, Panic: "a panic"}), Handler{}, 500, true},
		"function":                   {set, Handler{}, 429, true},
		"plain":                      {nil, Handler{}, 429, true},
	} {
		t.Run(name, func(t *testing.T) {
			before := guard.HandlerFunc("before", func(*guard.Refusal) guard.Verdict { // as a middleware outside does
				v := guard.Verdict{Action: guard.Pass}
				cached.Each(v.SetField)
				return v
			})
			outer := newGuard(t, "outer: 1/24h", guard.Config{Rule: guard.Rule{OverLimit: before}})
			inner := newGuard(t, "1/24h", guard.Config{Rule: guard.Rule{OverLimit: c.over}})
			s := serve(t, a, hello(c.handler, outer, inner))
			s.get("/hello")
			res := s.get("/hello")
			assert.Equal(t, c.status, res.StatusCode)
			assert.Equal(t, []string{"no-store"}, res.Header[cacheHeader])
			assert.Equal(t, "1", res.Header.Get("X-Other"))
			for _, field := range cached {
				if field[0] != "X-Other" && field[0] != cacheHeader {
					assert.Empty(t, res.Header.Values(field[0]), field[0])
				}
			}
			assert.Equal(t, c.wait, res.Header.Get(retryHeader) != "")
		})
	}
	// An answer that no limit has changed is the handler's.
	res := serve(t, a, hello(Handler{Header: cached}, newGuard(t, "1/1h", guard.Config{Rule: guard.Rule{OverLimit: guard.Degrade()}}))).get("/hello")
	for _, field := range cached {
		assert.Equal(t, field[1], res.Header.Get(field[0]), field[0])
	}
}

// A native handler in the place of the route's answers with 200, unless it says otherwise.
func testDegradeInstead(t *testing.T, a Adapter) {
	for _, c := range []struct {
		Native
		want int
	}{
		{Native{Body: "native"}, http.StatusOK},
		{Native{Status: http.StatusTeapot}, http.StatusTeapot},
		{Native{Status: http.StatusOK}, http.StatusOK},
		{Native{Status: http.StatusBadGateway, Fail: true}, http.StatusBadGateway},
	} {
		calls := new(atomic.Int64)
		s := over(t, a, guard.Config{Rule: guard.Rule{OverLimit: guard.Degrade(a.Handle(c.Native))}}, Handler{Calls: calls})
		for range 2 {
			res := s.get("/hello")
			res.has(t, c.want, degraded("X-Native", "default"))
			if !c.Fail {
				assert.Equal(t, "native", res.body)
			}
		}
		assert.EqualValues(t, 1, calls.Load())
	}
	silent := over(t, a, guard.Config{Rule: guard.Rule{OverLimit: guard.Degrade(a.Handle(Native{}))}}, Handler{}).get("/hello")
	silent.has(t, http.StatusOK, degraded("X-Native", "default"))
	assert.Empty(t, silent.body)

	l := new(logtest.Log)
	foreign := guard.Degrade(guard.HandleNative("elsewhere.Handle", func() { t.Error("it was called") }))
	res := over(t, a, guard.Config{Rule: guard.Rule{OverLimit: foreign}, Log: l.Logger()}, Handler{}).get("/hello")
	res.has(t, http.StatusTooManyRequests, degraded("", ""))
	assert.Equal(t, "too many requests\n", res.body)
	assert.Len(t, l.With("another framework"), 1)
}

// An open circuit answers without the store, and says for how long.
func testBreak(t *testing.T, a Adapter) {
	store := newRecorder(t)
	g := newGuard(t, "1/1h", guard.Config{
		Rule: guard.Rule{Key: keyfunc.Header("X-Api-Key"), OverLimit: guard.Break(guard.BreakOptions{
			Refusals: 3,
			Open:     2 * time.Hour,
			Then:     a.Handle(Native{Status: http.StatusForbidden}),
		})},
		Store: store,
	})
	s := serve(t, a, hello(Handler{}, g))
	s.get("/hello", "X-Api-Key", "a").admitted(t, 1, 0)
	s.get("/hello", "X-Api-Key", "a").refused(t, 1)
	s.get("/hello", "X-Api-Key", "a").refused(t, 1)
	opens := s.get("/hello", "X-Api-Key", "a")
	opens.has(t, http.StatusForbidden, refusal("X-Native", "default"))
	assert.EqualValues(t, 2*60*60, opens.integer(t, retryHeader))
	require.Equal(t, map[string]int{"default": 4}, store.counts())
	for range 5 {
		res := s.get("/hello", "X-Api-Key", "a")
		res.has(t, http.StatusForbidden, map[string]string{retryHeader: anything, cacheHeader: "no-store", "X-Native": "default"})
		assert.InDelta(t, 2*60*60, res.integer(t, retryHeader), 60)
		assert.Equal(t, "native", res.body)
	}
	assert.Equal(t, map[string]int{"default": 4}, store.counts(), "the store is not asked")
	s.get("/hello", "X-Api-Key", "b").admitted(t, 1, 0)
}
