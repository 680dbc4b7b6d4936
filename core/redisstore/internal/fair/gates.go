package fair

import (
	"hash/maphash"
	"sync"
)

// Gates let one caller of a key at a time ask for a lock that all share: a caller locks the gate of its key first. A
// mutex serves callers in the order in which they came, so without gates a crowd of one key would hold up the callers of
// all others, and those that serve the crowd: with 10 000 callers, for most of the time that a decision has. With them,
// no more callers wait for the lock than there are gates. Keys that have the same gate by chance wait for each other
// there, as they all would without.
type Gates[K comparable] [64]sync.Mutex

var seed = maphash.MakeSeed()

// Of returns the gate of a key.
func (g *Gates[K]) Of(key K) *sync.Mutex { return &g[maphash.Comparable(seed, key)%uint64(len(g))] }
