package guard

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/stats"
)

// RuleInfo is a rule that holds for a route, as data: for a page that shows the limits, an inventory of several
// programs, or a check at start-up. [Guard.Rules] returns them.
type RuleInfo struct {
	// Route is the route as Rules was given it, or the key of the entry of Routes, such as "POST /login", or "" for all
	// other routes.
	Route string `json:"route"`
	// Place is the place of the rule in the Config: "Rule", "Rules[1]" or `Routes["POST /login"]`; or "With".
	Place string `json:"place"`
	// Name is the policy's name, such as "login". It is "" for a route that an entry of Routes frees of limits by
	// Instead alone; then all fields but Route and Place are zero.
	Name string `json:"name"`
	// Policy is the text of the policy, which [core.Parse] reads, such as "login: 5/1m; fail closed".
	Policy string `json:"policy"`
	// Tiers has the numbers of each tier, such as "500/1m" or "unlimited" for "pro". nil means that there are none.
	Tiers map[string]string `json:"tiers,omitempty"`
	// Keys has the numbers that the Source gives to single keys, such as "5000/1h", "unlimited" or "blocked" for
	// "user=7". nil means that there are none.
	Keys map[string]string `json:"keys,omitempty"`
	// Key names the key function, such as "ip" or "join(ip, route)".
	Key string `json:"key"`
	// NoKey is the treatment of a request without a key: "refuse", "shared" or "pass".
	NoKey string `json:"noKey"`
	// OverLimit names the over-limit handler, such as "reject(429)".
	OverLimit string `json:"overLimit"`
	// Shadow reports that the policy is on trial, and refuses nothing.
	Shadow bool `json:"shadow"`
	// Needs lists what the rule needs beside an answer to "may this request pass?".
	Needs Needs `json:"needs"`
}

// Needs lists what a rule needs of the code around it, beyond a decision and a header. An adapter can do all of it. A
// check endpoint behind a proxy, which never sees the end of a request, can refuse rules that need what it cannot do:
//
//	for _, rule := range g.Rules(nil) {
//		if rule.Needs.Permits || rule.Needs.Settlement {
//			return fmt.Errorf("%s: %s needs the end of the request", rule.Place, rule.Policy)
//		}
//	}
//
// Handlers and functions of the program show nothing of themselves: of a [HandlerFunc], Degrading and Native are false. A
// rule on trial holds nobody back and answers nobody: its Waiting, Degrading and Native are false, unless there is a
// Source, which may end the trial.
type Needs struct {
	// Permits: the rule holds permits until the request is over, and the context of the handler ends with them.
	Permits bool `json:"permits"`
	// Settlement: the rule has a Settle or an After, which is called when the request is over.
	Settlement bool `json:"settlement"`
	// Waiting: a decision may take as long as the request waits for its turn.
	Waiting bool `json:"waiting"`
	// Degrading: a request over the limit goes on to a handler, which may ask [Degraded].
	Degrading bool `json:"degrading"`
	// Native: the over-limit handler, or one within it, belongs to a framework; see [HandleNative].
	Native bool `json:"native"`
	// ContentLength: the rule has a Cost, which may read the length and all else of the request.
	ContentLength bool `json:"contentLength"`
}

// Rules returns the rules that hold for each of the routes that the router has registered, and for all others, in the
// order in which they are asked. routes are patterns with or without a method, as [Guard.Lint] takes them; without any,
// Rules returns those for each entry of Routes, under its key, and for all other routes. Numbers that come from a Source
// are the current ones.
//
// Without routes Rules returns the same list until the numbers change, so that a page or a scrape may ask for it each
// time: do not change it.
//
// A Guard that With or WithRule has made returns its own rule: give its Rules the routes on which it is mounted.
func (g *Guard) Rules(routes []string) []RuleInfo {
	now := g.current()
	if len(routes) > 0 {
		return slices.Concat(now.rulesOn(routes)...)
	}
	if all := now.listed.Load(); all != nil {
		return *all
	}
	if g.routes != nil {
		for _, e := range g.routes.all {
			routes = append(routes, e.text())
		}
	}
	all := slices.Clip(slices.Concat(now.rulesOn(routes)...))
	if !now.listed.CompareAndSwap(nil, &all) {
		return *now.listed.Load() // somebody else has asked at the same time
	}
	return all
}

// rulesOn returns the rules of each of the routes given, and of all others, as they are in g, which may be a version.
func (g *Guard) rulesOn(routes []string) (all [][]RuleInfo) {
	add := func(route, place string, rules []*rule) {
		var infos []RuleInfo
		for _, ru := range rules {
			infos = append(infos, ru.info(route, g.source != nil))
		}
		if len(infos) == 0 {
			infos = []RuleInfo{{Route: route, Place: place}}
		}
		all = append(all, infos)
	}
	for _, text := range routes {
		rules, place := g.rules, ""
		if g.routes != nil {
			to := registered(text)
			if own := g.routes.lookup(to.method, to.pattern); own != nil {
				rules, place = own.rules, own.place()
			}
		}
		add(text, place, rules)
	}
	add("", "", g.rules)
	return all
}

// info returns the rule as it holds for a route. changes reports that a Source may change it.
func (ru *rule) info(route string, changes bool) RuleInfo {
	return RuleInfo{
		Route: route, Place: ru.place, Name: ru.name, Policy: ru.limiter.Policy().String(), Tiers: ru.texts(ru.tiers), Keys: ru.texts(ru.keys),
		Key: ru.Key.String(), NoKey: ru.NoKey.String(), OverLimit: fmt.Sprint(ru.OverLimit), Shadow: ru.shadow, Needs: ru.needs(changes),
	}
}

// texts returns the numbers of tiers or keys as text, without the policy's name.
func (ru *rule) texts(limiters map[string]*enforce.Limiter) map[string]string {
	if len(limiters) == 0 {
		return nil
	}
	texts := map[string]string{}
	for name, l := range limiters {
		texts[name] = strings.TrimPrefix(l.String(), ru.name+": ")
	}
	return texts
}

// needs returns what the rule needs of an exchange, also once a trial may have been ended.
func (ru *rule) needs(changes bool) Needs {
	n := Needs{Permits: ru.permits, Settlement: ru.settles, ContentLength: ru.Cost != nil}
	if !ru.shadow || changes {
		n.Waiting = ru.queues()
		n.Degrading, n.Native = handlerNeeds(ru.OverLimit)
	}
	return n
}

// queues reports whether requests may wait in a place of [Rule].Waiting. Those of a trial take one, and do not wait.
func (ru *rule) queues() bool { return ru.waits || ru.After != nil }

// handlerNeeds looks through the handlers of which an over-limit handler is made.
func handlerNeeds(h OverLimit) (degrading, isNative bool) {
	switch h := h.(type) {
	case native:
		isNative = true
	case degrade:
		if h.goesOn() {
			return true, false
		}
		_, isNative = handlerNeeds(h.instead[0])
	case *breaker:
		degrading, isNative = handlerNeeds(h.o.Before)
		_, then := handlerNeeds(h.o.Then)
		isNative = isNative || then
	}
	return degrading, isNative
}

// Describe returns the rules that hold for each of the routes, and for all others, as a text for the log at start-up: a
// line for each rule, with its place, its policy, its key, its over-limit handler, its tiers and the number of keys that
// have numbers of their own. Before them is a line with the revision of the Source's Set, if that has one.
// [Guard.Rules] returns the same as data.
func (g *Guard) Describe(routes []string) string {
	g = g.current()
	var lines [][]string
	for _, rules := range g.rulesOn(routes) {
		for i, ru := range rules {
			line := ru.cells()
			if i > 0 { // the route is named once
				line[0] = ""
			}
			lines = append(lines, line)
		}
	}
	text := columns(lines)
	if g.revision != "" {
		text = "revision " + g.revision + "\n" + text
	}
	return text
}

// cells returns the columns of the rule's line in Describe.
func (ru *RuleInfo) cells() []string {
	route := ru.Route
	switch {
	case route == "" && ru.Place == withPlace:
		route = "where mounted"
	case route == "":
		route = "all others"
	}
	if ru.Name == "" {
		return []string{route, "no limit"}
	}
	var more []string
	if len(ru.Tiers) > 0 {
		more = append(more, "tiers "+strings.Join(slices.Sorted(maps.Keys(ru.Tiers)), ", "))
	}
	switch n := len(ru.Keys); n {
	case 0:
	case 1:
		more = append(more, "1 key")
	default:
		more = append(more, strconv.Itoa(n)+" keys")
	}
	return []string{route, ru.Place, ru.Policy, "by " + ru.Key, ru.OverLimit, strings.Join(more, "; ")}
}

// columns joins lines, with each cell as wide as the widest in its column, two spaces apart. It is not text/tabwriter,
// which would be in every program, and needs help with the empty cells at the ends of lines.
func columns(lines [][]string) string {
	var widths []int
	for _, cells := range lines {
		for i, cell := range cells {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var out strings.Builder
	for _, cells := range lines {
		blanks := 0
		for i, cell := range cells {
			if cell != "" {
				out.WriteString(strings.Repeat(" ", blanks))
				out.WriteString(cell)
				blanks = 0
			}
			blanks += widths[i] - utf8.RuneCountInString(cell) + 2
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// Stats is a snapshot of a [Guard], for a page or for metrics; see [Guard.Stats].
type Stats struct {
	// Limiter has the callers that wait for their turn, the permits, and what is done in the background. It is that of all
	// Guards that With and WithRule made of one; see [Guard.SharesLimiter].
	Limiter stats.Limiter
	// Queues has the rules in which requests may wait for their turn, those of routes included, in the order of the
	// Config. A Guard that With or WithRule has made has its own.
	Queues []QueueStats
	// Circuits has the circuits of each [Break] of the Config.
	Circuits []CircuitStats
	// Revision is that of the Set in force, or "" without one.
	Revision string
	// LagsSince is the time since which that Set is not known to be the latest, and Lag the reason: the zero time and ""
	// if it is, and where the Source does not say; see [follow.Lagger].
	LagsSince time.Time
	Lag       string
}

// QueueStats is the part of [Stats] about the requests of a rule that wait for their turn.
type QueueStats struct {
	// Policy is the policy's name, and Rule the place of the rule in the Config, as in an [Event].
	Policy, Rule string
	// Requests is the number of places that are taken, by requests that wait or are just being decided, and Places how
	// many there are: Waiting in a [Rule].
	Requests, Places int
}

// CircuitStats is the part of [Stats] about a [Break].
type CircuitStats struct {
	// Policies are the names of the policies whose refusals it answers, sorted.
	Policies []string
	// Open is the number of their keys whose circuit is open now.
	Open int
}

// Stats returns a snapshot. It holds up no request, and takes some microseconds: for each Break that has refused, 30 for
// the 10 000 keys that it watches if BreakOptions.MaxKeys says nothing else.
func (g *Guard) Stats() Stats {
	now := g.current()
	s := Stats{Limiter: g.limiter.Stats(), Revision: now.revision}
	if lagger, ok := g.source.(follow.Lagger); ok {
		s.LagsSince, s.Lag = lagger.Lag()
	}
	breakers := map[*breaker]int{}
	counted := map[*rule]bool{}
	count := func(rules []*rule) {
		for _, ru := range rules {
			if counted[ru] {
				continue
			}
			counted[ru] = true
			if ru.queues() {
				s.Queues = append(s.Queues, QueueStats{ru.name, ru.place, ru.queued(), ru.Waiting})
			}
			if b := ru.breaker; b != nil {
				i, known := breakers[b]
				if !known {
					i = len(s.Circuits)
					breakers[b] = i
					s.Circuits = append(s.Circuits, CircuitStats{Open: b.circuits.Open()})
				}
				s.Circuits[i].Policies = append(s.Circuits[i].Policies, ru.name)
			}
		}
	}
	count(now.rules)
	if now.routes != nil {
		for _, e := range now.routes.all {
			count(e.rules)
		}
	}
	for i := range s.Circuits {
		slices.Sort(s.Circuits[i].Policies)
		s.Circuits[i].Policies = slices.Compact(s.Circuits[i].Policies)
	}
	return s
}

// SharesLimiter reports whether With or WithRule made g and other of one Guard, or one of the other. Then the Limiter of
// their Stats is the same: count it once.
func (g *Guard) SharesLimiter(other *Guard) bool { return g.family == other.family }

// Store returns the store in which g counts: that of the Config, or the [core.Memory] that New has made for lack of one.
func (g *Guard) Store() core.Store { return g.limiter.Store() }
