package observe

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/stats"
)

// watched holds the guards and stores that Snapshot asks for their counts.
type watched struct {
	guards   []*watchedGuard
	stores   []statsOfStore
	memories []*core.Memory
}

// statsOfStore is a store on servers that tells of itself, such as a redisstore.Store.
type statsOfStore interface{ Stats() stats.Store }

// Watch adds guards and stores whose own counts are in each Snapshot: waiting requests, permits, what is to be done in
// the background, servers, and keys. Give it the guards that With and WithRule have made as well; one that is given twice
// counts once. The stores of the guards are watched with them; stores are those of others, such as an
// enforce.Limiter. A store tells of itself if it is a [core.Memory], or has a method Stats that returns
// [stats.Store], as that of redisstore has; the store in the process that decides while it fails is watched as well.
func (o *Observer) Watch(guards []*guard.Guard, stores ...core.Store) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := &o.watched
	for _, g := range guards {
		if g != nil && !slices.ContainsFunc(w.guards, func(is *watchedGuard) bool { return is.Guard == g }) {
			w.guards = append(w.guards, &watchedGuard{Guard: g})
			stores = append(slices.Clip(stores), g.Store())
		}
	}
	for _, s := range stores {
		if v := reflect.ValueOf(s); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
			continue
		}
		if has, ok := s.(interface{ Fallback() *core.Memory }); ok { // it may be the store itself
			if m := has.Fallback(); m != nil && !slices.Contains(w.memories, m) {
				w.memories = append(w.memories, m)
			}
		}
		if s, ok := s.(statsOfStore); ok && !slices.ContainsFunc(w.stores, func(is statsOfStore) bool { return same(is, s) }) {
			w.stores = append(w.stores, s)
		}
	}
}

// same reports whether two stores are the same, which those that cannot be compared by == are if they are equal.
func same(a, b any) bool {
	if reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() {
		return a == b
	}
	return reflect.DeepEqual(a, b)
}

// Guards returns the guards that are watched, in the order in which Watch was given them.
func (o *Observer) Guards() []*guard.Guard {
	o.mu.Lock()
	defer o.mu.Unlock()
	guards := make([]*guard.Guard, len(o.watched.guards))
	for i, g := range o.watched.guards {
		guards[i] = g.Guard
	}
	return guards
}

// watchedNow adds what is watched to s.
func (o *Observer) watchedNow(s *Snapshot) {
	o.mu.Lock()
	w := o.watched
	w.guards, w.stores, w.memories = slices.Clone(w.guards), slices.Clone(w.stores), slices.Clone(w.memories)
	sharing := o.sharing
	o.mu.Unlock()
	if sharing != nil {
		if fails := sharing.fails.Load(); fails != nil {
			s.Sharing = *fails
		}
	}
	for _, store := range w.stores {
		s.Stores = append(s.Stores, store.Stats())
	}
	for _, m := range w.memories {
		s.Memories = append(s.Memories, memoryNow(m))
	}
	for i, g := range w.guards {
		stats := g.Stats()
		s.Guards = append(s.Guards, stats)
		if !slices.ContainsFunc(w.guards[:i], func(before *watchedGuard) bool { return before.SharesLimiter(g.Guard) }) {
			s.Limiters = append(s.Limiters, stats.Limiter)
		}
		s.Policies = append(s.Policies, g.policies()...)
	}
	if len(w.guards) > 1 {
		s.Policies = sortedPolicies(s.Policies)
	}
}

// sortedPolicies sorts policies, and leaves out what is there twice.
func sortedPolicies(all []Policy) []Policy {
	slices.SortFunc(all, func(a, b Policy) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Limits, b.Limits), boolCompare(a.Permits, b.Permits))
	})
	return slices.Compact(all)
}

// watchedGuard is a guard with its policies.
type watchedGuard struct {
	*guard.Guard

	mu    sync.Mutex
	first *guard.RuleInfo // of the rules that have these policies
	list  []Policy        // sorted
}

// policies returns the policies of g, which are made anew when Rules returns another list.
func (g *watchedGuard) policies() []Policy {
	g.mu.Lock()
	defer g.mu.Unlock()
	if rules := g.Rules(nil); g.first != &rules[0] { // there is at least one, also where nothing is limited
		g.first, g.list = &rules[0], nil
		for _, ru := range rules {
			if _, limits, ok := strings.Cut(ru.Policy, ": "); ok {
				g.list = append(g.list, Policy{ru.Name, limits, ru.Needs.Permits})
			}
		}
		g.list = sortedPolicies(g.list)
	}
	return g.list
}
