package core

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core/internal/algo"
)

func newMemory(t testing.TB, maxKeys int) *Memory {
	m, err := NewMemory(MemoryOptions{MaxKeys: maxKeys})
	require.NoError(t, err)
	return m
}

// advance lets time pass in a bubble, and what it wakes finish.
func advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func take(t testing.TB, m *Memory, p Policy, key string) Result {
	res, err := m.Take(t.Context(), Take{Policy: p, Key: key, Cost: 1})
	require.NoError(t, err)
	return res
}

// checkTable demands what every search relies on: each row can be found from its
// home without meeting an empty row.
func checkTable(t require.TestingT, tab *table, want map[hash]int64) {
	live := 0
	for i := range tab.rowCount() {
		if tab.empty(i) {
			require.Equal(t, make([]int64, tab.stride), tab.row(i), "an empty row is all zero")
			continue
		}
		live++
	}
	require.Equal(t, len(want), live)
	require.Equal(t, live, tab.live)
	for h, state := range want {
		i := tab.find(h)
		require.GreaterOrEqual(t, i, 0, "%v", h)
		require.Equal(t, state, tab.stateOf(i)[0])
	}
}

// The table is a map, however keys crowd: its hashes are drawn from a few homes, so
// that runs are long, and wrap around the end.
func TestTableIsAMap(t *testing.T) {
	p := MustParse("1/1s").p
	rapid.Check(t, func(t *rapid.T) {
		tab := &table{shape: "g", algorithms: p.algorithms, stride: 4}
		const now = 100
		model := map[hash]int64{}
		anyHash := rapid.Custom(func(t *rapid.T) hash {
			home := rapid.SampledFrom([]uint64{0, 1, 1 << 62, 1 << 63, 1<<64 - 1<<59, 1<<64 - 1<<40}).Draw(t, "home")
			return hash{rapid.Uint64Range(0, 30).Draw(t, "hi") | 1, (home + rapid.Uint64Range(0, 3).Draw(t, "lo")) &^ limitedBit}
		})
		for range rapid.IntRange(1, 150).Draw(t, "operations") {
			h := anyHash.Draw(t, "hash")
			_, held := model[h]
			row := tab.find(h)
			require.Equal(t, held, row >= 0)
			switch n := rapid.IntRange(0, 9).Draw(t, "operation"); {
			case held && n < 5:
				tab.remove(row)
				delete(model, h)
			case held && n < 7:
				tab.setLimited(row, n == 5)
				require.Equal(t, n == 5, tab.limited(row))
			case n == 8:
				dead := 0
				for h, at := range model {
					if at <= now {
						delete(model, h)
						dead++
					}
				}
				require.Equal(t, dead, tab.sweep(now, 100))
			case !held:
				if (tab.live+1)*maxLoadDen > tab.rowCount()*maxLoadNum {
					for h, at := range model { // what is dead is not moved
						if at <= now {
							delete(model, h)
						}
					}
					before := tab.live
					require.Equal(t, before-len(model), tab.rebuild(now, 100))
				}
				at := rapid.Int64Range(now-1, now+3).Draw(t, "at")
				tab.insert(h, []int64{at, 0})
				model[h] = at
			}
			checkTable(t, tab, model)
		}
	})
}

// varying is an algorithm whose states are of many lengths: how many words follow, when
// it expires, and the words.
type varying struct {
	algo.Algorithm
	most int
}

func (v varying) Words() int              { return 2 + v.most }
func (v varying) Len(s []int64) int       { return 2 + int(s[0]) }
func (v varying) Expires(s []int64) int64 { return s[1] }

// checkSlots demands that each row has a slot of its own with the state it was given, that
// nothing else is held, and that what a burst took is given back.
func checkSlots(t require.TestingT, tab *table, want map[hash][]int64) {
	owners := map[int64]bool{}
	for i := range tab.rowCount() {
		if tab.empty(i) {
			require.Equal(t, make([]int64, tab.stride), tab.row(i), "an empty row is all zero")
			continue
		}
		slot := tab.stateOf(i)[0]
		require.False(t, owners[slot], "two rows share a slot")
		owners[slot] = true
	}
	require.Len(t, owners, len(want))
	require.Equal(t, len(want), tab.live)
	for _, slot := range tab.free {
		require.False(t, owners[slot], "a slot in use is free")
		require.Nil(t, tab.slots[slot], "what is free holds no memory")
		owners[slot] = true
	}
	require.Len(t, owners, len(tab.slots), "a slot is in use, or free")
	words := 0
	for _, a := range tab.algorithms {
		words += a.Words()
	}
	for h, state := range want {
		i := tab.find(h)
		require.GreaterOrEqual(t, i, 0, "%v", h)
		got := make([]int64, words)
		for i := range got {
			got[i] = -1 // what a decision before left there
		}
		tab.read(i, got)
		expires, rest, packed := int64(0), state, 0
		for _, a := range tab.algorithms {
			n := a.Len(rest)
			require.Equal(t, rest[:n], got[:n])
			expires, packed = max(expires, rest[1]), packed+n
			rest, got = rest[a.Words():], got[a.Words():]
		}
		require.Equal(t, expires, tab.expires(i))
		require.LessOrEqual(t, cap(tab.slots[tab.stateOf(i)[0]]), max(8, 4*packed), "a burst long ago")
	}
}

// Beside the rows, too: states of all lengths are found, replaced, moved and forgotten.
func TestTableSlots(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		algorithms := []algo.Algorithm{varying{most: 60}, varying{most: 3}, varying{most: 0}}[:rapid.IntRange(1, 3).Draw(t, "limits")]
		tab := &table{shape: "vvv", algorithms: algorithms, stride: 4, varies: true}
		const now = 100
		model := map[hash][]int64{}
		anyHash := rapid.Custom(func(t *rapid.T) hash {
			home := rapid.SampledFrom([]uint64{0, 1 << 62, 1 << 63, 1<<64 - 1<<40}).Draw(t, "home")
			return hash{rapid.Uint64Range(0, 20).Draw(t, "hi") | 1, (home + rapid.Uint64Range(0, 3).Draw(t, "lo")) &^ limitedBit}
		})
		anyState := rapid.Custom(func(t *rapid.T) (state []int64) {
			for _, a := range algorithms {
				own := make([]int64, a.Words())
				own[0], own[1] = rapid.Int64Range(0, int64(a.Words()-2)).Draw(t, "length"), rapid.Int64Range(now-2, now+3).Draw(t, "expires")
				for i := range own[2:] {
					own[2+i] = rapid.Int64Range(1, 1<<50).Draw(t, "word")
				}
				state = append(state, own...)
			}
			return state
		})
		expires := func(state []int64) (at int64) {
			for _, a := range algorithms {
				at, state = max(at, state[1]), state[a.Words():]
			}
			return at
		}
		bury := func() (dead int) {
			for h, state := range model {
				if expires(state) <= now {
					delete(model, h)
					dead++
				}
			}
			return dead
		}
		for range rapid.IntRange(1, 100).Draw(t, "operations") {
			h := anyHash.Draw(t, "hash")
			row := tab.find(h)
			require.Equal(t, model[h] != nil, row >= 0)
			switch n := rapid.IntRange(0, 9).Draw(t, "operation"); {
			case row >= 0 && n < 4:
				tab.remove(row)
				delete(model, h)
			case row >= 0 && n < 7:
				model[h] = anyState.Draw(t, "state")
				tab.write(row, model[h])
			case n == 8:
				require.Equal(t, bury(), tab.sweep(now, 100))
			case n == 9 && tab.live > 0:
				dead := 0
				for _, state := range model {
					if expires(state) <= now {
						dead++
					}
				}
				before := len(model)
				removed, best := tab.evict(now)
				if before <= evictionWindow { // not always all: a removal may move a row past the hand
					require.Equal(t, dead > 0, removed > 0)
				}
				for h := range model {
					if tab.find(h) < 0 {
						require.LessOrEqual(t, expires(model[h]), int64(now))
						delete(model, h)
					}
				}
				require.Equal(t, removed, before-len(model))
				if removed == 0 {
					tab.remove(best.row)
					for h := range model {
						if tab.find(h) < 0 {
							require.Equal(t, best.expires, expires(model[h]))
							delete(model, h)
						}
					}
				}
			case row < 0:
				if (tab.live+1)*maxLoadDen > tab.rowCount()*maxLoadNum {
					require.Equal(t, bury(), tab.rebuild(now, 100))
					require.Len(t, tab.slots, tab.live, "what is dead is not moved")
				}
				model[h] = anyState.Draw(t, "state")
				tab.insert(h, model[h])
			}
			checkSlots(t, tab, model)
		}
	})
}

// Slots are given back with the rows, and the long state of a burst when it is over.
func TestTableGivesSlotsBack(t *testing.T) {
	a := varying{most: 1000}
	tab := &table{shape: "v", algorithms: []algo.Algorithm{a}, stride: 4, varies: true}
	state := make([]int64, a.Words())
	h := func(i int) hash { return hash{uint64(i)<<40 | 1, uint64(i) * 0x9E3779B97F4A7C15 &^ limitedBit} }
	for i := range 1000 {
		if (tab.live+1)*maxLoadDen > tab.rowCount()*maxLoadNum {
			require.Zero(t, tab.rebuild(0, 1000))
		}
		state[0], state[1] = 100, int64(i+1)
		tab.insert(h(i), state)
	}
	held := func() (words int) {
		for _, s := range tab.slots {
			words += cap(s)
		}
		return words
	}
	assert.Greater(t, held(), 1000*100)
	for i := range 1000 {
		state[0], state[1] = 1, int64(i+1)
		tab.write(tab.find(h(i)), state)
	}
	assert.Less(t, held(), 1000*13, "the burst is over")
	assert.Equal(t, 500, tab.sweep(500, 1000))
	assert.Less(t, held(), 500*13)
	for i := range 500 { // what was given back is used again
		state[1] = 2000
		tab.insert(h(i), state)
	}
	assert.Len(t, tab.slots, 1000)
	assert.Empty(t, tab.free)
	assert.Equal(t, 1000, tab.sweep(2000, 1000))
	assert.Equal(t, minRows, tab.rowCount())
	assert.Empty(t, tab.slots, "and the slots themselves")
	assert.Empty(t, tab.free)
}

// Policies of one shape share a table, whichever of them came first and however long
// their states are.
func TestMemoryKeepsLogs(t *testing.T) {
	m := newMemory(t, 64) // one shard
	now := int64(1_800_000_000_000_000)
	take := func(policy, key string, cost int64) Result {
		res, err := m.Take(t.Context(), Take{Policy: MustParse(policy), Key: key, Cost: cost, Now: now})
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
	require.Len(t, m.shards[0].tables, 2, "one for each shape")
	log := &m.shards[0].tables[0]
	assert.Equal(t, "x", log.shape)
	assert.Len(t, log.slots, 2)
	lowered := take("large: 100/1h sliding-log", "k", 1)
	assert.False(t, lowered.Allowed(), "what was counted is kept under other numbers")
	now += 3600 * 1_000_000
	assert.Equal(t, int64(999), take("large: 1000/1h sliding-log", "k", 1).Remaining)
	for _, slot := range log.slots {
		assert.LessOrEqual(t, cap(slot), 16, "the log of a burst that is over is let go")
	}
	require.NoError(t, m.Reset(t.Context(), MustParse("large: 1/1h sliding-log"), "k"))
	assert.Equal(t, int64(1000), take("large: 1000/1h sliding-log", "k", 0).Remaining)
}

// A key of any algorithm lives as long as it counts, is swept then, and its memory is back.
func TestMemorySweepsEveryAlgorithm(t *testing.T) {
	for i, k := range algo.Kinds {
		t.Run(k.Word, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const keys = 2000
				m := newMemory(t, 0)
				p, err := NewPolicy("", Options{}, Limit{Algorithm: Algorithm(i), Rate: 5, Period: 5 * time.Second})
				require.NoError(t, err)
				for i := range keys {
					for range 3 {
						take(t, m, p, fmt.Sprint(i))
					}
				}
				require.Equal(t, keys, m.Len())
				res := take(t, m, p, "0")
				assert.Equal(t, int64(1), res.Remaining)
				for range 3 {
					advance(sweepEvery)
				}
				assert.Zero(t, m.Len())
				assert.False(t, m.sweeping.Load())
				for i := range m.shards {
					for _, tab := range m.shards[i].tables {
						assert.LessOrEqual(t, tab.rowCount(), minRows)
						assert.Empty(t, slices.Concat(tab.slots...), "what is left of a few rows is empty")
					}
				}
			})
		})
	}
}

func TestTableSizes(t *testing.T) {
	p := MustParse("1/1s").p
	for _, most := range []int{1, 2, 7, 64, 1000, 4096} {
		tab := &table{shape: "g", algorithms: p.algorithms, stride: 4}
		for i := range most {
			if (tab.live+1)*maxLoadDen > tab.rowCount()*maxLoadNum {
				require.Zero(t, tab.rebuild(0, most))
			}
			require.LessOrEqual(t, (tab.live+1)*maxLoadDen, tab.rowCount()*maxLoadNum, "room for one more")
			tab.insert(hash{uint64(i)<<40 | 1, uint64(i) * 0x9E3779B97F4A7C15 &^ limitedBit}, []int64{1, 0})
		}
		assert.LessOrEqual(t, tab.rowCount(), max(minRows, most*13/10+3), "most %d", most)
		assert.Zero(t, tab.sweep(0, most), "all are alive")
		assert.Equal(t, most, tab.sweep(1, most), "all are dead")
		assert.Equal(t, minRows, tab.rowCount(), "memory is given back")
	}
}

// Eviction takes what is dead first, then what was not at its limit, then what
// expires first.
func TestTableEvicts(t *testing.T) {
	a := MustParse("1/1s").p.algorithms
	for _, c := range []struct {
		name    string
		expires []int64
		limited []bool
		left    []int64
	}{
		{"all dead", []int64{5, 6, 10}, []bool{false, true, true}, nil},
		{"some dead", []int64{20, 10, 30, 9}, []bool{false, true, false, true}, []int64{20, 30}},
		{"the earliest", []int64{30, 20, 40}, make([]bool, 3), []int64{30, 40}},
		{"not at the limit", []int64{30, 20, 40, 50}, []bool{true, true, false, false}, []int64{20, 30, 50}},
		{"all at the limit", []int64{30, 20, 40}, []bool{true, true, true}, []int64{30, 40}},
		{"one", []int64{30}, []bool{true}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &shard{most: 10, keys: len(c.expires), tables: []table{{shape: "g", algorithms: a, stride: 4}}}
			tab := &s.tables[0]
			tab.rebuild(0, 10)
			for i, at := range c.expires {
				row := tab.insert(hash{uint64(i)*2 + 1, uint64(i) << 62}, []int64{at, 0})
				tab.setLimited(row, c.limited[i])
			}
			s.evict(10)
			assert.Equal(t, len(c.left), s.keys)
			var left []int64
			for i := range tab.rowCount() {
				if !tab.empty(i) {
					left = append(left, tab.stateOf(i)[0])
				}
			}
			slices.Sort(left)
			assert.Equal(t, c.left, left)
		})
	}
}

// A row lives as long as the last of its limits.
func TestTableExpires(t *testing.T) {
	p := MustParse("1/1s, 3/1s").p
	tab := &table{shape: p.shape, algorithms: p.algorithms, stride: 2 + p.words}
	tab.rebuild(0, 10)
	assert.Equal(t, int64(8), tab.expires(tab.insert(hash{1, 0}, []int64{5, 0, 7, 1})))
	assert.Equal(t, int64(5), tab.expires(tab.insert(hash{3, 0}, []int64{5, 0, 0, 0})))
}

// Hashes are seeded, and a key's two words do not follow from each other.
func TestHashesAreSeeded(t *testing.T) {
	p := MustParse("a: 1/1s").p
	seen := map[hash]string{}
	policies := []Policy{{p}, MustParse("b: 1/1s"), MustParse("a: 1/1s, 2/1h")}
	for i := range 10_000 {
		for _, q := range policies {
			h := hashOf(q.p, fmt.Sprint(i))
			seen[h] = q.Name()
			if h.hi&1 == 0 || h.lo&limitedBit != 0 {
				t.Fatal("a row that begins with 0 is empty, and the last bit of the second word is taken")
			}
		}
	}
	assert.Len(t, seen, 30_000)
	h := hashOf(p, "k")
	assert.NotEqual(t, h.hi>>1, h.lo>>1)
	assert.NotEqual(t, seeds[0], seeds[1])
	assert.Equal(t, h, hashOf(MustParse("a: 9/1m").p, "k"), "changed numbers keep the state")

	// Keys that another process would find crowded are spread here: an attacker
	// cannot know the seeds.
	m := newMemory(t, 1<<16)
	shards := map[*shard]int{}
	for i := range 10_000 {
		shards[m.shard(hashOf(p, fmt.Sprint(i)))]++
	}
	assert.Len(t, shards, len(m.shards))
	for _, n := range shards {
		assert.Less(t, n, 200, "about 39 are to be expected")
	}
}

func TestMemoryShards(t *testing.T) {
	for _, c := range []struct{ maxKeys, shards int }{
		{1, 1}, {64, 1}, {127, 1}, {128, 2}, {1000, 8}, {1_000_000, 256}, {0, 256}, {10_000_000, 4096}, {1 << 40, 1 << 16},
	} {
		m := newMemory(t, c.maxKeys)
		assert.Len(t, m.shards, c.shards, "%d keys", c.maxKeys)
		total := 0
		for i := range m.shards {
			total += m.shards[i].most
		}
		if c.maxKeys > 0 {
			assert.Equal(t, c.maxKeys, total, "no key more or less than asked for")
		} else {
			assert.Equal(t, DefaultMaxKeys, total)
		}
	}
	_, err := NewMemory(MemoryOptions{MaxKeys: -1})
	require.EqualError(t, err, "core: MaxKeys is -1; give a positive number, or 0 for 1000000")
}

// The timer exists while there are keys, and only then.
func TestMemorySweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t, 1000)
		p, long := MustParse("a: 1/1s"), MustParse("b: 1/25s")
		require.NoError(t, m.Reset(t.Context(), p, "k"))
		_, err := m.Take(t.Context(), Take{Policy: p, Key: "k"})
		require.NoError(t, err)
		assert.False(t, m.sweeping.Load(), "peeks store nothing")
		for i := range 100 {
			take(t, m, p, fmt.Sprint(i))
		}
		take(t, m, long, "k")
		assert.Equal(t, 101, m.Len())
		assert.True(t, m.sweeping.Load())
		advance(sweepEvery - 1)
		assert.Equal(t, 101, m.Len())
		advance(1)
		assert.Equal(t, 1, m.Len(), "the dead are swept")
		assert.True(t, m.sweeping.Load())
		assert.False(t, take(t, m, long, "k").Allowed(), "the living are not")
		advance(sweepEvery)
		assert.Equal(t, 1, m.Len())
		advance(sweepEvery)
		assert.Zero(t, m.Len())
		assert.False(t, m.sweeping.Load(), "no timer without keys")
		advance(time.Hour)
		assert.True(t, take(t, m, p, "0").Allowed())
		assert.True(t, m.sweeping.Load())
		advance(sweepEvery)
		assert.Zero(t, m.Len())
		assert.False(t, m.sweeping.Load())
	})
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
		m, p := newMemory(t, 0), MustParse("1/15s")
		before := heap()
		for i := range keys {
			take(t, m, p, fmt.Sprint(i))
		}
		require.Equal(t, keys, m.Len())
		full := heap()
		assert.Greater(t, full, before+keys*32)
		assert.Less(t, full, before+keys*32*2, "bytes of a key, with the air")
		advance(2 * sweepEvery)
		require.Zero(t, m.Len())
		assert.Less(t, heap(), before+1<<20)
		runtime.KeepAlive(m)
	})
}

// A store that nobody uses any more needs no Close: its timer does not hold it.
func TestMemoryIsCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unused := func() weak.Pointer[Memory] {
			m := newMemory(t, 1000)
			take(t, m, MustParse("1/1h"), "k")
			assert.True(t, m.sweeping.Load())
			return weak.Make(m)
		}()
		runtime.GC()
		assert.Nil(t, unused.Value())
		advance(sweepEvery) // the timer finds nothing
	})
}

// Forced times are no business of the system's clock: nothing is swept by it.
func TestMemoryDoesNotSweepForcedTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t, 64) // one shard
		p := MustParse("1/1h")
		for i := range 20 { // more than fit without a rebuild
			for _, want := range []bool{true, false} {
				res, err := m.Take(t.Context(), Take{Policy: p, Key: fmt.Sprint(i), Cost: 1, Now: 1_000_000}) // 1970
				require.NoError(t, err)
				require.Equal(t, want, res.Allowed())
			}
		}
		advance(time.Hour)
		assert.False(t, m.sweeping.Load())
		assert.Equal(t, 20, m.Len())
	})
}

// Small corrections of the system's clock do not reach the arithmetic.
func TestClockFollowsStepsOfASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock()
		assert.Equal(t, time.Now().UnixMicro(), c.now())
		advance(time.Minute + 5*time.Microsecond)
		assert.Equal(t, time.Now().UnixMicro(), c.now())
		for off, followed := range map[int64]bool{
			1: false, 999_999: false, 1_000_000: true, 3_600_000_000: true,
			-1: false, -999_999: false, -1_000_000: true, -3_600_000_000: true,
		} {
			c.offset.Store(off) // the system's clock stepped by -off
			c.adjust()
			if followed {
				assert.Zero(t, c.offset.Load(), "%d us", off)
			} else {
				assert.Equal(t, off, c.offset.Load(), "%d us", off)
			}
		}
		m := newMemory(t, 1000)
		take(t, m, MustParse("1/1h"), "k")
		m.clock.offset.Store(-5_000_000)
		advance(sweepEvery)
		assert.Zero(t, m.clock.offset.Load(), "a sweep looks at the clock")
	})
}

// Everything at once, on a store that is too small: for the race detector.
func TestMemoryUnderPressure(t *testing.T) {
	const maxKeys = 300
	m := newMemory(t, maxKeys)
	policies := []Policy{
		MustParse("a: 5/1ms"), MustParse("b: 5/1h, 9/1d"), MustParse("c: 1/1s"), MustParse("d: 50/1h sliding-log, 9/1ms sliding-log"),
		MustParse("e: 5/1h sliding-window, 9/1d fixed-window"), MustParse("f: 9/1ms sliding-log"),
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 3000 {
				p := policies[(i+g)%len(policies)]
				asked := Take{Policy: p, Key: fmt.Sprint(i * (g%3 + 1) % 1000), Cost: int64(i % 3)}
				res, err := m.Take(t.Context(), asked)
				assert.NoError(t, err)
				switch {
				case i%7 == 0 && res.Allowed():
					assert.NoError(t, m.Refund(t.Context(), asked, res, asked.Cost))
				case i%31 == 0:
					assert.NoError(t, m.Reset(t.Context(), p, asked.Key))
				case i%500 == 0:
					m.sweep()
				}
			}
		})
	}
	wg.Wait()
	assert.LessOrEqual(t, m.Len(), maxKeys)
	for i := range m.shards {
		s, keys := &m.shards[i], 0
		for j := range s.tables {
			tab, live := &s.tables[j], 0
			for row := range tab.rowCount() {
				if !tab.empty(row) {
					r := tab.row(row)
					require.Equal(t, row, tab.find(hash{uint64(r[0]), uint64(r[1]) &^ limitedBit}))
					live++
				}
			}
			require.Equal(t, live, tab.live)
			keys += live
		}
		require.Equal(t, keys, s.keys)
	}
}

// Policies that are built for callers who make up numbers are not kept forever.
func TestPolicyCacheIsBounded(t *testing.T) {
	var c policyCache
	for i := range int64(2 * maxCachedPolicies) {
		p, err := c.policy(Limit{Rate: i + 1, Period: time.Hour})
		require.NoError(t, err)
		require.Equal(t, i+1, p.Limits()[0].Rate)
		require.LessOrEqual(t, len(c.policies), maxCachedPolicies)
	}
	again, err := c.policy(Limit{Rate: 2 * maxCachedPolicies, Period: time.Hour})
	require.NoError(t, err)
	same, err := c.policy(Limit{Rate: 2 * maxCachedPolicies, Period: time.Hour})
	require.NoError(t, err)
	assert.Equal(t, again, same, "it is built once")
	kept := len(c.policies)
	_, err = c.policy(Limit{})
	require.Error(t, err)
	assert.Len(t, c.policies, kept, "a mistake is not kept")
}
