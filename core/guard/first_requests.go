package guard

import (
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/keyfunc"
)

// The first requests are enough to see that something which most of them should have never comes.
const (
	watchedRequests  = 100
	proxiedRequests  = 10 // of a proxy, if none has come directly
	statuslessErrors = 10
	refusedKeyless   = 10 // requests that were refused for want of a key
)

// evidence looks, among the first requests, for one that has what most of them should have. The zero evidence has seen
// none.
type evidence struct {
	seen    atomic.Bool
	missing atomic.Int32 // requests without it, before the first that had it
}

// missed counts a request without, and reports whether it is the nth, and none so far had it.
func (e *evidence) missed(n int32) bool {
	return !e.seen.Load() && e.missing.Load() < n && e.missing.Add(1) == n
}

// found notes a request that has it.
func (e *evidence) found() {
	if !e.seen.Load() {
		e.seen.Store(true)
	}
}

// firstRequests looks at a Guard's first requests for mistakes that show only in use: that no request has a route
// although rules depend on it, and that a proxy is counted in the place of its clients. Later requests pay one atomic
// load.
type firstRequests struct {
	requests atomic.Int32
	route    evidence // a route, or no rule that depends on it
	client   evidence // a peer that is no proxy, or no rule that counts peers
}

// watchFirst is called for each request that firstRequests wants to see.
func (g *Guard) watchFirst(r keyfunc.Request) {
	g.first.requests.Add(1)
	g.watchProxies(r)
	if g.routes == nil && !slices.ContainsFunc(g.rules, func(ru *rule) bool { return ru.routed }) || r.Route() != "" {
		g.first.route.found()
	} else if g.first.route.missed(watchedRequests) {
		g.logger().Warn("weir: a rule depends on the route, but the first requests had none, so that all count as one route and no entry of Routes holds; let the adapter find the routes of the router",
			"policy", g.name(), "requests", watchedRequests, "code", codeNoRoute)
	}
}

// watchProxies warns, once, where keys are made of the peers' addresses, and those are a proxy's: under IP, and under
// ForwardedIP where the proxy is in none of its networks.
func (g *Guard) watchProxies(r keyfunc.Request) {
	if g.first.client.seen.Load() || g.first.client.missing.Load() >= proxiedRequests {
		return
	}
	rules, peer := g.all(), r.Peer().Addr()
	i := slices.IndexFunc(rules, func(ru *rule) bool { return ru.Key.CountsPeer(peer) })
	if i < 0 || peer.IsValid() && !isPrivate(peer) {
		g.first.client.found()
		return
	}
	if len(r.Header("X-Forwarded-For")) == 0 { // as a probe
		return
	}
	if g.first.client.missed(proxiedRequests) {
		ru := rules[i]
		g.logger().Warn("weir: the first requests came from private addresses with X-Forwarded-For, as from a proxy, but the key is the address of the peer, so that all clients of the proxy share one limit; use keyfunc.ForwardedIP with the proxy's network, or ForwardedHops",
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
	enough := int32(watchedRequests)
	if ru.NoKey == NoKeyRefuse {
		enough = refusedKeyless
	}
	if ru.keyed.missed(enough) {
		g.logger().Warn("weir: none of a rule's first requests had a key; if authentication sets it, mount the limiter after authentication",
			"policy", ru.name, "key", ru.Key.String(), "requests", enough, "code", codeNoKey)
	}
}

// watchCharges warns, once, where nothing was taken of the first requests of a rule with a Settle, which is then not
// called.
func (g *Guard) watchCharges(ru *rule, res *core.Result) {
	if ru.After == nil && res.Limit != 0 && ru.charged.missed(watchedRequests) {
		g.logger().Warn("weir: none of a rule's first requests cost anything, so that its Settle was not called and nothing is limited; let Cost return an estimate, or give After in the place of both",
			"policy", ru.name, "requests", watchedRequests, "code", codeUncharged)
	}
}

// watchErrors warns, once, where a rule with After has charged nothing so far, and handlers return errors that say no
// status: the program's error handler may make 401 of them, which is too late for After.
func (g *Guard) watchErrors(ru *rule, f Final, used int64) {
	switch {
	case used > 0:
		ru.charged.found()
	case f.Err != nil && f.Status == 500 && ru.charged.missed(statuslessErrors):
		g.logger().Warn("weir: a rule with After has charged nothing, and its handlers return errors that say no status, which count as 500; if the program's error handler makes another status of them, look at Final.Err",
			"policy", ru.name, "error", fmt.Sprintf("%T", f.Err), "code", codeStatus)
	}
}

// watchReports warns, once, where the handlers of the first requests of a rule whose Settle calls [Reported] do not
// report. Handlers that fail may have nothing to report.
func (g *Guard) watchReports(ru *rule, f Final) {
	switch {
	case f.Reported >= 0:
		ru.reports.found()
	case f.Panicked || f.Status >= 400 || !ru.reported.Load():
	case ru.reports.missed(watchedRequests):
		g.logger().Warn("weir: none of a rule's first handlers reported what it used, so that each request is charged its estimate; call guard.Report, with the request's context, before the handler returns",
			"policy", ru.name, "requests", watchedRequests, "code", codeUnreported)
	}
}

// watchHandler warns, once each, when a handler has returned, where handlers over the limit do not ask Degraded, and
// where a connection goes on that has given back its permits.
func (g *Guard) watchHandler(x Exchange, v *Verdict) {
	if v.degraded && v.rule.asked.missed(watchedRequests) {
		g.logger().Warn("weir: requests over their limit go on, and none of their handlers asked guard.Degraded, so that nothing is limited; ask it with the request's context, or give Degrade a handler that answers",
			"policy", v.rule.name, "requests", watchedRequests, "code", codeUnasked)
	}
	if v.owed == nil {
		return
	}
	if x.Hijacked() {
		if ru := v.owed.undetached(); ru != nil {
			g.warnDetach(ru, x.Route())
		}
	}
}

// undetached returns a rule whose permit is given back when the handler has returned, or nil.
func (o *owed) undetached() *rule {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.handover != nil || o.dues == nil {
		return nil
	}
	for i := range *o.dues {
		if d := &(*o.dues)[i]; d.admission.Held() {
			return d.rule
		}
	}
	return nil
}

// name returns the name of the Guard's first policy.
func (g *Guard) name() string {
	if len(g.rules) == 0 {
		return ""
	}
	return g.rules[0].name
}

// repeats looks for a rule that is asked twice for one request, because its Guard is mounted twice. Only the context of
// the inner request can prove that, and deriving a context costs more than the rest of a check. So contexts are derived
// for tracedRequests requests at a time: after the first answer, the second, the fourth, the eighth and so on that had
// the rule's own limit in its headers before the rule set them.
type repeats struct {
	alike  atomic.Int64 // answers that had the rule's own limit already
	traced atomic.Int32 // requests for which a context is still to be derived
	found  atomic.Bool
}

// tracedRequests bounds, with the logarithm of all requests, the cost of guards with equal limits that are stacked on
// purpose. Requests that come at the same time share it.
const tracedRequests = 100

// suspect notes that the answer already had the rule's own limit in its headers.
func (t *repeats) suspect() {
	if t.found.Load() {
		return
	}
	if n := t.alike.Add(1); n&(n-1) == 0 {
		t.traced.Store(tracedRequests)
	}
}

// traces reports whether to derive a context for the next request.
func (t *repeats) traces() bool { return t.traced.Load() > 0 && t.traced.Add(-1) >= 0 }

// end ends the search.
func (t *repeats) end() {
	t.found.Store(true)
	t.traced.Store(0)
}

// findRepeat logs that the rule has already been asked for the request, and ends the search.
func (g *Guard) findRepeat(r keyfunc.Request, ru *rule) {
	for c := innermost(r.Context()); c != nil; c = c.outer {
		if c.rule != nil && c.rule.live == ru.live {
			ru.repeats.end()
			g.warnRepeat(ru, r.Route())
			return
		}
	}
}
