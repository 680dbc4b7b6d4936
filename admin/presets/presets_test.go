package presets_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/presets"
	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/inwords"
	"github.com/weir-go/weir/keyfunc"
)

// Each preset is a policy that a document may have, that a program runs without a warning, and that is explained.
func TestEachPresetHolds(t *testing.T) {
	all := presets.All()
	assert.GreaterOrEqual(t, len(all), 10)
	seen := map[string]bool{}
	for _, p := range all {
		t.Run(p.Name, func(t *testing.T) {
			require.NoError(t, policies.CheckName(p.Name))
			assert.False(t, seen[p.Name], "it stands twice")
			seen[p.Name] = true
			assert.NotEmpty(t, p.Title)
			assert.NotEmpty(t, p.Key)
			assert.Greater(t, len(p.Words), 100, "it says too little")
			assert.True(t, strings.HasSuffix(p.Words, "."))

			d := policies.Document{
				App: "app", Version: policies.Version{Generation: 1, Revision: 1},
				Policies: map[string]policies.Policy{p.Name: p.Policy},
			}
			require.NoError(t, d.Check())

			policy, err := core.Parse(p.Policy.Text)
			require.NoError(t, err)
			assert.Equal(t, p.Policy.Text, policy.String(), "it is written as programs print it")
			assert.NotEmpty(t, inwords.Of(policy).Within)
			for tier, text := range p.Policy.Tiers {
				if text != follow.Unlimited {
					_, err := enforce.FitsTier(policy, text)
					require.NoError(t, err, tier)
				}
			}

			rule := guard.Rule{Policy: p.Name + ": " + p.Policy.Text, Key: keyfunc.IP(), Tiers: p.Policy.Tiers}
			if rule.Tiers != nil {
				rule.Tier = func(keyfunc.Request) string { return "" }
			}
			g, err := guard.New(guard.Config{Rule: rule})
			require.NoError(t, err)
			defer g.Close()
			assert.Empty(t, g.Lint([]string{"GET /"}))
		})
	}
}

// A caller may change what it got.
func TestAllIsACopy(t *testing.T) {
	for i, p := range presets.All() {
		if p.Policy.Tiers != nil {
			p.Policy.Tiers["gold"] = "1/1h"
			assert.NotEqual(t, "1/1h", presets.All()[i].Policy.Tiers["gold"])
		}
	}
}
