package adaptertest

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

// A table of routes goes by what the framework has registered, whatever paths clients write.
func testTable(t *testing.T, a Adapter) {
	g := newGuard(t, "100/1h", guard.Config{
		Routes: map[string]guard.Rule{
			"POST " + a.Pattern("/items/{id}"): {Policy: "writing: 2/1h"},
			a.Pattern("/files/{name}"):         {Policy: "files: 3/1h", Instead: true},
			"/health":                          {Instead: true},
		},
	})
	s := serve(t, a, App{Guards: []*guard.Guard{g}, Routes: []Route{
		a.items(),
		{Method: http.MethodPost, Pattern: "/items/{id}"},
		{Method: http.MethodGet, Pattern: "/files/{name}"},
		{Method: http.MethodGet, Pattern: "/health"},
	}})
	s.get("/items/1").admitted(t, 100, 99)
	s.do(http.MethodPost, "/items/1").admitted(t, 2, 1)
	s.do(http.MethodPost, "/items/2").admitted(t, 2, 0)
	s.do(http.MethodPost, "/items/3").refused(t, 2)
	s.get("/items/1").admitted(t, 100, 96)
	for remaining := 2; remaining >= 0; remaining-- {
		s.get("/files/"+strings.Repeat("x", remaining+1)).admitted(t, 3, remaining)
	}
	s.get("/files/y").refused(t, 3)
	for range 200 {
		s.get("/health").has(t, http.StatusOK, uncounted())
	}
	s.get("/items/1").admitted(t, 100, 95)
}

// Several rules hold together, each for a key of its own, and tiers have their own numbers.
func testRules(t *testing.T, a Adapter) {
	header := func(kind, name string) keyfunc.Func {
		return keyfunc.Custom(kind, func(r keyfunc.Request) (string, error) { return strings.Join(r.Header(name), ""), nil })
	}
	g := newGuard(t, "user: 2/1h", guard.Config{
		Rule: guard.Rule{
			Key:   header("uid", "X-User"),
			Tier:  func(r keyfunc.Request) string { return strings.Join(r.Header("X-Tier"), "") },
			Tiers: map[string]string{"pro": "4/1h", "admin": "unlimited"},
		},
		Rules: []guard.Rule{{Policy: "tenant: 8/1h", Key: header("tenant", "X-Tenant")}},
	})
	s := serve(t, a, hello(Handler{}, g))
	by := func(user, tier string) answer {
		return s.get("/hello", "X-User", user, "X-Tier", tier, "X-Tenant", "acme")
	}
	by("ann", "").admitted(t, 2, 1)
	by("ann", "").admitted(t, 2, 0)
	by("ann", "").refused(t, 2)
	for remaining := 3; remaining >= 0; remaining-- {
		by("bob", "pro").admitted(t, 4, remaining)
	}
	by("root", "admin").admitted(t, 8, 1)
	by("root", "admin").admitted(t, 8, 0)
	by("root", "admin").refused(t, 8)
	by("carl", "").refused(t, 8)
}

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
	assert.GreaterOrEqual(t, status[http.StatusOK], 4, "one at once, and three that wait")
}

// Whatever becomes of requests, nothing is left of them: no permit, no unit, no goroutine that waits.
func testNothingLeft(t *testing.T, a Adapter) {
	memory, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	const policy = "all: 1000000/1h fixed-window, 100 concurrent lease 1h"
	g := newGuard(t, policy, guard.Config{
		Rule: guard.Rule{
			Key:    keyfunc.Const("all"),
			Settle: func(guard.Final, int64) int64 { return 0 },
		},
		Store: memory,
	})
	stream := make(chan struct{})
	close(stream)
	s := serve(t, a, App{Guards: []*guard.Guard{g}, Routes: []Route{
		{Method: http.MethodGet, Pattern: "/panic", Handler: Handler{Panic: "again"}},
		{Method: http.MethodGet, Pattern: "/error", Handler: Handler{Fail: true}},
		{Method: http.MethodGet, Pattern: "/stream", Handler: Handler{Stream: stream}},
		{Method: http.MethodGet, Pattern: "/slow", Handler: Handler{Do: func(ctx context.Context) {
			select { // until the client has left, as far as the framework can tell
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}}},
		{Method: http.MethodGet, Pattern: "/detached", Handler: Handler{Do: func(ctx context.Context) {
			_, release := guard.Detach(ctx).Claim(context.WithoutCancel(ctx))
			go release()
		}}},
	}})
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range 10 {
				for _, path := range []string{"/panic", "/error", "/stream", "/detached"} {
					s.get(path)
				}
				ctx, leave := context.WithTimeout(t.Context(), time.Millisecond)
				_, _ = s.try(ctx, http.MethodGet, "/slow", nil)
				leave()
			}
		})
	}
	all.Wait()
	require.Eventually(t, func() bool {
		p := g.Policies()[0]
		res, err := memory.Take(t.Context(), core.Take{Policy: p, Key: "const=all"})
		require.NoError(t, err)
		free, err := memory.Acquire(t.Context(), core.Permit{Policy: p, Key: "const=all", ID: "probe", Weight: 101})
		require.NoError(t, err)
		return res.Remaining == 1_000_000 && free.Remaining == 100
	}, patience, time.Millisecond)
}
