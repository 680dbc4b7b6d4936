package observe

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/core"
)

// byKey is a small table that is read far more often than it grows. What has no room in it is counted at one place.
type byKey[K comparable, V any] struct {
	now atomic.Pointer[map[K]*V]
	mu  sync.Mutex
}

// at returns the value of k, or, if there are most of them, that of other.
func (t *byKey[K, V]) at(k, other K, most int, make func() *V) *V {
	if m := t.now.Load(); m != nil {
		if v := (*m)[k]; v != nil {
			return v
		}
		if v := (*m)[other]; v != nil && len(*m) > most {
			return v
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	next := map[K]*V{}
	if m := t.now.Load(); m != nil {
		for k, v := range *m {
			next[k] = v
		}
	}
	if len(next) >= most {
		k = other
	}
	if next[k] == nil {
		next[k] = make()
	}
	t.now.Store(&next)
	return next[k]
}

func (t *byKey[K, V]) each(f func(K, *V)) {
	if m := t.now.Load(); m != nil {
		for k, v := range *m {
			f(k, v)
		}
	}
}

const (
	maxServers  = 64
	maxFailures = 2 * maxServers
)

// failure is the class and the server of a decision that the store did not make.
type failure struct{ class, server string }

// failures counts decisions that the store did not make.
type failures struct {
	counts byKey[failure, atomic.Uint64]
}

func (f *failures) count(err error) {
	failed, ok := err.(*core.StoreError) //nolint:errorlint // errors.As costs an allocation
	if !ok && !errors.As(err, &failed) {
		return
	}
	f.counts.at(failure{failed.Class, failed.Server}, failure{Other, Other}, maxFailures, func() *atomic.Uint64 { return new(atomic.Uint64) }).Add(1)
}

func (f *failures) snapshot(s *Snapshot) {
	f.counts.each(func(k failure, n *atomic.Uint64) {
		s.Failures = append(s.Failures, Failures{k.class, k.server, n.Load()})
	})
	slices.SortFunc(s.Failures, func(a, b Failures) int {
		return cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(a.Server, b.Server))
	})
}

// path is a server, and whether requests wait for its answers.
type path struct {
	server string
	behind bool
}

// trips are the round trips of a path.
type trips struct {
	times                 *counts
	calls, merged, failed atomic.Uint64
	breaker               atomic.Pointer[Breaker] // the last that was heard of it
}

// flights counts round trips.
type flights struct{ trips byKey[path, trips] }

func (f *flights) of(server string, behind bool) *trips {
	return f.trips.at(path{server, behind}, path{Other, behind}, 2*maxServers, func() *trips { return &trips{times: newCounts()} })
}

func (f *flights) snapshot(s *Snapshot) {
	f.trips.each(func(p path, t *trips) {
		if _, h := t.times.read(); h.Count > 0 {
			s.Flights = append(s.Flights, Flights{p.server, p.behind, h, t.calls.Load(), t.merged.Load(), t.failed.Load()})
		}
		b := Breaker{Server: p.server, Behind: p.behind}
		if last := t.breaker.Load(); last != nil {
			b = *last
		}
		s.Breakers = append(s.Breakers, b)
	})
	slices.SortFunc(s.Flights, func(a, b Flights) int {
		return cmp.Or(cmp.Compare(a.Server, b.Server), boolCompare(a.Behind, b.Behind))
	})
	slices.SortFunc(s.Breakers, func(a, b Breaker) int {
		return cmp.Or(cmp.Compare(a.Server, b.Server), boolCompare(a.Behind, b.Behind))
	})
}
