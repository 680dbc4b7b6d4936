package rows

import (
	"sync/atomic"

	"github.com/weir-go/weir/core/internal/algo"
)

// The state of a GCRA is a meter: an instant of at most 53 bits, and parts of a microsecond. Where the parts have 11
// bits at most, as under nearly every rate, both fit into one word, and so four rows into a cache line, and at a
// million keys it is the cache lines that take the time. A table begins with such narrow rows, and makes all of them
// wide when a policy comes that needs wide ones, until no row is in use. No instant is negative: a decision is made at
// a time since the epoch.

// partBits is the number of bits of the parts in a narrow row.
const partBits = 11

// narrow reports whether the rows are narrow, where states are meters.
func (a *array) narrow() bool { return a.stride == narrowStride }

// narrowStride is the number of words in a narrow row.
const narrowStride = 2

// meter returns the state of a row that begins at a word, where states are meters.
func (a *array) meter(at int) algo.Meter {
	if a.narrow() {
		word := a.words[at+1]
		return algo.Meter{Empty: int64(uint64(word) >> partBits), Parts: word & (1<<partBits - 1)}
	}
	return algo.Meter{Empty: a.words[at+1], Parts: a.words[at+2]}
}

// setMeter replaces the state of a row, which the caller has locked.
func (a *array) setMeter(at int, m algo.Meter) {
	if a.narrow() {
		a.words[at+1] = m.Empty<<partBits | m.Parts
	} else {
		a.words[at+1], a.words[at+2] = m.Empty, m.Parts
	}
}

// Meter is the row of a key under a policy of one GCRA and nothing else, locked by [Map.Meter] until Unlock. A decision
// on a [Row] works on the shard's copy of the state, under the shard's lock, or on the row itself, and then puts back
// what was there if nothing is to be stored. A Meter needs neither: it and its state fit into registers.
type Meter struct {
	array *array
	at    int
	head  int64 // what the row is to begin with when it is unlocked
	now   int64
}

// Meter locks the row of a key, if it has one and nobody else has it for long. If it is not locked, use [Row.Lock],
// which also stores new keys. forced is as there.
//
// The time is taken before the row is locked, while its cache line is on its way, which saves a sixth of a decision
// among a million keys. So of two callers who come at once the second to lock the row may have the earlier time. That
// admits nobody too early: a decision moves the instant of a meter forward, and to no less than its own time and what
// it charges. What moves it back is the correction of a state that lies beyond all that the rules allow, and what
// empties it, which leaves no instant, is a refund. In both cases the time is taken again, and so it is after a wait.
func (m *Map) Meter(p *Policy, key string, forced int64) (row Meter, locked bool) {
	h := p.hash(key)
	a := m.array(m.shard(h), p)
	if a == nil || a.narrow() && p.wide {
		return Meter{}, false
	}
	if a.size >= farRows {
		prefetch(a.head(a.home(h.hi)))
	}
	now := forced
	if now == 0 {
		now = m.clock.now()
	}
	i, head, waited := a.grab(h.hi)
	if i < 0 {
		return Meter{}, false
	}
	row = Meter{a, a.at(i), head, now}
	if state := row.State(); forced == 0 && (waited || state == (algo.Meter{}) || p.gcra.Beyond(state, now)) {
		row.now = m.clock.now()
	}
	return row, true
}

// farRows is the size from which a table is taken to be in memory, and not in a cache, so that its rows are prefetched.
// A prefetch of a row that is in the cache of another processor would only take it from there.
const farRows = 512

// Now returns the time of the decision.
func (r Meter) Now() int64 { return r.now }

// State returns the key's state.
func (r Meter) State() algo.Meter { return r.array.meter(r.at) }

// Store makes m the key's state.
func (r Meter) Store(m algo.Meter) { r.array.setMeter(r.at, m) }

// Limited returns a row that notes whether the key is at its limit, as [Row.SetLimited] does.
func (r Meter) Limited(limited bool) Meter {
	if r.head &^= limitedBit; limited {
		r.head |= limitedBit
	}
	return r
}

// Unlock ends the use of the row.
func (r Meter) Unlock() {
	if atomic.SwapInt64(&r.array.words[r.at], r.head)&awaitedBit != 0 {
		r.array.gate.Unlock()
	}
}
