package guard

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/core/enforce"
)

// numbers are the policy of a rule as it is at one time, with all that follows from it. The versions of a rule differ
// in nothing else. All Guards of a family that have the same policy share them, so that a thousand tiers are prepared
// once, however many Guards With and WithRule have made.
type numbers struct {
	variants *enforce.Variants
	entries  []enforce.Entry // of the Set, for this policy
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
func (f *family) numbersOf(l *enforce.Limiter, tiers map[string]string, set *enforce.Set, before *numbers) *numbers {
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
func newNumbers(v *enforce.Variants, entries []enforce.Entry, lists bool) *numbers {
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
