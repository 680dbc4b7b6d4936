// Package ledger notes what is owed for keys, in bounded memory.
package ledger

import (
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// Ledger has the units that each key owes. It holds MaxKeys keys at most. If it is full, what further keys owe is not
// noted; no other key is affected. The zero Ledger is empty.
type Ledger struct {
	keys   atomic.Int64
	units  atomic.Int64 // of all keys
	full   atomic.Uint64
	shards [shards]shard
}

// MaxKeys is the largest number of keys that a Ledger holds.
const MaxKeys = 1 << 16

const shards = 16

type shard struct {
	mu      sync.Mutex
	entries map[Key]owed
}

// Key stands for a policy's name, the shape of its state, and a key.
type Key [2]uint64

// Seeds make it unpredictable which keys share a shard. Those of keys are not those of policies, so that a policy and a
// key whose texts are exchanged have another Key.
var (
	keySeeds    = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	policySeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
)

// KeyOf returns the Key of three texts.
func KeyOf(name, shape, key string) (k Key) {
	for i := range k {
		policy := maphash.String(policySeeds[i], name) + bits.RotateLeft64(maphash.String(policySeeds[i], shape), 32)
		k[i] = maphash.String(keySeeds[i], key)*(policy|1) + policy
	}
	return k
}

// owed is the units that one key owes.
type owed struct {
	units int64
	until int64 // when it weighs nothing any more, in Unix nanoseconds
}

// Empty reports whether no key owes anything: then nobody has to look any further.
func (l *Ledger) Empty() bool { return l.keys.Load() == 0 }

func (l *Ledger) shard(k Key) *shard { return &l.shards[k[0]>>8%shards] }

// Add notes units that weigh for the time given.
func (l *Ledger) Add(k Key, units int64, weighs time.Duration) {
	s, now := l.shard(k), time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	d, known := s.entries[k]
	if !known {
		if len(s.entries) >= MaxKeys/shards {
			l.sweep(s, now)
		}
		if len(s.entries) >= MaxKeys/shards {
			l.full.Add(1)
			return
		}
		if s.entries == nil {
			s.entries = map[Key]owed{}
		}
		l.keys.Add(1)
	}
	d.units += units
	l.units.Add(units)
	d.until = max(d.until, now.Add(weighs).UnixNano())
	s.entries[k] = d
}

// Sub takes units off what a key owes, and returns how many of them that were.
func (l *Ledger) Sub(k Key, units int64) (owed int64) {
	s := l.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	d, known := s.entries[k]
	switch {
	case !known:
	case d.units > units:
		owed = units
		d.units -= owed
		l.units.Add(-owed)
		s.entries[k] = d
	default:
		owed = d.units
		l.remove(s, k, d)
	}
	return owed
}

// Owed returns what a key owes, and leaves it there.
func (l *Ledger) Owed(k Key) int64 {
	if l.Empty() {
		return 0
	}
	s := l.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entries[k].units
}

// Collect returns what a key owes, and forgets it: each unit is collected once at most.
func (l *Ledger) Collect(k Key) (units int64) {
	s := l.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, known := s.entries[k]; known {
		l.remove(s, k, d)
		return d.units
	}
	l.sweep(s, time.Now())
	return 0
}

// sweep looks at a few keys, others each time, and forgets those whose units weigh nothing any more: so keys that
// nobody asks for again leave the ledger, too. The shard is locked.
func (l *Ledger) sweep(s *shard, now time.Time) {
	looks := 0
	for k, d := range s.entries { // in random order
		if d.until <= now.UnixNano() {
			l.remove(s, k, d)
		}
		if looks++; looks == 4 {
			return
		}
	}
}

// remove forgets a key that is there. The shard is locked.
func (l *Ledger) remove(s *shard, k Key, d owed) {
	delete(s.entries, k)
	l.keys.Add(-1)
	l.units.Add(-d.units)
}

// Stats are the numbers of a [Ledger].
type Stats struct {
	Keys  int    // that owe something, or have owed it
	Units int64  // that they owe
	Lost  uint64 // calls of Add so far that were not noted, because the Ledger was full
}

// Stats returns the numbers of now.
func (l *Ledger) Stats() Stats {
	return Stats{Keys: int(l.keys.Load()), Units: l.units.Load(), Lost: l.full.Load()}
}
