package main

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// The prototypes do nothing but decide: GCRA in whole nanoseconds and one integer of state, no other algorithm, no
// second limit, no cost, no receipt, nothing that is ever forgotten. They are what the machine can do.

// gcra is the arithmetic of both.
type gcra struct {
	start       time.Time
	unit, burst int64 // in nanoseconds
}

func newGCRA(l limit) gcra {
	unit := int64(l.period) / l.units
	return gcra{time.Now(), unit, unit * l.units}
}

// answer is what a caller wants to know.
type answer struct {
	allowed                 bool
	remaining, reset, retry int64
}

// take decides on the instant at which the key is as if unused, and returns the next.
func (g *gcra) take(empty int64) (next int64, a answer) {
	now := int64(time.Since(g.start))
	next = max(empty, now) + g.unit
	if over := next - now - g.burst; over > 0 {
		return empty, answer{reset: empty - now, retry: over}
	}
	return next, answer{true, (g.burst - (next - now)) / g.unit, next - now, 0}
}

// casTable is a hash table with open addressing that has a hash in place of each key. It never grows, and nothing
// ever leaves it, which is why nobody has to be kept away.
type casTable struct {
	gcra
	seed maphash.Seed
	rows []casRow // a power of two
}

type casRow struct {
	hash  atomic.Uint64
	empty atomic.Int64
}

func newCAS(l limit, most int) taker {
	size := 2
	for size < 2*most {
		size *= 2
	}
	t := &casTable{newGCRA(l), maphash.MakeSeed(), make([]casRow, size)}
	return func(key string) bool { return t.take(key).allowed }
}

func (t *casTable) take(key string) answer {
	row := t.row(maphash.String(t.seed, key) | 1)
	for {
		old := row.empty.Load()
		next, a := t.gcra.take(old)
		if !a.allowed || row.empty.CompareAndSwap(old, next) {
			return a
		}
	}
}

func (t *casTable) row(h uint64) *casRow {
	for i := h >> 1; ; i++ {
		row := &t.rows[i&uint64(len(t.rows)-1)]
		switch row.hash.Load() {
		case h:
			return row
		case 0:
			if row.hash.CompareAndSwap(0, h) || row.hash.Load() == h {
				return row
			}
		}
	}
}

// shardedMap is a Go map in 256 parts.
type shardedMap struct {
	gcra
	seed   maphash.Seed
	shards [256]struct {
		mu    sync.Mutex
		empty map[string]int64
		_     [48]byte // a cache line for each
	}
}

func newShardedMap(l limit, _ int) taker {
	m := &shardedMap{gcra: newGCRA(l), seed: maphash.MakeSeed()}
	for i := range m.shards {
		m.shards[i].empty = map[string]int64{}
	}
	return func(key string) bool { return m.take(key).allowed }
}

func (m *shardedMap) take(key string) answer {
	s := &m.shards[maphash.String(m.seed, key)%uint64(len(m.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	next, a := m.gcra.take(s.empty[key])
	if a.allowed {
		s.empty[key] = next
	}
	return a
}
