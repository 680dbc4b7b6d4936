package guard

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weir-go/weir/core"
)

// Warning is what [Guard.Lint] doubts: it works, but may not be what was meant.
type Warning struct {
	// Code names the kind of doubt, such as "unmatched-entry". docs/warnings.md explains each.
	Code string
	// Where is the place in the Config, such as `Routes["POST /login"]`, or "" for the whole of it.
	Where string
	// Text is a sentence: what is doubtful, and what to do.
	Text string
}

// String returns the Warning as a line for a log.
func (w Warning) String() string {
	if w.Where == "" {
		return w.Code + ": " + w.Text
	}
	return w.Code + ": " + w.Where + ": " + w.Text
}

// The codes of warnings.
const (
	codeUnmatched   = "unmatched-entry"
	codeNoRoutes    = "no-routes"
	codeRawPath     = "raw-path"
	codeTwice       = "rule-twice"
	codeSameKey     = "same-key"
	codeShortWait   = "wait-too-short"
	codeWaiting     = "waiting-unused"
	codePermitsWait = "permits-do-not-wait"
	codeNumbers     = "unusable-numbers" // also in use
)

// Lint looks over the rules at start-up, and returns what may not be meant. routes are the patterns that the router has
// registered, with or without a method: "POST /login", "/items/{id}". Without them, what the table and the keys say of
// routes cannot be checked, and Lint warns of that where it matters. A Guard that With or WithRule has made has rules of its
// own to look over.
//
// What shows only in use, such as a guard that is made for each request, is written to the log, once.
func (g *Guard) Lint(routes []string) []Warning {
	l := lint{guard: g}
	for _, text := range routes {
		l.known = append(l.known, registered(text))
	}
	l.table()
	for _, ru := range g.all() {
		l.rule(ru)
	}
	l.pairs(g.rules, true)
	if g.routes != nil {
		for _, e := range g.routes.entries() {
			l.pairs(e.rules, false)
		}
	}
	l.source()
	return l.warnings
}

// Describe returns, for a log at start-up, a text of what holds for each of the routes that the router has registered, and
// for all others: a line for each rule, in the order in which they are asked, with its place in the Config, its policy,
// its key, its over-limit handler and its tiers. Numbers that come from a Source are those of now.
func (g *Guard) Describe(routes []string) string {
	g = g.current()
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	describe := func(route string, rules []*rule) {
		if len(rules) == 0 {
			fmt.Fprintf(w, "%s\tnothing\t\t\t\t\n", route)
		}
		for _, ru := range rules {
			tiers := ""
			if len(ru.tiers) > 0 {
				tiers = "tiers " + strings.Join(slices.Sorted(maps.Keys(ru.tiers)), ", ")
			}
			fmt.Fprintf(w, "%s\t%s\t%v\tby %v\t%v\t%s\n", route, ru.place, ru.limiter.Policy(), ru.Key, ru.OverLimit, tiers)
			route = ""
		}
	}
	for _, text := range routes {
		rules := g.rules
		if g.routes != nil {
			to := registered(text)
			if own, ok := g.routes.lookup(to.method, to.pattern); ok {
				rules = own
			}
		}
		describe(text, rules)
	}
	describe("all others", g.rules)
	_ = w.Flush() // a strings.Builder does not fail
	return blanks.ReplaceAllString(out.String(), "\n")
}

// blanks are at the ends of lines with empty cells.
var blanks = regexp.MustCompile(" +\n")

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
		for _, e := range g.routes.entries() {
			for _, ru := range e.rules {
				if !slices.Contains(rules, ru) {
					rules = append(rules, ru)
				}
			}
		}
	}
	return rules
}

// table looks for entries that no route is held by.
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
			l.warn(codeNoRoutes, "", "no routes were given, by which these go: %s; give Lint the patterns that the router has registered, or see to it that the adapter finds them",
				strings.Join(asks, ", "))
		}
		return
	}
	if g.routes == nil {
		return
	}
	for _, e := range g.routes.entries() {
		if slices.ContainsFunc(l.known, e.matches) {
			continue
		}
		advice := "write the pattern as the router has it, or leave the entry out"
		if i := slices.IndexFunc(l.known, e.resembles); i >= 0 {
			advice = fmt.Sprintf("it may be %q that is meant", l.known[i])
		}
		l.warn(codeUnmatched, e.place(), "no route of the router is held by it; %s", advice)
	}
}

// rule looks at one rule.
func (l *lint) rule(ru *rule) {
	p := ru.limiter.Policy()
	if slices.Contains(ru.Key.Kinds(), "path") {
		l.warn(codeRawPath, ru.place, "the key %v has the raw path in it, and clients invent paths: each is a new key with a fresh limit; use keyfunc.Route()", ru.Key)
	}
	if ru.place != "Rule" && ru.Waiting != defaultWaiting && ru.Waiting != l.guard.base.Waiting && !ru.waits {
		l.warn(codeWaiting, ru.place, "Waiting is %d, but with %q nobody waits; add a wait to the policy, as in \"; wait 2s\", or leave Waiting out", ru.Waiting, p)
	}
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

// source looks for numbers that a Guard would not use.
func (l *lint) source() {
	g := l.guard
	if g.source == nil {
		return
	}
	set := g.source.Load()
	for _, ru := range g.all() {
		ru.renew(set, ru, false, func(entry, _ string, err error) {
			l.warn(codeNumbers, "Source."+entry, "%v; until it is mended, the numbers of the Config hold", err)
		})
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

// registered reads a route as a router or a person writes it.
func registered(text string) route {
	method, pattern, found := strings.Cut(strings.TrimSpace(text), " ")
	if !found {
		return route{"", method}
	}
	if method == "HEAD" {
		method = "GET"
	}
	return route{method, strings.TrimSpace(pattern)}
}

// String is the route as it is written.
func (r route) String() string { return strings.TrimPrefix(r.method+" "+r.pattern, " ") }

// entry is one of the table.
type entry struct {
	route
	prefix bool
	rules  []*rule
}

// entries are all of the table, in the order of their text.
func (t *routes) entries() []entry {
	var entries []entry
	for to, rules := range t.exact {
		entries = append(entries, entry{to, false, rules})
	}
	for _, p := range t.prefixes {
		entries = append(entries, entry{p.route, true, p.rules})
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.place(), b.place()) })
	return entries
}

func (e entry) place() string {
	text := e.String()
	if e.prefix {
		text += "*"
	}
	return fmt.Sprintf("Routes[%q]", text)
}

// matches reports whether the entry is for a route that is registered.
func (e entry) matches(r route) bool {
	if e.method != "" && r.method != "" && e.method != r.method {
		return false
	}
	return e.pattern == r.pattern || e.prefix && strings.HasPrefix(r.pattern, e.pattern)
}

// resembles reports whether the entry differs from a registered route only as patterns of two frameworks do, by a slash at
// the end, or by the method.
func (e entry) resembles(r route) bool { return shape(e.pattern) == shape(r.pattern) }

// shape is a pattern without the names of its parameters, of which frameworks have their own spelling.
func shape(pattern string) string {
	parts := strings.Split(strings.TrimSuffix(pattern, "/"), "/")
	for i, part := range parts {
		if part != "" && strings.ContainsRune(":{*+", rune(part[0])) {
			parts[i] = "*"
		}
	}
	return strings.Join(parts, "/")
}
