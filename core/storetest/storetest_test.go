package storetest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/storetest"
)

func memory(t testing.TB) core.Store {
	m, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	return m
}

func TestExercise(t *testing.T) {
	t.Run("reference", func(t *testing.T) {
		storetest.Exercise(t, func(*testing.T) core.Store { return storetest.Reference() })
	})
	t.Run("memory", func(t *testing.T) {
		storetest.Exercise(t, func(t *testing.T) core.Store { return memory(t) })
	})
}

func TestCompare(t *testing.T) {
	for seed := range uint64(40) {
		storetest.Compare(t, memory(t), storetest.Reference(), seed, 2000)
	}
}

// altered is a store with a mistake.
type altered struct {
	core.Store
	take   func(*core.Take, *core.Result)
	refund func(*core.Take, *core.Result)
	reset  bool
}

func (a altered) Take(ctx context.Context, t core.Take) (core.Result, error) {
	res, err := a.Store.Take(ctx, t)
	if a.take != nil && err == nil {
		a.take(&t, &res)
	}
	return res, err
}

func (a altered) Refund(ctx context.Context, t core.Take, r core.Result, units int64) error {
	if a.refund != nil {
		a.refund(&t, &r)
	}
	return a.Store.Refund(ctx, t, r, units)
}

func (a altered) Reset(ctx context.Context, p core.Policy, key string) error {
	if a.reset {
		return nil
	}
	return a.Store.Reset(ctx, p, key)
}

// tb is a test whose failure is what is wanted.
type tb struct {
	testing.TB
	messages []string
}

func (t *tb) Helper()      {}
func (t *tb) Failed() bool { return len(t.messages) > 0 }
func (t *tb) Errorf(format string, a ...any) {
	t.messages = append(t.messages, fmt.Sprintf(format, a...))
}

func (t *tb) Fatalf(format string, a ...any) {
	t.Errorf(format, a...)
	panic(t)
}

// A suite that finds nothing is worth nothing: each of these must be found.
func TestCompareFindsMistakes(t *testing.T) {
	for name, a := range map[string]altered{
		"one remaining too many": {take: func(_ *core.Take, r *core.Result) { r.Each[0].Remaining++ }},
		"retry 1 us too short": {take: func(_ *core.Take, r *core.Result) {
			if r.RetryAfter > 0 {
				r.RetryAfter -= time.Microsecond
			}
		}},
		"never said to be refused": {take: func(_ *core.Take, r *core.Result) {
			if r.Outcome == core.Never {
				r.Outcome = core.Refused
			}
		}},
		"a refund as if just charged": {refund: func(t *core.Take, r *core.Result) { r.At = t.Now }},
		"a reset that does nothing":   {reset: true},
	} {
		t.Run(name, func(t *testing.T) {
			a.Store = memory(t)
			inner := &tb{TB: t}
			assert.PanicsWithValue(t, inner, func() { storetest.Compare(inner, a, storetest.Reference(), 7, 3000) })
			require.Len(t, inner.messages, 2)
			assert.Contains(t, inner.messages[1], "Compare(t, a, b, 7, 3000)", "the seed")
		})
	}
}
