package observe

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/stats"
)

// byKey is a small table that is read far more often than it grows. What has no room in it is counted at one place.
type byKey[K comparable, V any] struct {
	now atomic.Pointer[map[K]*V]
	mu  sync.Mutex
}

// at returns the value of k, or, if there are most of them, that of other.
func (t *byKey[K, V]) at(k, other K, most int, newValue func(K) *V) *V {
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
		maps.Copy(next, *m)
	}
	if len(next) >= most {
		k = other
	}
	if next[k] == nil {
		next[k] = newValue(k)
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
	f.counts.at(failure{label(failed.Class), label(failed.Server)}, failure{Other, Other}, maxFailures, func(failure) *atomic.Uint64 { return new(atomic.Uint64) }).Add(1)
}

// snapshot adds the failures to s, which has what is known of servers.
func (f *failures) snapshot(s *Snapshot) {
	all := map[failure]uint64{}
	for _, b := range s.Breakers {
		for _, class := range classes {
			all[failure{class, b.Server}] = 0
		}
	}
	f.counts.each(func(k failure, n *atomic.Uint64) { all[k] = n.Load() })
	for k, n := range all {
		s.Failures = append(s.Failures, Failures{k.class, k.server, n})
	}
	slices.SortFunc(s.Failures, func(a, b Failures) int {
		return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.Class, b.Class))
	})
}

var classes = []string{
	core.ClassTimeout, core.ClassDown, core.ClassBreaker, core.ClassBusy, core.ClassLost, core.ClassOOM, core.ClassDenied,
	core.ClassReply, core.ClassOther,
}

// path is a server, and whether requests wait for its answers.
type path struct {
	server string
	behind bool
}

func (p path) compare(q path) int {
	return cmp.Or(cmp.Compare(p.server, q.server), boolCompare(p.behind, q.behind))
}

// trips are the round trips of a path.
type trips struct {
	times                 *counts
	calls, merged, failed atomic.Uint64
	breaker               atomic.Pointer[Breaker] // after the last change that was observed
}

// flights counts round trips.
type flights struct{ trips byKey[path, trips] }

func (f *flights) of(server string, behind bool) *trips {
	return f.trips.at(path{label(server), behind}, path{Other, behind}, 2*maxServers, newTrips)
}

// ObserveFlight counts a round trip. Give it to redisstore.Options.Observe.
func (o *Observer) ObserveFlight(f stats.Flight) { o.CountFlight(&f) }

// CountFlight counts a round trip as ObserveFlight does, and returns the series of "weir.flight.duration" in which it is.
// See Count.
func (o *Observer) CountFlight(f *stats.Flight) *Series {
	t := o.flights.of(f.Server, f.Behind)
	t.times.count(max(f.Took, 1))
	t.calls.Add(uint64(max(f.Calls, 0)))   //nolint:gosec // it is not negative
	t.merged.Add(uint64(max(f.Merged, 0))) //nolint:gosec // it is not negative
	if f.Err != nil {
		t.failed.Add(1)
	}
	return t.times.series
}

// ObserveBreaker notes that a breaker has opened or closed. Give it to redisstore.Options.ObserveBreaker; of stores that
// are watched it need not be given, but then a breaker that opens and closes between two Snapshots is not seen.
func (o *Observer) ObserveBreaker(b stats.BreakerChange) {
	t := o.flights.of(b.Server, b.Behind)
	t.breaker.Store(&Breaker{Server: label(b.Server), Behind: b.Behind, Open: b.Open, Since: time.Now(), Class: label(b.Class)})
}

// snapshot adds the round trips to s, which has what the watched stores tell.
func (f *flights) snapshot(s *Snapshot) {
	all, breakers := map[path]*Flights{}, map[path]Breaker{}
	f.trips.each(func(p path, t *trips) {
		flights := &Flights{Server: p.server, Behind: p.behind, Calls: t.calls.Load(), Merged: t.merged.Load(), Failed: t.failed.Load()}
		if t.times.addTo(&flights.Histogram); flights.Histogram.Count > 0 {
			all[p] = flights
		}
		breakers[p] = Breaker{Server: p.server, Behind: p.behind}
		if last := t.breaker.Load(); last != nil && p.server != Other {
			breakers[p] = *last
		}
	})
	told, servers := map[path]Breaker{}, map[string]bool{}
	for _, store := range s.Stores {
		for _, server := range store.Servers {
			if len(servers) >= maxServers && !servers[label(server.Addr)] {
				server.Addr = Other
			}
			servers[label(server.Addr)] = true
			for behind, traffic := range map[bool]stats.Traffic{false: server.Decisions, true: server.Behind} {
				p := path{label(server.Addr), behind}
				told[p] = worseBreaker(told[p], Breaker{
					p.server, p.behind, traffic.Breaker.Open, traffic.Breaker.Since, label(traffic.Breaker.Class),
				})
			}
		}
	}
	maps.Copy(breakers, told)
	for _, p := range slices.SortedFunc(maps.Keys(all), path.compare) {
		s.Flights = append(s.Flights, *all[p])
	}
	for _, p := range slices.SortedFunc(maps.Keys(breakers), path.compare) {
		s.Breakers = append(s.Breakers, breakers[p])
	}
}

// worseBreaker returns the one of two breakers of a path, of different stores, that is open, or the one that has changed
// last.
func worseBreaker(a, b Breaker) Breaker {
	if a.Server == "" || b.Open && !a.Open || b.Open == a.Open && b.Since.After(a.Since) {
		return b
	}
	return a
}
