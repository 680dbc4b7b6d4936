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
	// arrays has the array of the first table of each shard, which most often is the only one: what finding a key takes,
	// in little room and apart from all that is written for each new key.
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

// Len returns how many rows there are, dead ones that wait to be swept included.
func (m *Map) Len() int {
	n := 0
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		n += s.keys
		s.mu.Unlock()
	}
	return n
}

// Row is one key's, or the place where it would be, between Lock and Unlock. The zero Row is
// ready for Lock, which fills it in place: to return a Row by value, and so to copy it, took
// a tenth of the time of a whole decision.
type Row struct {
	m      *Map
	shard  *shard
	table  *table  // if the lock of the shard is held, or was
	row    []int64 // nil if there is none
	hash   hash
	now    int64
	forced bool
	place  bool           // the state is worked on in the row itself
	shut   bool           // the lock of the shard is held
	locked bool           // the row is locked
	lent   bool           // State gave out the row itself
	was    [inPlace]int64 // what the row was before
}

// inPlace is the most words of a state that a decision works on in the row itself, and that are put back if it is not
// stored. Longer ones are decided on under the lock of the shard.
const inPlace = 4

// Lock finds the row of a key and keeps all others away from it. forced is the time at
// which that is done, in microseconds since the epoch, or 0 for the Map's own clock. Rows
// stored at a forced time are not swept by the clock unless others are stored at its own.
func (r *Row) Lock(m *Map, p *Policy, key string, forced int64) {
	r.m, r.hash, r.place = m, p.hash(key), p.inPlace
	i := m.shard(r.hash)
	r.shard = &m.shards[i]
	if a := m.arrays[i].Load(); a != nil && p.inPlace {
		if a.shape != p.shape {
			a = r.shard.array(p)
		}
		if a != nil {
			r.row = a.grab(r.hash, &r.shard.gate)
		}
	}
	if r.locked = r.row != nil; !r.locked {
		r.search(p)
	}
	if r.now, r.forced = forced, forced != 0; !r.forced { // not before: who comes second to a row must not come from the past
		r.now = m.clock.now()
	}
}

// search looks for the row under the lock of the shard, which it keeps unless the row can be locked by itself.
func (r *Row) search(p *Policy) {
	s := r.shard
	s.mu.Lock()
	r.table, r.shut = s.table(p), true
	a := r.table.array.Load()
	i := a.find(r.hash)
	if i < 0 {
		return
	}
	r.row = a.row(i)
	if p.inPlace {
		lock(r.row, &s.gate)
		s.mu.Unlock()
		r.locked, r.shut = true, false
	}
}

// Unlock ends the use of the row and of its state.
func (r *Row) Unlock() {
	r.putBack()
	if r.locked {
		unlock(r.row, r.hash.hi, &r.shard.gate)
	}
	if r.shut {
		r.shard.mu.Unlock()
	}
	r.row, r.locked, r.shut = nil, false, false
}

// Now returns the time at which the row was locked.
func (r *Row) Now() int64 { return r.now }

// Stored reports whether the key has a row.
func (r *Row) Stored() bool { return r.row != nil }

// State returns the key's state, that of an unused key if it has no row. It may be changed, and is the row's after
// Store; then State must be asked again. A second call, and Unlock, discard what was changed.
func (r *Row) State() []int64 {
	r.putBack()
	state := r.Own()
	if r.locked && r.place {
		for i, word := range state {
			r.was[i&(inPlace-1)] = word
		}
		r.lent = true
	}
	return state
}

// Own is State for who changes it only if Store follows: it cannot be put back.
func (r *Row) Own() []int64 {
	if r.locked && r.place {
		return r.row[2:]
	}
	state := r.state()
	if r.row != nil {
		r.table.read(r.row[2:], state)
	} else {
		r.table.unused(state)
	}
	return state
}

// putBack undoes what was changed in the row itself and not stored.
func (r *Row) putBack() {
	if r.lent {
		copy(r.row[2:], r.was[:])
		r.lent = false
	}
}

// state is where the copy is.
func (r *Row) state() []int64 { return r.shard.spare[:r.table.words] }

// Store keeps what State or Own returned. A key without a row gets one, if need be in place of
// another key's.
func (r *Row) Store() {
	switch {
	case r.row == nil:
		r.insert()
	case !r.place:
		r.table.write(r.row[2:], r.state())
	}
	r.lent = false
}

func (r *Row) insert() {
	i := r.shard.insert(r.table, r.hash, r.state(), r.now)
	r.row, r.locked = r.table.array.Load().row(i), true
	if !r.forced {
		r.m.sweepLater()
	}
}

// SetLimited notes whether the key is at its limit, which makes its row the last to be
// displaced. It does nothing for a key without a row.
func (r *Row) SetLimited(limited bool) {
	if r.row != nil {
		setLimited(r.row, limited)
	}
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
	if i := t.array.Load().find(h); i >= 0 {
		t.lock(i)
		t.remove(i)
		s.keys--
	}
}
