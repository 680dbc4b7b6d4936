package enforce

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/core"
)

// ledger has the units that the fallback has admitted while the store failed, and that the store has not been charged
// for. They are handed back once the store has answered for their key again: charged there, as far as they still weigh
// and there is room. It holds keysOwing keys at most. If it is full, what is admitted for further keys is not handed
// back; no other key is affected.
type ledger struct {
	keys   atomic.Int64 // how many there are: while there are none, nobody looks any further
	shards [ledgerShards]ledgerShard
}

const (
	keysOwing    = 1 << 16
	ledgerShards = 16
)

type ledgerShard struct {
	mu      sync.Mutex
	entries map[ledgerKey]due
}

// ledgerKey stands for a policy's name and shape, and a key.
type ledgerKey [2]uint64

// Seeds make it unpredictable which keys share a shard, and that any two keys stand for one debt.
var ledgerSeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func ledgerKeyOf(p core.Policy, key string) (k ledgerKey) {
	for i, seed := range ledgerSeeds {
		var h maphash.Hash
		h.SetSeed(seed)
		h.WriteString(p.Name())
		h.WriteByte(':')
		h.WriteString(shape(p))
		h.WriteByte(':')
		h.WriteString(key)
		k[i] = h.Sum64()
	}
	return k
}

// due is what one key owes the store.
type due struct {
	units int64
	until int64 // when it weighs nothing any more, in Unix nanoseconds
}

func (l *ledger) shard(k ledgerKey) *ledgerShard { return &l.shards[k[0]>>8%ledgerShards] }

// add notes units that weigh for the time given.
func (l *ledger) add(k ledgerKey, units int64, weighs time.Duration) {
	s, now := l.shard(k), time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	d, known := s.entries[k]
	if !known {
		if len(s.entries) >= keysOwing/ledgerShards {
			l.sweep(s, now)
		}
		if len(s.entries) >= keysOwing/ledgerShards {
			return
		}
		if s.entries == nil {
			s.entries = map[ledgerKey]due{}
		}
		l.keys.Add(1)
	}
	d.units += units
	d.until = max(d.until, now.Add(weighs).UnixNano())
	s.entries[k] = d
}

// sub notes that units were given back to the fallback.
func (l *ledger) sub(k ledgerKey, units int64) {
	s := l.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	d, known := s.entries[k]
	switch {
	case !known:
	case d.units > units:
		d.units -= units
		s.entries[k] = d
	default:
		l.remove(s, k)
	}
}

// take returns what a key owes, and forgets it: so it is handed back once at most.
func (l *ledger) take(k ledgerKey) (units int64) {
	s := l.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, known := s.entries[k]; known {
		l.remove(s, k)
		return d.units
	}
	l.sweep(s, time.Now())
	return 0
}

// sweep looks at a few keys, others each time, and forgets those whose units weigh nothing any more: so keys that
// nobody asks for again leave the ledger, too. The shard is locked.
func (l *ledger) sweep(s *ledgerShard, now time.Time) {
	looks := 0
	for k, d := range s.entries { // in random order
		if d.until <= now.UnixNano() {
			l.remove(s, k)
		}
		if looks++; looks == 4 {
			return
		}
	}
}

// remove forgets a key that is there. The shard is locked.
func (l *ledger) remove(s *ledgerShard, k ledgerKey) {
	delete(s.entries, k)
	l.keys.Add(-1)
}
