package page

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/internal/adminapi"
)

// What was just put off until a time is not shown as nearly there.
func TestAgo(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 3, 4, 5, 0, time.UTC)
	for after, want := range map[time.Duration]string{
		24*time.Hour - time.Second: "in 24 h", 7*24*time.Hour - time.Second: "in 7 days", time.Hour - time.Second: "in 1 h",
		5 * time.Minute: "in 5 min", 90 * time.Second: "in 1 min", 59 * time.Second: "in 59 s",
		0: "just now", -time.Hour: "1 h ago", -59 * time.Second: "just now",
	} {
		assert.Equal(t, want, ago(now.Add(after), now), after)
	}
	assert.Equal(t, "never", ago(time.Time{}, now))
}

// A mistake is marked where it is, with the rest of its word.
func TestMistakeIn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text              string
		column            int
		before, at, after string
	}{
		{"60/1fortnight, 5/1s", 5, "60/1", "fortnight", ", 5/1s"},
		{"5/1m burst", 11, "5/1m burst", " ", ""},
		{"é/1m", 1, "", "é", "/1m"},
		{"5//1m", 3, "5/", "/", "1m"},
		{"5/1m", 0, "", "", ""},
		{"5/1m", 99, "", "", ""},
	} {
		m := mistakeIn(c.text, adminapi.Mistake{Location: "text", Column: c.column})
		assert.Equal(t, []string{c.before, c.at, c.after}, []string{m.Before, m.At, m.After}, c.text)
	}
}

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
