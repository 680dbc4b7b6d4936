package guard_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
)

// What is detached is settled when it is released: with what was reported until then, by the end of the handler.
func TestDetachSettles(t *testing.T) {
	for name, when := range map[string]int{"before the handler returns": 0, "after it has returned": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newMemory(t)
				var finals []guard.Final
				rule := tokens("100/1000h, 1 concurrent lease 1h")
				rule.Settle = func(f guard.Final, taken int64) int64 {
					finals = append(finals, guard.Final{Status: f.Status, Bytes: f.Bytes, Reported: f.Reported})
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

// Whatever a Settle does, the permits of the other guards around the handler come back, and the work's context ends.
func TestDetachSettleThatPanics(t *testing.T) {
	outer := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "outer: 1 concurrent lease 1h"}})
	inner := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "inner: 5/1h", Settle: func(guard.Final, int64) int64 { panic("a mistake") }}})
	for range 3 {
		around := outer.Check(from(alice))
		require.Equal(t, guard.Pass, around.Action)
		v := inner.Check(from(alice))
		held, release := guard.Detach(v.Context(around.Context(t.Context()))).Claim(context.Background())
		v.Finish(guard.Final{Status: 200})
		around.Finish(guard.Final{Status: 200})
		assert.PanicsWithValue(t, "a mistake", release)
		require.Error(t, held.Err())
	}
}
