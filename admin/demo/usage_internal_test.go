package demo

import (
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/stats"
)

// A service announces what it has counted, with the keys that use most and those that are refused.
func TestUsage(t *testing.T) {
	x := newExchange()
	store, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	s, err := startService(t.Context(), x, store, slog.New(slog.DiscardHandler), "shop", "shop-1", shop)
	require.NoError(t, err)
	client := new(http.Client)
	for range 12 {
		caller{method: "POST", path: "/exports", header: "X-User: 7"}.send(t.Context(), client, s.url)
	}
	client.CloseIdleConnections()
	var found []*stats.Usage
	require.NoError(t, x.usages(t.Context(), "shop", func(id string, u *stats.Usage, err error) {
		require.NoError(t, err)
		assert.Equal(t, "shop-1", id)
		found = append(found, u)
	}))
	require.Len(t, found, 1)
	require.NotNil(t, found[0])
	counted := map[string]stats.PolicyUsage{}
	for _, p := range found[0].Policies {
		counted[p.Policy] = p
	}
	exports := counted["exports"]
	require.Len(t, exports.Tiers, 1)
	assert.Equal(t, stats.UsageCounts{Admitted: 10, Refused: 2}, exports.Tiers[0].UsageCounts)
	require.Len(t, exports.Refused.Keys, 1)
	assert.Equal(t, stats.KeyCount{Key: "user=7", Count: 2}, exports.Refused.Keys[0])
	require.NoError(t, s.close())
	require.NoError(t, x.usages(t.Context(), "shop", func(string, *stats.Usage, error) { assert.Fail(t, "it is gone") }))
}
