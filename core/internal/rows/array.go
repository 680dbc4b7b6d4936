package rows

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"unique"
)

// array is the rows of a table: open addressing, and as many rows as it was made with. A row is a word that has the
// hash of its key, its head, and the state; one whose head is 0 is empty.
//
// A key that has a row is found without the lock of the shard. A caller that decides locks the row itself, by a bit
// of its head, and so has the state for itself: of those who decide at the same time only the ones that want
// the same key write to the same cache lines. Rows come, move and go under the lock of the shard, and only when
// they are locked themselves. A caller that searches meanwhile may miss a row, and then looks again under
// the lock of the shard, but never takes one key's for another's.
type array struct {
	words  []int64
	size   int    // how many rows there are
	homes  uint64 // how many places there are to begin a search at,
	apart  int32  // and how many rows they are apart
	stride int32  // words of a row
	layout unique.Handle[string]
	gate   *sync.Mutex // of the shard; see [array.lock]
}

// The bits of a head that are not its hash's.
const (
	usedBit    = 1 // always set
	lockedBit  = 2
	awaitedBit = 4 // while the row is locked
	limitedBit = 8 // the key was at its limit when last asked
	flagBits   = lockedBit | awaitedBit | limitedBit
)

// lineWords is the number of words in a cache line.
const lineWords = 8

func newArray(size, stride int, layout unique.Handle[string], gate *sync.Mutex) *array {
	apart := 1
	if lineWords%stride == 0 {
		apart = lineWords / stride
	}
	homes := (size + apart - 1) / apart
	return &array{
		words: make([]int64, homes*apart*stride), size: homes * apart, homes: uint64(homes),
		apart: int32(apart), stride: int32(stride), layout: layout, gate: gate,
	}
}

// head is the first word of a row, which others may look at without any lock, and change in its flags.
func (a *array) head(i int) *int64 { return &a.words[a.at(i)] }

// at returns the word at which a row begins.
func (a *array) at(i int) int { return i * int(a.stride) }

// stateOf is the state of a row, which the caller has locked.
func (a *array) stateOf(i int) []int64 { return a.words[a.at(i)+1 : a.at(i+1)] }

func (a *array) empty(i int) bool { return atomic.LoadInt64(a.head(i)) == 0 }

// hash is that of a row in use.
func (a *array) hash(i int) uint64 { return uint64(atomic.LoadInt64(a.head(i))) &^ flagBits }

// limited reports whether the row's key was at its limit when last asked.
func (a *array) limited(i int) bool { return atomic.LoadInt64(a.head(i))&limitedBit != 0 }

func (a *array) next(i int) int {
	if i++; i < a.size {
		return i
	}
	return 0
}

// home returns the row at which the search for a hash begins: the first of a cache line, if whole rows fill one,
// because all of that can be looked at for the price of one.
func (a *array) home(h uint64) int {
	hi, _ := bits.Mul64(h, a.homes)
	return int(hi) * int(a.apart)
}

// grab finds the row of a hash and locks it, or returns -1: there is none, or somebody else has it for long. head is
// the first word of the row when it is unlocked, and waited reports whether somebody else had it. It is the only one that
// needs no lock of the shard.
func (a *array) grab(h uint64) (i int, head int64, waited bool) {
	for i = a.home(h); ; i = a.next(i) {
		switch head = atomic.LoadInt64(a.head(i)); uint64(head) &^ flagBits {
		case h:
			head &^= lockedBit | awaitedBit
			if atomic.CompareAndSwapInt64(a.head(i), head, head|lockedBit) {
				return i, head, false
			}
			if head, locked := a.waitFor(i, h); locked {
				return i, head, true
			}
			return -1, 0, true
		case 0:
			return -1, 0, false
		}
	}
}

// find returns the row of a hash, or -1.
func (a *array) find(h uint64) int {
	for i := a.home(h); !a.empty(i); i = a.next(i) {
		if a.hash(i) == h {
			return i
		}
	}
	return -1
}

// waitFor locks the row of a hash that another caller has, unless that keeps it for some microseconds, or the row is
// another key's by then.
func (a *array) waitFor(i int, h uint64) (head int64, locked bool) {
	for range patience {
		pause()
		head = atomic.LoadInt64(a.head(i)) &^ (lockedBit | awaitedBit)
		if uint64(head)&^limitedBit != h {
			return 0, false
		}
		if atomic.CompareAndSwapInt64(a.head(i), head, head|lockedBit) {
			return head, true
		}
	}
	return 0, false
}

// patience is the number of times that a caller tries again to lock a row before it steps aside.
const patience = 3

// pause takes about a microsecond, as long as to decide some twenty times. Meanwhile the caller that has a row can use
// it again and again: it would take longer to hand the cache line over each time. On two cores a decision on one key
// takes 78 ns with this pause, 125 ns with a quarter of it, and 68 ns with twice as long a one.
func pause() {
	for range 4000 {
	}
}

// lock locks a row in use, and waits until it can. The caller has the lock of the shard, so that nobody moves the row
// meanwhile, nor waits for another one of the shard. It waits at the gate, which is locked, and which whoever has the
// row opens. lock returns what the row is to begin with when it is unlocked.
func (a *array) lock(i int) (head int64) {
	for {
		switch head = atomic.LoadInt64(a.head(i)); {
		case head&lockedBit == 0:
			if atomic.CompareAndSwapInt64(a.head(i), head, head|lockedBit) {
				return head
			}
		case atomic.CompareAndSwapInt64(a.head(i), head, head|awaitedBit):
			a.gate.Lock()
		}
	}
}

// unlock unlocks a row, which begins with a head from now on.
func (a *array) unlock(i int, head int64) {
	if atomic.SwapInt64(a.head(i), head)&awaitedBit != 0 {
		a.gate.Unlock()
	}
}

// vacant is the empty row for a hash; there must be one.
func (a *array) vacant(h uint64) int {
	i := a.home(h)
	for !a.empty(i) {
		i = a.next(i)
	}
	return i
}

// use gives a row its head. The state must be written before, because others see the row at once.
func (a *array) use(i int, head int64) { atomic.StoreInt64(a.head(i), head) }

// clear makes a row empty, which is locked.
func (a *array) clear(i int) {
	clear(a.stateOf(i))
	a.use(i, 0)
}
