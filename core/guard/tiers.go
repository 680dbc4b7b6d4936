package guard

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
)

// prepareTiers makes a limiter for each tier.
func (ru *rule) prepareTiers() error {
	var mistakes []error
	for _, tier := range slices.Sorted(maps.Keys(ru.Tiers)) {
		if ru.tiers == nil {
			ru.tiers = map[string]*enforce.Limiter{}
		}
		l, err := ru.tier(tier, ru.Tiers[tier])
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("in Tiers[%q]: %w", tier, err))
			continue
		}
		ru.tiers[tier] = l
	}
	return errors.Join(mistakes...)
}

// tier returns the limiter of a tier with the numbers of a text, or nil if the tier is unlimited.
func (ru *rule) tier(name, text string) (*enforce.Limiter, error) {
	switch {
	case name == "":
		return nil, errors.New("a tier has a name; the Policy is for those who are in none")
	case text == unlimited:
		return nil, nil //nolint:nilnil // it is unlimited
	}
	l, err := ru.variant(text)
	var unread *core.SyntaxError
	if errors.As(err, &unread) {
		return nil, fmt.Errorf("%w; or give %q", unread, unlimited)
	}
	return l, err
}

// variant returns the rule's limiter with the numbers of a text, which must differ in nothing else. Options that the
// text leaves out are those of the rule's policy.
func (ru *rule) variant(text string) (*enforce.Limiter, error) {
	p, err := core.Parse(text)
	if err != nil {
		return nil, err
	}
	own, written := ru.limiter.Policy().Options(), p.Options()
	all := inherit(written, own)
	same := all
	if own.Processes > 0 {
		same.Processes = own.Processes // how many is a number, too
	}
	if same != own || own.Fail != core.FailLocal && saysLocal(text) {
		return nil, fmt.Errorf("only the numbers may differ; leave the options out, or write those of %q", ru.limiter.Policy())
	}
	if all != written {
		if p, err = core.NewPolicy(p.Name(), all, p.Limits()...); err != nil {
			return nil, err
		}
	}
	return ru.limiter.Variant(p)
}

// saysLocal reports whether the text of a policy has "fail local" written out. The options do not: a text
// without a fail word means the same.
func saysLocal(text string) bool {
	words := strings.Fields(strings.ReplaceAll(text, ";", " "))
	return slices.Contains(words, core.FailLocal.String())
}

// inherit returns o with the options of own in the place of those that a text has left out, which are zero.
func inherit(o, own core.PolicyOptions) core.PolicyOptions {
	o.Wait, o.Fail = cmp.Or(o.Wait, own.Wait), cmp.Or(o.Fail, own.Fail)
	o.Processes, o.Shadow = cmp.Or(o.Processes, own.Processes), o.Shadow || own.Shadow
	return o
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
