package guard

import (
	"fmt"
	"hash/maphash"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/core/enforce"
)

// Source is [enforce.Source]: it knows the numbers of policies that change while the program runs, such as those of a
// file. It is what Config.Source takes. An *atomic.Pointer[Set] is one:
//
//	numbers := new(atomic.Pointer[guard.Set])
//	g, err := guard.New(guard.Config{Rule: rule, Source: numbers})
//	...
//	numbers.Store(&guard.Set{Policies: map[string]string{"default": "200/1m"}})
type Source = enforce.Source

// Set is [enforce.Set]: the numbers of policies, of their tiers and of single keys, in the place of those in the Config.
type Set = enforce.Set

// warnNumbersOnce is warnNumbers, once for each entry and text, however often a Source goes back and forth, and not for
// more than maxWarned of them in the time of forgetsWarned.
func (g *Guard) warnNumbersOnce(entry, text string, err error) {
	v, hash := &g.versions, maphash.Comparable(warnedSeed, [3]string{entry, text, err.Error()})
	full := len(v.warned) >= maxWarned
	if v.warned[hash] || full && time.Since(v.since) < forgetsWarned {
		return
	}
	if full || v.warned == nil {
		v.warned, v.since = map[uint64]bool{}, time.Now()
	}
	v.warned[hash] = true
	g.warnNumbers(entry, text, err)
}

var warnedSeed = maphash.MakeSeed()

// PolicyNames returns the names of the policies of all rules of g, sorted, those of its routes included; see
// [enforce.Set.Unused].
func (g *Guard) PolicyNames() []string {
	var names []string
	for _, ru := range g.all() {
		names = append(names, ru.name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// maxTiers bounds what a request does when it is the first to see another Set.
const maxTiers = 1000

// versions are those of a Guard whose numbers come from a Source.
type versions struct {
	last   atomic.Pointer[version]
	next   sync.Mutex      // held while another one is made
	warned map[uint64]bool // hashes of the entries that were logged, with their texts; next guards it
	since  time.Time       // when the first of them was
}

// maxWarned bounds warned, and with it the log, which a Source could fill that has other mistakes for each request.
// After forgetsWarned, what it says once more is logged once more.
const (
	maxWarned     = 1000
	forgetsWarned = time.Hour
)

// version is a Guard with the numbers of a Set. Its rules share all but the numbers with those that they are versions
// of.
type version struct {
	set   *Set
	guard *Guard
	rules map[*rule]*rule // by those of the Config
}

// checkSource reports a Source that would panic.
func checkSource(s Source) error {
	if v := reflect.ValueOf(s); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("guard: Source is a nil %T; leave it out, or give one such as new(atomic.Pointer[guard.Set])", s)
	}
	return nil
}

// current returns g with the numbers that its Source has now. The first request that sees another Set prepares it, and
// requests that come meanwhile go by the Set before: none waits.
func (g *Guard) current() *Guard {
	if g.source == nil {
		return g
	}
	last := g.versions.last.Load() // before the Set, so that it is seen if others are faster
	set := g.source.Load()
	switch {
	case last == nil && set == nil:
		return g
	case last != nil && last.set == set:
		return last.guard
	}
	if g.versions.next.TryLock() {
		defer g.versions.next.Unlock()
		if g.versions.last.Load() == last { // else the version of a later Set may be there already
			if last == nil {
				last = &version{guard: g}
			}
			g.versions.last.Store(g.version(set, last))
		}
	}
	if last = g.versions.last.Load(); last == nil { // the first one is being made
		return g
	}
	return last.guard
}

// version makes the version of a Set, which follows last.
func (g *Guard) version(set *Set, last *version) *version {
	next := &version{set: set, guard: g, rules: map[*rule]*rule{}}
	same := true
	for _, root := range g.all() {
		before := root
		if known, ok := last.rules[root]; ok {
			before = known
		}
		next.rules[root] = root.renew(set, before, g.headers.RateLimit, g.warnNumbersOnce)
		same = same && next.rules[root] == before
	}
	if same { // as with a Source that makes a Set for each request
		next.guard = last.guard
		return next
	}
	renewed := func(rules []*rule) []*rule {
		out := make([]*rule, len(rules))
		for i, root := range rules {
			out[i] = next.rules[root]
		}
		return out
	}
	next.guard = &Guard{family: g.family, rules: renewed(g.rules)}
	if g.routes != nil {
		next.guard.routes = g.routes.renewed(renewed)
	}
	return next
}

// texts are the entries of a Set for one rule.
type texts struct {
	policy string // "" if there is none
	tiers  map[string]string
}

// textsOf returns the entries of s for the rule with a policy of that name.
func textsOf(s *Set, name string) (of texts) {
	if s != nil {
		of = texts{s.Policies[name], s.Tiers[name]}
	}
	return of
}

// renew returns ru, a rule of the Config, with the numbers of set. before is the rule that set follows: ru or a version
// of it. unusable is called for each entry that cannot be used, unless before had the same.
func (ru *rule) renew(set *Set, before *rule, lists bool, unusable func(entry, text string, err error)) *rule {
	now := textsOf(set, ru.name)
	switch {
	case now.policy == before.texts.policy && maps.Equal(now.tiers, before.texts.tiers):
		return before
	case now.policy == "" && len(now.tiers) == 0:
		return ru
	}
	next := *ru
	next.texts = now
	if now.policy != "" {
		next.limiter = before.limiter
		if now.policy != before.texts.policy {
			if l, err := ru.variant(now.policy); err == nil {
				next.limiter = l
			} else {
				unusable(fmt.Sprintf("Policies[%q]", ru.name), now.policy, err)
			}
		}
	}
	next.tiers = ru.renewTiers(now.tiers, before, unusable)
	next.burst = burstOf(next.limiter.Policy())
	if lists && !ru.shadow {
		next.prepareLists()
	}
	return &next
}

// renewTiers returns the limiters of the tiers: those of ru, a rule of the Config, and in their place or beside them
// those of the entries now of a Set.
func (ru *rule) renewTiers(now map[string]string, before *rule, unusable func(entry, text string, err error)) map[string]*enforce.Limiter {
	switch {
	case len(now) == 0:
		return ru.tiers
	case len(now) > maxTiers:
		unusable(fmt.Sprintf("Tiers[%q]", ru.name), "", fmt.Errorf("the Set has %d tiers; give at most %d for one policy", len(now), maxTiers))
		return before.tiers
	}
	tiers := maps.Clone(ru.tiers)
	if tiers == nil {
		tiers = map[string]*enforce.Limiter{}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		text := now[name]
		last, had := before.texts.tiers[name]
		changed := !had || last != text
		l, usable := before.tiers[name]
		if changed || !usable {
			if other, err := ru.tier(name, text); err == nil {
				l, usable = other, true
			} else if changed {
				unusable(fmt.Sprintf("Tiers[%q][%q]", ru.name, name), text, err)
			}
		}
		if usable {
			tiers[name] = l
		}
	}
	return tiers
}
