package guard

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/guard/internal/patterns"
)

// Lint looks over the rules at start-up, and returns what may not be meant. routes are the patterns that the router has
// registered, with or without a method: "POST /login", "/items/{id}". Without them, what the table and the keys say of
// routes cannot be checked, and Lint warns of that if it matters.
//
// A Guard that With or WithRule has made has another rule: call its Lint, too, and call each Lint when all of With
// and WithRule have been called, since what one of them makes may be what a field of the Config is for.
func (g *Guard) Lint(routes []string) []Warning {
	l := lint{guard: g}
	for _, text := range routes {
		l.known = append(l.known, registered(text))
	}
	l.table()
	if n := g.base.Waiting; n > 0 && !g.waits.Load() && !g.madeByWith() {
		l.warn(codeWaiting, "Rule", "Waiting is %d, but no policy of this Guard lets anybody wait; add a wait to one, as in \"10/1s; wait 2s\", or leave Waiting out", n)
	}
	for _, ru := range g.all() {
		l.rule(ru)
	}
	l.pairs(g.rules, true)
	l.order(g.rules, false)
	if g.routes != nil {
		for _, e := range g.routes.all {
			l.pairs(e.rules, false)
			l.order(e.rules, true)
		}
	}
	l.source()
	return l.warnings
}

// lint collects warnings.
type lint struct {
	guard    *Guard
	known    []route // that the router has registered
	warnings []Warning
}

func (l *lint) warn(code, where, format string, args ...any) {
	w := Warning{code, where, fmt.Sprintf(format, args...)}
	if !slices.Contains(l.warnings, w) {
		l.warnings = append(l.warnings, w)
	}
}

// all are the rules of g, each once.
func (g *Guard) all() []*rule {
	rules := slices.Clone(g.rules)
	if g.routes != nil {
		for _, e := range g.routes.all {
			for _, ru := range e.rules {
				if !slices.Contains(rules, ru) {
					rules = append(rules, ru)
				}
			}
		}
	}
	return rules
}

// table looks for entries that match no route.
func (l *lint) table() {
	g := l.guard
	if len(l.known) == 0 {
		asks := []string{}
		if g.routes != nil {
			asks = append(asks, "Routes")
		}
		for _, ru := range g.all() {
			if ru.routed {
				asks = append(asks, ru.place+".Key")
			}
		}
		if len(asks) > 0 {
			l.warn(codeNoRoutes, "", "no routes were given, but these depend on them: %s; give Lint the patterns that the router has registered, or see to it that the adapter finds them",
				strings.Join(asks, ", "))
		}
		return
	}
	if g.routes == nil {
		return
	}
	for _, e := range g.routes.all {
		if i := slices.IndexFunc(l.known, e.matches); i >= 0 {
			l.earlier(e, l.known[:i])
			l.methods(e)
			continue
		}
		advice := "write the pattern as the router has it, or leave the entry out"
		if r, ok := e.meant(l.known); ok {
			advice = fmt.Sprintf("did you mean %q?", r)
		} else if i := slices.IndexFunc(l.known, e.isBelow); i >= 0 {
			advice = fmt.Sprintf("if it is of a router within %q, mount the limiter in there, or give Lint its routes as well", l.known[i])
		}
		l.warn(codeUnmatched, e.place(), "it matches no registered route; %s", advice)
	}
}

// earlier looks for a route with a constraint that is registered before the entry's: in Fiber, whose constraints are
// not looked at, requests are taken for that one.
func (l *lint) earlier(e *entry, before []route) {
	for _, r := range before {
		if strings.Contains(r.pattern, "<") && e.hasMethodOf(r) && (e.isWithin(r.pattern) || patterns.Alike(e.pattern, r.pattern)) {
			l.warn(codeEarlier, e.place(), "requests for it are taken for %q, which is registered before it and whose constraint is not looked at; register it after, or write the entry for both", r)
			return
		}
	}
}

// allMethods is the least number of methods of a route that is registered for every method, in a framework that lists
// them one by one.
const allMethods = 7

// methods looks for an entry that names one method of a route that takes every method. One for GET is left alone:
// handlers without a method mostly serve GET.
func (l *lint) methods(e *entry) {
	if e.prefix || e.method == "" || e.method == "GET" || l.guard.routes.lookup("", e.pattern) != nil {
		return
	}
	every, named := false, map[string]bool{}
	for _, r := range l.known {
		if r.pattern == e.pattern {
			every = every || r.method == ""
			named[r.method] = true
		}
	}
	if every && !named[e.method] || len(named) >= allMethods {
		l.warn(codeMethods, e.place(), "the route %q takes every method, and this entry is for %s alone, so that others pass it; leave the method out of the entry, or register the route with it", e.pattern, e.method)
	}
}

// rule looks at one rule.
func (l *lint) rule(ru *rule) {
	p := ru.limiter.Policy()
	if ru.unnamed {
		l.warn(codeUnnamed, ru.place, textUnnamed)
	}
	if slices.Contains(ru.Key.Kinds(), "path") {
		l.warn(codeRawPath, ru.place, "the key %v has the raw path in it, and clients invent paths: each is a new key with a fresh limit; use keyfunc.Route()", ru.Key)
	}
	if part := ru.Key.Unreachable(); part != "" {
		l.warn(codeKeyBehind, ru.place, "in the key %v, %s is never used, because every request but those of unix sockets has the part before it; write it first", ru.Key, part)
	}
	l.costs(ru)
	for _, kind := range ru.Key.Kinds() {
		if slices.Contains(addressHeaders, kind) {
			l.warn(codeAddressHeader, ru.place, "the key %v has the header %s in it, which clients write as they like unless a proxy replaces it, so that each value is a new key with a fresh limit; use keyfunc.ForwardedIP, or Address with Header", ru.Key, strings.TrimPrefix(kind, "header."))
		}
	}
	if ru.place != "Rule" && ru.Waiting != defaultWaiting && ru.Waiting != l.guard.base.Waiting && !ru.queues() {
		l.warn(codeWaiting, ru.place, "Waiting is %d, but with %q nobody waits; add a wait to the policy, as in \"; wait 2s\", or leave Waiting out", ru.Waiting, p)
	}
	l.tiers(ru)
	if ru.wait == 0 {
		return
	}
	if ru.permits {
		l.warn(codePermitsWait, ru.place, "in %q the wait is for the rates alone: a request that finds no permit is refused, also when it has waited for its turn", p)
	}
	for _, limit := range p.Limits() {
		if apart := limit.Period / time.Duration(max(1, limit.Rate)); limit.Algorithm == core.GCRA && ru.wait < apart {
			l.warn(codeShortWait, ru.place, "with %q turns are %v apart, and a request waits %v at most, so that hardly any can; wait longer, or leave it out", p, apart, ru.wait)
		}
	}
}

// costs looks for a Cost or Settle of permits alone, of which a request holds one.
func (l *lint) costs(ru *rule) {
	base, rated := l.guard.base, func(ru *rule) bool { return ru.rated }
	if ru.rated || ru.place == "Rule" && (l.guard.rates.Load() || slices.ContainsFunc(l.guard.all(), rated)) {
		return // what the Config has is for others
	}
	for _, f := range []struct {
		name      string
		own, base any
	}{{"Cost", ru.Cost, base.Cost}, {"Settle", ru.Settle, base.Settle}} {
		if own := reflect.ValueOf(f.own).Pointer(); own != 0 && (ru.place == "Rule" || own != reflect.ValueOf(f.base).Pointer()) {
			l.warn(codeCostUnused, ru.place, "it has a %s, and %q has permits alone, of which a request holds one; give the policy a rate, or leave %s out", f.name, ru.limiter.Policy(), f.name)
		}
	}
}

// addressHeaders are the kinds of keys of headers in which proxies write the address of a client.
var addressHeaders = []string{
	"header.x-forwarded-for", "header.forwarded", "header.x-real-ip", "header.x-client-ip", "header.x-cluster-client-ip",
	"header.true-client-ip", "header.cf-connecting-ip", "header.fastly-client-ip", "header.x-original-forwarded-for",
}

// tiers looks for tiers that count apart from the rule's own policy.
func (l *lint) tiers(ru *rule) {
	var apart []string
	for _, tier := range slices.Sorted(maps.Keys(ru.tiers)) {
		if other := ru.tiers[tier]; other != nil && other.Policy().Spec().Shape() != ru.limiter.Policy().Spec().Shape() {
			apart = append(apart, fmt.Sprintf("%s (%v)", strconv.Quote(tier), other.Policy()))
		}
	}
	if len(apart) > 0 {
		l.warn(codeTiersApart, ru.place, "in %s a full bucket takes another time to fill than in %q, so that they count apart, and a client whose tier changes has both; give them one time, as 10/1m and 20/1m have, or an algorithm with windows, unless that is meant",
			strings.Join(apart, ", "), ru.limiter.Policy())
	}
}

// source looks for entries of the Source that cannot be used, or do nothing.
func (l *lint) source() {
	g := l.guard
	if g.source == nil {
		return
	}
	set, all := g.source.Load(), g.all()
	for _, ru := range all {
		some := func(of func(*rule) bool) bool { // rules of this policy, of which there may be several
			return slices.ContainsFunc(all, func(other *rule) bool { return other.name == ru.name && of(other) })
		}
		_, entries := ru.limiter.Variants(ru.Tiers, set, ru.variants)
		for _, e := range entries {
			where := "Source." + e.String()
			switch {
			case e.Field == inTiers && !some(func(ru *rule) bool { return ru.Tier != nil }): // one line for all of them
				l.warn(codeNumbers, fmt.Sprintf("Source.Tiers[%q]", ru.name), "%s has no Tier, so that no request is of a tier; give it one, or leave the entry out", ru.place)
			case e.Err != nil:
				l.warn(codeNumbers, where, "%v; until it is mended, the numbers of the Config hold", e.Err)
			case e.Text == follow.Blocked && e.Trial:
				l.warn(codeBlockedTrial, where, "the policy of %s is on trial, and refuses nobody, a blocked key neither; end the trial, or leave the entry out", ru.place)
			case e.Field == inKeys && !some(func(ru *rule) bool { return kindsOf(ru.Key).mayMake(e.Key) }):
				l.warn(codeUnmatchedKey, where, "%s counts by %v, which makes no such key; write keys as Event.Key returns them, as in \"user=7\"", ru.place, ru.Key)
			}
		}
	}
}

// pairs looks for two rules of one request that could be one: among those that hold everywhere, or for an entry of the
// table beside them.
func (l *lint) pairs(rules []*rule, everywhere bool) {
	for i, a := range rules {
		if !everywhere && slices.Contains(l.guard.rules, a) {
			continue
		}
		for _, b := range rules[i+1:] {
			p, q := a.limiter.Policy(), b.limiter.Policy()
			if !a.alike(b) || p.Options() != q.Options() {
				continue
			}
			switch {
			case slices.Equal(p.Limits(), q.Limits()):
				one, other := b, a
				if !everywhere { // the entry is the first
					one, other = a, b
				}
				l.warn(codeTwice, one.place, "it has the limits and the key of %s, which is asked for the same requests; leave one out", other.place)
			case everywhere && !(a.permits && b.permits) && len(p.Limits())+len(q.Limits()) <= core.MaxLimits:
				l.warn(codeSameKey, b.place, "it has the key of %s; write their limits into one policy, as in \"20/1s, 1000/1h\", which is one round trip to the store", a.place)
			}
		}
	}
}

// alike reports whether it is certain that two rules count the same requests alike, under one key.
func (ru *rule) alike(other *rule) bool {
	plain := func(r *rule) bool { return r.Tier == nil && r.Cost == nil && r.Settle == nil }
	return plain(ru) && plain(other) && ru.NoKey == other.NoKey && ru.Key.String() == other.Key.String() &&
		ru.OverLimit.String() == other.OverLimit.String() &&
		reflect.ValueOf(ru.Skip).Pointer() == reflect.ValueOf(other.Skip).Pointer()
}

// meant returns the registered route for which the entry may be meant. One that differs only as patterns of two
// frameworks do comes before one of which the entry is a path, and one of the entry's method before others.
func (e *entry) meant(known []route) (meant route, ok bool) {
	for _, resembles := range []func(route) bool{e.isLike, e.isPathOf} {
		for _, anyMethod := range []bool{false, true} {
			for _, r := range known {
				if (anyMethod || e.hasMethodOf(r)) && resembles(r) {
					return r, true
				}
			}
		}
	}
	return route{}, false
}

// isLike reports whether the entry differs from a route at most by its method, by a slash at the end, and by the names
// and the spelling of parameters.
// An entry may have the host that its router does not write.
func (e *entry) isLike(r route) bool {
	pattern := e.pattern
	if strings.HasPrefix(r.pattern, "/") {
		pattern = pattern[len(e.shape.Host):]
	}
	return slices.Equal(patterns.Parts(pattern), patterns.Parts(r.pattern))
}

// isBelow reports whether the entry is for paths of which a router within another may take care: those below a slash at
// the end, for which net/http has one handler.
func (e *entry) isBelow(r route) bool {
	return len(r.pattern) > 1 && strings.HasSuffix(r.pattern, "/") && e.hasMethodOf(r) && e.isWithin(r.pattern)
}

// isPathOf reports whether the entry is a path in the place of a route's pattern. Of a route that takes nearly every
// path that says nothing, and a prefix is no path.
func (e *entry) isPathOf(r route) bool {
	registered := patterns.Parts(r.pattern)
	literal := slices.ContainsFunc(registered, func(part string) bool { return part != "" && part != patterns.Param })
	if e.prefix || !literal || patterns.TakesRest(r.pattern) {
		return false
	}
	return slices.EqualFunc(patterns.Parts(e.pattern), registered, func(mine, registered string) bool {
		return mine == registered || registered == patterns.Param
	})
}

// order looks for rules of one request that are asked in an order in which one caller costs others what they share. Of
// those of an entry in the table, the first is the entry's own, and the others hold everywhere.
func (l *lint) order(rules []*rule, entry bool) {
	for i, a := range rules {
		for _, b := range rules[i+1:] {
			if a.shadow || b.shadow || entry && i > 0 {
				continue
			}
			if a.After == nil && a.widerThan(b) {
				how := "write that one first"
				if entry {
					how = "the rule of an entry comes first, so mount it by With inside of this Guard instead"
				}
				l.warn(codeWideFirst, a.place, "%q is asked before the narrower %q of %s, and so each request that the latter refuses has taken, until it is given back, what others share; %s",
					a.limiter.Policy(), b.limiter.Policy(), b.place, how)
			}
			if b.waits {
				l.heldPermits(a, b)
			}
		}
	}
	for _, wide := range rules {
		if !wide.shadow && wide.After == nil && wide.hasRate() {
			l.narrow(rules, wide, entry)
		}
	}
}

// heldPermits looks for permits of a that are too few for the requests that hold them while they wait in b.
func (l *lint) heldPermits(a, b *rule) {
	permits, _, ok := a.limiter.Policy().Concurrent()
	if wait := b.inLine(); ok && permits < wait {
		l.warn(codeHeldPermits, a.place, "its permits are held while requests wait in %q of %s, where up to %d of a key do, so that with %d a caller is refused for requests that only wait; write the permits in a rule after that one and a rate here, or give %d",
			b.limiter.Policy(), b.place, wait, permits, wait)
	}
}

// narrow looks for rules that are to keep one caller from using up what is shared with others, if none of them does.
func (l *lint) narrow(rules []*rule, wide *rule, entry bool) {
	narrower := slices.DeleteFunc(slices.Clone(rules), func(ru *rule) bool { return !wide.widerThan(ru) })
	if slices.ContainsFunc(narrower, func(ru *rule) bool { return !ru.shadow && ru.hasRate() }) {
		return
	}
	for _, ru := range narrower {
		if entry && wide != rules[0] && ru != rules[0] {
			continue // it is so everywhere
		}
		why := "is on trial, and refuses nothing"
		if permits, _, _ := ru.limiter.Policy().Concurrent(); !ru.shadow {
			why = "has permits alone, which do not bound how often requests come: " + perSecond(permits)
		}
		l.warn(codeNotNarrow, ru.place, "%q is all that keeps one caller from using up %q of %s, which others share, and it %s; give a rate beside it, as in \"20/1s\"",
			ru.limiter.Policy(), wide.limiter.Policy(), wide.place, why)
	}
}

// sharedKinds are the kinds of a key that say nothing of the caller.
var sharedKinds = []string{"const", "route", "method", "path"}

// widerThan reports whether ru counts more callers together than other does, as far as their keys and numbers show it:
// a key without anything of the caller, or with a part of what the other one has, and otherwise larger numbers.
func (ru *rule) widerThan(other *rule) bool {
	mine, others := ru.callers(), other.callers()
	switch {
	case slices.Equal(mine, others):
		return false
	case within(mine, others):
		return true
	case within(others, mine) || ru.Cost != nil || other.Cost != nil:
		return false
	}
	burst, rate := ru.most()
	otherBurst, otherRate := other.most()
	return burst > otherBurst && rate >= otherRate
}

// callers are the kinds in the rule's key that are of the caller, in order.
func (ru *rule) callers() []string {
	kinds := slices.DeleteFunc(ru.Key.Kinds(), func(kind string) bool { return slices.Contains(sharedKinds, kind) })
	slices.Sort(kinds)
	return kinds
}

func within(some, all []string) bool {
	return !slices.ContainsFunc(some, func(kind string) bool { return !slices.Contains(all, kind) })
}

// most returns the most that the rule admits: at once, and in a second in the long run. A rule of permits alone has no
// rate, and is taken to admit as many in a second as at once.
func (ru *rule) most() (burst int64, rate float64) {
	burst, rate = math.MaxInt64, math.Inf(1)
	for _, limit := range ru.limiter.Policy().Limits() {
		burst = min(burst, limit.Burst)
		if limit.Algorithm != core.Concurrent {
			rate = min(rate, float64(limit.Rate)/limit.Period.Seconds())
		}
	}
	if math.IsInf(rate, 1) {
		rate = float64(burst)
	}
	return burst, rate
}

func (ru *rule) hasRate() bool {
	return slices.ContainsFunc(ru.limiter.Policy().Limits(), func(limit core.Limit) bool { return limit.Algorithm != core.Concurrent })
}

// inLine returns how many requests of a key wait at most in a rule that lets them wait: rate times wait.
func (ru *rule) inLine() int64 {
	least := math.Inf(1)
	for _, limit := range ru.limiter.Policy().Limits() {
		switch {
		case limit.Algorithm == core.LeakyBucket:
			least = min(least, float64(limit.Burst))
		case limit.Algorithm != core.Concurrent && ru.wait > 0:
			least = min(least, math.Ceil(float64(limit.Rate)*(ru.wait.Seconds()/limit.Period.Seconds())))
		}
	}
	return int64(least)
}

// perSecond is an example of what permits admit.
func perSecond(permits int64) string {
	const takes = 5 * time.Millisecond
	return fmt.Sprintf("%d of a handler that takes %v are %d a second", permits, takes, permits*int64(time.Second/takes))
}
