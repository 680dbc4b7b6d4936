package rows

import (
	"math/bits"
	"slices"
	"unique"

	"github.com/weir-go/weir/core/internal/algo"
)

// table is a hash table with open addressing of the keys of one shape. A row is
// the two words of the hash and the state; a row whose first word is 0 is empty.
//
// States whose length varies are kept beside the rows, each in a slot of its own. In
// place of the state the row has the slot and when the state expires.
type table struct {
	// What finding a key takes: a cache line together with the lock of the shard.
	shape   unique.Handle[string]
	rows    []int64
	size    int   // how many rows there are
	stride  int   // words of a row
	words   int32 // of a state, at most
	varies  bool
	inPlace bool // see the constant

	algorithms []algo.Algorithm // of any policy of that shape
	live       int              // how many rows are in use
	hand       int              // where eviction looks next
	slots      [][]int64
	free       []int64 // slots that are not in use
}

func newTable(p *Policy) table {
	t := table{shape: p.shape, algorithms: p.algorithms, words: int32(p.words), stride: 2 + p.words, varies: p.varies}
	if t.varies {
		t.stride = 2 + 2
	}
	t.inPlace = !t.varies && p.words <= inPlace
	return t
}

// unused makes state that of a key that was never seen.
func (t *table) unused(state []int64) {
	for _, a := range t.algorithms {
		state[0] = 0 // which is all that Len looks at
		clear(state[:a.Len(state)])
		state = state[a.Words():]
	}
}

// read copies a row's state.
func (t *table) read(i int, state []int64) {
	stored := t.stateOf(i)
	if !t.varies {
		copy(state, stored)
		return
	}
	stored = t.slots[stored[0]]
	for _, a := range t.algorithms {
		n := a.Len(stored)
		copy(state, stored[:n])
		stored, state = stored[n:], state[a.Words():]
	}
}

// write stores a row's state.
func (t *table) write(i int, state []int64) {
	stored := t.stateOf(i)
	if !t.varies {
		copy(stored, state)
		return
	}
	packed, expires := t.slots[stored[0]][:0], int64(0)
	for _, a := range t.algorithms {
		own := state[:a.Words()]
		packed, expires = append(packed, own[:a.Len(own)]...), max(expires, a.Expires(own))
		state = state[len(own):]
	}
	if cap(packed) > 4*len(packed) {
		packed = slices.Clone(packed) // a burst long ago
	}
	t.slots[stored[0]], stored[1] = packed, expires
}

// slot finds room for a state beside the rows.
func (t *table) slot() int64 {
	if n := len(t.free); n > 0 {
		slot := t.free[n-1]
		t.free = t.free[:n-1]
		return slot
	}
	t.slots = append(t.slots, nil)
	return int64(len(t.slots) - 1)
}

// A table is rebuilt when more than maxLoadNum/maxLoadDen of its rows are in use.
const (
	maxLoadNum = 6
	maxLoadDen = 7
	minRows    = 8
)

func (t *table) row(i int) []int64     { return t.rows[i*t.stride : (i+1)*t.stride] }
func (t *table) stateOf(i int) []int64 { return t.row(i)[2:] }
func (t *table) empty(i int) bool      { return t.rows[i*t.stride] == 0 }

// full reports whether one row more takes a rebuild.
func (t *table) full() bool { return (t.live+1)*maxLoadDen > t.size*maxLoadNum }

// limited reports whether the row's key was at its limit when last asked.
func (t *table) limited(i int) bool { return t.rows[i*t.stride+1]&limitedBit != 0 }

func (t *table) setLimited(i int, limited bool) {
	word := &t.rows[i*t.stride+1]
	*word &^= limitedBit
	if limited {
		*word |= limitedBit
	}
}

func (t *table) next(i int) int {
	if i++; i < t.size {
		return i
	}
	return 0
}

// home is where a hash would like to be: at an even row, because two rows of a GCRA are one cache line, and both can
// be looked at for the price of one.
func (t *table) home(lo uint64) int {
	hi, _ := bits.Mul64(lo&^limitedBit, uint64(t.size+1)/2)
	return int(hi) * 2
}

// find returns the row of a hash, or -1.
func (t *table) find(h hash) int {
	if t.size == 0 {
		return -1
	}
	for i := t.home(h.lo); ; i = t.next(i) {
		switch r := t.rows[i*t.stride:][:2]; {
		case uint64(r[0]) == h.hi && uint64(r[1])&^limitedBit == h.lo:
			return i
		case r[0] == 0:
			return -1
		}
	}
}

// vacant is the empty row for a hash; there must be one.
func (t *table) vacant(lo uint64) int {
	i := t.home(lo)
	for !t.empty(i) {
		i = t.next(i)
	}
	return i
}

// insert stores a new row; there must be room.
func (t *table) insert(h hash, state []int64) int {
	i := t.vacant(h.lo)
	r := t.row(i)
	r[0], r[1] = int64(h.hi), int64(h.lo)
	if t.varies {
		r[2] = t.slot()
	}
	t.write(i, state)
	t.live++
	return i
}

// remove empties a row and closes the gap, so that no search stops early.
func (t *table) remove(i int) {
	t.live--
	if t.varies {
		slot := t.stateOf(i)[0]
		t.slots[slot], t.free = nil, append(t.free, slot)
	}
	for j := t.next(i); !t.empty(j); j = t.next(j) {
		// The row at j may move to i unless its home lies behind i, cyclically.
		home := t.home(uint64(t.rows[j*t.stride+1]))
		if i <= j && (i < home && home <= j) || i > j && (i < home || home <= j) {
			continue
		}
		copy(t.row(i), t.row(j))
		i = j
	}
	clear(t.row(i))
}

// expires is the instant from which a row is as if unused.
func (t *table) expires(i int) (at int64) {
	s := t.stateOf(i)
	if t.varies {
		return s[1]
	}
	for _, a := range t.algorithms {
		at = max(at, a.Expires(s[:a.Words()]))
		s = s[a.Words():]
	}
	return at
}

// sweep removes dead rows and gives memory back where most of it is unused.
func (t *table) sweep(now int64, most int) (removed int) {
	for i := 0; i < t.size; {
		if !t.empty(i) && t.expires(i) <= now {
			t.remove(i)
			removed++
		} else {
			i++
		}
	}
	if t.size > minRows && t.live*4 < t.size {
		removed += t.rebuild(now, most)
	}
	return removed
}

// rebuild moves what is alive to a table of the right size, with room to grow by
// a half, but never for more than most keys.
func (t *table) rebuild(now int64, most int) (removed int) {
	old := *t
	alive := 0
	for i := range old.size {
		if !old.empty(i) && old.expires(i) > now {
			alive++
		}
	}
	t.live, t.hand = 0, 0
	t.size = max(minRows, min((alive+1)*3/2, most+1)*maxLoadDen/maxLoadNum+1)
	t.rows = make([]int64, t.size*t.stride)
	t.slots, t.free = nil, nil
	for i := range old.size {
		if old.empty(i) || old.expires(i) <= now {
			continue
		}
		r := old.row(i)
		j := t.vacant(uint64(r[1]))
		copy(t.row(j), r)
		if t.varies {
			t.slots = append(t.slots, old.slots[r[2]])
			t.stateOf(j)[0] = int64(len(t.slots) - 1)
		}
		t.live++
	}
	return old.live - t.live
}
