package guard

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/keyfunc"
)

// watchedRequests is how many of a Guard's first requests are watched.
const watchedRequests = 100

// firstRequests watches a Guard's first requests for mistakes that show only in use: that a Guard is made anew for each
// request, and that no request has a route although rules go by it. Later requests pay one atomic load.
type firstRequests struct {
	requests atomic.Int32
	routed   atomic.Bool // a request had a route
}

// watchFirst is called for each request that firstRequests wants to see.
func (g *Guard) watchFirst(r keyfunc.Request) {
	n := g.first.requests.Add(1)
	switch n {
	case 1:
		if singles.first(g.name()) {
			g.logger().Warn("weir: a guard is made again and again, for one request each, so that it may count each anew; make it once, at start-up",
				"policy", g.name(), "code", codePerRequest)
		}
	case 2:
		singles.second(g.name())
	}
	if g.routes == nil && !slices.ContainsFunc(g.rules, func(ru *rule) bool { return ru.routed }) || r.Route() != "" {
		g.first.routed.Store(true)
	}
	if n >= 2 && g.first.routed.Load() {
		g.first.requests.Store(watchedRequests)
		return
	}
	if n == watchedRequests && !g.first.routed.Load() {
		g.logger().Warn("weir: none of the first requests had a route, by which a rule goes: all count as one, and no entry of the table holds; show the adapter how the router finds them",
			"policy", g.name(), "requests", n, "code", codeNoRoute)
	}
}

// name is that of the Guard's first policy.
func (g *Guard) name() string {
	if len(g.rules) == 0 {
		return ""
	}
	return g.rules[0].name
}

// singles watches all Guards of the program.
var singles = new(singleRequests)

// manyGuards is how many Guards of one name may get a first request while none gets a second.
const manyGuards = 1000

// singleRequests notices Guards that are made for one request each. It counts them by name, and names share a few
// counters, so that it does not grow: that can only make it overlook some.
type singleRequests struct {
	guards [64]atomic.Int32 // that had a first request, since one of the same name had a second
	warned sync.Once
}

var singlesSeed = maphash.MakeSeed()

func (s *singleRequests) of(name string) *atomic.Int32 {
	return &s.guards[maphash.String(singlesSeed, name)%uint64(len(s.guards))]
}

// first notes that a Guard has its first request, and reports whether to warn, which is once.
func (s *singleRequests) first(name string) (warn bool) {
	if s.of(name).Add(1) >= manyGuards {
		s.warned.Do(func() { warn = true })
	}
	return warn
}

// second notes that a Guard has its second request.
func (s *singleRequests) second(name string) { s.of(name).Store(0) }
