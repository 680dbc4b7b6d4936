package rows

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/internal/algo"
)

// plain is an algorithm whose states are when they expire, and a word that says nothing.
type plain struct{ algo.Algorithm }

func (plain) Words() int              { return 2 }
func (plain) Len([]int64) int         { return 2 }
func (plain) Expires(s []int64) int64 { return s[0] }

// varying is an algorithm whose states are of many lengths: how many words follow, when
// it expires, and the words.
type varying struct {
	algo.Algorithm
	most int
}

func (v varying) Words() int              { return 2 + v.most }
func (v varying) Len(s []int64) int       { return 2 + int(s[0]) }
func (v varying) Expires(s []int64) int64 { return s[1] }

// plainPolicy has limits of plain alone.
func plainPolicy(name string, limits int) *Policy {
	p := NewPolicy(name, "pppp"[:limits], []algo.Algorithm{plain{}, plain{}, plain{}, plain{}}[:limits])
	return &p
}

// varyingPolicy has one limit, whose state has up to most words that follow.
func varyingPolicy(name string, most int) *Policy {
	p := NewPolicy(name, "v", []algo.Algorithm{varying{most: most}})
	return &p
}

// put stores a state of the key, by the Map's clock or a forced one.
func put(m *Map, p *Policy, key string, forced int64, state ...int64) {
	var row Row
	row.Lock(m, p, key, forced)
	defer row.Unlock()
	copy(row.State(), state)
	row.Store()
}

// get returns a copy of the key's state.
func get(m *Map, p *Policy, key string) (state []int64, stored bool) {
	var row Row
	row.Lock(m, p, key, 0)
	defer row.Unlock()
	return append(state, row.State()...), row.Stored()
}

// advance lets time pass in a bubble, and what it wakes finish.
func advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestMapShards(t *testing.T) {
	for _, c := range []struct{ maxKeys, shards int }{
		{1, 1}, {64, 1}, {127, 1}, {128, 2}, {1000, 8}, {1_000_000, 256}, {10_000_000, 4096}, {1 << 40, 1 << 16},
	} {
		m := New(c.maxKeys)
		assert.Len(t, m.shards, c.shards, "%d keys", c.maxKeys)
		total := 0
		for i := range m.shards {
			total += m.shards[i].most
		}
		assert.Equal(t, c.maxKeys, total, "no key more or less than asked for")
	}
}

// A row is what was stored last, whatever else was done to the copy.
func TestRow(t *testing.T) {
	m, p := New(1000), plainPolicy("a", 2)
	later := m.Now() + 1e9
	_, stored := get(m, p, "k")
	assert.False(t, stored)
	assert.Zero(t, m.Len(), "looking stores nothing")

	var row Row
	before := m.Now()
	row.Lock(m, p, "k", 0)
	assert.GreaterOrEqual(t, row.Now(), before)
	assert.GreaterOrEqual(t, m.Now(), row.Now())
	assert.Equal(t, make([]int64, 4), row.State())
	row.Remove()
	row.SetLimited(true)
	assert.False(t, row.Stored(), "nothing to remove or to mark")
	state := row.State()
	copy(state, []int64{later, 2, 3, 4})
	row.Store()
	assert.True(t, row.Stored())
	row.State()[1] = 7
	assert.Equal(t, []int64{later, 2, 3, 4}, row.State(), "what was not stored is discarded")
	row.State()[1] = 8
	row.Unlock()

	got, stored := get(m, p, "k")
	assert.True(t, stored)
	assert.Equal(t, []int64{later, 2, 3, 4}, got)
	assert.Equal(t, 1, m.Len())
	for _, other := range []*Policy{plainPolicy("b", 2), plainPolicy("a", 3), plainPolicy("a", 1)} {
		_, stored := get(m, other, "k")
		assert.False(t, stored, "another name or shape has other keys")
	}
	_, stored = get(m, plainPolicy("a", 2), "k")
	assert.True(t, stored, "the same name and shape has the same")

	row.Lock(m, p, "k", 5)
	assert.Equal(t, int64(5), row.Now())
	row.State()[2] = 9
	row.Store()
	assert.Equal(t, []int64{later, 2, 9, 4}, row.State())
	row.Remove()
	assert.False(t, row.Stored())
	assert.Equal(t, make([]int64, 4), row.State())
	row.Unlock()
	assert.Zero(t, m.Len())
}

// Policies of one shape share a table, whichever of them came first and however long
// their states are.
func TestShapesShareTables(t *testing.T) {
	m := New(64) // one shard
	later := m.Now() + 1e9
	small, large := varyingPolicy("small", 2), varyingPolicy("large", 2)
	for i := range int64(100) {
		put(m, small, "k", 0, 1, later, i)
		put(m, large, "k", 0, 2, later, i, i+1)
		put(m, plainPolicy("both", 2), "k", 0, later, i)
		got, _ := get(m, small, "k")
		require.Equal(t, []int64{1, later, i}, got[:3])
		got, _ = get(m, large, "k")
		require.Equal(t, []int64{2, later, i, i + 1}, got)
	}
	assert.Equal(t, 3, m.Len())
	tables := slices.Collect(m.shards[0].tables())
	require.Len(t, tables, 2, "one for each shape")
	assert.Equal(t, "v", tables[0].shape.Value())
	assert.Len(t, tables[0].slots, 2)
}

// Finding, reading and storing a row allocate nothing.
func TestRowDoesNotAllocate(t *testing.T) {
	m, p, v := New(1000), plainPolicy("a", 2), varyingPolicy("b", 8)
	later := m.Now() + 1e9
	for _, p := range []*Policy{p, v} {
		put(m, p, "k", 0, 1, later, later)
		assert.Zero(t, testing.AllocsPerRun(100, func() {
			var row Row
			row.Lock(m, p, "k", 0)
			row.State()[2]++
			row.Store()
			row.SetLimited(true)
			row.Unlock()
		}))
	}
}

// Everything at once, on a Map that is too small: for the race detector.
func TestMapUnderPressure(t *testing.T) {
	const maxKeys = 300
	m := New(maxKeys)
	policies := []*Policy{plainPolicy("a", 1), plainPolicy("b", 2), plainPolicy("c", 1), varyingPolicy("d", 40), varyingPolicy("e", 40)}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			var row Row
			for i := range 3000 {
				p := policies[(i+g)%len(policies)]
				row.Lock(m, p, fmt.Sprint(i*(g%3+1)%1000), 0)
				state, at := row.State(), row.Now()+int64(i%5)*1000
				switch {
				case i%31 == 0:
					row.Remove()
				case p.varies:
					state[0], state[1] = int64(i%40), at
					row.Store()
				default:
					state[0] = at
					row.Store()
				}
				row.SetLimited(i%3 == 0)
				row.Unlock()
				if i%500 == 0 {
					m.sweep()
				}
			}
		})
	}
	wg.Wait()
	assert.LessOrEqual(t, m.Len(), maxKeys)
	for i := range m.shards {
		s, keys := &m.shards[i], 0
		for tab := range s.tables() {
			live := 0
			for row := range tab.size {
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

// A decision on a row has a later time than the one before it, however many want the row at once.
func TestTimeOfARowDoesNotRunBack(t *testing.T) {
	m, p := New(1000), plainPolicy("a", 1)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var row Row
			for range 20_000 {
				row.Lock(m, p, "k", 0)
				state, now := row.State(), row.Now()
				last := state[1]
				state[0], state[1] = now+1e9, now
				row.Store()
				row.Unlock()
				if now < last {
					t.Errorf("time ran back by %d us", last-now)
					return
				}
			}
		})
	}
	wg.Wait()
}
