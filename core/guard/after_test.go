package guard_test

import (
	"log/slog"
	"strings"
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

// failed counts answers of 401.
func failed(f guard.Final) int64 {
	if f.Status == 401 {
		return 1
	}
	return 0
}

// A rule with After looks first, takes nothing, and counts when the request is over.
func TestAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, store := range []core.Store{newMemory(t), remotetest.New(newMemory(t))} {
			g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "3/30s", After: failed}, Store: store})
			attempt := func(status int) guard.Verdict {
				v := g.Check(from(alice))
				if v.Action == guard.Pass {
					require.True(t, v.NeedsFinal())
				}
				v.Finish(guard.Final{Status: status})
				v.Finish(guard.Final{Status: 401})
				synctest.Wait()
				return v
			}
			for range 10 {
				v := attempt(200)
				assert.EqualValues(t, 3, v.Result.Remaining)
				assert.Zero(t, v.Result.Taken)
			}
			for n := range 3 {
				assert.EqualValues(t, 3-n, attempt(401).Result.Remaining)
			}
			v := attempt(200)
			assert.Equal(t, 429, v.Status)
			assert.Equal(t, 10*time.Second, v.Result.RetryAfter)
			advance(10 * time.Second)
			assert.Equal(t, guard.Pass, attempt(200).Action)

			advance(time.Minute)
			assert.Zero(t, g.AfterKeys())
		}
	})
}

// What a request that was looked at has used goes into debt.
func TestAfterDebt(t *testing.T) {
	store := newMemory(t)
	after := func(f guard.Final) int64 { return f.Reported }
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "100/100h debt 1000", After: after}, Store: store})
	v := g.Check(from(alice))
	v.Finish(guard.Final{})
	assert.EqualValues(t, 100, left(t, store, g), "nothing was reported")
	v = g.Check(from(alice))
	guard.Report(v.Context(t.Context()), 500)
	v.Finish(guard.Final{})
	v = g.Check(from(alice))
	assert.InDelta(t, 401*time.Hour, v.Result.RetryAfter, float64(time.Minute), "there must be one unit again")
}

// A request that another rule refuses is not counted afterwards, and one that nobody could count is not either.
func TestAfterRefused(t *testing.T) {
	store := newMemory(t)
	g := newGuard(t, guard.Config{
		Rule:  guard.Rule{Policy: "3/1h", After: failed},
		Rules: []guard.Rule{{Policy: "all: 1/1h", Key: keyfunc.Const("all")}},
		Store: store,
	})
	for range 5 {
		v := g.Check(from(alice))
		v.Finish(guard.Final{Status: 401})
	}
	assert.EqualValues(t, 2, left(t, store, g))

	down := remotetest.New(store)
	down.Fail(&core.StoreError{Class: core.ClassDown})
	open := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "open: 3/1h; fail open", After: failed}, Store: down, Log: slog.New(new(records))})
	for range 5 {
		v := open.Check(from(alice))
		require.Equal(t, guard.Pass, v.Action)
		v.Finish(guard.Final{Status: 401})
	}
	require.NoError(t, open.Close())
}

// What cannot be meant is a mistake when the guard is built, and what a rule inherits is not.
func TestAfterMistakes(t *testing.T) {
	for want, r := range map[string]guard.Rule{
		"After counts when the request is over, and Cost and Settle before that":                          {Policy: "1/1s", After: failed, Settle: guard.Reported},
		"After counts when the request is over, and Cost and Settle before":                               {Policy: "1/1s", After: failed, Cost: func(keyfunc.Request) int64 { return 1 }},
		`in "default: 1/1s; wait 1s" requests wait before they count`:                                     {Policy: "1/1s; wait 1s", After: failed},
		`in "default: 1/1s leaky-bucket burst 3" requests wait before they count; give a po`:              {Policy: "1/1s leaky-bucket burst 3", After: failed},
		`a rule with After has nothing to count in "default: 3 concurrent", which has permits alone; add`: {Policy: "3 concurrent", After: failed},
	} {
		r.Key = keyfunc.IP()
		_, err := guard.New(guard.Config{Rule: r})
		require.ErrorContains(t, err, want)
		assert.True(t, strings.HasPrefix(err.Error(), "guard: "), err)
	}
	store := newMemory(t)
	base := newGuard(t, guard.Config{Rule: tokens("100/1h"), Store: store})
	login, err := base.WithRule(guard.Rule{Policy: "login: 3/1h", After: failed})
	require.NoError(t, err, "Cost and Settle are not inherited")
	v := login.Check(from(alice))
	assert.Zero(t, v.Result.Taken)
	plain, err := login.WithRule(guard.Rule{Policy: "plain: 1000/1h"})
	require.NoError(t, err)
	v = plain.Check(from(alice))
	assert.EqualValues(t, 20, v.Result.Taken, "After is not inherited")
}

// A rule with After and permits has both.
func TestAfterWithPermits(t *testing.T) {
	store := newMemory(t)
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1 concurrent, 3/1h", After: failed}, Store: store})
	v := g.Check(from(alice))
	refused := g.Check(from(alice))
	assert.Equal(t, guard.Reply, refused.Action)
	v.Finish(guard.Final{Status: 401})
	refused.Finish(guard.Final{Status: 401})
	assert.EqualValues(t, 2, left(t, store, g))
	assert.True(t, passes(g, alice))
}

// A request that the permits of a rule with After refuse, and that goes on all the same, is not under way for the rule:
// it keeps nobody else waiting.
func TestAfterWithPermitsDegraded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, guard.Config{Rule: guard.Rule{
			Policy: "3/1h, 1 concurrent", After: failed, OverLimit: guard.Degrade(),
		}})
		first := g.Check(from(alice))
		for range 5 {
			v := g.Check(from(alice))
			require.True(t, guard.Degraded(v.Context(t.Context())))
			v.Finish(guard.Final{Status: 200})
		}
		first.Finish(guard.Final{Status: 200})
		assert.Zero(t, g.AfterKeys())
		v := g.Check(from(alice))
		assert.False(t, guard.Degraded(v.Context(t.Context())), "nobody else is under way")
		v.Finish(guard.Final{Status: 200})
	})
}
