package guard

import (
	"errors"
	"fmt"
	"hash/maphash"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

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

// unusable remembers the entries of Sets that could not be used and were logged, for all Guards of a family.
type unusable struct {
	mu     sync.Mutex
	warned map[uint64]bool // hashes of the entries with their texts
	since  time.Time       // when the first of them was logged
}

// warnNumbersOnce is warnNumbers, once for each entry and text, however often a Source goes back and forth and however
// many Guards have the policy, and not for more than maxWarned of them in the time of forgetsWarned.
func (f *family) warnNumbersOnce(entry, text string, err error) {
	u, hash := &f.unusable, maphash.Comparable(warnedSeed, [3]string{entry, text, err.Error()})
	u.mu.Lock()
	full := len(u.warned) >= maxWarned
	if u.warned[hash] || full && time.Since(u.since) < forgetsWarned {
		u.mu.Unlock()
		return
	}
	if full || u.warned == nil {
		u.warned, u.since = map[uint64]bool{}, time.Now()
	}
	u.warned[hash] = true
	u.mu.Unlock()
	f.warnNumbers(entry, text, err)
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

// versions are those of a Guard whose numbers come from a Source.
type versions struct {
	last    atomic.Pointer[version] // by which requests go
	made    atomic.Pointer[version] // the latest; a Source that prepares its Sets has not shown it yet, maybe
	earlier atomic.Pointer[version] // the one made before
	next    sync.Mutex              // held while another one is made
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

// current returns g with the numbers that its Source has now. A Source that is a [enforce.Listener] has prepared them.
// Of another one, the first request that sees another Set prepares it, and requests that come meanwhile go by the Set
// before: none waits.
func (g *Guard) current() *Guard {
	if g.source == nil {
		return g
	}
	v := &g.versions
	last := v.last.Load() // before the Set, so that it is seen if others are faster
	set := g.source.Load()
	switch {
	case last == nil && set == nil:
		return g
	case last != nil && last.set == set:
		return last.guard
	}
	if made := v.find(set); made != nil {
		v.last.CompareAndSwap(last, made) // unless the version of a later Set is there already
	} else if v.next.TryLock() {
		g.catchUp(last, set)
		v.next.Unlock()
	}
	if last = v.last.Load(); last == nil { // the first one is being made
		return g
	}
	return last.guard
}

// find returns the version of a Set if it is one of the latest two.
func (v *versions) find(set *enforce.Set) *version {
	if made := v.made.Load(); made != nil && made.set == set {
		return made
	}
	if made := v.earlier.Load(); made != nil && made.set == set { // the Source prepares the next one
		return made
	}
	return nil
}

// catchUp makes the version of a Set that nobody has prepared, for a request that has seen last and then the Set. The
// caller holds next.
func (g *Guard) catchUp(last *version, set *enforce.Set) {
	v := &g.versions
	latest := v.made.Load()
	if latest != last { // the Source may have shown a later Set since
		set = g.source.Load()
	}
	last = v.last.Load()
	made := v.find(set)
	if made == nil {
		made = g.version(set, latest)
	}
	v.last.CompareAndSwap(last, made)
}

// follow lets a Source that prepares its Sets do so for g. The Source does not keep g alive.
func (g *Guard) follow() {
	l, ok := g.source.(enforce.Listener)
	if !ok {
		return
	}
	var rules []enforce.Rule
	for _, ru := range g.all() {
		rules = append(rules, enforce.Rule{
			Policy: ru.name, Text: ru.limiter.String(), Place: ru.place, Key: ru.Key.String(), OverLimit: fmt.Sprint(ru.OverLimit), Tiers: ru.texts(ru.tiers),
		})
	}
	followed := weak.Make(g)
	l.Listen(enforce.NewFollower(rules, func(set *enforce.Set) ([]enforce.Entry, bool) {
		g := followed.Value()
		if g == nil {
			return nil, false
		}
		return g.prepareFor(set), true
	}))
}

// prepareFor makes the version of a Set before requests see it, and returns its entries for each rule.
func (g *Guard) prepareFor(set *enforce.Set) []enforce.Entry {
	v := &g.versions
	v.next.Lock()
	defer v.next.Unlock()
	made := v.made.Load()
	if made == nil || made.set != set {
		made = g.version(set, made)
	}
	var entries [][]enforce.Entry
	for _, root := range g.all() {
		entries = append(entries, made.rules[root].entriesAt(root.place, root.Tier != nil))
	}
	if len(entries) == 1 {
		return entries[0]
	}
	return slices.Concat(entries...)
}

// placed are the entries of numbers for a place in the Config.
type placed struct {
	place   string
	tiers   bool // the rule has a Tier
	entries []enforce.Entry
}

// entriesAt returns the entries for a rule at that place. Rules of one policy are mostly of one place, With.
func (n *numbers) entriesAt(place string, tiers bool) []enforce.Entry {
	if p := n.placed.Load(); p != nil && p.place == place && p.tiers == tiers {
		return p.entries
	}
	entries := slices.Clone(n.entries)
	for i := range entries {
		e := &entries[i]
		if e.Place = place; e.Field == inTiers && e.Err == nil && !tiers {
			e.Err = errNoTier
		}
	}
	n.placed.Store(&placed{place, tiers, entries})
	return entries
}

// The fields of a Set, as enforce.Entry names them.
const (
	inTiers = "Tiers"
	inKeys  = "Keys"
)

var errNoTier = errors.New("the rule has no Tier, so that no request is of a tier; give it one, or leave the entry out")

// version makes the version of a Set, which follows last: nil for the Config. The caller holds next.
func (g *Guard) version(set *enforce.Set, last *version) *version {
	if last == nil {
		last = &version{guard: g}
	}
	next := &version{set: set, guard: last.guard, rules: map[*rule]*rule{}}
	revision, same := "", true
	if set != nil {
		revision = set.Revision
	}
	for _, root := range g.all() {
		before := root
		if known, ok := last.rules[root]; ok {
			before = known
		}
		now := before
		if numbers := g.numbersOf(root.limiter, root.Tiers, set, before.numbers); numbers != before.numbers || revision != before.revision {
			renewed := *root
			renewed.numbers, renewed.revision = numbers, revision
			now, same = &renewed, false
		}
		next.rules[root] = now
		for _, e := range now.entries {
			if e.Err != nil {
				g.warnNumbersOnce(e.String(), e.Text, e.Err)
			}
		}
	}
	if !same { // not so with a Source that makes a Set for each request
		renewed := func(rules []*rule) []*rule {
			out := make([]*rule, len(rules))
			for i, root := range rules {
				out[i] = next.rules[root]
			}
			return out
		}
		next.guard = &Guard{family: g.family, rules: renewed(g.rules), revision: revision}
		if g.routes != nil {
			next.guard.routes = g.routes.renewed(renewed)
		}
	}
	g.versions.earlier.Store(g.versions.made.Load())
	g.versions.made.Store(next)
	return next
}
