package redisstore

import (
	"hash/maphash"
	"math/bits"
	"sync"
)

// place is where those of a flight who ask for one key come together.
type place struct {
	first *passenger // of all of them; nil if the place is free
	call  int        // the latest that has the key, or -1
	nth   int        // of its keys, if it is shared
	tail  *passenger // the last of those that it decides together
}

// places are those of all keys of a flight: a hash table with open addressing, with free places in it.
type places []place

// usual is how many places are kept, to be used again: those of a flight that is full of keys.
const usual = 2 * DefaultMaxKeys

var kept = sync.Pool{New: func() any { return new([usual]place) }}

var placing = maphash.MakeSeed()

// newPlaces has room for so many entries. done is to be called when it is of no use any more.
func newPlaces(entries int) (t places, done func()) {
	if entries > usual*3/4 {
		return make(places, 1<<bits.Len(uint(2*entries))), func() {}
	}
	room := kept.Get().(*[usual]place)
	return room[:], func() {
		clear(room[:])
		kept.Put(room)
	}
}

// of is the place of the key that p asks for.
func (t places) of(p *passenger) *place {
	for i := maphash.String(placing, p.key); ; i++ {
		at := &t[i&uint64(len(t)-1)]
		if at.first == nil {
			at.first, at.call = p, -1
			return at
		}
		if at.first.key == p.key {
			return at
		}
	}
}
