package core_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/storetest"
	"github.com/weir-go/weir/internal/race"
)

func newMemory(t testing.TB, maxKeys int) *core.Memory {
	m, err := core.NewMemory(core.MemoryOptions{MaxKeys: maxKeys})
	require.NoError(t, err)
	return m
}

func TestMemoryIsAStore(t *testing.T) {
	storetest.Exercise(t, func(t *testing.T) core.Store { return newMemory(t, 0) })
}

func TestStepMakesAStore(t *testing.T) {
	storetest.Exercise(t, func(*testing.T) core.Store { return new(swapStore) })
}

// The in-process store is Step with a hash table: random operations, with refunds,
// resets, clock steps and changed limits, have equal answers in every field.
func TestMemoryBehavesLikeStep(t *testing.T) {
	for seed := range uint64(20) {
		storetest.Compare(t, newMemory(t, 0), new(swapStore), seed, 1000)
	}
	storetest.Compare(t, newMemory(t, 0), new(swapStore), rand.Uint64(), 5000)
}

// A flood of unique keys neither grows the store beyond its bound nor
// frees a key that is at its limit.
func TestMemoryFlood(t *testing.T) {
	const maxKeys = 10_000
	flood := 1_000_000
	if race.Enabled {
		flood = 100_000
	}
	m := newMemory(t, maxKeys)
	login, other := core.MustParse("login: 5/1h"), core.MustParse("other: 10/1h")
	take := func(p core.Policy, key string, cost int64) core.Result {
		res, err := m.Take(t.Context(), core.Take{Policy: p, Key: key, Cost: cost})
		require.NoError(t, err)
		return res
	}
	require.Equal(t, core.AtLimit, take(login, "guesser", 5).Outcome)
	for i := range 100 {
		take(other, fmt.Sprint("idle", i), 1)
	}
	for i := range flood {
		if !take(other, fmt.Sprint(i), 1).Allowed() {
			t.Fatal("a full store must not deny everybody")
		}
		if i%1000 == 0 {
			require.Equal(t, core.Refused, take(login, "guesser", 1).Outcome, "after %d keys", i)
			require.LessOrEqual(t, m.Len(), maxKeys)
		}
	}
	assert.Greater(t, m.Len(), maxKeys*9/10)
	kept := 0
	for i := range 100 {
		if take(other, fmt.Sprint("idle", i), 0).Remaining < 10 {
			kept++
		}
	}
	assert.Less(t, kept, 20, "idle keys make room")
}

func TestMemoryTakeDoesNotAllocate(t *testing.T) {
	m := newMemory(t, 0)
	for name, take := range map[string]core.Take{
		"admitted":   {Policy: core.MustParse("a: 2147483648/1s"), Key: "k", Cost: 1},
		"refused":    {Policy: core.MustParse("b: 1/366d"), Key: "k", Cost: 1},
		"never":      {Policy: core.MustParse("c: 1/366d"), Key: "k", Cost: 2},
		"peek":       {Policy: core.MustParse("d: 1/1s"), Key: "k"},
		"two limits": {Policy: core.MustParse("e: 2147483648/1s, 1/366d"), Key: "k", Cost: 1},
	} {
		ctx := context.Background()
		_, err := m.Take(ctx, take)
		require.NoError(t, err)
		assert.Zero(t, testing.AllocsPerRun(200, func() {
			if _, err := m.Take(ctx, take); err != nil {
				panic(err)
			}
		}), name)
	}
}
