package rows

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core/internal/algo"
)

// add charges units to a key under a policy of one GCRA, as a decision does, and returns the state before.
func add(m *Map, p *Policy, key string, units, forced int64) (before algo.Meter) {
	if row, locked := m.Meter(p, key, forced); locked {
		before = row.State()
		row.Store(algo.Meter{Empty: before.Empty + units, Parts: before.Parts})
		row.Limited(units%2 == 0).Unlock()
		return before
	}
	var row Row
	row.Lock(m, p, key, forced)
	defer row.Unlock()
	state := row.State()
	before = algo.Meter{Empty: state[0], Parts: state[1]}
	state[0] += units
	row.Store()
	row.SetLimited(units%2 == 0)
	return before
}

// A narrow row has room for every state of a policy whose parts fit, and a wide one for all.
func TestMetersFit(t *testing.T) {
	narrow := newTable(gcraPolicy(t, "a", 1<<partBits-1)).array.Load()
	wide := newTable(gcraPolicy(t, "a", 1<<partBits+1)).array.Load()
	assert.True(t, narrow.narrow())
	assert.False(t, wide.narrow())
	rapid.Check(t, func(t *rapid.T) {
		m := algo.Meter{Empty: rapid.Int64Range(0, 1<<53-1).Draw(t, "empty"), Parts: rapid.Int64Range(0, 1<<partBits-1).Draw(t, "parts")}
		narrow.setMeter(narrow.at(3), m)
		require.Equal(t, m, narrow.meter(narrow.at(3)))
		m.Parts = rapid.Int64Range(0, 1<<62).Draw(t, "more parts")
		wide.setMeter(wide.at(3), m)
		require.Equal(t, m, wide.meter(wide.at(3)))
	})
}

// A key without a row has no Meter; one with a row has the state that others see.
func TestMeter(t *testing.T) {
	m, p, other := New(1000), gcraPolicy(t, "a", 7), gcraPolicy(t, "a", 9)
	later := m.Now() + 1e9
	_, locked := m.Meter(p, "k", 0)
	assert.False(t, locked, "there are no rows at all")
	put(m, p, "k", 0, later, 3)
	_, locked = m.Meter(p, "l", 0)
	assert.False(t, locked)
	_, locked = m.Meter(gcraPolicy(t, "b", 7), "k", 0)
	assert.False(t, locked, "another name has other keys")

	before := m.Now()
	row, locked := m.Meter(other, "k", 0)
	require.True(t, locked, "other numbers have the same keys")
	assert.GreaterOrEqual(t, row.Now(), before)
	assert.GreaterOrEqual(t, m.Now(), row.Now())
	assert.Equal(t, algo.Meter{Empty: later, Parts: 3}, row.State())
	_, again := m.Meter(p, "k", 0)
	assert.False(t, again, "it is locked")
	row.Store(algo.Meter{Empty: later + 1, Parts: 6})
	row.Limited(true).Unlock()
	state, stored := get(m, p, "k")
	assert.True(t, stored)
	assert.Equal(t, []int64{later + 1, 6}, state)
	tab := m.shards[m.shard(p.hash("k"))].known(p)
	assert.True(t, tab.array.Load().limited(tab.find(p.hash("k").hi)))

	row, locked = m.Meter(p, "k", 5)
	require.True(t, locked)
	assert.Equal(t, int64(5), row.Now())
	row.Limited(false).Unlock()
	assert.False(t, tab.array.Load().limited(tab.find(p.hash("k").hi)))

	put(m, plainPolicy("first", 1), "k", 0, later)
	row, locked = m.Meter(p, "k", 0)
	require.True(t, locked, "beside other layouts, too")
	row.Unlock()
	m.Remove(p, "k")
	_, locked = m.Meter(p, "k", 0)
	assert.False(t, locked)
	for i := range m.shards {
		for tab := range m.shards[i].tables() {
			checkRows(t, tab)
		}
	}
}

// Numbers that need wide rows get them, and what was counted before stays.
func TestRowsWiden(t *testing.T) {
	m, small, large := New(64), gcraPolicy(t, "a", 3), gcraPolicy(t, "a", 4097)
	later := m.Now() + 1e9
	for i := range 50 {
		put(m, small, fmt.Sprint(i), 0, later+int64(i), int64(i%3))
	}
	_, locked := m.Meter(large, "7", 0)
	require.False(t, locked, "its states may not fit")
	state, stored := get(m, large, "7")
	assert.True(t, stored)
	assert.Equal(t, []int64{later + 7, 1}, state)
	put(m, large, "new", 0, later, 4096)
	for i := range 50 {
		for _, p := range []*Policy{small, large} {
			row, locked := m.Meter(p, fmt.Sprint(i), 0)
			require.True(t, locked)
			require.Equal(t, algo.Meter{Empty: later + int64(i), Parts: int64(i % 3)}, row.State())
			row.Unlock()
		}
	}
	state, _ = get(m, small, "new")
	assert.Equal(t, []int64{later, 4096}, state)
	checkRows(t, m.shards[0].known(small))
	assert.Equal(t, 51, m.Len())

	assert.Equal(t, 51, m.shards[0].sweep(later-1))
	assert.False(t, m.shards[0].array(small).narrow(), "a row has parts that need it")
	assert.Zero(t, m.shards[0].sweep(2*later))
	assert.True(t, m.shards[0].array(small).narrow(), "none is in use")
	put(m, large, "new", 0, later, 4096)
	state, _ = get(m, large, "new")
	assert.Equal(t, []int64{later, 4096}, state)
}

// Of what is charged to a few keys nothing is lost, while others come and go around them, and the rows become wide.
func TestNoChargeIsLost(t *testing.T) {
	const kept, each, callers = 3, 4000, 6
	m, small, large := New(127), gcraPolicy(t, "a", 3), gcraPolicy(t, "a", 4097)
	require.Len(t, m.shards, 1)
	far := m.Now() + 1e12
	for i := range kept {
		put(m, small, fmt.Sprint("kept ", i), 0, far, 2)
	}
	var wg sync.WaitGroup
	for g := range callers {
		wg.Go(func() {
			for i := range each {
				p := small
				if i > each/2 && g == 0 {
					p = large
				}
				add(m, p, fmt.Sprint("kept ", (g+i)%kept), 1, 0)
			}
		})
	}
	for g := range 2 {
		wg.Go(func() { churn(m, small, g) })
	}
	wg.Wait()
	sum := int64(0)
	for i := range kept {
		state, stored := get(m, large, fmt.Sprint("kept ", i))
		require.True(t, stored)
		assert.Equal(t, int64(2), state[1])
		sum += state[0] - far
	}
	assert.Equal(t, int64(callers*each), sum)
	checkRows(t, m.shards[0].known(small))
	assert.False(t, m.shards[0].known(small).array.Load().narrow())
}

// Many callers charge a few keys, in a Map that has room for fewer: for the race detector, and to see that no row is
// left locked.
func TestMetersUnderPressure(t *testing.T) {
	const maxKeys = 20
	m, p := New(maxKeys), gcraPolicy(t, "a", 3)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 3000 {
				key := fmt.Sprint(i * (g + 1) % 30)
				before := add(m, p, key, int64(i%3), 0)
				if i%50 == 0 || before.Empty > 1<<20 {
					m.Remove(p, key)
				}
			}
		})
	}
	wg.Wait()
	assert.LessOrEqual(t, m.Len(), maxKeys)
	checkRows(t, m.shards[0].known(p))
	assert.Equal(t, m.Len(), m.shards[0].known(p).live)
}

// However many decide at once on a key that is at its limit, and whoever has read the clock first: nothing that one has
// charged is given back by another.
func TestMetersOnlyFill(t *testing.T) {
	a, err := algo.Kinds[0].New(algo.Params{Rate: 1_000_000, Burst: 3, Period: 1_000_000})
	require.NoError(t, err)
	p := NewPolicy("a", "g", "g", []algo.Algorithm{a})
	m := New(1000)
	begun := m.Now()
	put(m, &p, "k", 0, begun, 0)
	admitted := make([]int64, 8)
	var wg sync.WaitGroup
	for g := range admitted {
		wg.Go(func() {
			for range 20_000 {
				row, locked := m.Meter(&p, "k", 0)
				if !locked {
					continue
				}
				var answer algo.Answer
				before := row.State()
				next, changed := p.gcra.Decide(&answer, before, row.Now(), 1, 0)
				if changed {
					row.Store(next)
				}
				row.Unlock()
				if !answer.Refused {
					admitted[g]++
				}
				if changed && next.Empty <= before.Empty {
					t.Errorf("from %d to %d", before.Empty, next.Empty)
					return
				}
			}
		})
	}
	wg.Wait()
	state, _ := get(m, &p, "k")
	all := int64(0)
	for _, n := range admitted {
		all += n
	}
	assert.Positive(t, all)
	assert.LessOrEqual(t, all, state[0]-begun, "each took a microsecond of what the meter is ahead of the beginning")
	assert.LessOrEqual(t, state[0], m.Now()+3)
}

// Nobody decides on a meter that a refund has emptied at a time before that: it would have room from before the refund.
func TestTimeOfAnEmptiedMeter(t *testing.T) {
	a, err := algo.Kinds[0].New(algo.Params{Rate: 10_000, Burst: 3, Period: 1_000_000})
	require.NoError(t, err)
	p := NewPolicy("a", "g", "g", []algo.Algorithm{a})
	m := New(1000)
	put(m, &p, "k", 0, m.Now(), 0)
	emptied := int64(0) // as the row is, for whoever has locked it
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for range 200_000 {
				row, locked := m.Meter(&p, "k", 0)
				if !locked {
					continue
				}
				var answer algo.Answer
				before, now := row.State(), row.Now()
				early := before.Empty == 0 && now < emptied
				next, changed := p.gcra.Decide(&answer, before, now, 1, 0)
				if changed {
					row.Store(next)
				}
				row.Unlock()
				if early {
					t.Error("it was emptied later")
					return
				}
				if answer.Refused {
					continue
				}
				var whole Row
				whole.Lock(m, &p, "k", 0)
				state := whole.State()
				p.gcra.Load(state, whole.Now())
				if p.gcra.Refund(state, whole.Now(), 1, algo.Receipt{At: now, Units: 1, Charged: answer.Charged, Made: p.gcra}) {
					if whole.Store(); state[0] == 0 {
						emptied = whole.Now()
					}
				}
				whole.Unlock()
			}
		})
	}
	wg.Wait()
}

func TestPrefetchChangesNothing(t *testing.T) {
	words := []int64{1, 2}
	prefetch(&words[1])
	assert.Equal(t, []int64{1, 2}, words)
}
