package guard_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/internal/remotetest"
	"github.com/weir-go/weir/keyfunc"
)

// countFailures is a Settle that gives back what a good answer took.
func countFailures(f guard.Final, taken int64) int64 {
	if f.Status < 400 && !f.Panicked {
		return 0
	}
	return taken
}

// A rule can count failures alone.
func TestSettle(t *testing.T) {
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "2/1h", Settle: countFailures}})
	answer := func(f guard.Final) int64 {
		v := g.Check(from(alice))
		require.Equal(t, guard.Pass, v.Action)
		require.True(t, v.NeedsFinal())
		w := v // copies share the receipt
		v.Finish(f)
		w.Finish(guard.Final{Status: 200})
		v.Finish(guard.Final{Status: 200})
		return v.Result.Remaining
	}
	for range 10 {
		assert.Equal(t, int64(1), answer(guard.Final{Status: 200}))
	}
	assert.Equal(t, int64(1), answer(guard.Final{Status: 401}))
	assert.Equal(t, int64(0), answer(guard.Final{Status: 200, Panicked: true}), "only the first Finish counts")
	assert.False(t, passes(g, alice))

	for used, want := range map[int64]int64{-5: 10, 0: 10, 3: 7, 10: 0, 99: 0} {
		g := newGuard(t, guard.Config{
			Rule: guard.Rule{
				Policy: "10/1h",
				Cost:   func(r keyfunc.Request) int64 { return int64(len(r.Header("X-Cost"))) },
				Settle: func(_ guard.Final, taken int64) int64 {
					assert.Equal(t, int64(10), taken)
					return used
				},
			},
		})
		r := from(alice)
		r.lines = map[string][]string{"X-Cost": make([]string, 10)}
		v := g.Check(r)
		v.Finish(guard.Final{})
		peek := g.Check(from(alice))
		assert.False(t, peek.NeedsFinal(), "a peek has nothing to settle")
		assert.Equal(t, want, peek.Result.Remaining, "used %d", used)
	}
}

// A remote store is settled behind the caller's back, and Close waits.
func TestSettleRemote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := remotetest.New(newMemory(t))
		store.Held = make(chan struct{})
		g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "5000/1h", Settle: countFailures}, Store: store})
		with := g.With("login", "5000/1h")
		v := g.Check(from(alice))
		v.Finish(guard.Final{Status: 401}) // nothing to give back
		for _, g := range []*guard.Guard{g, with, g} {
			v := g.Check(from(alice))
			v.Finish(guard.Final{Status: 200}) // does not wait
		}
		synctest.Wait()
		assert.Empty(t, store.Refunded())
		closed := make(chan struct{}, 2)
		for range 2 {
			go func() {
				assert.NoError(t, with.Close())
				closed <- struct{}{}
			}()
		}
		synctest.Wait()
		assert.Empty(t, closed)
		close(store.Held)
		<-closed
		<-closed
		assert.Equal(t, []int64{1, 1, 1}, store.Refunded())
		v = g.Check(from(alice))
		assert.Equal(t, int64(4998), v.Result.Remaining, "a closed Guard decides")
		v.Finish(guard.Final{Status: 200}) // and gives back
		synctest.Wait()
		assert.Len(t, store.Refunded(), 4)
	})
}

// A queue has an end: what does not fit is lost, and nobody waits.
func TestSettleQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := remotetest.New(newMemory(t))
		store.Held = make(chan struct{})
		said := new(records)
		g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "default: 50000/1h", Settle: countFailures}, Store: store, Log: slog.New(said)})
		const most = 1 << 14
		for range most + 1000 {
			v := g.Check(from(alice))
			v.Finish(guard.Final{Status: 200})
		}
		close(store.Held)
		require.Error(t, g.Close(), "it says what was lost")
		assert.GreaterOrEqual(t, len(store.Refunded()), most)
		assert.LessOrEqual(t, len(store.Refunded()), most+600, "those that wait, and a batch under way")
		lines := said.all()
		require.Len(t, lines, 1)
		assert.Contains(t, lines[0], "WARN weir: could not be given back, and counts until it expires what=units number=1 error=")
	})
}

// A charge is given back to the store that has counted it.
func TestSettleOfLocalResults(t *testing.T) {
	for policy, remaining := range map[string]int64{"2/1h": 1, "2/1h; fail open": 0} {
		store := remotetest.New(newMemory(t))
		g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: policy, Settle: countFailures}, Store: store, Log: slog.New(new(records))})
		store.Fail(down())
		for range 5 {
			v := g.Check(from(alice))
			require.Equal(t, guard.Pass, v.Action, policy)
			assert.Equal(t, remaining, v.Result.Remaining)
			v.Finish(guard.Final{Status: 200})
		}
		require.NoError(t, g.Close())
		assert.Empty(t, store.Refunded(), policy)
	}
}

// A Settle that panics keeps what its own rule has taken, and no more: permits come back, and the others are settled.
// Of two panics the last is seen.
func TestSettleThatPanics(t *testing.T) {
	panics := func(value string) func(guard.Final, int64) int64 {
		return func(guard.Final, int64) int64 { panic(value) }
	}
	nothing := func(guard.Final, int64) int64 { return 0 }
	store := newMemory(t)
	g := newGuard(t, guard.Config{
		Rule: guard.Rule{Policy: "mine: 5/1h, 1 concurrent lease 1h", Settle: nothing},
		Rules: []guard.Rule{
			{Policy: "bad: 5/1h", Settle: panics("a mistake")},
			{Policy: "worse: 5/1h", Settle: panics("another mistake")},
			{Policy: "last: 5/1h", Settle: nothing},
		},
		Store: store,
	})
	for n := range int64(3) {
		v := g.Check(from(alice))
		require.Equal(t, guard.Pass, v.Action)
		assert.PanicsWithValue(t, "another mistake", func() { v.Finish(guard.Final{Status: 200}) })
		for i, want := range []int64{5, 4 - n, 4 - n, 5} {
			assert.Equal(t, want, remaining(t, store, g.Policies()[i], "ip="+alice), "rule %d", i)
		}
	}
}

// panicking is a remote store whose refunds panic.
type panicking struct{ core.Store }

func (panicking) Refund(context.Context, []core.Refund) error { panic("a hook") }

// A panic behind everybody's back does not end the program.
func TestSettlePanics(t *testing.T) {
	said := new(records)
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "default: 5/1h", Settle: countFailures}, Store: panicking{newMemory(t)}, Log: slog.New(said)})
	v := g.Check(from(alice))
	v.Finish(guard.Final{Status: 200})
	require.Error(t, g.Close())
	assert.Len(t, said.all(), 1)
}
