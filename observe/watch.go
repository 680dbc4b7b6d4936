package observe

import (
	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
)

// watched holds the guards and stores that Snapshot asks for their counts.
type watched struct {
	guards []*guard.Guard
	stores []core.Store
}

// Watch adds guards and stores whose own counts are in each Snapshot: waiting requests, permits, what is to be done in
// the background, and keys. Guards of one family, which With and WithRule have made, need be given once.
func (o *Observer) Watch(guards []*guard.Guard, stores ...core.Store) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.watched.guards = append(o.watched.guards, guards...)
	o.watched.stores = append(o.watched.stores, stores...)
}
