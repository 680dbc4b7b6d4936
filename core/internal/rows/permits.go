package rows

import (
	"hash/maphash"
	"sync"

	"github.com/weir-go/weir/core/internal/algo"
)

// Permits has the leases of each key of each policy and epoch. The zero value is ready for use, also
// concurrently. There are never more keys than permits that were acquired and not released;
// what was never released is forgotten when others come.
type Permits struct{ shards [16]permitShard }

type permitShard struct {
	mu   sync.Mutex
	keys map[permitKey]*algo.Leases
}

type permitKey struct {
	policy string
	epoch  int
	key    string
}

func (t *Permits) shard(k permitKey) *permitShard {
	return &t.shards[maphash.Comparable(policySeeds[0], k)%uint64(len(t.shards))]
}

// Held is the leases of one key, locked by [Permits.Lock] until Unlock.
type Held struct {
	*algo.Leases
	shard *permitShard
	key   permitKey
	known bool
	// Ended is a time, in microseconds since the epoch, or 0. Where the key is new, Unlock
	// forgets a few others whose leases have all ended by then.
	Ended int64
}

// Lock finds the leases of a key, of which there may be none yet.
func (t *Permits) Lock(policy string, epoch int, key string) Held {
	h := Held{key: permitKey{policy, epoch, key}}
	h.shard = t.shard(h.key)
	h.shard.mu.Lock()
	if h.Leases, h.known = h.shard.keys[h.key]; !h.known {
		h.Leases = new(algo.Leases)
	}
	return h
}

// Unlock ends the use of the leases, and forgets the key if there is nothing left to know
// of it.
func (h *Held) Unlock() {
	s := h.shard
	defer s.mu.Unlock()
	switch {
	case h.Empty():
		delete(s.keys, h.key)
	case !h.known:
		s.sweep(h.Ended)
		if s.keys == nil {
			s.keys = map[permitKey]*algo.Leases{}
		}
		s.keys[h.key] = h.Leases
	}
}

// sweep looks at a few keys, others each time, and forgets those whose leases have all
// ended: more of them than come.
func (s *permitShard) sweep(now int64) {
	looks := 0
	for k, l := range s.keys { // from anywhere
		if l.Ended(now) {
			delete(s.keys, k)
		}
		if looks++; looks == 4 {
			return
		}
	}
}
