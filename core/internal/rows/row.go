package rows

import "sync/atomic"

// Row is the row of one key, or the place where it would be, between Lock and Unlock. The zero
// Row is ready for Lock, which fills it in place: to return a Row by value, and so to copy it,
// took a tenth of the time of a whole decision.
type Row struct {
	m      *Map
	shard  *shard
	table  *table // if the lock of the shard is held, or was
	array  *array // that has the row; nil if there is none
	i      int
	hash   uint64
	head   int64 // what the row is to begin with when it is unlocked
	now    int64
	forced bool
	place  bool           // the state is worked on in the row itself
	shut   bool           // the lock of the shard is held
	locked bool           // the row is locked
	lent   bool           // State gave out the row itself
	was    [inPlace]int64 // what the row was before
}

// inPlace is the largest size, in words, of a state that a decision works on in the row itself; what was there is put
// back if nothing is to be stored. For longer states a decision works on the shard's copy, under the shard's lock.
const inPlace = 4

// Lock finds the row of a key and keeps all others away from it. forced is the time at
// which that is done, in microseconds since the epoch, or 0 for the Map's own clock. Rows
// stored at a forced time are not swept by the clock unless others are stored at its own.
func (r *Row) Lock(m *Map, p *Policy, key string, forced int64) {
	h := p.hash(key)
	i := m.shard(h)
	r.m, r.hash, r.shard, r.place = m, h.hi, &m.shards[i], p.inPlace
	if r.place {
		if a := m.array(i, p); a != nil {
			if r.i, r.head, _ = a.grab(h.hi); r.i >= 0 {
				r.array, r.locked = a, true
			}
		}
	}
	if !r.locked {
		r.search(p)
	}
	// The clock is read when the row is locked: earlier, the second caller to lock it might have the earlier time.
	if r.now, r.forced = forced, forced != 0; !r.forced {
		r.now = m.clock.now()
	}
}

// search looks for the row under the lock of the shard, which it keeps unless the row is all that is needed.
func (r *Row) search(p *Policy) {
	s := r.shard
	s.mu.Lock()
	r.table, r.shut, r.head = s.table(p), true, int64(r.hash)
	a := r.table.array.Load()
	if r.i = a.find(r.hash); r.i < 0 {
		return
	}
	r.array = a
	if r.head = atomic.LoadInt64(a.head(r.i)); p.inPlace || p.gcra != nil { // others look for it without the lock of the shard
		r.head, r.locked = a.lock(r.i), true
	}
	if r.place {
		s.mu.Unlock()
		r.shut = false
	}
}

// Unlock ends the use of the row and of its state.
func (r *Row) Unlock() {
	r.putBack()
	if r.locked {
		r.array.unlock(r.i, r.head)
	}
	if r.shut {
		r.shard.mu.Unlock()
	}
	r.array, r.locked, r.shut = nil, false, false
}

// Now returns the time at which the row was locked.
func (r *Row) Now() int64 { return r.now }

// Stored reports whether the key has a row.
func (r *Row) Stored() bool { return r.array != nil }

// State returns the key's state, that of an unused key if it has no row. It may be changed, and is the row's after
// Store; then State must be asked again. A second call, and Unlock, discard what was changed.
func (r *Row) State() []int64 {
	r.putBack()
	if r.locked && r.place {
		state := r.array.stateOf(r.i)
		for i, word := range state {
			r.was[i&(inPlace-1)] = word
		}
		r.lent = true
		return state
	}
	state := r.state()
	if r.array != nil {
		r.table.read(r.i, state)
	} else {
		r.table.unused(state)
	}
	return state
}

// putBack undoes what was changed in the row itself and not stored.
func (r *Row) putBack() {
	if r.lent {
		copy(r.array.stateOf(r.i), r.was[:])
		r.lent = false
	}
}

// state returns the copy.
func (r *Row) state() []int64 { return r.shard.spare[:r.table.words] }

// Store keeps what State returned. A key without a row gets one, if need be in place of
// another key's.
func (r *Row) Store() {
	switch {
	case r.array == nil:
		r.insert()
	case !r.place:
		r.table.write(r.i, r.state())
	}
	r.lent = false
}

func (r *Row) insert() {
	r.i = r.shard.insert(r.table, r.hash, r.state(), r.now)
	r.array, r.locked = r.table.array.Load(), true
	if !r.forced {
		r.m.sweepLater()
	}
}

// SetLimited notes whether the key is at its limit, which makes its row the last to be
// displaced. It does nothing for a key without a row.
func (r *Row) SetLimited(limited bool) {
	if r.head &^= limitedBit; limited {
		r.head |= limitedBit
	}
	if r.array != nil && !r.locked {
		r.array.use(r.i, r.head)
	}
}
