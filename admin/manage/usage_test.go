package manage_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/internal/sqltest"
	"github.com/weir-go/weir/admin/manage"
	"github.com/weir-go/weir/admin/rights"
	"github.com/weir-go/weir/admin/usage"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/internal/adminapi"
)

// telling is a process that tells its counts of the policy "api".
type telling struct {
	now      time.Time
	counts   stats.UsageCounts
	busiest  []stats.KeyCount
	tellsNot bool
}

func (tell *telling) read(_ context.Context, app string, f func(string, *stats.Usage, error)) error {
	if app == "pay" && !tell.tellsNot {
		f("a", &stats.Usage{For: tell.now.Sub(time.Unix(0, 0)), Policies: []stats.PolicyUsage{{
			Policy: "api", Tiers: []stats.TierUsage{{Tier: "pro", UsageCounts: tell.counts}},
			Busiest: stats.TopKeys{For: 10 * time.Minute, Keys: tell.busiest},
		}}}, nil)
	}
	return nil
}

// Viewers of an app see the counts of its services, and operators the keys as well.
func TestUsage(t *testing.T) {
	t.Parallel()
	tell := &telling{now: time.Date(2026, 1, 2, 3, 4, 30, 0, time.UTC)}
	h, err := usage.New(usage.Options{
		Apps: func(context.Context) ([]string, error) { return []string{"pay"}, nil }, Read: tell.read, Now: func() time.Time { return tell.now },
	})
	require.NoError(t, err)
	a := start(t, sqltest.New(t), func(o *manage.Options) { o.Usage, o.Now = h, func() time.Time { return tell.now } })
	viewer, operator, stranger := a.person("vera", rights.Viewer, "pay"), a.person("olga", rights.Operator, "pay"), a.person("else", rights.Owner, "other")
	_, err = a.PutPolicy(t.Context(), a.person("anna", rights.Owner, "pay"), "pay", "api", adminapi.Policy{Text: "20/1h"}, create)
	require.NoError(t, err)
	since := func() time.Time { return tell.now.Add(-time.Hour) }

	u, err := a.Usage(t.Context(), viewer, "pay", "api", since())
	require.NoError(t, err)
	assert.Equal(t, &manage.Usage{App: "pay", Policy: "api", Points: []manage.UsagePoint{}, Missed: []string{"Nothing has been read yet."}}, u)
	_, err = a.Usage(t.Context(), stranger, "pay", "api", since())
	require.Error(t, err)

	tell.tellsNot = true
	require.NoError(t, h.Round(t.Context()))
	u, err = a.Usage(t.Context(), viewer, "pay", "api", since())
	require.NoError(t, err)
	assert.Contains(t, u.Missed[0], "redissource.Options.Usage")
	keys, _, err := a.Keys(t.Context(), operator, "pay", "api")
	require.NoError(t, err)
	assert.Contains(t, keys.Why, "redissource.Options.Usage")

	tell.tellsNot = false
	require.NoError(t, h.Round(t.Context()))
	keys, _, err = a.Keys(t.Context(), operator, "pay", "api")
	require.NoError(t, err)
	assert.Contains(t, keys.Why, "UsageKeys")
	tell.counts = stats.UsageCounts{Admitted: 10, Refused: 2, Trial: 3, Failed: 4, Local: 1, Waited: 5}
	tell.busiest = []stats.KeyCount{{Key: "user=7", Count: 9, Error: 1}}
	require.NoError(t, h.Round(t.Context()))
	u, err = a.Usage(t.Context(), viewer, "pay", "api", since())
	require.NoError(t, err)
	assert.Empty(t, u.Points, "the minute is not over")
	tell.now = tell.now.Add(time.Minute)
	require.NoError(t, h.Round(t.Context()))
	want := manage.UsageCounts{Admitted: 10, Refused: 2, Trial: 3, Failed: 4, Local: 1, Waited: 5}
	minute := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	u, err = a.Usage(t.Context(), viewer, "pay", "api", since())
	require.NoError(t, err)
	assert.Equal(t, &manage.Usage{
		App: "pay", Policy: "api", Since: minute, Points: []manage.UsagePoint{{At: minute, UsageCounts: want}},
		Tiers: map[string]manage.UsageCounts{"pro": want}, TiersSince: minute, Processes: 1,
		Missed: []string{"Nothing is known of the time before 03:04 UTC."},
	}, u)
	view, err := a.App(t.Context(), viewer, "pay")
	require.NoError(t, err)
	require.Len(t, view.Policies, 1)
	assert.Equal(t, u.Points, view.Policies[0].Usage)
	require.NotNil(t, view.Health)
	assert.Equal(t, []uint64{10, 2}, []uint64{view.Health.Admitted, view.Health.Refused})

	keys, _, err = a.Keys(t.Context(), operator, "pay", "api")
	require.NoError(t, err)
	assert.Equal(t, []adminapi.Caller{{Key: "user=7", Least: 8, Most: 9}}, keys.Busiest)
	assert.Equal(t, 600, keys.Counted)
	assert.Empty(t, keys.Why)
	_, _, err = a.Keys(t.Context(), viewer, "pay", "api")
	require.Error(t, err, "keys may name people")

	// Nobody has read for a while, and then somebody does.
	tell.now, tell.counts.Admitted = tell.now.Add(10*time.Minute), 110
	u, err = a.Usage(t.Context(), viewer, "pay", "api", since())
	require.NoError(t, err)
	assert.Contains(t, u.Missed, "Nothing was read for 9 minutes: what was counted then is spread over them evenly.")
	assert.Len(t, u.Points, 1, "the last minute is not known")
	require.NoError(t, h.Round(t.Context()))
	tell.now, tell.tellsNot = tell.now.Add(time.Minute), true
	require.NoError(t, h.Round(t.Context()))
	u, err = a.Usage(t.Context(), viewer, "pay", "api", since())
	require.NoError(t, err)
	assert.Len(t, u.Points, 11)
	assert.Equal(t, uint64(10), u.Points[10].Admitted)
	assert.Contains(t, u.Missed, "1 process has ended: what each has counted last, for up to 20 seconds, is not known.")
}

// A preview looks at the keys that services have reported, for those who may look at keys.
func TestPreviewOfBusyKeys(t *testing.T) {
	t.Parallel()
	tell := &telling{now: time.Now(), busiest: []stats.KeyCount{{Key: "user=7", Count: 9}, {Key: "user=8", Count: 3}}}
	h, err := usage.New(usage.Options{
		Apps: func(context.Context) ([]string, error) { return []string{"pay"}, nil }, Read: tell.read,
	})
	require.NoError(t, err)
	require.NoError(t, h.Round(t.Context()))
	c := startCounting(t, func(o *manage.Options) { o.Usage = h })
	_, err = c.PutPolicy(t.Context(), c.person("anna", rights.Owner, "pay"), "pay", "api", adminapi.Policy{Text: "10/1h"}, create)
	require.NoError(t, err)
	c.counts("pay", "shop", "api: 10/1h")
	c.uses("api: 10/1h", "user=7", 6)
	ask := manage.AskPreview{Policy: adminapi.Policy{Text: "2/1h"}, Keys: []string{"user=8"}}
	p, err := c.Preview(t.Context(), c.person("olga", rights.Operator, "pay"), "pay", "api", ask)
	require.NoError(t, err)
	require.Empty(t, p.Why)
	require.Len(t, p.Keys, 2)
	assert.Equal(t, []int{1, 0, 1}, []int{p.Busiest, p.Idle, p.Refused})
	assert.Equal(t, "look ", c.actions("pay")[0])
	ask.Keys = nil
	p, err = c.Preview(t.Context(), c.person("vera", rights.Viewer, "pay"), "pay", "api", ask)
	require.NoError(t, err)
	assert.Empty(t, p.Keys)
}
