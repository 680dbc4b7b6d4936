package rows

import (
	"iter"
	"sync"
)

// shard is an independent part of a Map. Its first cache line has all that finding a key takes: the lock, and where
// the rows of the first shape are. Whole lines belong to it, so that neighbours do not slow each other.
type shard struct {
	mu    sync.Mutex
	first table    // of the shape that came first, which most often is the only one
	more  []*table // of other shapes

	keys int // in all tables
	most int
	// spare is the state that a decision works on: few, unless a shape has longer ones.
	spare []int64
	few   [4]int64
	_     [8]byte
}

// table returns the table of the policy's shape, which it makes if need be.
func (s *shard) table(p *Policy) *table {
	if s.first.shape == p.shape {
		return &s.first
	}
	return s.other(p)
}

func (s *shard) other(p *Policy) *table {
	for _, t := range s.more {
		if t.shape == p.shape {
			return t
		}
	}
	if s.spare == nil {
		s.spare = s.few[:]
	}
	if p.words > len(s.spare) {
		s.spare = make([]int64, p.words)
	}
	if s.first.stride == 0 {
		s.first = newTable(p)
		return &s.first
	}
	t := newTable(p)
	s.more = append(s.more, &t)
	return &t
}

// tables yields all tables.
func (s *shard) tables() iter.Seq[*table] {
	return func(yield func(*table) bool) {
		if s.first.stride == 0 || !yield(&s.first) {
			return
		}
		for _, t := range s.more {
			if !yield(t) {
				return
			}
		}
	}
}

// insert makes room for a key if there is none, and stores it.
func (s *shard) insert(t *table, h hash, state []int64, now int64) (row int) {
	if s.keys >= s.most {
		s.evict(now)
	}
	if t.full() {
		s.keys -= t.rebuild(now, s.most)
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
