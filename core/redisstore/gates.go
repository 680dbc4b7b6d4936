package redisstore

import (
	"hash/maphash"
	"sync"

	"github.com/weir-go/weir/core"
)

// gates let one caller of a policy at a time ask for the lock of a lane. A mutex serves those who wait for it in the
// order in which they came, so without gates a crowd of one policy would hold up the callers of all others, and the
// flights that serve the crowd itself: with 10 000 callers, for most of the time that a decision has. With them, no
// more wait for the lane than there are gates and flights. Policies that have the same gate by chance wait for each
// other there, as they all did without.
type gates [64]sync.Mutex

var gateSeed = maphash.MakeSeed()

// of returns the gate of a policy.
func (g *gates) of(p core.Policy) *sync.Mutex {
	return &g[maphash.Comparable(gateSeed, p)%uint64(len(g))]
}

// lock locks the lane for a caller of a policy, and returns the gate through which it came, for unlock.
func (l *lane) lock(p core.Policy) (gate *sync.Mutex) {
	gate = l.gates.of(p)
	gate.Lock()
	l.mu.Lock()
	return gate
}

// unlock unlocks the lane, and then the gate.
func (l *lane) unlock(gate *sync.Mutex) {
	l.mu.Unlock()
	gate.Unlock()
}
