package page

import (
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A policy goes through the form and back unchanged, whatever names its tiers and keys have.
func TestEntriesRoundTrip(t *testing.T) {
	t.Parallel()
	name := rapid.OneOf(rapid.StringN(1, 20, -1), rapid.StringMatching(`[a-z=: "\\\n\r]{1,12}`), rapid.SampledFrom([]string{
		"user=7", "ip=2001:db8::/64", `"`, " lead", "trail ", ":", "a: b", "a:", "\n", "tab\t", `"quoted"`, "é",
	}))
	rapid.Check(t, func(t *rapid.T) {
		entries := rapid.MapOfN(name, rapid.SampledFrom([]string{"5/1m", "20/1s, 1000/1d burst 4", "blocked", "unlimited"}), 0, 6).Draw(t, "entries")
		for name := range entries {
			if !strings.Contains(strings.ToValidUTF8(name, "\xff"), "\xff") {
				continue
			}
			delete(entries, name) // a form has text alone
		}
		text := strings.TrimSpace(linesOf(entries))
		got, mistakes := entriesOf("keys", text)
		if len(mistakes) > 0 || !maps.Equal(got, entries) {
			t.Fatalf("%q became %q by %q: %v", entries, got, text, mistakes)
		}
	})
}
