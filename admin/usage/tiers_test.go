package usage_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/usage"
	"github.com/weir-go/weir/core/stats"
)

// A process that announces other tiers each time takes no more memory than there is: they count together.
func TestTiersHaveABudget(t *testing.T) {
	const budget, policies, rounds = 100_000, 20, 30
	now, counted := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), uint64(0)
	h, err := usage.New(usage.Options{
		Apps:   func(context.Context) ([]string, error) { return []string{"pay"}, nil },
		Budget: budget, Now: func() time.Time { return now },
		Read: func(_ context.Context, _ string, f func(string, *stats.Usage, error)) error {
			counted++
			u := &stats.Usage{For: time.Duration(counted) * 20 * time.Second}
			for i := range policies {
				u.Policies = append(u.Policies, stats.PolicyUsage{Policy: fmt.Sprint("policy-", i), Tiers: []stats.TierUsage{
					{Tier: fmt.Sprint(counted, strings.Repeat("x", 1000)), UsageCounts: stats.UsageCounts{Admitted: counted}},
				}})
			}
			f("1", u, nil)
			return nil
		},
	})
	require.NoError(t, err)
	for range rounds {
		require.NoError(t, h.Round(t.Context()))
		now = now.Add(20 * time.Second)
	}
	size, together := 0, 0
	for i := range policies {
		for name := range h.Policy("pay", fmt.Sprint("policy-", i), now.Add(-time.Hour)).Tiers {
			size += len(name)
			if name == usage.Others {
				together++
			}
		}
	}
	assert.Less(t, size, budget)
	assert.Equal(t, policies, together)
}
