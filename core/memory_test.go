package core_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/internal/algo"
	"github.com/weir-go/weir/core/storetest"
	"github.com/weir-go/weir/internal/race"
)

func newMemory(t testing.TB, maxKeys int) *core.Memory {
	m, err := core.NewMemory(core.MemoryOptions{MaxKeys: maxKeys})
	require.NoError(t, err)
	return m
}

func TestNewMemory(t *testing.T) {
	_, err := core.NewMemory(core.MemoryOptions{MaxKeys: -1})
	require.EqualError(t, err, "core: MaxKeys is -1; give a positive number, or 0 for 1000000")
	var zero core.Memory
	require.Zero(t, zero.Len())
	_, err = zero.Acquire(t.Context(), core.Permit{Policy: core.MustParse("1 concurrent"), Key: "k", ID: "a"})
	require.EqualError(t, err, "core: a zero Memory; build one with NewMemory")
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
	assert.Equal(t, maxKeys, m.MaxKeys())
	displaced, atLimit := m.Displaced()
	assert.EqualValues(t, 1+100+flood-m.Len(), displaced, "each key that is gone still counted")
	assert.Zero(t, atLimit)
	kept := 0
	for i := range 100 {
		if take(other, fmt.Sprint("idle", i), 0).Remaining < 10 {
			kept++
		}
	}
	assert.Less(t, kept, 20, "idle keys make room")
}

// Keys that are as if unused make room without being missed. One at its limit is, when all are at their limits.
func TestMemoryDisplaced(t *testing.T) {
	m := newMemory(t, 2)
	p := core.MustParse("1/1s")
	now := time.Now().UnixMicro()
	// take returns the numbers of keys held, displaced, and displaced at their limits, after a take of each of keys.
	take := func(keys ...string) [3]int {
		for _, key := range keys {
			_, err := m.Take(t.Context(), core.Take{Policy: p, Key: key, Cost: 1, Now: now})
			require.NoError(t, err)
		}
		displaced, atLimit := m.Displaced()
		return [3]int{m.Len(), int(displaced), int(atLimit)}
	}
	assert.Equal(t, [3]int{2, 0, 0}, take("a", "b"))
	now += time.Second.Microseconds()
	assert.Equal(t, [3]int{2, 0, 0}, take("c", "d"), "nobody was forgotten")
	assert.Equal(t, [3]int{2, 1, 1}, take("e"))
	assert.Equal(t, 2, m.MaxKeys())

	var zero core.Memory
	displaced, atLimit := zero.Displaced()
	assert.Zero(t, zero.MaxKeys())
	assert.Zero(t, displaced+atLimit)
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

// Each policy and key has a count and permits of its own, also where a key reads like what
// another policy is known by.
func TestMemoryKeepsPairsApart(t *testing.T) {
	m := newMemory(t, 0)
	limits := [][]core.Limit{
		{{Rate: 1, Period: time.Hour}},
		{{Rate: 1, Period: time.Hour}, {Rate: 9, Period: 2 * time.Hour}},
		{{Algorithm: core.TokenBucket, Rate: 1, Period: time.Hour}},
		{{Algorithm: core.Concurrent, Burst: 1}},
	}
	var policies []core.Policy
	keys := []string{"a", "b", "g", "g:a", ":g", "a:"}
	for _, name := range []string{"", "a", "b", "g", "a.b"} {
		for _, l := range limits {
			p, err := core.NewPolicy(name, core.PolicyOptions{}, l...)
			require.NoError(t, err)
			policies, keys = append(policies, p), append(keys, name+":"+p.Spec().Shape())
		}
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	for _, p := range policies {
		for _, key := range keys {
			ask := func() (core.Result, error) {
				return m.Take(t.Context(), core.Take{Policy: p, Key: key, Cost: 1, Now: epoch})
			}
			if p.Spec().Shape() == "" {
				id := 0
				ask = func() (core.Result, error) {
					id++
					return m.Acquire(t.Context(), core.Permit{Policy: p, Key: key, ID: fmt.Sprint(id), Now: epoch})
				}
			}
			for _, want := range []bool{true, false} {
				res, err := ask()
				require.NoError(t, err)
				assert.Equal(t, want, res.Allowed(), "policy %q, key %q", p, key)
			}
		}
	}
}

// What a log has counted is kept under other numbers of its policy, and apart from others.
func TestMemoryKeepsLogs(t *testing.T) {
	m := newMemory(t, 64)
	now := epoch
	take := func(policy, key string, cost int64) core.Result {
		res, err := m.Take(t.Context(), core.Take{Policy: core.MustParse(policy), Key: key, Cost: cost, Now: now})
		require.NoError(t, err)
		return res
	}
	for i := range int64(300) {
		now += 1000
		small, large := take("small: 2/1h sliding-log", "k", 1), take("large: 1000/1h sliding-log", "k", 2)
		require.Equal(t, i < 2, small.Allowed())
		require.Equal(t, 1000-2*(i+1), large.Remaining)
		require.Equal(t, i < 9, take("both: 9/1h sliding-log, 500/1d sliding-log", "k", 1).Allowed())
	}
	assert.Equal(t, 3, m.Len())
	lowered := take("large: 100/1h sliding-log", "k", 1)
	assert.False(t, lowered.Allowed(), "what was counted is kept under other numbers")
	now += 3600 * second
	assert.Equal(t, int64(999), take("large: 1000/1h sliding-log", "k", 1).Remaining)
	require.NoError(t, m.Reset(t.Context(), core.MustParse("large: 1/1h sliding-log"), "k"))
	assert.Equal(t, int64(1000), take("large: 1000/1h sliding-log", "k", 0).Remaining)
}

// A key of any algorithm lives as long as it counts, and is swept then.
func TestMemorySweepsEveryAlgorithm(t *testing.T) {
	for i, kind := range algo.Kinds {
		t.Run(kind.Word, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const keys = 2000
				m := newMemory(t, 0)
				p, err := core.NewPolicy("", core.PolicyOptions{}, core.Limit{Algorithm: core.Algorithm(i), Rate: 5, Period: 5 * time.Second})
				require.NoError(t, err)
				take := func(key string) core.Result {
					res, err := m.Take(t.Context(), core.Take{Policy: p, Key: key, Cost: 1})
					require.NoError(t, err)
					return res
				}
				for i := range keys {
					for range 3 {
						take(fmt.Sprint(i))
					}
				}
				require.Equal(t, keys, m.Len())
				assert.Equal(t, int64(1), take("0").Remaining)
				advance(30 * time.Second)
				assert.Zero(t, m.Len())
			})
		})
	}
}

func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func TestMemoryGivesMemoryBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 200_000
		m, p := newMemory(t, 0), core.MustParse("1/15s")
		before := heap()
		for i := range keys {
			_, err := m.Take(t.Context(), core.Take{Policy: p, Key: fmt.Sprint(i), Cost: 1})
			require.NoError(t, err)
		}
		require.Equal(t, keys, m.Len())
		full := heap()
		assert.Greater(t, full, before+keys*16)
		assert.Less(t, full, before+keys*16*3, "bytes of a key, with the air")
		advance(20 * time.Second)
		require.Zero(t, m.Len())
		assert.Less(t, heap(), before+1<<20)
		runtime.KeepAlive(m)
	})
}

// A store that nobody uses any more needs no Close: its timer does not hold it.
func TestMemoryIsCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unused := func() weak.Pointer[core.Memory] {
			m := newMemory(t, 1000)
			_, err := m.Take(t.Context(), core.Take{Policy: core.MustParse("1/1h"), Key: "k", Cost: 1})
			require.NoError(t, err)
			return weak.Make(m)
		}()
		runtime.GC()
		assert.Nil(t, unused.Value())
		advance(time.Minute) // the timer finds nothing
	})
}

// Everything at once, on a store that is too small: for the race detector.
func TestMemoryUnderPressure(t *testing.T) {
	const maxKeys = 300
	m := newMemory(t, maxKeys)
	policies := []core.Policy{
		core.MustParse("a: 5/1ms"), core.MustParse("b: 5/1h, 9/1d"), core.MustParse("c: 1/1s"), core.MustParse("d: 50/1h sliding-log, 9/1ms sliding-log"),
		core.MustParse("e: 5/1h sliding-window, 9/1d fixed-window"), core.MustParse("f: 9/1ms sliding-log"),
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 3000 {
				p := policies[(i+g)%len(policies)]
				asked := core.Take{Policy: p, Key: fmt.Sprint(i * (g%3 + 1) % 1000), Cost: int64(i % 3)}
				res, err := m.Take(t.Context(), asked)
				assert.NoError(t, err)
				switch {
				case i%7 == 0 && res.Allowed():
					assert.NoError(t, m.Refund(t.Context(), []core.Refund{{Policy: p, Key: asked.Key, Receipt: res, Units: asked.Cost}}))
				case i%31 == 0:
					assert.NoError(t, m.Reset(t.Context(), p, asked.Key))
				}
			}
		})
	}
	wg.Wait()
	assert.LessOrEqual(t, m.Len(), maxKeys)
}

// However many decide at once, and give back what they took, no more is out than the limit admits, and in the end what
// is charged is what was not given back. Others come and go beside them.
func TestMemoryIsExactUnderContention(t *testing.T) {
	for _, limits := range []string{
		"50/1h", "7/11h burst 50", "50/1h, 60/1d", "50/1h token-bucket", "50/1h fixed-window", "50/1h sliding-window", "50/1h sliding-log",
	} {
		t.Run(limits, func(t *testing.T) {
			const workers, keys, most = 8, 2, 50
			m := newMemory(t, 127) // one part, which is never full
			p, other := core.MustParse("p: "+limits), core.MustParse("other: "+limits)
			var out [keys]atomic.Int64
			var wg sync.WaitGroup
			for g := range workers {
				wg.Go(func() {
					random := rand.New(rand.NewPCG(1, uint64(g)))
					for i := range 1000 {
						if i%5 == 0 { // rows come, move and go
							name := fmt.Sprint("other", i/5%(1+i/10))
							_, err := m.Take(t.Context(), core.Take{Policy: other, Key: name, Cost: 1, Now: epoch})
							assert.NoError(t, err)
							if i%3 == 0 {
								assert.NoError(t, m.Reset(t.Context(), other, name))
							}
						}
						key := random.IntN(keys)
						asked := core.Take{Policy: p, Key: fmt.Sprint(key), Cost: 1 + random.Int64N(3), AtMost: i%4 == 0, Now: epoch}
						res, err := m.Take(t.Context(), asked)
						assert.NoError(t, err)
						if !res.Allowed() {
							continue
						}
						if now := out[key].Add(res.Taken); now > most {
							t.Errorf("%d are out of %d", now, most)
						}
						if random.IntN(10) > 0 {
							out[key].Add(-res.Taken)
							assert.NoError(t, m.Refund(t.Context(), []core.Refund{{Policy: p, Key: asked.Key, Receipt: res, Units: res.Taken, Now: epoch}}))
						}
					}
				})
			}
			wg.Wait()
			for key := range keys {
				res, err := m.Take(t.Context(), core.Take{Policy: p, Key: fmt.Sprint(key), Now: epoch})
				require.NoError(t, err)
				assert.Equal(t, out[key].Load(), most-res.Remaining)
				assert.Positive(t, out[key].Load())
			}
		})
	}
}
