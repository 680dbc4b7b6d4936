package guard_test

import (
	"context"
	"log/slog"
	"math"
	"strings"
	"sync"
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

// tokens is a rule of language models: an estimate first, and what was used when it is over.
func tokens(policy string) guard.Rule {
	return guard.Rule{Policy: policy, Cost: func(keyfunc.Request) int64 { return 20 }, Settle: guard.Reported}
}

// left is what a key of address alice has left of g's first policy.
func left(t *testing.T, store core.Store, g *guard.Guard) int64 {
	t.Helper()
	return leftOf(t, store, g, alice)
}

func leftOf(t *testing.T, store core.Store, g *guard.Guard, who string) int64 {
	t.Helper()
	l, err := core.NewLimiter(store, g.Policies()[0], core.LimiterOptions{})
	require.NoError(t, err)
	res, err := l.Peek(t.Context(), "ip="+who)
	require.NoError(t, err)
	return res.Remaining
}

// What a handler reports is what a request costs: less than was taken, more, or what was taken if it says nothing.
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

			advance(time.Minute) // as many too many as are under way, and no more
			var all []guard.Verdict
			for range 50 {
				v := g.Check(from(alice))
				require.Equal(t, guard.Pass, v.Action)
				all = append(all, v)
			}
			for _, v := range all {
				v.Finish(guard.Final{Status: 401})
			}
			synctest.Wait()
			assert.Equal(t, 10*time.Second, attempt(200).Result.RetryAfter, "up to what there was")
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

// What is detached is settled when it is released: with what was reported until then, by the end of the handler.
func TestDetachSettles(t *testing.T) {
	for name, when := range map[string]int{"before the handler returns": 0, "after it has returned": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newMemory(t)
				var finals []guard.Final
				rule := tokens("100/1000h, 1 concurrent lease 1h")
				rule.Settle = func(f guard.Final, taken int64) int64 {
					finals = append(finals, f)
					return guard.Reported(f, taken)
				}
				g := newGuard(t, guard.Config{Rule: rule, Store: store})
				v := g.Check(from(alice))
				d := guard.Detach(v.Context(t.Context()))
				var held context.Context
				var release func()
				if when == 0 {
					held, release = d.Claim(context.Background())
					v.Finish(guard.Final{Status: 201, Bytes: 5})
				} else {
					v.Finish(guard.Final{Status: 201, Bytes: 5})
					advance(29 * time.Second)
					held, release = d.Claim(context.Background())
				}
				advance(20 * time.Minute)
				assert.Empty(t, finals)
				guard.Report(held, 30)
				guard.Report(held, 8)
				require.NoError(t, held.Err())
				release()
				release()
				require.Error(t, held.Err())
				assert.Equal(t, []guard.Final{{Status: 201, Bytes: 5, Reported: 38}}, finals)
				assert.EqualValues(t, 62, left(t, store, g))
				assert.True(t, passes(g, alice), "the permit is back")
			})
		})
	}
}

// What nobody claims is settled all the same: after a while, or at once where the handler panics.
func TestDetachUnclaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(t)
		g := newGuard(t, guard.Config{Rule: tokens("100/1000h"), Store: store})
		v := g.Check(from(alice))
		ctx := v.Context(t.Context())
		d := guard.Detach(ctx)
		v.Finish(guard.Final{})
		guard.Report(ctx, 5)
		advance(29 * time.Second)
		assert.EqualValues(t, 80, left(t, store, g))
		advance(2 * time.Second)
		assert.EqualValues(t, 95, left(t, store, g))
		held, release := d.Claim(t.Context()) // too late
		guard.Report(held, 90)
		release()
		assert.EqualValues(t, 95, left(t, store, g))

		v = g.Check(from(alice))
		guard.Report(v.Context(t.Context()), 5)
		guard.Detach(v.Context(t.Context()))
		v.Finish(guard.Final{Panicked: true})
		assert.EqualValues(t, 90, left(t, store, g))

		v = g.Check(from(alice)) // released before the handler has returned
		_, release = guard.Detach(v.Context(t.Context())).Claim(t.Context())
		release()
		guard.Report(v.Context(t.Context()), 10)
		v.Finish(guard.Final{})
		assert.EqualValues(t, 80, left(t, store, g))
		assert.Nil(t, guard.Detach(v.Context(t.Context())), "it is over")
		assert.Nil(t, guard.Detach(t.Context()), "nothing is owed")
	})
}

// A panic in Settle that nobody would see is logged.
func TestDetachUnclaimedPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := new(records)
		panics := func(guard.Final) int64 { panic("a mistake") }
		g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "100/1h", After: panics}, Log: slog.New(said)})
		v := g.Check(from(alice))
		guard.Detach(v.Context(t.Context()))
		v.Finish(guard.Final{})
		advance(time.Minute)
		assert.Equal(t, []string{"ERROR weir: a rule's Settle or After panicked panic=a mistake"}, said.all())
	})
}

// What is detached is owed to each guard around the handler, however often it is asked for.
func TestDetachStacked(t *testing.T) {
	store := newMemory(t)
	outer := newGuard(t, guard.Config{Rule: tokens("outer: 1000/1h"), Store: store})
	inner, err := outer.WithRule(guard.Rule{Policy: "inner: 1 concurrent lease 1h"})
	require.NoError(t, err)
	v := outer.Check(from(alice))
	r := from(alice)
	r.ctx = v.Context(t.Context())
	w := inner.Check(r)
	ctx := w.Context(r.ctx)
	_, first := guard.Detach(ctx).Claim(t.Context())
	held, second := guard.Detach(ctx).Claim(t.Context())
	w.Finish(guard.Final{})
	v.Finish(guard.Final{})
	guard.Report(held, 1)
	assert.EqualValues(t, 980, left(t, store, outer))
	assert.False(t, passes(inner, alice))
	first()
	second()
	assert.EqualValues(t, 999, left(t, store, outer))
	assert.True(t, passes(inner, alice))
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

// A context of detached work whose own parent is the handler's counts what is reported once.
func TestReportOfDetached(t *testing.T) {
	store := newMemory(t)
	g := newGuard(t, guard.Config{Rule: tokens("1000/1h"), Store: store})
	v := g.Check(from(alice))
	ctx := v.Context(t.Context())
	held, release := guard.Detach(ctx).Claim(ctx)
	again, releaseAgain := guard.Detach(held).Claim(held)
	v.Finish(guard.Final{})
	guard.Report(held, 30)
	guard.Report(again, 4)
	release()
	releaseAgain()
	assert.EqualValues(t, 1000-34, left(t, store, g))
}
