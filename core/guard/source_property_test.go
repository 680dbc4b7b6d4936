package guard_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

// Whatever Sets there were before, prepared or not, taken up by requests or not: a Set of which all can be used leads
// each Guard of a family to the rules that it leads a new one to, and a text that cannot be used leaves the policy as it
// was.
func TestSetsDoNotDependOnThoseBefore(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	tier := func(keyfunc.Request) string { return "" }
	build := func(s guard.Source) []*guard.Guard {
		g, err := guard.New(guard.Config{
			Rule:    guard.Rule{Policy: "api: 10/1h; fail closed", Key: keyfunc.IP(), Tier: tier, Tiers: map[string]string{"pro": "50/1h", "staff": "unlimited"}},
			Routes:  map[string]guard.Rule{"/a": {Policy: "a: 5/1h; wait 1s"}},
			Headers: guard.Headers{RateLimit: true},
			Source:  s, Log: quiet,
		})
		require.NoError(t, err)
		all := []*guard.Guard{g, g.With("a", "5/1h; wait 1s")}
		for _, tiers := range []map[string]string{{"pro": "50/1h", "staff": "unlimited"}, {"pro": "60/1h"}} {
			one, err := g.WithRule(guard.Rule{Policy: "api: 10/1h; fail closed", Tier: tier, Tiers: tiers})
			require.NoError(t, err)
			all = append(all, one)
		}
		return all
	}
	texts := map[string][]string{
		"api": {"20/1h", "20/1h; fail open", "30/1h; shadow", "20/1h; epoch 1", "10/1h; shadow off; fail local 1/2"},
		"a":   {"6/1h", "7/1h; wait 3s", "6/1h; shadow; epoch 2"},
	}
	numbers := []string{"70/1h", "80/1h", "unlimited"}
	rapid.Check(t, func(t *rapid.T) {
		source := new(preparing)
		guards := build(source)
		for range rapid.IntRange(1, 8).Draw(t, "sets") {
			usable := rapid.Bool().Draw(t, "usable")
			set := &guard.Set{
				Revision: rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "revision"), Policies: map[string]string{},
				Tiers: map[string]map[string]string{"api": {}}, Keys: map[string]map[string]string{},
			}
			for _, name := range []string{"api", "a"} {
				all := texts[name]
				if !usable {
					all = append([]string{"nonsense", "20/1h fixed-window"}, all...)
				}
				if rapid.Bool().Draw(t, name) {
					set.Policies[name] = rapid.SampledFrom(all).Draw(t, name)
				}
				set.Keys[name] = map[string]string{}
				for _, key := range []string{"ip=192.0.2.1", "ip=192.0.2.2"} {
					if rapid.Bool().Draw(t, key) {
						set.Keys[name][key] = rapid.SampledFrom(append([]string{"blocked"}, numbers...)).Draw(t, key)
					}
				}
			}
			for _, tier := range []string{"pro", "staff", "new"} {
				if rapid.Bool().Draw(t, tier) {
					set.Tiers["api"][tier] = rapid.SampledFrom(numbers).Draw(t, tier)
				}
			}
			before := guards[0].Policies()[0].String()
			if rapid.Bool().Draw(t, "prepared") {
				source.show(set)
			} else {
				source.Store(set)
			}
			if !usable && (set.Policies["api"] == "nonsense" || set.Policies["api"] == "20/1h fixed-window") {
				require.Equal(t, before, guards[0].Policies()[0].String())
			}
			if !usable {
				continue
			}
			fresh := new(showing)
			fresh.Store(set)
			for i, want := range build(fresh) {
				if i > 0 && rapid.Bool().Draw(t, "no request comes") {
					continue
				}
				require.Equal(t, want.Rules(nil), guards[i].Rules(nil))
				require.Equal(t, want.Describe(nil), guards[i].Describe(nil))
			}
		}
	})
}
