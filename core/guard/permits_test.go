package guard_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

// half is a store of which one half is down: that for permits, or that for counts.
type half struct {
	*core.Memory
	fallback          *core.Memory
	noTakes, noPermit bool
	panics            bool
}

func newHalf(t *testing.T) *half { return &half{Memory: newMemory(t), fallback: newMemory(t)} }

func (h *half) Fallback() *core.Memory { return h.fallback }

func (h *half) Take(ctx context.Context, t core.Take) (core.Result, error) {
	switch {
	case h.panics:
		panic("a hook")
	case h.noTakes:
		return core.Result{}, &core.StoreError{Class: core.ClassDown}
	default:
		return h.Memory.Take(ctx, t)
	}
}

func (h *half) Acquire(ctx context.Context, p core.Permit) (core.Result, error) {
	if h.noPermit {
		return core.Result{}, &core.StoreError{Class: core.ClassDown}
	}
	return h.Memory.Acquire(ctx, p)
}

// What a request did not use goes back to the store that counted it, wherever its permit
// came from.
func TestRefundsBesidePermits(t *testing.T) {
	nothing := func(guard.Final, int64) int64 { return 0 }
	for _, word := range []string{"local", "open"} {
		t.Run(word, func(t *testing.T) {
			p := core.MustParse("10/1h fixed-window, 5 concurrent; fail " + word).Named("both")
			left := func(m *core.Memory) int64 {
				res, err := m.Take(t.Context(), core.Take{Policy: p, Key: "all=x"})
				require.NoError(t, err)
				return res.Remaining
			}
			key := keyfunc.Custom("all", func(keyfunc.Request) (string, error) { return "x", nil })
			for name, down := range map[string]func(*half){
				"permits": func(h *half) { h.noPermit = true },
				"counts":  func(h *half) { h.noTakes = true },
			} {
				store := newHalf(t)
				g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: p.String(), Key: key, Settle: nothing}, Store: store})
				require.NoError(t, err)
				down(store)
				for range 3 {
					v := g.Check(from(alice))
					require.Equal(t, guard.Pass, v.Action, "%s are down", name)
					assert.True(t, v.Result.Local)
					v.Finish(guard.Final{})
				}
				require.NoError(t, g.Close())
				store.noTakes = false
				assert.EqualValues(t, 10, left(store.Memory), "%s are down", name)
				assert.EqualValues(t, 10, left(store.fallback), "%s are down", name)
			}
		})
	}
}

// A panic between the grant and the answer leaves no permit behind.
func TestPermitsSurvivePanics(t *testing.T) {
	store := newHalf(t)
	observe := func(guard.Event) { panic("a metric") }
	const policy = "both: 1 concurrent lease 1h, 100/1h"
	g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: policy, Key: keyfunc.Const("all")}, Store: store, Observe: observe})
	require.NoError(t, err)
	l, err := enforce.New(store, core.MustParse(policy), enforce.Options{})
	require.NoError(t, err)
	free := func() { // what is given back to a store that is not in the process takes a moment
		t.Helper()
		require.Eventually(t, func() bool {
			_, release, err := l.Acquire(t.Context(), "const=all")
			if err == nil {
				release()
			}
			return err == nil
		}, 30*time.Second, time.Millisecond)
	}
	assert.PanicsWithValue(t, "a metric", func() { g.Check(from(alice)) })
	free()
	store.panics = true
	assert.Panics(t, func() {
		for { // until the permit of the last one is back
			_, _, _ = l.Acquire(t.Context(), "const=all")
		}
	})
	store.panics = false
	free()
}
