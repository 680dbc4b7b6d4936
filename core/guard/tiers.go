package guard

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weir-go/weir/core"
)

// prepareTiers makes a limiter for each tier.
func (ru *rule) prepareTiers() error {
	var mistakes []error
	for _, tier := range slices.Sorted(maps.Keys(ru.Tiers)) {
		if ru.tiers == nil {
			ru.tiers = map[string]*core.Limiter{}
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
func (ru *rule) tier(name, text string) (*core.Limiter, error) {
	switch {
	case name == "":
		return nil, errors.New("a tier has a name; the Policy is for those who are in none")
	case text == unlimited:
		return nil, nil //nolint:nilnil // it is unlimited
	}
	l, err := ru.variant(text)
	if unread, ok := errors.AsType[*core.SyntaxError](err); ok {
		return nil, fmt.Errorf("%w; or give %q", unread, unlimited)
	}
	return l, err
}

// variant returns the rule's limiter with the numbers of a text, which must differ in nothing else.
func (ru *rule) variant(text string) (*core.Limiter, error) {
	p, err := core.Parse(text)
	own, other := ru.limiter.Policy().Options(), p.Options()
	if own.Processes > 0 && other.Processes > 0 { // how many is a number, too
		other.Processes = own.Processes
	}
	if err == nil && other != own {
		err = fmt.Errorf("only the numbers may differ; write the options of %q, and those alone", ru.limiter.Policy())
	}
	if err != nil {
		return nil, err
	}
	return ru.limiter.Variant(p)
}

// unlimited is the policy of a tier that has no limit.
const unlimited = "unlimited"

// ofTier returns the limiter of a tier, or nil for one that is unlimited, and the tier's name if the rule knows it.
func (g *Guard) ofTier(ru *rule, tier string) (*core.Limiter, string) {
	if l, ok := ru.tiers[tier]; ok {
		return l, tier
	}
	if tier != "" {
		g.warnTier(ru, tier)
	}
	return ru.limiter, ""
}
