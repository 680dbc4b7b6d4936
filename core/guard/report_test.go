package guard_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/internal/remotetest"
	"github.com/weir-go/weir/keyfunc"
)

// tokens is a rule of language models: an estimate first, and what was used when it is over.
func tokens(policy string) guard.Rule {
	return guard.Rule{Policy: policy, Cost: func(keyfunc.Request) int64 { return 20 }, Settle: guard.Reported}
}

// left returns the units that the address alice has left of g's first policy.
func left(t *testing.T, store core.Store, g *guard.Guard) int64 {
	t.Helper()
	return leftOf(t, store, g, alice)
}

func leftOf(t *testing.T, store core.Store, g *guard.Guard, who string) int64 {
	t.Helper()
	l, err := enforce.New(store, g.Policies()[0], enforce.Options{})
	require.NoError(t, err)
	res, err := l.Peek(t.Context(), "ip="+who)
	require.NoError(t, err)
	return res.Remaining
}

// A request costs what its handler reports: less than was taken, more, or what was taken if it says nothing.
func TestReported(t *testing.T) {
	for name, c := range map[string]struct {
		report []int64
		want   int64
	}{
		"nothing":          {nil, 80},
		"none":             {[]int64{0}, 100},
		"less":             {[]int64{3, 4}, 93},
		"as estimated":     {[]int64{20}, 80},
		"more":             {[]int64{20, 40, 5}, 35},
		"into debt":        {[]int64{130}, 0},
		"below zero":       {[]int64{-5, 7, -9}, 93},
		"more than counts": {[]int64{math.MaxInt64, math.MaxInt64, 1}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			store := newMemory(t)
			g := newGuard(t, guard.Config{Rule: tokens("100/1h debt 50"), Store: store})
			v := g.Check(from(alice))
			ctx := v.Context(t.Context())
			for _, n := range c.report {
				guard.Report(ctx, n)
			}
			v.Finish(guard.Final{Status: 200, Reported: 7})
			guard.Report(ctx, 10) // too late
			assert.Equal(t, c.want, left(t, store, g))
		})
	}
}

// What was used beyond the estimate is borrowed, also by several at once, and paid back before anybody passes.
func TestReportedDebt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, store := range []core.Store{newMemory(t), remotetest.New(newMemory(t))} {
			g := newGuard(t, guard.Config{Rule: tokens("100/100s debt 60"), Store: store})
			var all []guard.Verdict
			for range 4 {
				v := g.Check(from(alice))
				require.Equal(t, guard.Pass, v.Action)
				guard.Report(v.Context(t.Context()), 45)
				all = append(all, v)
			}
			for _, v := range all {
				v.Finish(guard.Final{})
			}
			synctest.Wait()
			v := g.Check(from(alice))
			assert.Equal(t, 60*time.Second, v.Result.RetryAfter, "as far as debt goes: 160 of 180")
			v.Finish(guard.Final{})
			advance(100 * time.Second)
			assert.True(t, passes(g, alice))
		}
	})
}

// Report reaches each guard around the handler, from any goroutine, and is nothing without one.
func TestReportReachesAll(t *testing.T) {
	guard.Report(t.Context(), 1)
	store := newMemory(t)
	outer := newGuard(t, guard.Config{Rule: tokens("outer: 1000/1h"), Store: store})
	permits, err := outer.WithRule(guard.Rule{Policy: "permits: 2 concurrent"})
	require.NoError(t, err)
	inner, err := outer.WithRule(tokens("inner: 500/1h"))
	require.NoError(t, err)
	ctx := t.Context()
	var all []guard.Verdict
	for _, g := range []*guard.Guard{outer, permits, inner} {
		r := from(alice)
		r.ctx = ctx //nolint:fatcontext // as one middleware within the other does
		v := g.Check(r)
		require.Equal(t, guard.Pass, v.Action)
		ctx = v.Context(ctx)
		all = append(all, v)
	}
	var reports sync.WaitGroup
	for range 100 {
		reports.Go(func() { guard.Report(ctx, 1) })
	}
	reports.Wait()
	for i := range all {
		all[len(all)-1-i].Finish(guard.Final{})
	}
	assert.EqualValues(t, 900, left(t, store, outer))
	assert.EqualValues(t, 400, left(t, store, inner))
}

// What was owed is used again, and what handlers keep of it is not: neither a late Report nor a late Detach reaches the
// request of another.
func TestKeptContext(t *testing.T) {
	store := newMemory(t)
	g := newGuard(t, guard.Config{Rule: tokens("1000/1h"), Store: store})
	v := g.Check(from(alice))
	kept := v.Context(t.Context())
	v.Finish(guard.Final{})
	for range 3 {
		w := g.Check(from(bob))
		ctx := w.Context(t.Context())
		guard.Report(kept, 500)
		assert.Nil(t, guard.Detach(kept))
		guard.Report(ctx, 7)
		w.Finish(guard.Final{})
		v.Finish(guard.Final{})
	}
	assert.EqualValues(t, 1000-3*7, leftOf(t, store, g, bob))
	assert.EqualValues(t, 980, left(t, store, g), "of alice, whose handler has reported nothing in time")
}

// frameworks is a context that keeps what it is given, as those of frameworks do.
type frameworks struct {
	context.Context
	kept context.Context //nolint:containedctx // as frameworks keep it
}

func (f *frameworks) Value(key any) any {
	if key == guard.ContextKey && f.kept != nil {
		return f.kept
	}
	return f.Context.Value(key)
}

// A program may make the request's context of the framework's own, which keeps what the guards make of it.
func TestReportWhereContextsMeet(t *testing.T) {
	var used []int64
	g := newGuard(t, guard.Config{
		Rule:    guard.Rule{Policy: "9/1h", Settle: func(f guard.Final, taken int64) int64 { used = append(used, f.Reported); return taken }},
		Results: true,
	})
	own := &frameworks{Context: t.Context()}
	r := from(alice)
	r.ctx = own
	outer := g.Check(r)
	own.kept = outer.Context(own)
	r.ctx = own.kept
	inner := g.Check(r)
	own.kept = inner.Context(r.ctx)

	guard.Report(own, 3)
	guard.Report(own.kept, 4)
	res, ok := guard.FromContext(own)
	assert.True(t, ok)
	assert.EqualValues(t, 7, res.Remaining)
	_, release := guard.Detach(own).Claim(t.Context())
	inner.Finish(guard.Final{})
	outer.Finish(guard.Final{})
	assert.Empty(t, used)
	release()
	assert.Equal(t, []int64{7, 7}, used)
}
