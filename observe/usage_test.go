package observe_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/observe"
)

// TestUsage: each request is admitted, refused or on trial, and counts for its tier.
func TestUsage(t *testing.T) {
	o := newObserver(t, observe.Options{})
	for n, e := range []guard.Event{
		{Outcome: core.Admitted, From: guard.FromStore},
		{Outcome: core.AtLimit, From: guard.FromStore, Waited: time.Second},
		{Outcome: core.Refused, From: guard.FromDenyCache},
		{Outcome: core.Never, From: guard.FromStore, Waited: time.Second},
		{Outcome: core.Refused, From: guard.FromStore, Shadow: true},
		{Outcome: core.Admitted, From: guard.FromStore, Shadow: true},
		{Outcome: core.Admitted, From: guard.FromFallback},
		{Outcome: core.Refused, From: guard.FromFallback},
		{Outcome: core.Admitted, From: guard.FromOpen},
		{Outcome: core.Refused, From: guard.FromClosed},
		{Outcome: core.Refused, From: guard.FromStore, Rule: "Rules[1]"},
		{Outcome: core.Refused, From: guard.FromStore, Tier: "pro"},
		{Outcome: core.Refused, From: guard.FromStore, Tier: "pro", Settled: true, Used: 3},
	} {
		e.Policy = "p"
		for range 1 + n {
			o.Observe(e)
		}
	}
	o.Observe(guard.Event{Policy: "a", Outcome: core.Admitted})
	u := o.Usage()
	assert.Equal(t, []stats.PolicyUsage{
		{Policy: "a", Tiers: []stats.TierUsage{{UsageCounts: stats.UsageCounts{Admitted: 1}}}},
		{Policy: "p", Tiers: []stats.TierUsage{
			{UsageCounts: stats.UsageCounts{
				Admitted: 1 + 2 + 6 + 7 + 9, Refused: 3 + 4 + 8 + 10 + 11, Trial: 5, Failed: 7 + 8 + 9 + 10, Local: 7 + 8, Waited: 2 + 4,
			}},
			{Tier: "pro", UsageCounts: stats.UsageCounts{Refused: 12}},
		}},
	}, u.Policies)
	assert.Zero(t, u.For%time.Second)
}

// TestUsageKeys: both lists are there, whatever WorstBy is, of as many policies as there are; and none if they were not
// asked for.
func TestUsageKeys(t *testing.T) {
	for _, by := range []observe.WorstBy{observe.ByRefusals, observe.ByUnits} {
		for _, asked := range []bool{true, false} {
			o := newObserver(t, observe.Options{WorstBy: by, UsageKeys: asked})
			for i := range 40 {
				g := newGuard(t, fmt.Sprintf("p%d: 5/1h", i), keyfunc.Header("X-User"), o.Observe)
				for key, n := range map[string]int{"a": 20, "b": 10, "c": 4, "": 50} {
					for range n {
						r := newRequest()
						r.key = key
						v := g.Check(r)
						v.Finish(guard.Final{})
					}
				}
			}
			u := o.Usage()
			require.Len(t, u.Policies, 40)
			for _, p := range u.Policies {
				assert.Equal(t, stats.UsageCounts{Admitted: 14, Refused: 20 + 50}, p.Tiers[0].UsageCounts)
				if !asked {
					assert.Equal(t, stats.PolicyUsage{Policy: p.Policy, Tiers: p.Tiers}, p)
					continue
				}
				keys := func(top stats.TopKeys) map[string]uint64 {
					sure := map[string]uint64{}
					for _, k := range top.Keys {
						sure[k.Key] = k.Count - k.Error
					}
					return sure
				}
				assert.Equal(t, map[string]uint64{"header.x-user=a": 5, "header.x-user=b": 5, "header.x-user=c": 4}, keys(p.Busiest), p.Policy)
				assert.Equal(t, map[string]uint64{"header.x-user=a": 15, "header.x-user=b": 5}, keys(p.Refused), p.Policy)
				assert.Equal(t, "header.x-user=a", p.Refused.Keys[0].Key)
			}
		}
	}
}
