package adaptertest

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

// tokens charges as for language models: an estimate first, and then what the handler reports.
func tokens() guard.Config {
	return guard.Config{Rule: guard.Rule{Cost: func(keyfunc.Request) int64 { return 20 }, Settle: guard.Reported}}
}

// A request costs what its handler reports, also through another guard on the route: less than was estimated, more, or
// into debt. Where nothing is reported, the estimate stands.
func testTokens(t *testing.T, a Adapter) {
	var used atomic.Int64
	report := Handler{Do: func(ctx context.Context) {
		if n := used.Load(); n > 0 {
			guard.Report(ctx, n/2)
			guard.Report(ctx, n-n/2)
		}
	}}
	silent := report
	silent.Panic = "a panic"
	g := newGuard(t, "100/1000h debt 50", tokens())
	permits, err := g.WithRule(guard.Rule{Policy: "permits: 1000 concurrent"})
	require.NoError(t, err)
	s := serve(t, a, App{Guards: []*guard.Guard{g}, Routes: []Route{
		{Method: http.MethodGet, Pattern: "/chat", Guards: []*guard.Guard{permits}, Handler: report},
		{Method: http.MethodGet, Pattern: "/broken", Handler: silent},
	}})
	left := 100
	for _, step := range []struct {
		path       string
		used, cost int
	}{{"/chat", 5, 5}, {"/chat", 0, 20}, {"/broken", 0, 20}, {"/broken", 3, 3}, {"/chat", 21, 21}, {"/chat", 1000, 0}} {
		used.Store(int64(step.used))
		answer := s.get(step.path)
		require.Contains(t, []int{http.StatusOK, http.StatusInternalServerError}, answer.StatusCode)
		assert.EqualValues(t, left-20, answer.integer(t, remainingHeader))
		left -= step.cost
	}
	answer := s.get("/chat")
	require.Equal(t, http.StatusTooManyRequests, answer.StatusCode)
	assert.InDelta(t, (50 * 10 * time.Hour).Seconds(), answer.integer(t, retryHeader), 3600, "all of the debt, and no more")
}

// What goes on after the handler has returned reports what it uses, until it says that it is over.
func testDetachedTokens(t *testing.T, a Adapter) {
	detached := make(chan *guard.Detached, 3)
	h := Handler{Do: func(ctx context.Context) { detached <- guard.Detach(ctx) }}
	g := newGuard(t, "100/1000h", tokens())
	s := serve(t, a, hello(h, g))
	s.get("/hello").admitted(t, 100, 80)
	held, release := receive(t, detached, "the handler did not run").Claim(t.Context())
	guard.Report(held, 3)
	s.get("/hello").admitted(t, 100, 60)
	guard.Report(held, 4)
	release()
	require.ErrorIs(t, held.Err(), context.Canceled)
	s.get("/hello").admitted(t, 100, 53)
}

// Failed logins are counted when they have failed, by the status that the client sees, and others never wait for them.
func testFailedLogins(t *testing.T, a Adapter) {
	for name, h := range map[string]Handler{
		"a status":             {Status: http.StatusUnauthorized},
		"an error of the kind": {Status: http.StatusUnauthorized, Fail: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(t, "3/1h", guard.Config{Rule: guard.Rule{After: func(f guard.Final) int64 {
				if f.Status == http.StatusUnauthorized {
					return 1
				}
				return 0
			}}})
			s := serve(t, a, App{Guards: []*guard.Guard{g}, Routes: []Route{
				{Method: http.MethodGet, Pattern: "/fine"},
				{Method: http.MethodPost, Pattern: "/login", Handler: h},
			}})
			for left := 3; left > 0; left-- {
				s.get("/fine").admitted(t, 3, left)
				s.get("/fine").admitted(t, 3, left)
				s.do(http.MethodPost, "/login").has(t, http.StatusUnauthorized, numbers(3, left))
			}
			s.do(http.MethodPost, "/login").refused(t, 3)
			s.get("/fine").refused(t, 3)
		})
	}
}
