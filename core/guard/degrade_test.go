package guard_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/internal/remotetest"
	"github.com/weir-go/weir/keyfunc"
)

func TestDegrade(t *testing.T) {
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1/1h", OverLimit: guard.Degrade()}})
	v := g.Check(from(alice))
	assert.False(t, guard.Degraded(v.Context(t.Context())))
	assert.False(t, v.NeedsContext())
	v = g.Check(from(alice))
	assert.Equal(t, guard.Pass, v.Action)
	assert.Equal(t, core.Refused, v.Result.Outcome)
	ctx := v.Context(t.Context())
	assert.True(t, guard.Degraded(ctx))
	h := header{}
	v.SetHeaders(h)
	assert.Equal(t, "no-store 0", h["Cache-Control"]+" "+h["X-Ratelimit-Remaining"])
	assert.Empty(t, h["Retry-After"])

	// Guards inside do not hide it, and what they do not degrade they leave as it was.
	inner := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "inner: 5 concurrent"}})
	r := from(alice)
	r.ctx = ctx
	v = inner.Check(r)
	assert.True(t, guard.Degraded(v.Context(ctx)))
	assert.False(t, guard.Degraded(v.Context(t.Context())))
	v.Finish(guard.Final{})
}

// Other rules hold all the same, and whichever degrades, it is degraded.
func TestDegradeAmongRules(t *testing.T) {
	passing := guard.HandlerFunc("pass", func(*guard.Refusal) guard.Verdict { return guard.Verdict{Action: guard.Pass} })
	g := newGuard(t, guard.Config{
		Rule: guard.Rule{Policy: "1/1h", Key: keyfunc.IP(), OverLimit: passing},
		Rules: []guard.Rule{
			{Policy: "second: 1/1h", OverLimit: guard.Degrade()},
			{Policy: "third: 3/1h", OverLimit: guard.Reject(guard.RejectOptions{})},
		},
	})
	for i, want := range []struct {
		action   guard.Action
		degraded bool
	}{{guard.Pass, false}, {guard.Pass, true}, {guard.Pass, true}, {guard.Reply, false}} {
		v := g.Check(from(alice))
		assert.Equal(t, want.action, v.Action, i)
		assert.Equal(t, want.degraded, guard.Degraded(v.Context(t.Context())), i)
		h := header{}
		v.SetHeaders(h)
		assert.Equal(t, i > 0, h["Cache-Control"] == "no-store", i)
		v.Finish(guard.Final{})
	}
}

// It is the same where the permits refuse, or a turn would come too late: the request goes on, Observe is called
// once, and it holds nothing of that rule.
func TestDegradeLate(t *testing.T) {
	for policy, deadline := range map[string]time.Duration{
		"late: 1 concurrent lease 1h, 5/1h":             0,
		"late: 5/1h leaky-bucket burst 5":               time.Minute,
		"late: 5/1h burst 1; wait 9h":                   time.Minute,
		"late: 5 concurrent, 5/1h leaky-bucket burst 5": time.Minute,
	} {
		synctest.Test(t, func(t *testing.T) {
			store := newMemory(t)
			var seen []string
			settled := 0
			g := newGuard(t, guard.Config{
				Rule: guard.Rule{
					Policy: policy, OverLimit: guard.Degrade(),
					Settle: func(_ guard.Final, taken int64) int64 { settled++; return taken },
				},
				Store: store, Observe: func(e guard.Event) {
					if !e.Settled {
						seen = append(seen, e.Outcome.String())
					}
				},
			})
			first := g.Check(from(alice))
			require.Equal(t, guard.Pass, first.Action)
			peek := func() core.Result {
				res, err := store.Take(t.Context(), core.Take{Policy: g.Policies()[0], Key: "ip=" + alice})
				require.NoError(t, err)
				return res
			}
			before := peek()
			for range 3 {
				seen = nil
				r := from(alice)
				if deadline > 0 {
					ctx, cancel := context.WithTimeout(t.Context(), deadline)
					defer cancel()
					r.ctx = ctx //nolint:fatcontext // each request has its own
				}
				v := g.Check(r)
				assert.Equal(t, guard.Pass, v.Action, policy)
				assert.True(t, guard.Degraded(v.Context(t.Context())), policy)
				assert.Equal(t, core.Refused, v.Result.Outcome, policy)
				assert.Equal(t, []string{"refused"}, seen, policy)
				v.Finish(guard.Final{Status: 200})
				assert.Zero(t, settled, policy)
				advance(handedOn)
				after := peek()
				assert.Equal(t, before.Remaining, after.Remaining, "%s: it has taken nothing", policy)
				assert.LessOrEqual(t, after.ResetAfter, before.ResetAfter, "%s: it has taken no turn", policy)
			}
			first.Finish(guard.Final{Status: 200})
			assert.Equal(t, 1, settled, policy)
		})
	}
}

// Only what the limit refuses is degraded.
func TestDegradeOnlyOverLimit(t *testing.T) {
	store := remotetest.New(newMemory(t))
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1/1h; fail closed", OverLimit: guard.Degrade()}, Store: store, Log: slog.New(new(records))})
	assert.Equal(t, 403, g.Check(from("")).Status)
	local, err := g.WithRule(guard.Rule{Policy: "local: 1/1h; fail local"})
	require.NoError(t, err)
	store.Fail(down())
	v := g.Check(accepting("application/json"))
	assert.Equal(t, 503, v.Status)
	assert.Equal(t, guard.Reply, v.Action)
	assert.JSONEq(t, `{"error":"the rate limiter cannot decide at the moment","policy":"default"}`, string(v.Body))
	local.Check(from(alice))
	v = local.Check(from(alice))
	assert.True(t, guard.Degraded(v.Context(t.Context())), "decided in the process")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := from(bob)
	r.ctx = ctx
	store.Fail(context.Canceled)
	assert.NotEqual(t, guard.Pass, g.Check(r).Action)
}

func TestDegradeInstead(t *testing.T) {
	cached := &struct{ name string }{"cached"}
	for name, c := range map[string]struct {
		handler guard.OverLimit
		action  guard.Action
		status  int
	}{
		"native":           {guard.HandleNative("cached", cached), guard.Native, 200},
		"function":         {guard.HandlerFunc("cached", func(*guard.Refusal) guard.Verdict { return guard.Verdict{Body: []byte("cached")} }), guard.Reply, 200},
		"function, status": {guard.HandlerFunc("cached", func(*guard.Refusal) guard.Verdict { return guard.Verdict{Status: 203} }), guard.Reply, 203},
	} {
		handler := guard.Degrade(c.handler)
		assert.Equal(t, "degrade(cached)", handler.String())
		g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1/1h", OverLimit: handler}})
		require.True(t, passes(g, alice))
		v := g.Check(from(alice))
		assert.Equal(t, c.action, v.Action, name)
		assert.Equal(t, c.status, v.Status, name)
		assert.Equal(t, 403, g.Check(from("")).Status, name)
	}
	assert.Equal(t, "degrade", guard.Degrade().String())
}

func TestDegradeMistakes(t *testing.T) {
	fine := guard.HandlerFunc("mine", func(*guard.Refusal) guard.Verdict { return guard.Verdict{} })
	for want, handler := range map[string]guard.OverLimit{
		"Degrade is given 2 handlers":        guard.Degrade(fine, fine),
		"Degrade(nil): give the handler":     guard.Degrade(nil),
		"Degrade of Reject is Reject":        guard.Degrade(guard.Reject(guard.RejectOptions{})),
		"Degrade of Degrade":                 guard.Degrade(guard.Degrade()),
		"Degrade of Break; say it the other": guard.Degrade(guard.Break(guard.BreakOptions{})),
		`the function of "cached" is nil`:    guard.Degrade(guard.HandleNative("cached", nil)),
	} {
		_, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "1/1h", Key: keyfunc.IP(), OverLimit: handler}})
		assert.ErrorContains(t, err, want)
	}
}
