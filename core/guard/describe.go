package guard

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
)

// Describe returns a text for the log at start-up that says what holds for each of the routes that the router has
// registered, and for all others: a line for each rule, in the order in which they are asked, with its place in
// the Config, its policy, its key, its over-limit handler and its tiers. Numbers that come from a Source are those
// of now.
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
			if own := g.routes.lookup(to.method, to.pattern); own != nil {
				rules = own.rules
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
