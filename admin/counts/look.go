package counts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/explain"
	"github.com/weir-go/weir/core/policies"
)

// Look is a key as one rule counts it.
type Look struct {
	Rule
	// Explanation is the answer that a request of one unit would get now, and why. It is nil where nobody can look.
	Explanation *explain.Explanation `json:"explanation,omitempty"`
	// Left is the number of units that are left of the limit that has least, and Of that limit: with 10/1s and 6 used, 4 of
	// 10. They are 0 where nothing is counted.
	Left int64 `json:"left"`
	Of   int64 `json:"of"`
	// Tiers are the same for requests in tiers, by their names: the first 16, and MoreTiers is the number of the others.
	// There are none for a key that has numbers in the document, which hold in all tiers.
	Tiers     []Tier `json:"tiers,omitempty"`
	MoreTiers int    `json:"moreTiers,omitempty"`
	// Unused are the texts of the document that the rule cannot use, such as those for other algorithms: what it obeys
	// may be what held before.
	Unused []Unused `json:"unused,omitempty"`
	// Apart is the reason why the rule hardly counts by this key, or "".
	Apart string `json:"apart,omitempty"`
	// Why is the reason why nobody can look, or "". It does not have the key.
	Why string `json:"why,omitempty"`
}

// Tier is the answer to a request in a tier.
type Tier struct {
	Tier        string              `json:"tier"`
	Explanation explain.Explanation `json:"explanation"`
	Left        int64               `json:"left"` // as in Look
	Of          int64               `json:"of"`
}

// Unused is a text that a rule cannot use.
type Unused struct {
	Entry string `json:"entry"` // such as Tiers["api"]["pro"]
	Text  string `json:"text"`
	Why   string `json:"why"`
}

// Refuses reports whether a request of the key is refused now, in no tier. A policy on trial refuses none.
func (l *Look) Refuses() bool {
	x := l.Explanation
	return x != nil && !x.Shadow && (x.Outcome == core.Refused.String() || x.Outcome == core.Never.String())
}

// Look looks at a key under all rules of an app at once, by the numbers of its document, which may be nil. It writes
// nothing and takes no longer than some 1.5 s: what could not be read meanwhile has an Err. Those that refuse are the
// first, and those under which nobody can look, or which count by other keys, the last.
func (s *Stores) Look(ctx context.Context, rules []Rule, document *policies.Document, key string) ([]Look, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	looks := make([]Look, min(len(rules), maxRules))
	var all sync.WaitGroup
	for i := range looks {
		looks[i].Rule = rules[i]
		all.Go(func() { s.look(ctx, &looks[i], document, key) })
	}
	all.Wait()
	slices.SortStableFunc(looks, func(a, b Look) int { return a.rank() - b.rank() })
	return looks, nil
}

// rank orders looks.
func (l *Look) rank() int {
	switch {
	case l.Refuses():
		return 0
	case l.Why != "":
		return 3
	case l.Apart != "":
		return 2
	}
	return 1
}

// MaxKey is the length of the longest key that can be looked at. Those of keyfunc are shorter.
const MaxKey = 1024

// CheckKey returns why a text cannot be a key, or nil. The error does not have the key.
func CheckKey(key string) error {
	switch {
	case key == "":
		return errors.New("there is no key; give the text of one, such as user=7 or ip=203.0.113.7")
	case len(key) > MaxKey:
		return fmt.Errorf("the key has %d bytes; give at most %d", len(key), MaxKey)
	}
	return nil
}

func (s *Stores) look(ctx context.Context, look *Look, document *policies.Document, key string) {
	r := look.Rule
	look.Apart = r.apart(key)
	fleet, revision := policies.Policy{}, ""
	if document != nil {
		fleet, revision = document.Policies[r.Policy], document.Version.String()
	}
	var tiers []string // none if the key has numbers of its own, which hold in all of them
	if own, has := fleet.Keys[key]; has {
		fleet.Keys = map[string]string{key: own}
		r.Tiers, fleet.Tiers = nil, nil
	} else {
		tiers = slices.AppendSeq(slices.Collect(maps.Keys(r.Tiers)), maps.Keys(fleet.Tiers))
		slices.Sort(tiers)
		tiers = slices.Compact(tiers)
		look.MoreTiers = max(0, len(tiers)-maxTiers)
		tiers = tiers[:len(tiers)-look.MoreTiers]
		r.Tiers, fleet.Tiers, fleet.Keys = among(r.Tiers, tiers), among(fleet.Tiers, tiers), nil
	}
	if err := look.read(ctx, s, &r, fleet, revision, key, tiers); err != nil {
		look.Why = Plain(err)
	}
}

// among returns the texts that have one of the names.
func among(texts map[string]string, names []string) map[string]string {
	chosen := map[string]string{}
	for _, name := range names {
		if text, has := texts[name]; has {
			chosen[name] = text
		}
	}
	return chosen
}

// read reads the counts, and fills in what follows from them.
func (l *Look) read(ctx context.Context, s *Stores, r *Rule, fleet policies.Policy, revision, key string, tiers []string) error {
	view, err := s.View(r)
	if err != nil {
		return err
	}
	n, err := NumbersOf(r, view, fleet, revision)
	if err != nil {
		return err
	}
	for _, e := range n.Entries {
		if e.Err != nil {
			l.Unused = append(l.Unused, Unused{e.String(), e.Text, Plain(e.Err)})
		}
	}
	var counted []core.Policy
	for _, tier := range append([]string{""}, tiers...) {
		if p, ok := n.Counts(key, tier); ok {
			counted = append(counted, p)
		}
	}
	if err := view.Read(ctx, key, counted...); err != nil {
		return err
	}
	x, err := n.Explain(ctx, key, "")
	if err != nil {
		return err
	}
	l.Explanation = &x
	l.Left, l.Of = leastLeft(&x)
	for _, tier := range tiers {
		x, err := n.Explain(ctx, key, tier)
		if err != nil {
			return err
		}
		left, of := leastLeft(&x)
		l.Tiers = append(l.Tiers, Tier{tier, x, left, of})
	}
	return nil
}

// leastLeft returns what is left of the limit that has least, and that limit.
func leastLeft(x *explain.Explanation) (left, of int64) {
	p, err := core.Parse(x.Policy)
	if err != nil { // unlimited, or blocked
		return 0, 0
	}
	limits := p.Limits()
	for i, l := range x.Limits {
		if i < len(limits) && (i == 0 || l.Left < left) {
			left, of = l.Left, limits[i].Burst+limits[i].Debt
		}
	}
	return left, of
}

// Plain returns the text of an error without the package that it comes from.
func Plain(err error) string {
	text := err.Error()
	for _, from := range []string{"enforce: ", "core: ", "redisstore: ", "policies: "} {
		text = strings.TrimPrefix(text, from)
	}
	return text
}

// apart returns why a rule hardly counts by a key, or "": its kinds have another name than the parts of the key have.
func (r *Rule) apart(key string) string {
	if len(r.Keys) == 0 {
		return ""
	}
	for part := range strings.SplitSeq(key, "&") {
		kind, _, named := strings.Cut(part, "=")
		if !named || slices.ContainsFunc(r.Keys, func(kinds string) bool { return strings.Contains(kinds, kind) }) {
			return ""
		}
	}
	return fmt.Sprintf("it counts by %s, and not by such a key", strings.Join(r.Keys, ", or by "))
}
