package rows

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core/internal/algo"
)

// checkSlots demands that each row has a slot of its own with the state it was given, that
// nothing else is held, and that what a burst took is given back.
func checkSlots(t require.TestingT, tab *table, want map[uint64][]int64) {
	checkRows(t, tab)
	owners, rows := map[int64]bool{}, tab.array.Load()
	for i := range rows.size {
		if rows.empty(i) {
			continue
		}
		slot := rows.stateOf(i)[0]
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
		p := NewPolicy("a", "vvv", "vvv", algorithms)
		tab := newTable(&p)
		const now = 100
		model := map[uint64][]int64{}
		anyHash := rapid.Custom(func(t *rapid.T) uint64 {
			home := rapid.SampledFrom([]uint64{0, 1 << 62, 1 << 63, 1<<64 - 1<<40}).Draw(t, "home")
			return (home+rapid.Uint64Range(0, 31).Draw(t, "hash")*(flagBits+usedBit+1))&^flagBits | usedBit
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
				tab.take(row)
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
					tab.take(best.row)
					for h := range model {
						if tab.find(h) < 0 {
							require.Equal(t, best.expires, expires(model[h]))
							delete(model, h)
						}
					}
				}
			case row < 0:
				if tab.full() {
					require.Equal(t, bury(), tab.makeRoom(now, 100))
				}
				model[h] = anyState.Draw(t, "state")
				tab.put(h, model[h])
			}
			checkSlots(t, tab, model)
		}
	})
}

// Slots are given back with the rows, and the long state of a burst when it is over.
func TestTableGivesSlotsBack(t *testing.T) {
	a := varying{most: 1000}
	p := NewPolicy("a", "v", "v", []algo.Algorithm{a})
	tab := newTable(&p)
	state := make([]int64, a.Words())
	for i := range 1000 {
		if tab.full() {
			require.Zero(t, tab.makeRoom(0, 1000))
		}
		state[0], state[1] = 100, int64(i+1)
		tab.put(spread(i), state)
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
		tab.write(tab.find(spread(i)), state)
	}
	assert.Less(t, held(), 1000*13, "the burst is over")
	assert.Equal(t, 500, tab.sweep(500, 1000))
	assert.Less(t, held(), 500*13)
	for i := range 500 { // what was given back is used again
		if tab.full() {
			require.Zero(t, tab.makeRoom(0, 1000))
		}
		state[1] = 2000
		tab.put(spread(i), state)
	}
	assert.Len(t, tab.slots, 1000)
	assert.Empty(t, tab.free)
	assert.Equal(t, 1000, tab.sweep(2000, 1000))
	assert.Equal(t, minRows, tab.size())
	assert.Empty(t, tab.slots, "and the slots themselves")
	assert.Empty(t, tab.free)
}
