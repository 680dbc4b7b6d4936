package rows

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// newTable is a table without a shard, for one goroutine.
func newTable(p *Policy) *table {
	t := &table{array: new(atomic.Pointer[array])}
	t.begin(p, new(sync.Mutex))
	return t
}

func (t *table) size() int { return t.array.Load().size }

func (t *table) find(h hash) int { return t.array.Load().find(h) }

func (t *table) stateOf(i int) []int64 { return t.array.Load().stateOf(i) }

// put inserts a row that nobody has locked.
func (t *table) put(h hash, state []int64) int {
	i := t.insert(h, state)
	t.unlock(i)
	return i
}

// take removes a row that nobody has locked.
func (t *table) take(i int) {
	t.lock(i)
	t.remove(i)
}

// checkRows demands that each row in use is found, and nothing is left in the others, nor locked.
func checkRows(t require.TestingT, tab *table) {
	require.False(t, tab.frozen)
	a, live := tab.array.Load(), 0
	for i := range a.size {
		if a.empty(i) {
			require.Equal(t, make([]int64, a.stride), a.words[i*a.stride:][:a.stride], "an empty row is all zero")
			continue
		}
		require.Zero(t, *a.first(i)&lockedBit)
		require.Equal(t, i, a.find(a.hash(i)))
		live++
	}
	require.Equal(t, live, tab.live)
}

// checkTable demands what every search relies on: each row can be found from its
// home without meeting an empty row.
func checkTable(t require.TestingT, tab *table, want map[hash]int64) {
	checkRows(t, tab)
	require.Equal(t, len(want), tab.live)
	for h, state := range want {
		i := tab.find(h)
		require.GreaterOrEqual(t, i, 0, "%v", h)
		require.Equal(t, state, tab.stateOf(i)[0])
	}
}

// The table is a map, however keys crowd: its hashes are drawn from a few homes, so
// that runs are long, and wrap around the end.
func TestTableIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tab := newTable(plainPolicy("a", 1))
		const now = 100
		model := map[hash]int64{}
		anyHash := rapid.Custom(func(t *rapid.T) hash {
			home := rapid.SampledFrom([]uint64{0, 1, 1 << 62, 1 << 63, 1<<64 - 1<<59, 1<<64 - 1<<40}).Draw(t, "home")
			return hash{rapid.Uint64Range(0, 10).Draw(t, "hi")<<3 | usedBit, (home + rapid.Uint64Range(0, 3).Draw(t, "lo")) &^ limitedBit}
		})
		for range rapid.IntRange(1, 150).Draw(t, "operations") {
			h := anyHash.Draw(t, "hash")
			_, held := model[h]
			row := tab.find(h)
			require.Equal(t, held, row >= 0)
			switch n := rapid.IntRange(0, 9).Draw(t, "operation"); {
			case held && n < 5:
				tab.take(row)
				delete(model, h)
			case held && n < 7:
				setLimited(tab.array.Load().row(row), n == 5)
				require.Equal(t, n == 5, tab.array.Load().limited(row))
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
				if tab.full() {
					for h, at := range model { // what is dead is not moved
						if at <= now {
							delete(model, h)
						}
					}
					before := tab.live
					require.Equal(t, before-len(model), tab.makeRoom(now, 100))
				}
				at := rapid.Int64Range(now-1, now+3).Draw(t, "at")
				tab.put(h, []int64{at, 0})
				model[h] = at
			}
			checkTable(t, tab, model)
		}
	})
}

func TestTableSizes(t *testing.T) {
	for _, most := range []int{1, 2, 7, 64, 1000, 4096} {
		tab := newTable(plainPolicy("a", 1))
		for i := range most {
			if tab.full() {
				require.Zero(t, tab.makeRoom(0, most))
			}
			require.False(t, tab.full(), "room for one more")
			tab.put(hash{uint64(i)<<40 | usedBit, uint64(i) * 0x9E3779B97F4A7C15 &^ limitedBit}, []int64{1, 0})
		}
		assert.LessOrEqual(t, tab.size(), max(minRows, most*13/10+3), "most %d", most)
		assert.Zero(t, tab.sweep(0, most), "all are alive")
		assert.Equal(t, most, tab.sweep(1, most), "all are dead")
		assert.Equal(t, minRows, tab.size(), "memory is given back")
	}
}

// A row lives as long as the last of its limits.
func TestTableExpires(t *testing.T) {
	tab := newTable(plainPolicy("a", 2))
	assert.Equal(t, int64(8), tab.expires(tab.put(hash{1, 0}, []int64{5, 0, 8, 0})))
	assert.Equal(t, int64(5), tab.expires(tab.put(hash{9, 0}, []int64{5, 0, 0, 0})))
}

// Keys whose hashes begin alike are told apart by the second word, with and without the lock of the shard.
func TestTableTellsHalvesApart(t *testing.T) {
	tab := newTable(plainPolicy("a", 1))
	first, second, none := hash{9, 0}, hash{9, 2}, hash{9, 4}
	tab.put(first, []int64{1, 0})
	tab.put(second, []int64{2, 0})
	a := tab.array.Load()
	for at, h := range map[int64]hash{1: first, 2: second} {
		assert.Equal(t, at, a.stateOf(a.find(h))[0])
		row := a.grab(h, tab.gate)
		require.NotNil(t, row)
		assert.Equal(t, at, row[2])
		assert.Nil(t, a.grab(h, tab.gate), "it is locked")
		unlock(row, h.hi, tab.gate)
	}
	assert.Equal(t, -1, a.find(none))
	assert.Nil(t, a.grab(none, tab.gate))
	checkRows(t, tab)
}
