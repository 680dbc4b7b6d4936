package guard

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/keyfunc"
)

// The codes of what is said in use; those of Lint are beside it.
const (
	codeNoRoute    = "no-route"
	codePerRequest = "guard-per-request"
	codeNever      = "cost-too-large"
	codeMistake    = "unusable-key"
	codeAddress    = "rewritten-address"
	codeTier       = "unknown-tier"
	codeForeign    = "foreign-handler"
	codeMounted    = "mounted-twice"
)

// earlyRequests is how many of a Guard's first requests are looked at more closely.
const earlyRequests = 100

// early looks at a Guard's first requests for mistakes that show only in use: that it is made for each request anew, and
// that no request has a route where rules go by it. Later requests pay one load.
type early struct {
	requests atomic.Int32
	routed   atomic.Bool // a request had a route
}

// look is called for each request that early wants to see.
func (g *Guard) look(r keyfunc.Request) {
	n := g.early.requests.Add(1)
	switch n {
	case 1:
		if births.first(g.name()) {
			g.logger().Warn("weir: a guard is made again and again, for one request each, so that it may count each anew; make it once, at start-up",
				"policy", g.name(), "code", codePerRequest)
		}
	case 2:
		births.second(g.name())
	}
	if g.routes == nil && !slices.ContainsFunc(g.rules, func(ru *rule) bool { return ru.routed }) || r.Route() != "" {
		g.early.routed.Store(true)
	}
	if n >= 2 && g.early.routed.Load() {
		g.early.requests.Store(earlyRequests)
		return
	}
	if n == earlyRequests && !g.early.routed.Load() {
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

// never says, once for each rule, that a cost is larger than its policy ever admits.
func (g *Guard) never(ru *rule, res *core.Result) {
	ru.reported.never.Do(func() {
		g.logger().Warn("weir: a request costs more than its policy ever admits; give the limit a larger burst, or a debt",
			"policy", ru.name, "limit", res.Limit, "code", codeNever)
	})
}

// births knows about the Guards of the program.
var births = &nursery{}

// manyGuards is how many Guards of one name may get a first request while none gets a second.
const manyGuards = 1000

// nursery notices Guards that are made for one request each. Names share a few counters, so that it does not grow: that
// can only make it overlook some.
type nursery struct {
	lonely [64]atomic.Int32 // Guards with one request, since one had a second
	said   sync.Once
}

var seed = maphash.MakeSeed()

func (n *nursery) of(name string) *atomic.Int32 {
	return &n.lonely[maphash.String(seed, name)%uint64(len(n.lonely))]
}

// first is told that a Guard has its first request, and reports whether that should be said, which is once.
func (n *nursery) first(name string) (say bool) {
	if n.of(name).Add(1) >= manyGuards {
		n.said.Do(func() { say = true })
	}
	return say
}

// second is told that a Guard has its second request.
func (n *nursery) second(name string) { n.of(name).Store(0) }
