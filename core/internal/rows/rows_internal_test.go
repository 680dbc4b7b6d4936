package rows

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/internal/algo"
)

// plain is an algorithm whose states have two words: the time at which they expire, and one that says nothing.
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
	p := NewPolicy(name, "pppp"[:limits], "pppp"[:limits], []algo.Algorithm{plain{}, plain{}, plain{}, plain{}}[:limits])
	return &p
}

// varyingPolicy has one limit, whose state has up to most words that follow.
func varyingPolicy(name string, most int) *Policy {
	p := NewPolicy(name, "v", "v", []algo.Algorithm{varying{most: most}})
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

// churn lets other keys than a test's own come, die, be removed and be swept away. Each caller has keys of its own.
func churn(m *Map, p *Policy, caller int) {
	far := m.Now() + 1e12
	for i := range 4000 {
		key := fmt.Sprint("other ", i%(4<<(i/1000)), caller) // more and more of them
		switch {
		case i%3 == 0:
			m.Remove(p, key)
		case i%7 == 0:
			put(m, p, key, 0, far)
		default:
			put(m, p, key, 0, m.Now()+int64(i%50))
		}
		if i%200 == 0 {
			m.sweep()
		}
	}
}

// advance lets time pass in a bubble, and what it wakes finish.
func advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestMapShards(t *testing.T) {
	for _, c := range []struct{ maxKeys, shards int }{
		{1, 1}, {64, 1}, {127, 1}, {128, 2}, {1000, 8}, {1_000_000, 256}, {10_000_000, 4096}, {1 << 30, 1 << 16},
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

// A row holds the state that was stored last, whatever else was done to the copy.
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
	row.SetLimited(true)
	assert.False(t, row.Stored(), "nothing to mark")
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
	row.Unlock()
	m.Remove(plainPolicy("b", 2), "k")
	m.Remove(plainPolicy("a", 1), "k")
	m.Remove(p, "l")
	assert.Equal(t, 1, m.Len(), "nothing to remove")
	m.Remove(p, "k")
	assert.Zero(t, m.Len())
	got, stored = get(m, p, "k")
	assert.False(t, stored)
	assert.Equal(t, make([]int64, 4), got)
}

// Policies of one layout share a table, whichever of them came first and however long
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
	require.Len(t, tables, 2, "one for each layout")
	assert.Equal(t, "v", tables[0].layout.Value())
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
				p, key := policies[(i+g)%len(policies)], fmt.Sprint(i*(g%3+1)%1000)
				row.Lock(m, p, key, 0)
				state, at := row.State(), row.Now()+int64(i%5)*1000
				switch {
				case p.varies:
					state[0], state[1] = int64(i%40), at
					row.Store()
				default:
					state[0] = at
					row.Store()
				}
				row.SetLimited(i%3 == 0)
				row.Unlock()
				if i%31 == 0 {
					m.Remove(p, key)
				}
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
			checkRows(t, tab)
			keys += tab.live
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

// Nothing that was stored is lost, and nothing is stored with another key, while rows beside it come, die, move and
// go, and the table grows and shrinks.
func TestNothingIsLostWhileRowsMove(t *testing.T) {
	const kept, each = 3, 4000
	m, p, two := New(127), plainPolicy("a", 1), plainPolicy("b", 2) // one shard, which is never full
	require.Len(t, m.shards, 1)
	far := m.Now() + 1e12
	add := func(p *Policy, key string) {
		var row Row
		row.Lock(m, p, key, 0)
		defer row.Unlock()
		state := row.State()
		state[0], state[1] = far, state[1]+1
		row.Store()
		row.SetLimited(state[1]%2 == 0)
		row.State()[1] = -1 // which is not stored
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range each {
				add(p, fmt.Sprint("kept ", (g+i)%kept))
				add(two, "kept")
			}
		})
		wg.Go(func() { churn(m, p, g) })
	}
	wg.Wait()
	sum := int64(0)
	for i := range kept {
		state, stored := get(m, p, fmt.Sprint("kept ", i))
		require.True(t, stored)
		assert.Equal(t, far, state[0])
		sum += state[1]
	}
	assert.Equal(t, int64(4*each), sum)
	state, _ := get(m, two, "kept")
	assert.Equal(t, []int64{far, 4 * each, 0, 0}, state)
	for tab := range m.shards[0].tables() {
		checkRows(t, tab)
	}
}

// A caller that wants a row which another one has waits for it, also if that takes long; others do not.
func TestRowsWaitForEachOther(t *testing.T) {
	m, p := New(127), plainPolicy("a", 1)
	far := m.Now() + 1e12
	put(m, p, "k", 0, far)
	put(m, p, "other", 0, far)
	var row Row
	row.Lock(m, p, "k", 0)
	got, stored := get(m, p, "other")
	assert.True(t, stored)
	assert.Equal(t, []int64{far, 0}, got)
	begun, done := make(chan struct{}), make(chan int64)
	go func() {
		close(begun)
		state, _ := get(m, p, "k")
		done <- state[1]
	}()
	<-begun
	for range 1000 {
		runtime.Gosched()
	}
	row.State()[1] = 7
	row.Store()
	row.Unlock()
	assert.Equal(t, int64(7), <-done)
}

// Keys that come and die, as under limits that recover fast, take no memory anew.
func TestRowsThatComeAndDieDoNotAllocate(t *testing.T) {
	m, p := New(1000), plainPolicy("a", 1)
	now, next := int64(1_000_000), 0
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprint(i)
	}
	come := func() {
		for range 3000 { // of which a hundred are alive
			var row Row
			row.Lock(m, p, keys[next%len(keys)], now)
			row.State()[0] = now + 100
			row.Store()
			row.Unlock()
			next, now = next+1, now+1
		}
	}
	assert.Less(t, testing.AllocsPerRun(1, come), 50.0, "but where more crowd in a shard than ever before")
}
