package demo_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/demo"
)

// A temporary change ends by itself, and services obey what was there before.
func TestTemporaryChangeEnds(t *testing.T) {
	d, admin := start(t, demo.Options{Quiet: true})
	send := func(method, path, body string, into any) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, d.URL+path, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+admin.Token)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("If-Match", "*")
		r.Header.Set("Weir-Reason", "a test")
		res, err := admin.HTTP.Do(r)
		require.NoError(t, err)
		defer res.Body.Close()
		require.Equal(t, http.StatusOK, res.StatusCode, "%s", path)
		if into != nil {
			require.NoError(t, json.NewDecoder(res.Body).Decode(into))
		}
	}
	until := time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano)
	send(http.MethodPut, "/v1/apps/shop/policies/search/temporary",
		fmt.Sprintf(`{"text": "90/1m", "until": %q}`, until), nil)
	require.Eventually(t, func() bool {
		var audit struct {
			Rows []struct{ Action, Policy string } `json:"rows"`
		}
		send(http.MethodGet, "/v1/audit?app=shop&policy=search", "", &audit)
		for _, r := range audit.Rows {
			if r.Action == "end" && r.Policy == "search" {
				return true
			}
		}
		return false
	}, patience, 50*time.Millisecond)
	require.Eventually(t, func() bool {
		s, err := admin.Services(t.Context(), "shop")
		require.NoError(t, err)
		for _, r := range s.Processes[0].Rules {
			if r.Policy == "search" {
				return assert.ObjectsAreEqual("search: 60/1m; wait 1s", r.Now)
			}
		}
		return false
	}, patience, 10*time.Millisecond)
}
