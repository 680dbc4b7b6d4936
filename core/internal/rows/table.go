package rows

import (
	"slices"
	"sync"
	"sync/atomic"
	"unique"

	"github.com/weir-go/weir/core/internal/algo"
)

// table is a hash table of the keys of one layout. All but finding a key takes the lock of the shard.
//
// States whose length varies are kept beside the rows, each in a slot of its own. In
// place of the state the row has the slot and when the state expires.
type table struct {
	array      *atomic.Pointer[array] // nil before begin
	next       atomic.Pointer[table]  // of another layout
	layout     unique.Handle[string]
	algorithms []algo.Algorithm // of any policy of that layout
	words      int32            // of a state, at most
	varies     bool
	meters     bool        // the states are those of one GCRA
	gate       *sync.Mutex // of the shard; see [array.lock]

	live   int // how many rows are in use
	hand   int // where eviction looks next
	slots  [][]int64
	free   []int64 // slots that are not in use
	frozen bool    // all rows are locked
}

// begin makes a table of one that has nothing but the place for its array.
func (t *table) begin(p *Policy, gate *sync.Mutex) {
	t.gate = gate
	t.layout, t.algorithms, t.words, t.varies, t.meters = p.layout, p.algorithms, int32(p.words), p.varies, p.gcra != nil
	stride := 1 + p.words
	switch {
	case p.varies:
		stride = 1 + 2
	case p.gcra != nil && !p.wide:
		stride = narrowStride
	}
	t.array.Store(newArray(minRows, stride, t.layout, gate)) // from now on others see it
}

// unused makes state that of a key that was never seen.
func (t *table) unused(state []int64) {
	for _, a := range t.algorithms {
		state[0] = 0 // which is all that Len looks at
		clear(state[:a.Len(state)])
		state = state[a.Words():]
	}
}

// read copies the state of a row.
func (t *table) read(i int, state []int64) {
	a := t.array.Load()
	stored := a.stateOf(i)
	switch {
	case t.meters:
		m := a.meter(a.at(i))
		state[0], state[1] = m.Empty, m.Parts
		return
	case !t.varies:
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

// write stores the state of a row.
func (t *table) write(i int, state []int64) {
	a := t.array.Load()
	stored := a.stateOf(i)
	switch {
	case t.meters:
		a.setMeter(a.at(i), algo.Meter{Empty: state[0], Parts: state[1]})
		return
	case !t.varies:
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

const minRows = 8

// maxLoad returns the part of an array's rows that may be in use. With more, too many keys are not in the cache line
// where the search for them begins; but rows longer than a line are never in one alone, and their air is dear.
func (a *array) maxLoad() (num, den int) {
	if a.stride > lineWords {
		return 6, 7
	}
	return 2, 3
}

// full reports whether there is no room for one row more.
func (t *table) full() bool {
	a := t.array.Load()
	num, den := a.maxLoad()
	return (t.live+1)*den > a.size*num
}

// roomy returns the number of rows that leave room to grow by a half, but never for more than most keys.
func (t *table) roomy(most int) int {
	num, den := t.array.Load().maxLoad()
	return max(minRows, min((t.live+1)*3/2, most+1)*den/num+1)
}

// insert stores a new row, which there must be room for, and leaves it locked.
func (t *table) insert(h uint64, state []int64) int {
	a := t.array.Load()
	i := a.vacant(h)
	if t.varies {
		a.stateOf(i)[0] = t.slot()
	}
	t.write(i, state)
	a.use(i, int64(h)|lockedBit)
	t.live++
	return i
}

// lock locks a row in use, if not all are. It returns what the row is to begin with when it is unlocked.
func (t *table) lock(i int) (head int64) {
	a := t.array.Load()
	if t.frozen {
		return atomic.LoadInt64(a.head(i)) &^ (lockedBit | awaitedBit)
	}
	return a.lock(i)
}

func (t *table) unlock(i int, head int64) { t.array.Load().unlock(i, head) }

// freeze locks all rows.
func (t *table) freeze() {
	a := t.array.Load()
	for i := range a.size {
		if !a.empty(i) {
			t.lock(i)
		}
	}
	t.frozen = true
}

func (t *table) thaw() {
	a := t.array.Load()
	for i := range a.size {
		if !a.empty(i) {
			t.unlock(i, atomic.LoadInt64(a.head(i))&^(lockedBit|awaitedBit))
		}
	}
	t.frozen = false
}

// remove empties a row, which is locked, and closes the gap, so that no search stops early.
func (t *table) remove(i int) {
	a := t.array.Load()
	t.live--
	if t.varies {
		slot := a.stateOf(i)[0]
		t.slots[slot], t.free = nil, append(t.free, slot)
	}
	for j := a.next(i); !a.empty(j); j = a.next(j) {
		// The row at j may move to i unless its home lies behind i, cyclically.
		home := a.home(a.hash(j))
		if i <= j && (i < home && home <= j) || i > j && (i < home || home <= j) {
			continue
		}
		head := t.lock(j)
		copy(a.stateOf(i), a.stateOf(j))
		if t.frozen {
			head |= lockedBit
		}
		a.use(i, head)
		i = j
	}
	a.clear(i)
}

// expires is the instant from which a row, which is locked, is as if unused.
func (t *table) expires(i int) (at int64) {
	rows := t.array.Load()
	s := rows.stateOf(i)
	switch {
	case t.meters:
		return rows.meter(rows.at(i)).Expires()
	case t.varies:
		return s[1]
	}
	for _, a := range t.algorithms {
		at = max(at, a.Expires(s[:a.Words()]))
		s = s[a.Words():]
	}
	return at
}

// makeRoom sees to it that the table is not full: it removes what is dead, and grows if that is not much. It allocates
// only to grow, so that keys which come and die allocate nothing.
func (t *table) makeRoom(now int64, most int) (removed int) {
	t.freeze()
	removed = t.bury(now)
	if size := t.roomy(most); size > t.array.Load().size {
		t.move(size, int(t.array.Load().stride))
	}
	t.thaw()
	return removed
}

// widen makes room in each row for a meter whose parts do not fit beside the instant.
func (t *table) widen() {
	t.freeze()
	t.move(t.array.Load().size, 1+int(t.words))
	t.thaw()
}

// sweep removes dead rows and gives memory back where most of it is unused.
func (t *table) sweep(now int64, most int) (removed int) {
	t.freeze()
	removed = t.bury(now)
	a := t.array.Load()
	stride := int(a.stride)
	if t.meters && t.live == 0 { // nobody needs wide rows any more
		stride = narrowStride
	}
	if a.size > minRows && t.live*4 < a.size || stride != int(a.stride) {
		t.move(t.roomy(most), stride)
	}
	t.thaw()
	return removed
}

// bury removes dead rows. All must be locked.
func (t *table) bury(now int64) (removed int) {
	a := t.array.Load()
	for i := 0; i < a.size; {
		if !a.empty(i) && t.expires(i) <= now {
			t.remove(i)
			removed++
		} else {
			i++
		}
	}
	return removed
}

// move moves all rows, which must be locked, and stay so, to a new array. Those in the old one stay locked for ever, so
// that a caller that has found one there looks again.
func (t *table) move(size, stride int) {
	from, slots := t.array.Load(), make([][]int64, 0, len(t.slots)-len(t.free))
	to := newArray(size, stride, t.layout, t.gate)
	for i := range from.size {
		if from.empty(i) {
			continue
		}
		j := to.vacant(from.hash(i))
		state := to.stateOf(j)
		if from.stride == to.stride {
			copy(state, from.stateOf(i))
		} else {
			to.setMeter(to.at(j), from.meter(from.at(i)))
		}
		if t.varies {
			slots = append(slots, t.slots[state[0]])
			state[0] = int64(len(slots) - 1)
		}
		to.use(j, atomic.LoadInt64(from.head(i)))
	}
	t.slots, t.free, t.hand = slots, nil, 0
	t.array.Store(to)
}
