package counts

import (
	"cmp"
	"slices"

	"github.com/weir-go/weir/core/policies"
)

// Where is the place in which a rule keeps its counts, as its process has announced it.
type Where struct {
	// Prefix is that of the keys in Redis, "" if it is not known.
	Prefix string `json:"prefix,omitempty"`
	// Hashed reports whether the keys are hashed with a secret.
	Hashed bool `json:"hashed,omitempty"`
	// Process reports whether the counts are in the process, where nobody else sees them.
	Process bool `json:"process,omitempty"`
}

// Rule is a policy as the code of services has it.
type Rule struct {
	// Policy is its name, and Code its text, "" if that is not known.
	Policy string `json:"policy"`
	Code   string `json:"code,omitempty"`
	// Tiers are those of the code.
	Tiers map[string]string `json:"-"`
	Where
	// Keys are the kinds of its keys, such as "ip", and Places where the code has it, such as "GET /orders".
	Keys   []string `json:"keys,omitempty"`
	Places []string `json:"places,omitempty"`
	// Processes is the number of processes that have it, and Names are those of the first of them.
	Processes int      `json:"processes"`
	Names     []string `json:"names,omitempty"`
	// Barred is the reason why nobody may look into its counts, or "", and With are the other apps that share them, on which
	// the same right is needed. Stores.Bind fills them in.
	Barred string   `json:"barred,omitempty"`
	With   []string `json:"-"`
}

// Bounds of what processes can make of a look by what they announce.
const (
	maxRules  = 200 // of an app
	maxListed = 5   // kinds of keys, and places, of a rule
	maxNames  = 20  // of its processes
	maxTiers  = 16  // that a look shows of a rule
)

// Rules returns the rules of an app's processes, sorted, each once: those of one policy differ in the text of the code or
// in the place of their counts, as while a program is rolled out. more is the number of those that were left out.
func Rules(processes []*policies.Process) (rules []Rule, more int) {
	type same struct {
		policy, code string
		where        Where
	}
	index := map[same]int{}
	for _, p := range processes {
		counted := map[int]bool{}
		for i := range p.Rules {
			r := &p.Rules[i]
			id := same{r.Policy, r.Code, whereOf(r)}
			at, known := index[id]
			if !known {
				at = len(rules)
				index[id] = at
				rules = append(rules, Rule{Policy: r.Policy, Code: r.Code, Tiers: r.Tiers, Where: id.where})
			}
			rule := &rules[at]
			if rule.Tiers == nil {
				rule.Tiers = r.Tiers
			}
			rule.Keys, rule.Places = listed(rule.Keys, r.Key, maxListed), listed(rule.Places, r.Place, maxListed)
			if !counted[at] {
				counted[at] = true
				rule.Processes++
				rule.Names = listed(rule.Names, cmp.Or(p.Name, p.ID), maxNames)
			}
		}
	}
	slices.SortFunc(rules, func(a, b Rule) int {
		return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(b.Processes, a.Processes),
			cmp.Compare(a.Code, b.Code), cmp.Compare(a.Prefix, b.Prefix))
	})
	if more = len(rules) - maxRules; more > 0 {
		return rules[:maxRules], more
	}
	return rules, 0
}

// whereOf returns the place of the counts of a rule, which is zero if its store does not say.
func whereOf(r *policies.RuleState) Where { return Where(r.Location) }

// listed adds a text to a short list, once.
func listed(list []string, text string, most int) []string {
	if text == "" || len(list) == most || slices.Contains(list, text) {
		return list
	}
	return append(list, text)
}
