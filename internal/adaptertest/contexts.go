package adaptertest

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

// What a handler asks of the context of its request, or reports to it, it may ask of the framework's own context as
// well, where that is a context.Context: both are of the same guards.
func testContexts(t *testing.T, a Adapter) {
	t.Run("Report and FromContext", func(t *testing.T) {
		var results []core.Result
		own := Handler{DoNative: func(ctx context.Context) {
			guard.Report(ctx, 2)
			res, ok := guard.FromContext(ctx)
			assert.True(t, ok)
			results = append(results, res)
		}}
		own.Do = func(ctx context.Context) {
			guard.Report(ctx, 1)
			res, _ := guard.FromContext(ctx)
			results = append(results, res)
		}
		c := tokens()
		c.Results = true
		g := newGuard(t, "100/1000h", c)
		inner, err := g.WithRule(guard.Rule{Policy: "inner: 50/1000h", Settle: guard.Reported})
		require.NoError(t, err)
		s := serve(t, a, App{Guards: []*guard.Guard{g}, Routes: []Route{
			{Method: http.MethodGet, Pattern: "/hello"},
			{Method: http.MethodGet, Pattern: "/chat", Guards: []*guard.Guard{inner}, Handler: own},
		}})
		s.get("/chat").admitted(t, 50, 30)
		require.Len(t, results, 2)
		assert.EqualValues(t, 30, results[0].Remaining)
		assert.Equal(t, results[0], results[1])
		s.get("/chat").admitted(t, 50, 27)
		s.get("/hello").admitted(t, 100, 74)
	})
	t.Run("Degraded", func(t *testing.T) {
		var degraded []bool
		h := Handler{
			Do:       func(ctx context.Context) { degraded = append(degraded, guard.Degraded(ctx)) },
			DoNative: func(ctx context.Context) { degraded = append(degraded, guard.Degraded(ctx)) },
		}
		s := serve(t, a, hello(h, newGuard(t, "1/1h", guard.Config{Rule: guard.Rule{OverLimit: guard.Degrade()}})))
		for range 2 {
			require.Equal(t, http.StatusOK, s.get("/hello").StatusCode)
		}
		assert.Equal(t, []bool{false, false, true, true}, degraded)
	})
	t.Run("Detach", func(t *testing.T) {
		detached := make(chan *guard.Detached, 10)
		g := newGuard(t, "1 concurrent lease 1h", guard.Config{Rule: guard.Rule{Key: keyfunc.Const("all")}})
		s := serve(t, a, hello(Handler{DoNative: func(ctx context.Context) { detached <- guard.Detach(ctx) }}, g))
		require.Equal(t, http.StatusOK, s.get("/hello").StatusCode)
		held, release := receive(t, detached, "the handler did not run").Claim(t.Context())
		assert.Equal(t, http.StatusTooManyRequests, s.get("/hello").StatusCode)
		require.NoError(t, held.Err())
		release()
		require.Equal(t, http.StatusOK, s.get("/hello").StatusCode)
		_, release = receive(t, detached, "the handler did not run").Claim(t.Context())
		release()
	})
}
