package observe

import (
	"slices"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
)

// watched holds the guards and stores that Snapshot asks for their counts.
type watched struct {
	guards   []*guard.Guard
	stores   []statsOfStore
	memories []*core.Memory
}

// statsOfStore is a store on servers that tells of itself, such as a redisstore.Store.
type statsOfStore interface{ Stats() core.StoreStats }

// Watch adds guards and stores whose own counts are in each Snapshot: waiting requests, permits, what is to be done in
// the background, servers, and keys. One that is given twice counts once, but give only one of the guards that With and
// WithRule have made of each other. A store tells of itself if it is a [core.Memory], or has a method Stats that
// returns [core.StoreStats], as that of redisstore has; the store in the process that decides while it fails is watched
// as well.
func (o *Observer) Watch(guards []*guard.Guard, stores ...core.Store) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := &o.watched
	for _, g := range guards {
		if g != nil && !slices.Contains(w.guards, g) {
			w.guards = append(w.guards, g)
		}
	}
	for _, s := range stores {
		if has, ok := s.(interface{ Fallback() *core.Memory }); ok { // it may be the store itself
			if m := has.Fallback(); m != nil && !slices.Contains(w.memories, m) {
				w.memories = append(w.memories, m)
			}
		}
		if s, ok := s.(statsOfStore); ok && !slices.Contains(w.stores, s) {
			w.stores = append(w.stores, s)
		}
	}
}

// watchedNow adds what is watched to s.
func (o *Observer) watchedNow(s *Snapshot) {
	o.mu.Lock()
	w := o.watched
	w.guards, w.stores, w.memories = slices.Clone(w.guards), slices.Clone(w.stores), slices.Clone(w.memories)
	o.mu.Unlock()
	for _, store := range w.stores {
		s.Stores = append(s.Stores, store.Stats())
	}
	for _, m := range w.memories {
		s.Memories = append(s.Memories, m.Stats())
	}
}
