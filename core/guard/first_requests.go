package guard

import (
	"fmt"
	"hash/maphash"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/keyfunc"
)

// watchedRequests is how many of a Guard's first requests are watched.
const watchedRequests = 100

// proxiedRequests is the number of them that are taken for a proxy's, if none has come directly.
const proxiedRequests = 10

// statuslessErrors is how many errors without a status are returned until it is said that After does not see one.
const statuslessErrors = 10

// refusedKeyless is the number of requests that are refused for want of a key until the log says that none had one.
const refusedKeyless = 10

// firstRequests watches a Guard's first requests for mistakes that show only in use: that a Guard is made anew for each
// request, that no request has a route although rules go by it, and that a proxy is counted in the place of its clients.
// Later requests pay one atomic load.
type firstRequests struct {
	requests atomic.Int32
	routed   atomic.Bool  // a request had a route
	direct   atomic.Bool  // one did not come from a private network, or nobody's address is counted
	proxied  atomic.Int32 // requests that a proxy has sent before that
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
	g.watchProxies(r)
	if g.routes == nil && !slices.ContainsFunc(g.rules, func(ru *rule) bool { return ru.routed }) || r.Route() != "" {
		g.first.routed.Store(true)
	}
	if n == watchedRequests && !g.first.routed.Load() {
		g.logger().Warn("weir: none of the first requests had a route, by which a rule goes: all count as one, and no entry of the table holds; show the adapter how the router finds them",
			"policy", g.name(), "requests", n, "code", codeNoRoute)
	}
}

// watchProxies warns, once, where keys are made of the peers' addresses, and those are a proxy's: under IP, and under
// ForwardedIP where the proxy is in none of its networks.
func (g *Guard) watchProxies(r keyfunc.Request) {
	if g.first.direct.Load() || g.first.proxied.Load() >= proxiedRequests {
		return
	}
	rules, peer := g.all(), r.Peer().Addr()
	i := slices.IndexFunc(rules, func(ru *rule) bool { return ru.Key.CountsPeer(peer) })
	if i < 0 || peer.IsValid() && !isPrivate(peer) {
		g.first.direct.Store(true)
		return
	}
	if len(r.Header("X-Forwarded-For")) == 0 { // as a probe
		return
	}
	if g.first.proxied.Add(1) == proxiedRequests {
		ru := rules[i]
		g.logger().Warn("weir: the first requests came from private addresses with X-Forwarded-For, as from a proxy, and the key is the address of the peer, which all clients of a proxy share; use keyfunc.ForwardedIP with the proxy's network, or ForwardedHops",
			"policy", ru.name, "key", ru.Key.String(), "peer", peer.String(), "code", codeProxy)
	}
}

// shared is the network that providers, and some clouds, use between themselves and their clients (RFC 6598).
var shared = netip.MustParsePrefix("100.64.0.0/10")

func isPrivate(addr netip.Addr) bool {
	return addr.IsPrivate() || addr.IsLoopback() || addr.IsLinkLocalUnicast() || shared.Contains(addr)
}

// watchKeyless warns, once, where none of a rule's requests so far had a key.
func (g *Guard) watchKeyless(ru *rule) {
	if ru.keyed.Load() {
		return
	}
	enough := int32(watchedRequests)
	if ru.NoKey == NoKeyRefuse {
		enough = refusedKeyless
	}
	if ru.keyless.Add(1) == enough {
		g.logger().Warn("weir: none of a rule's first requests had a key; if authentication finds out who asks, mount the limiter after it",
			"policy", ru.name, "key", ru.Key.String(), "requests", enough, "code", codeNoKey)
	}
}

// watchCharges warns, once, where nothing was taken of the first requests of a rule with a Settle, which is then not
// called.
func (g *Guard) watchCharges(ru *rule, res *core.Result) {
	if ru.After != nil || res.Limit == 0 || ru.charged.Load() {
		return
	}
	if ru.uncharged.Add(1) == watchedRequests {
		g.logger().Warn("weir: none of a rule's first requests cost anything, so that its Settle was not called and nothing is limited; let Cost return an estimate, or give After in the place of both",
			"policy", ru.name, "requests", watchedRequests, "code", codeUncharged)
	}
}

// watchErrors warns, once, where a rule with After has charged nothing so far, and handlers return errors that say no
// status: the program's error handler may make 401 of them, which is too late for After.
func (g *Guard) watchErrors(ru *rule, f Final, used int64) {
	switch {
	case ru.charged.Load():
	case used > 0:
		ru.charged.Store(true)
	case f.Err != nil && f.Status == 500 && ru.statusless.Add(1) == statuslessErrors:
		g.logger().Warn("weir: a rule with After has charged nothing, and its handlers return errors that say no status, which count as 500; if the program's error handler makes another status of them, look at Final.Err",
			"policy", ru.name, "error", fmt.Sprintf("%T", f.Err), "code", codeStatus)
	}
}

// watchReports warns, once, where the handlers of the first requests of a rule that goes by Report do not report.
// Handlers that fail may have nothing to report.
func (g *Guard) watchReports(ru *rule, f Final) {
	switch {
	case !ru.reported || ru.reporting.Load() || f.Reported < 0 && (f.Panicked || f.Status >= 400):
	case f.Reported >= 0:
		ru.reporting.Store(true)
	case ru.silent.Add(1) == watchedRequests:
		g.logger().Warn("weir: none of a rule's first handlers reported what it used, so that each request is charged its estimate; call guard.Report, with the request's context, before the handler returns",
			"policy", ru.name, "requests", watchedRequests, "code", codeUnreported)
	}
}

// watchHandler warns, once each, when a handler has returned, where handlers over the limit do not ask Degraded, and
// where a connection goes on that has given back its permits.
func (g *Guard) watchHandler(x Exchange, v *Verdict) {
	if v.degraded && !v.rule.asked.Load() && v.rule.unasked.Add(1) == watchedRequests {
		g.logger().Warn("weir: requests over their limit go on, and none of their handlers asked guard.Degraded, so that nothing is limited; ask it with the request's context, or give Degrade a handler that answers",
			"policy", v.rule.name, "requests", watchedRequests, "code", codeUnasked)
	}
	if v.owed == nil {
		return
	}
	if to, ok := x.(Hijacked); ok && to.Hijacked() {
		if ru := v.owed.undetached(); ru != nil {
			ru.warned.hijacked.Do(func() {
				g.logger().Warn("weir: a connection is served after its handler has returned, which gives back its permit; call guard.Detach in the handler, and Claim in what serves the connection",
					"policy", ru.name, "route", logged(x.Route()), "code", codeDetach)
			})
		}
	}
}

// undetached returns a rule whose permit is given back when the handler has returned, or nil.
func (o *owed) undetached() *rule {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.handover != nil || o.debts == nil {
		return nil
	}
	for i := range *o.debts {
		if d := &(*o.debts)[i]; d.admission.Held() {
			return d.rule
		}
	}
	return nil
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
