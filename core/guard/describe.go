package guard

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Describe returns a text for the log at start-up that says what holds for each of the routes that the router has
// registered, and for all others: a line for each rule, in the order in which they are asked, with its place in
// the Config, its policy, its key, its over-limit handler and its tiers. Numbers that come from a Source are those
// of now.
func (g *Guard) Describe(routes []string) string {
	g = g.current()
	var lines [][]string
	describe := func(route string, rules []*rule) {
		if len(rules) == 0 {
			lines = append(lines, []string{route, "nothing"})
		}
		for _, ru := range rules {
			tiers := ""
			if len(ru.tiers) > 0 {
				tiers = "tiers " + strings.Join(slices.Sorted(maps.Keys(ru.tiers)), ", ")
			}
			lines = append(lines, []string{
				route, ru.place, ru.limiter.Policy().String(), fmt.Sprint("by ", ru.Key), fmt.Sprint(ru.OverLimit), tiers,
			})
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
	return columns(lines)
}

// columns are the lines with each cell as wide as the widest in its column, two spaces apart. It is not text/tabwriter,
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
