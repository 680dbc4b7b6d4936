package demo_test

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/demo"
	"github.com/weir-go/weir/admin/people"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/internal/adminapi"
	"github.com/weir-go/weir/internal/race"
)

// patience bounds what must come.
const patience = time.Minute

// start starts a demo that ends with the test, and leaves nothing behind.
func start(t *testing.T, o demo.Options) (*demo.Demo, *adminapi.Client) {
	t.Helper()
	if race.Enabled {
		t.Skip("there is no SQLite with the race detector")
	}
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Setenv("TMP", dir) // Windows
	d, err := demo.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, d.Close())
		left, err := filepath.Glob(filepath.Join(dir, "*"))
		require.NoError(t, err)
		assert.Empty(t, left)
	})
	secret, _, err := d.People.MakeLocalToken(t.Context(), people.By{Person: people.Console(), Reason: "a test"},
		people.LocalPerson{Name: "test", Role: rights.Admin, App: rights.AllApps},
		people.NewToken{Name: "test", Apps: []string{rights.AllApps}, Role: rights.Admin, Days: 1})
	require.NoError(t, err)
	return d, &adminapi.Client{URL: d.URL, Token: secret, HTTP: &http.Client{Timeout: patience}}
}

// The two services announce what they obey, and obey what is written.
func TestFleetOfTheDemo(t *testing.T) {
	_, admin := start(t, demo.Options{Quiet: true})
	meanings := func(app string) map[string]policies.Meaning {
		s, err := admin.Services(t.Context(), app)
		require.NoError(t, err)
		require.Len(t, s.Processes, 1)
		all := map[string]policies.Meaning{}
		for _, r := range s.Processes[0].Rules {
			all[r.Policy] = r.Meaning
		}
		return all
	}
	await := func(app string, want map[string]policies.Meaning) {
		t.Helper()
		require.Eventually(t, func() bool { return assert.ObjectsAreEqual(want, meanings(app)) }, patience, 10*time.Millisecond)
	}
	await("shop", map[string]policies.Meaning{
		"api": policies.Code, "login": policies.Code, "search": policies.Fleet, "exports": policies.Code,
	})
	await("partners", map[string]policies.Meaning{"partner": policies.Code, "webhooks": policies.Trial})
	_, err := admin.Put(t.Context(), "partners", "webhooks", policies.Policy{Text: "1/1s burst 5; shadow off"},
		adminapi.Write{Reason: "nobody would have been refused"})
	require.NoError(t, err)
	await("partners", map[string]policies.Meaning{"partner": policies.Code, "webhooks": policies.Fleet})
}
