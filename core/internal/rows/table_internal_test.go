package rows

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core/internal/algo"
)

// newTable is a table without a shard, for one goroutine.
func newTable(p *Policy) *table {
	t := &table{array: new(atomic.Pointer[array])}
	t.begin(p, new(sync.Mutex))
	t.gate.Lock()
	return t
}

func (t *table) size() int { return t.array.Load().size }

func (t *table) find(h uint64) int { return t.array.Load().find(h) }

func (t *table) stateOf(i int) []int64 { return t.array.Load().stateOf(i) }

// put inserts a row that nobody has locked.
func (t *table) put(h uint64, state []int64) int {
	i := t.insert(h, state)
	t.unlock(i, int64(h))
	return i
}

// mark notes whether the key of a row that nobody has locked is at its limit.
func (t *table) mark(i int, limited bool) {
	head := t.lock(i) &^ limitedBit
	if limited {
		head |= limitedBit
	}
	t.unlock(i, head)
}

// state is a copy of that of a row.
func (t *table) state(i int) []int64 {
	state := make([]int64, t.words)
	t.read(i, state)
	return state
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
			require.Equal(t, make([]int64, int(a.stride)), a.words[a.at(i):a.at(i+1)], "an empty row is all zero")
			continue
		}
		require.Zero(t, *a.head(i)&(lockedBit|awaitedBit))
		require.Equal(t, i, a.find(a.hash(i)))
		live++
	}
	require.Equal(t, live, tab.live)
}

// checkTable demands what every search relies on: each row can be found from its
// home without meeting an empty row.
func checkTable(t require.TestingT, tab *table, want map[uint64]int64) {
	checkRows(t, tab)
	require.Equal(t, len(want), tab.live)
	for h, state := range want {
		i := tab.find(h)
		require.GreaterOrEqual(t, i, 0, "%v", h)
		require.Equal(t, state, tab.state(i)[0])
	}
}

// newGCRA is a limit whose states have parts below so many.
func newGCRA(t require.TestingT, parts int64) algo.Algorithm {
	a, err := algo.Kinds[0].New(algo.Params{Rate: parts, Burst: 1 << 20, Period: 1 << 31}) // the period is a power of two,
	require.NoError(t, err)
	g, ok := a.(*algo.GCRA)
	require.True(t, ok)
	require.Equal(t, parts, g.Parts(), "and parts is odd")
	return a
}

// gcraPolicy has one GCRA whose states have parts below so many.
func gcraPolicy(t require.TestingT, name string, parts int64) *Policy {
	p := NewPolicy(name, "g", "g", []algo.Algorithm{newGCRA(t, parts)})
	return &p
}

// The table is a map, however keys crowd: its hashes are drawn from a few homes, so
// that runs are long, and wrap around the end.
func TestTableIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom([]*Policy{plainPolicy("a", 1), plainPolicy("a", 2), gcraPolicy(t, "a", 1), gcraPolicy(t, "a", 4097)}).Draw(t, "policy")
		tab := newTable(p)
		const now = 100
		model := map[uint64]int64{}
		anyHash := rapid.Custom(func(t *rapid.T) uint64 {
			home := rapid.SampledFrom([]uint64{0, 1, 1 << 62, 1 << 63, 1<<64 - 1<<59, 1<<64 - 1<<40}).Draw(t, "home")
			return (home+rapid.Uint64Range(0, 40).Draw(t, "hash")*(flagBits+usedBit+1))&^flagBits | usedBit
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
				tab.mark(row, n == 5)
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
				tab.put(h, []int64{at, 0, 0, 0}[:p.words])
				model[h] = at
			case p.gcra != nil && n == 9 && tab.array.Load().narrow():
				tab.widen()
			}
			checkTable(t, tab, model)
		}
	})
}

// spread is the hash of one of many keys.
func spread(i int) uint64 { return uint64(i+1)*0x9E3779B97F4A7C15&^flagBits | usedBit }

func TestTableSizes(t *testing.T) {
	for _, most := range []int{1, 2, 7, 64, 1000, 4096} {
		testTableSizes(t, most, plainPolicy("a", 1), most*3/2+5)
		testTableSizes(t, most, plainPolicy("a", 4), most*13/10+3) // longer than a cache line
	}
}

func testTableSizes(t *testing.T, most int, p *Policy, largest int) {
	t.Helper()
	tab := newTable(p)
	for i := range most {
		if tab.full() {
			require.Zero(t, tab.makeRoom(0, most))
		}
		require.False(t, tab.full(), "room for one more")
		tab.put(spread(i), []int64{1, 0, 0, 0, 0, 0, 0, 0}[:p.words])
	}
	assert.LessOrEqual(t, tab.size(), max(minRows, largest), "most %d", most)
	assert.Zero(t, tab.sweep(0, most), "all are alive")
	assert.Equal(t, most, tab.sweep(1, most), "all are dead")
	assert.Equal(t, minRows, tab.size(), "memory is given back")
}

// A row lives as long as the last of its limits.
func TestTableExpires(t *testing.T) {
	tab := newTable(plainPolicy("a", 2))
	assert.Equal(t, int64(8), tab.expires(tab.put(usedBit, []int64{5, 0, 8, 0})))
	assert.Equal(t, int64(5), tab.expires(tab.put(1<<4|usedBit, []int64{5, 0, 0, 0})))
}

// Rows are found with and without the lock of the shard, whether or not their keys are at their limits.
func TestTableGrabs(t *testing.T) {
	tab := newTable(plainPolicy("a", 1))
	first, second, none := uint64(1<<4|usedBit), uint64(2<<4|usedBit), uint64(3<<4|usedBit)
	tab.mark(tab.put(first, []int64{1, 0}), true)
	tab.put(second, []int64{2, 0})
	a := tab.array.Load()
	for at, h := range map[int64]uint64{1: first, 2: second} {
		i, head, _ := a.grab(h)
		require.Equal(t, a.find(h), i)
		assert.Equal(t, at, a.stateOf(i)[0])
		assert.Equal(t, at == 1, head&limitedBit != 0)
		again, _, _ := a.grab(h)
		assert.Equal(t, -1, again, "it is locked")
		a.unlock(i, head)
		assert.Equal(t, at == 1, a.limited(i))
	}
	assert.Equal(t, -1, a.find(none))
	i, _, _ := a.grab(none)
	assert.Equal(t, -1, i)
	checkRows(t, tab)
}

// Where whole rows fill cache lines, a search begins at one.
func TestTableHomes(t *testing.T) {
	for _, c := range []struct {
		policy *Policy
		apart  int
	}{
		{gcraPolicy(t, "a", 1), 4},
		{gcraPolicy(t, "a", 4097), 1},
		{plainPolicy("a", 1), 1},
		{plainPolicy("a", 3), 1},
	} {
		a := newTable(c.policy).array.Load()
		for i := range 1000 {
			home := a.home(spread(i))
			require.Zero(t, home%c.apart)
			require.Less(t, home, a.size)
		}
	}
}
