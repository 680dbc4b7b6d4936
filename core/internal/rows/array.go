package rows

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"unique"
)

// array is the rows of a table: open addressing, and as many rows as it was made with. A row is the two words of its
// key's hash and the state; one whose first word is 0 is empty.
//
// A key that has a row is found without the lock of the shard. A caller that decides locks the row itself, by a bit
// of its first word, and so has the state for itself: of those who decide at the same time only the ones that want
// the same key write to the same cache lines. Rows come, move and go under the lock of the shard, and only when
// they are locked themselves. A caller that searches meanwhile may miss a row, and then looks again under
// the lock of the shard, but never takes one key's for another's.
type array struct {
	words  []int64
	size   int    // how many rows there are
	stride int    // words of a row
	homes  uint64 // how many of them are homes
	shape  unique.Handle[string]
}

// The bits of a row that are not its hash's.
const (
	usedBit    = 1 // of the first word, and always set
	lockedBit  = 2 // of the first word
	awaitedBit = 4 // of the first word, while it is locked
	limitedBit = 1 // of the second word
)

func newArray(size, stride int, shape unique.Handle[string]) *array {
	return &array{make([]int64, size*stride), size, stride, uint64(size+1) / 2, shape}
}

// first and second are the words of the hash, which others may look at, and change in the bits above: first without
// any lock, second while the row is locked.
func (a *array) first(i int) *int64  { return &a.words[i*a.stride] }
func (a *array) second(i int) *int64 { return &a.words[i*a.stride+1] }

// row is all of a row, and stateOf its state, for who has locked it.
func (a *array) row(i int) []int64     { return a.words[i*a.stride : (i+1)*a.stride] }
func (a *array) stateOf(i int) []int64 { return a.row(i)[2:] }

func (a *array) empty(i int) bool { return atomic.LoadInt64(a.first(i)) == 0 }

// hash is that of a row in use.
func (a *array) hash(i int) hash {
	return hash{uint64(atomic.LoadInt64(a.first(i)) &^ (lockedBit | awaitedBit)), uint64(atomic.LoadInt64(a.second(i)) &^ limitedBit)}
}

// limited reports whether the row's key was at its limit when last asked.
func (a *array) limited(i int) bool { return atomic.LoadInt64(a.second(i))&limitedBit != 0 }

// setLimited is for who has locked the row.
func setLimited(row []int64, limited bool) {
	was := atomic.LoadInt64(&row[1])
	is := was &^ limitedBit
	if limited {
		is |= limitedBit
	}
	if is != was { // seldom, and a store that others may see is dear
		atomic.StoreInt64(&row[1], is)
	}
}

func (a *array) next(i int) int {
	if i++; i < a.size {
		return i
	}
	return 0
}

// home is where a hash would like to be: at an even row, because two rows of a GCRA are one cache line, and both can
// be looked at for the price of one.
func (a *array) home(lo uint64) int {
	hi, _ := bits.Mul64(lo, a.homes)
	return int(hi) * 2
}

// grab finds the row of a hash and locks it, or returns nil: there is none, or somebody else has it for long. It is the
// only one that needs no lock of the shard.
func (a *array) grab(h hash, gate *sync.Mutex) []int64 {
	for i := a.home(h.lo); ; i = a.next(i) {
		row := a.words[i*a.stride:][:a.stride]
		switch uint64(atomic.LoadInt64(&row[0])) &^ (lockedBit | awaitedBit) {
		case h.hi:
			if !tryLock(row, h.hi) {
				return nil
			}
			if uint64(atomic.LoadInt64(&row[1])&^limitedBit) == h.lo {
				return row
			}
			unlock(row, h.hi, gate)
		case 0:
			return nil
		}
	}
}

// find returns the row of a hash, or -1.
func (a *array) find(h hash) int {
	for i := a.home(h.lo); !a.empty(i); i = a.next(i) {
		if a.hash(i) == h {
			return i
		}
	}
	return -1
}

// tryLock locks a row that begins with a hash, unless somebody else has it, and keeps it for as long as it would take to
// decide a dozen times.
func tryLock(row []int64, hi uint64) bool {
	for range patience {
		if atomic.CompareAndSwapInt64(&row[0], int64(hi), int64(hi|lockedBit)) {
			return true
		}
		pause()
	}
	return false
}

// patience is how often somebody who wants a row tries to lock it, and then steps aside.
const patience = 4

// pause takes about as long as to decide a few times. Meanwhile who has a row can use it again and again: it would
// take longer to hand its cache line over each time.
func pause() {
	for range 1000 {
	}
}

// lock waits for a row in use, for who has the lock of the shard, so that nobody moves the row meanwhile, nor waits for
// another one of the shard. The gate is locked. Whoever has the row opens it.
func lock(row []int64, gate *sync.Mutex) {
	for {
		switch first := atomic.LoadInt64(&row[0]); {
		case first&lockedBit == 0:
			if atomic.CompareAndSwapInt64(&row[0], first, first|lockedBit) {
				return
			}
		case atomic.CompareAndSwapInt64(&row[0], first, first|awaitedBit):
			gate.Lock()
		}
	}
}

// unlock unlocks a row that begins with a hash.
func unlock(row []int64, hi uint64, gate *sync.Mutex) {
	if atomic.SwapInt64(&row[0], int64(hi))&awaitedBit != 0 {
		gate.Unlock()
	}
}

// vacant is the empty row for a hash; there must be one.
func (a *array) vacant(lo uint64) int {
	i := a.home(lo)
	for !a.empty(i) {
		i = a.next(i)
	}
	return i
}

// use makes an empty row that of a hash. The state must be written before, because others see the row at once.
func (a *array) use(i int, second int64, first int64) {
	atomic.StoreInt64(a.second(i), second)
	atomic.StoreInt64(a.first(i), first)
}

// clear makes a row empty, which is locked.
func (a *array) clear(i int) {
	clear(a.stateOf(i))
	a.use(i, 0, 0)
}
