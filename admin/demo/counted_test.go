package demo_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/demo"
)

// What the made-up callers use is on the page a moment later, and a preview says what a change does to those that use
// most.
func TestCounted(t *testing.T) {
	d, admin := start(t, demo.Options{})
	get := func(path string, into any) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.URL+path, http.NoBody)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+admin.Token)
		res, err := admin.HTTP.Do(r)
		require.NoError(t, err)
		defer res.Body.Close()
		require.Equal(t, http.StatusOK, res.StatusCode, "%s", path)
		require.NoError(t, json.NewDecoder(res.Body).Decode(into))
	}
	require.Eventually(t, func() bool {
		var usage struct{ Processes int }
		get("/v1/apps/partners/policies/webhooks/usage", &usage)
		var keys struct {
			Busiest []struct{ Key string }
		}
		get("/v1/apps/partners/policies/webhooks/keys", &keys)
		return usage.Processes == 1 && len(keys.Busiest) == 2 && keys.Busiest[0].Key == "header.x-partner=acme"
	}, patience, 200*time.Millisecond)

	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.URL+"/v1/apps/partners/policies/webhooks/preview",
		strings.NewReader(`{"policy": {"text": "1/1h"}}`))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+admin.Token)
	r.Header.Set("Content-Type", "application/json")
	res, err := admin.HTTP.Do(r)
	require.NoError(t, err)
	defer res.Body.Close()
	require.Equal(t, http.StatusOK, res.StatusCode)
	var preview struct {
		Busiest int
		Keys    []struct{ Key string }
	}
	require.NoError(t, json.NewDecoder(res.Body).Decode(&preview))
	assert.Equal(t, 2, preview.Busiest)
	require.Len(t, preview.Keys, 2)
	assert.Equal(t, "header.x-partner=acme", preview.Keys[0].Key)
}
