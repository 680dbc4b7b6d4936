package guard_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

// Tiers change the numbers and nothing else: what was counted stays counted.
func TestTiers(t *testing.T) {
	said := new(records)
	g := newGuard(t, guard.Config{
		Rule: guard.Rule{
			Policy: "2/1h fixed-window",
			Tier:   func(r keyfunc.Request) string { return strings.Join(r.Header("Tier"), "") },
			Tiers:  map[string]string{"pro": "5/1h fixed-window", "admin": "unlimited"},
		},
		Log: slog.New(said),
	})
	use := func(tier string) (passed bool, limit string) {
		v, h := g.Check(sent("Tier", tier)), header{}
		v.SetHeaders(h)
		return v.Action == guard.Pass, h["X-Ratelimit-Limit"]
	}
	demand := func(tier string, passes bool, limit string) {
		t.Helper()
		passed, got := use(tier)
		assert.Equal(t, passes, passed)
		assert.Equal(t, limit, got)
	}
	demand("", true, "2")
	demand("", true, "2")
	demand("", false, "2")
	assert.Empty(t, said.all())
	demand("gold", false, "2")
	demand("free", false, "2")
	assert.Empty(t, said.all(), "as documented")
	demand(" Pro", false, "2")
	demand("PRO", false, "2")
	assert.Equal(t, []string{`WARN weir: Tier has named a tier that differs from one in Tiers by case or white space alone, so that the rule's own policy holds; let both spell it alike policy=default tier= Pro known=pro`}, said.all())
	for range 3 {
		demand("pro", true, "5")
	}
	demand("pro", false, "5")
	for range 10 {
		demand("admin", true, "")
	}
}
