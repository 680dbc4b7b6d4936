package main

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"testing"
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
	unit := int64(l.period) / int64(l.rate)
	return gcra{time.Now(), unit, unit * int64(l.rate)}
}

// take decides on the instant at which the key is as if unused, and returns the next.
func (g *gcra) take(empty int64) (next int64, v verdict) {
	now := int64(time.Since(g.start))
	next = max(empty, now) + g.unit
	if next-now > g.burst {
		return empty, verdict{reset: time.Duration(empty - now)}
	}
	return next, verdict{true, (g.burst - (next - now)) / g.unit, time.Duration(next - now)}
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

func casInProcess(_ testing.TB, l limit, _ time.Duration) decide {
	t := &casTable{newGCRA(l), maphash.MakeSeed(), make([]casRow, 1<<21)} // half of it for a million keys
	return func(_ context.Context, key string) (verdict, error) { return t.take(key), nil }
}

func (t *casTable) take(key string) verdict {
	row := t.row(maphash.String(t.seed, key) | 1)
	for {
		old := row.empty.Load()
		next, v := t.gcra.take(old)
		if !v.admitted || row.empty.CompareAndSwap(old, next) {
			return v
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

func shardedMapInProcess(_ testing.TB, l limit, _ time.Duration) decide {
	m := &shardedMap{gcra: newGCRA(l), seed: maphash.MakeSeed()}
	for i := range m.shards {
		m.shards[i].empty = map[string]int64{}
	}
	return func(_ context.Context, key string) (verdict, error) { return m.take(key), nil }
}

func (m *shardedMap) take(key string) verdict {
	s := &m.shards[maphash.String(m.seed, key)%uint64(len(m.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	next, v := m.gcra.take(s.empty[key])
	if v.admitted {
		s.empty[key] = next
	}
	return v
}
