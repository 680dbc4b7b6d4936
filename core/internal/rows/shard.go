package rows

import "sync"

// shard is an independent part of a Map.
type shard struct {
	mu     sync.Mutex
	keys   int // in all tables
	most   int
	tables []table
	// spare is the state that a decision works on.
	spare []int64
	_     [40]byte // one cache line more, so that neighbours do not slow each other
}

// table returns the table of the policy's shape, which it makes if need be.
func (s *shard) table(p *Policy) *table {
	for i := range s.tables {
		if s.tables[i].shape == p.shape {
			return &s.tables[i]
		}
	}
	s.tables = append(s.tables, newTable(p))
	if p.words > len(s.spare) {
		s.spare = make([]int64, p.words)
	}
	return &s.tables[len(s.tables)-1]
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
	for i := range s.tables {
		s.keys -= s.tables[i].sweep(now, s.most)
	}
	return s.keys
}
