package guard

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"weak"

	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/keyfunc"
)

// Source is [follow.Source]: it knows the numbers of policies that change while the program runs, such as those of a
// file. Give it to Config.Source. An *atomic.Pointer[Set] is one:
//
//	numbers := new(atomic.Pointer[guard.Set])
//	g, err := guard.New(guard.Config{Rule: rule, Source: numbers})
//	...
//	numbers.Store(&guard.Set{Policies: map[string]string{"default": "200/1m"}})
type Source = follow.Source

// Set is [follow.Set]: the numbers of policies, of their tiers and of single keys, in the place of those in the Config.
type Set = follow.Set

// PolicyNames returns the names of the policies of all rules of g, sorted, those of its routes included; see
// [follow.Set.Unused].
func (g *Guard) PolicyNames() []string {
	var names []string
	for _, ru := range g.all() {
		names = append(names, ru.name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// version is a Guard with the numbers of a Set. Its rules share all but the numbers with those that they are versions
// of.
type version struct {
	guard *Guard
	rules map[*rule]*rule // by those of the Config; nil in the version of no Set
}

// of returns the version of a rule of the Config.
func (v *version) of(root *rule) *rule {
	if ru, ok := v.rules[root]; ok {
		return ru
	}
	return root
}

// checkSource reports a Source that would panic.
func checkSource(s Source) error {
	if v := reflect.ValueOf(s); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("guard: Source is a nil %T; leave it out, or give one such as new(atomic.Pointer[guard.Set])", s)
	}
	return nil
}

// current returns g with the numbers that its Source has now. No request waits for them; see [follow.Following].
func (g *Guard) current() *Guard {
	if g.following == nil {
		return g
	}
	return g.following.Now().guard
}

// follow lets g follow its Source, if there is one. A Source that prepares its Sets does so for g, and does not keep it
// alive.
func (g *Guard) follow() {
	if g.source == nil {
		return
	}
	g.following = follow.NewFollowing(g.source, &version{guard: g}, g.version)
	l, ok := g.source.(follow.Listener)
	if !ok {
		return
	}
	var rules []follow.Rule
	for _, ru := range g.all() {
		rules = append(rules, follow.Rule{
			Policy: ru.name, Text: ru.limiter.String(), Place: ru.place, Key: ru.Key.String(), OverLimit: fmt.Sprint(ru.OverLimit),
			Tiers: ru.texts(ru.tiers), Store: ru.limiter.Store(),
		})
	}
	followed := weak.Make(g)
	l.Listen(follow.NewFollower(rules, func(set *follow.Set) ([]follow.Entry, bool) {
		g := followed.Value()
		if g == nil {
			return nil, false
		}
		return g.prepareFor(set), true
	}))
}

// prepareFor makes the version of a Set before requests see it, and returns its entries for each rule.
func (g *Guard) prepareFor(set *follow.Set) []follow.Entry {
	made := g.following.Prepare(set)
	var entries [][]follow.Entry
	for _, root := range g.all() {
		entries = append(entries, made.of(root).entriesOf(root))
	}
	if len(entries) == 1 {
		return entries[0]
	}
	return slices.Concat(entries...)
}

// placed are the entries of numbers for a place in the Config.
type placed struct {
	place   string
	tiers   bool   // the rule has a Tier
	key     string // the name of its key function
	entries []follow.Entry
}

// entriesOf returns the entries for a rule. Rules of one policy are mostly alike, such as those that With makes.
func (n *numbers) entriesOf(ru *rule) []follow.Entry {
	of := placed{place: ru.place, tiers: ru.Tier != nil, key: ru.Key.String()}
	if p := n.placed.Load(); p != nil && p.place == of.place && p.tiers == of.tiers && p.key == of.key {
		return p.entries
	}
	of.entries = slices.Clone(n.entries)
	kinds := kindsOf(ru.Key)
	for i := range of.entries {
		e := &of.entries[i]
		e.Place = of.place
		switch {
		case e.Err != nil:
		case e.Field == inTiers && !of.tiers:
			e.Err = errNoTier
		case e.Field == inKeys && !kinds.mayMake(e.Key):
			e.Err = fmt.Errorf("the rule counts by %s, which makes no such key; write keys as Event.Key returns them, as in \"user=7\"", of.key)
		}
	}
	n.placed.Store(&of)
	return of.entries
}

// kinds are the beginnings of the parts that a key may have, such as "user=".
type kinds map[string]bool

func kindsOf(f keyfunc.Func) kinds {
	all := kinds{"hash=": true} // of keyfunc.Hash
	for _, kind := range f.Kinds() {
		var k keyfunc.Key
		k.Add(kind, "")
		all[k.String()] = true
	}
	return all
}

// mayMake reports whether a key may be that text, as far as the kinds of its parts say.
func (all kinds) mayMake(key string) bool {
	for part := range strings.SplitSeq(key, "&") {
		kind, _, found := strings.Cut(part, "=")
		if !found || !all[kind+"="] {
			return false
		}
	}
	return true
}

// The fields of a Set, as follow.Entry names them.
const (
	inTiers = "Tiers"
	inKeys  = "Keys"
)

var errNoTier = errors.New("the rule has no Tier, so that no request is of a tier; give it one, or leave the entry out")

// version makes the version of a Set, which follows last.
func (g *Guard) version(set *follow.Set, last *version) *version {
	next := &version{guard: last.guard, rules: map[*rule]*rule{}}
	revision, same := "", true
	if set != nil {
		revision = set.Revision
	}
	for _, root := range g.all() {
		before := last.of(root)
		now := before
		if numbers := g.numbersOf(root.limiter, root.Tiers, set, before.numbers); numbers != before.numbers || revision != before.revision {
			renewed := *root
			renewed.numbers, renewed.revision = numbers, revision
			now, same = &renewed, false
		}
		next.rules[root] = now
		root.limiter.LogMistakes(now.entries)
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
	return next
}

// numbers are the policy of a rule as it is at one time, with all that follows from it. The versions of a rule differ
// in nothing else. All Guards of a family that have the same policy share them, so that a thousand tiers are prepared
// once, however many Guards With and WithRule have made.
type numbers struct {
	variants *enforce.Variants
	entries  []follow.Entry // of the Set, for this policy
	placed   atomic.Pointer[placed]

	limiter *enforce.Limiter
	tiers   map[string]*enforce.Limiter // nil for the unlimited
	keys    map[string]*enforce.Limiter // those of single keys, nil for the unlimited; a nil map if there are none
	wait    time.Duration               // how far ahead a request may reserve
	shadow  bool
	inEpoch string                        // the name of the policy in its epoch, for what the process keeps by names
	burst   burst                         // of the first limit: nearly always, of the one that the headers show
	lists   map[*enforce.Limiter]*listing // for RateLimit and RateLimit-Policy, of each policy; nil if they are not sent
}

// burst is a limit's burst, and its text in a header.
type burst struct {
	units int64
	text  string
}

// numbersOf returns the numbers for a Set, which follow before, of a policy of the code and its tiers: l and tiers. A
// nil before follows nothing.
func (f *family) numbersOf(l *enforce.Limiter, tiers map[string]string, set *follow.Set, before *numbers) *numbers {
	var follow *enforce.Variants
	if before != nil {
		follow = before.variants
	}
	v, entries := l.Variants(tiers, set, follow)
	if before != nil && v == before.variants {
		return before
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	of := preparedFor{l.Policy().Name(), set == nil}
	n := f.latest[of]
	if n == nil || n.variants != v {
		n = newNumbers(v, entries, f.headers.RateLimit)
		f.latest[of] = n
	}
	return n
}

// preparedFor names the latest numbers of a policy: those of the code, or those for a Set.
type preparedFor struct {
	policy string
	code   bool
}

// newNumbers prepares what follows from variants of a policy. lists says whether the two lists are sent.
func newNumbers(v *enforce.Variants, entries []follow.Entry, lists bool) *numbers {
	p := v.Limiter.Policy()
	o := p.Options()
	n := &numbers{variants: v, entries: entries, limiter: v.Limiter, tiers: v.Tiers, wait: o.Wait, shadow: o.Shadow, inEpoch: p.Name()}
	if len(v.Keys) > 0 {
		n.keys = v.Keys
	}
	if o.Epoch > 0 {
		n.inEpoch += "@" + strconv.Itoa(o.Epoch)
	}
	units := p.Limits()[0].Burst
	n.burst = burst{units, strconv.FormatInt(units, 10)}
	if lists && !n.shadow {
		n.prepareLists()
	}
	return n
}

// tierMistakes reports the tiers of the code that cannot be used.
func (n *numbers) tierMistakes() error {
	var mistakes []error
	for _, e := range n.entries {
		if e.Err != nil {
			mistakes = append(mistakes, fmt.Errorf("in Tiers[%q]: %w", e.Tier, e.Err))
		}
	}
	return errors.Join(mistakes...)
}

// unlimited is the policy of a tier that has no limit.
const unlimited = "unlimited"

// ofTier returns the limiter of a tier, or nil for one that is unlimited, and the tier's name if the rule knows it.
func (g *Guard) ofTier(ru *rule, tier string) (*enforce.Limiter, string) {
	if l, ok := ru.tiers[tier]; ok {
		return l, tier
	}
	if tier != "" && ru.strangers.Load() < watchedRequests {
		ru.strangers.Add(1)
		g.compareTier(ru, tier)
	}
	return ru.limiter, ""
}

// compareTier warns of a tier that the rule does not know, if it differs from one that it knows by case or white space
// alone. Any other is as documented: the Policy is for those who are in no tier.
func (g *Guard) compareTier(ru *rule, tier string) {
	trimmed := strings.TrimSpace(tier) // which may be long
	for known := range ru.tiers {
		if strings.EqualFold(trimmed, strings.TrimSpace(known)) {
			g.warnTier(ru, tier, known)
		}
	}
}
