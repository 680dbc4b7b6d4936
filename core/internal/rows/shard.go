package rows

import (
	"iter"
	"sync"
	"sync/atomic"
)

// shard is an independent part of a Map, but for the array of its first table, which the Map has. Whole cache lines
// belong to it, so that neighbours do not slow each other, and the first of them is written only where tables come.
type shard struct {
	first table // of the layout that came first, which most often is the only one

	mu   sync.Mutex
	gate sync.Mutex // locked; see [array.lock]
	keys int        // in all tables
	most int
	// displaced counts the rows that gave way while they were not dead, and atLimit those of them whose keys were at
	// their limits.
	displaced, atLimit uint64
	// spare is the state that a decision works on which is not made in the row.
	spare []int64
	_     [48]byte
}

// known returns the table of the policy's layout, if there is one. It needs no lock.
func (s *shard) known(p *Policy) *table {
	t := &s.first
	if t.array.Load() == nil {
		return nil
	}
	for t != nil && t.layout != p.layout {
		t = t.next.Load()
	}
	return t
}

// array returns the array of the policy's layout in a shard, if there is one. It needs no lock.
func (m *Map) array(shard int, p *Policy) *array {
	a := m.arrays[shard].Load()
	if a != nil && a.layout != p.layout {
		a = m.shards[shard].array(p)
	}
	return a
}

// array is [Map.array] where the first table is of another layout.
func (s *shard) array(p *Policy) *array {
	if t := s.known(p); t != nil {
		return t.array.Load()
	}
	return nil
}

// table returns the table of the policy's layout, which it makes if need be, with rows that its states fit into.
func (s *shard) table(p *Policy) *table {
	if t := s.known(p); t != nil {
		if p.wide && t.array.Load().narrow() {
			t.widen()
		}
		return t
	}
	if p.words > len(s.spare) {
		s.spare = make([]int64, p.words)
	}
	last := &s.first
	if last.array.Load() == nil {
		last.begin(p, &s.gate)
		return last
	}
	for last.next.Load() != nil {
		last = last.next.Load()
	}
	t := &table{array: new(atomic.Pointer[array])}
	t.begin(p, &s.gate)
	last.next.Store(t)
	return t
}

// tables yields all tables.
func (s *shard) tables() iter.Seq[*table] {
	return func(yield func(*table) bool) {
		if s.first.array.Load() == nil {
			return
		}
		for t := &s.first; t != nil; t = t.next.Load() {
			if !yield(t) {
				return
			}
		}
	}
}

// insert makes room for a key if there is none, and stores it. Its row is locked.
func (s *shard) insert(t *table, h uint64, state []int64, now int64) (row int) {
	if s.keys >= s.most {
		s.evict(now)
	}
	if t.full() {
		s.keys -= t.makeRoom(now, s.most)
	}
	s.keys++
	return t.insert(h, state)
}

// sweep removes what is dead, and returns how many keys are left.
func (s *shard) sweep(now int64) (left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t := range s.tables() {
		s.keys -= t.sweep(now, s.most)
	}
	return s.keys
}
