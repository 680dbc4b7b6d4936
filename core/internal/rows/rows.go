// Package rows keeps state by key in the memory of this process: integers for the
// algorithms, in a hash table that is bounded and sweeps itself, and the leases of permits.
//
// A decision is made between Lock and Unlock, by the caller, which knows what the integers mean:
// here they are copied, stored, and forgotten when they count for nothing any more.
package rows

import "sync/atomic"

// Map has a row of state for each key of each policy, built by [New]. It is safe for
// concurrent use.
//
// It is bounded. When it is full, a new key displaces one that is as if unused; if it finds
// none nearby, the one closest to that; and a key that is at its limit last. Keys are spread
// over independent shards by a seeded hash, and a shard may be full a little before the
// whole is. Dead rows are swept away shard by shard, and their memory is given back.
type Map struct {
	// arrays has the array of the first table of each shard, which most often is the only one: what finding a key
	// takes, in little room and apart from all that is written for each new key.
	arrays []atomic.Pointer[array]
	shards []shard
	clock  clock
	// sweeping is true while a sweep is due: only then is there a timer.
	sweeping atomic.Bool
}

// Shards of a few thousand keys keep every pause, to grow or to sweep, in the
// microseconds.
const (
	minShardKeys = 64
	maxShardKeys = 4096
)

// New builds a Map of at most maxKeys rows, which must be positive.
func New(maxKeys int) *Map {
	n := 1
	for n < 1<<16 && (n < 256 && maxKeys/(n*2) >= minShardKeys || maxKeys/n > maxShardKeys) {
		n *= 2
	}
	m := &Map{arrays: make([]atomic.Pointer[array], n), shards: make([]shard, n)}
	m.clock.begin()
	for i := range m.shards {
		m.shards[i].first.array = &m.arrays[i]
		m.shards[i].gate.Lock()
		m.shards[i].most = maxKeys / n
		if i < maxKeys%n {
			m.shards[i].most++
		}
	}
	return m
}

// Now returns the time by which rows live and die, in microseconds since the epoch: the
// system's, of which steps of less than a second are ignored.
func (m *Map) Now() int64 { return m.clock.now() }

// Len returns the number of rows, including dead ones that wait to be swept.
func (m *Map) Len() (rows int) {
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		rows += s.keys
		s.mu.Unlock()
	}
	return rows
}

// Displaced returns the number of rows that have given way to others while they were not dead; the keys of those in
// atLimit were at their limits.
func (m *Map) Displaced() (rows, atLimit uint64) {
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		rows += s.displaced
		atLimit += s.atLimit
		s.mu.Unlock()
	}
	return rows, atLimit
}

// Remove forgets a key.
func (m *Map) Remove(p *Policy, key string) {
	h := p.hash(key)
	s := &m.shards[m.shard(h)]
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.known(p)
	if t == nil {
		return
	}
	if i := t.array.Load().find(h.hi); i >= 0 {
		t.lock(i)
		t.remove(i)
		s.keys--
	}
}
