package preview

import (
	"maps"
	"slices"
	"strings"

	"github.com/weir-go/weir/core/policies"
)

// differences returns the entries in which two policies differ.
func differences(before, after policies.Policy) []Difference {
	out := []Difference{}
	differ := func(entry, was, is string) {
		if was != is {
			out = append(out, Difference{entry, was, is})
		}
	}
	differ("text", before.Text, after.Text)
	differ("apps", list(before.Apps), list(after.Apps))
	for _, of := range []struct {
		kind    string
		was, is map[string]string
	}{{"tier", before.Tiers, after.Tiers}, {"key", before.Keys, after.Keys}} {
		for _, name := range union(of.was, of.is) {
			differ(of.kind+" "+name, of.was[name], of.is[name])
		}
	}
	return out
}

func list(apps []string) string { return strings.Join(slices.Sorted(slices.Values(apps)), ", ") }

// union returns the names in a and b, sorted.
func union[T any](a, b map[string]T) []string {
	all := map[string]bool{}
	for _, texts := range []map[string]T{a, b} {
		for name := range texts {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}
