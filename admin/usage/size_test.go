package usage_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/usage"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/internal/race"
)

// The names are made once, so that making them is not measured.
var policyNames, keyNames = func() (policies, keys []string) {
	for i := range 200 {
		policies = append(policies, fmt.Sprintf("policy-%03d", i))
	}
	for i := range 5000 {
		keys = append(keys, fmt.Sprintf("user=%08d", i))
	}
	return policies, keys
}()

// busy returns the counts of a process of an app that admits and refuses something under each policy in each minute.
func busy(process int, counted time.Duration, keys bool) *stats.Usage {
	u := &stats.Usage{For: counted}
	n := uint64(counted / time.Second)
	for i, name := range policyNames {
		p := stats.PolicyUsage{Policy: name, Tiers: []stats.TierUsage{
			{UsageCounts: stats.UsageCounts{Admitted: n * uint64(i+1), Refused: n * uint64(i%3), Waited: n * uint64(i%2)}},
			{Tier: "pro", UsageCounts: stats.UsageCounts{Admitted: n}},
		}}
		for _, top := range []*stats.TopKeys{&p.Busiest, &p.Refused} {
			for k := 0; k < 15 && keys; k++ { // as many as have room beside others in an announcement
				top.Keys = append(top.Keys, stats.KeyCount{Key: keyNames[(i*7+k*13+process*17)%len(keyNames)], Count: uint64(100 - k)})
			}
		}
		u.Policies = append(u.Policies, p)
	}
	return u
}

// TestMemory: 50 apps of 200 policies in 500 processes, each busy in every minute of a day, take no more than 64 MiB, and
// the last hour of each policy is there by the minute.
func TestMemory(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector takes memory, and long")
	}
	const apps, processes, rounds = 50, 10, 9
	var names []string
	for i := range apps {
		names = append(names, "app-"+strconv.Itoa(i))
	}
	now, keys := start, false
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	h, err := usage.New(usage.Options{
		Apps: func(context.Context) ([]string, error) { return names, nil },
		Read: func(_ context.Context, app string, f func(string, *stats.Usage, error)) error {
			for i := range processes {
				f(app+"-"+strconv.Itoa(i), busy(i, now.Sub(start), keys), nil)
			}
			return nil
		},
		Now: func() time.Time { return now },
	})
	require.NoError(t, err)
	// Counts of a longer time between readings are spread over the minutes, which is as many minutes in less time.
	for i := range rounds {
		now = start.Add(time.Duration(i) * 3 * time.Hour)
		keys = i >= rounds-2
		require.NoError(t, h.Round(t.Context()))
	}
	took := heap() - before
	s := h.Policy("app-7", "policy-100", now.Add(-time.Hour))
	t.Logf("%.1f MiB, by its own count %.1f; by the minute since %v, and since %v", float64(took)/(1<<20), float64(h.Size())/(1<<20), now.Sub(s.Missed.Fine), now.Sub(s.Missed.Since))
	assert.LessOrEqual(t, took, int64(64<<20))
	assert.Zero(t, s.Missed.Full+s.Missed.Policies)
	assert.LessOrEqual(t, len(s.Points), 62)
	require.GreaterOrEqual(t, len(s.Points), 60)
	for _, p := range s.Points {
		assert.Equal(t, 1, p.Minutes)
	}
	assert.GreaterOrEqual(t, now.Sub(s.Missed.Since), 23*time.Hour)
	busiest, _ := h.Busiest("app-7", "policy-100")
	assert.GreaterOrEqual(t, len(busiest), 10)
	sum := h.Minute("app-7")
	assert.NotZero(t, sum.Admitted)
	began := time.Now()
	all, _ := h.App("app-7", now.Add(-time.Hour))
	t.Logf("an app of 200 policies: %v", time.Since(began))
	assert.Len(t, all, 200)
	runtime.KeepAlive(h)
}

// TestHostileApp: a service that announces thousands of processes with other policies, tiers and keys each time takes no
// more than the part of its app, and nothing of what another app has.
func TestHostileApp(t *testing.T) {
	t.Parallel()
	now, round := start, 0
	h, err := usage.New(usage.Options{
		Apps: func(context.Context) ([]string, error) { return []string{"good", "hostile"}, nil },
		Read: func(_ context.Context, app string, f func(string, *stats.Usage, error)) error {
			if app == "good" {
				f("a", &stats.Usage{For: now.Sub(start), Policies: []stats.PolicyUsage{{
					Policy: "api", Tiers: []stats.TierUsage{{UsageCounts: stats.UsageCounts{Admitted: uint64(round) * 10}}},
				}}}, nil)
				return nil
			}
			for i := range 1000 {
				u := &stats.Usage{For: time.Duration(i) * time.Hour}
				for j := range 20 {
					p := stats.PolicyUsage{Policy: fmt.Sprintf("p-%d-%d-%d", round, i, j)}
					for k := range 40 {
						p.Tiers = append(p.Tiers, stats.TierUsage{Tier: fmt.Sprint("t", round, k), UsageCounts: stats.UsageCounts{Admitted: 1 << 53}})
						p.Busiest.Keys = append(p.Busiest.Keys, stats.KeyCount{Key: fmt.Sprintf("%d-%d-%0150d", round, i, k), Count: 1 << 53, Error: 1 << 53})
					}
					u.Policies = append(u.Policies, p)
				}
				f(fmt.Sprint(round, "-", i), u, nil)
			}
			return nil
		},
		Budget: 1 << 20, Now: func() time.Time { return now },
	})
	require.NoError(t, err)
	for round = range 3 {
		require.NoError(t, h.Round(t.Context()))
		assert.LessOrEqual(t, h.Size(), 1<<20)
		now = now.Add(time.Minute)
	}
	s := h.Policy("good", "api", start)
	require.Len(t, s.Points, 2)
	assert.Equal(t, uint64(10), s.Points[0].Admitted)
	_, missed := h.App("hostile", start)
	assert.NotZero(t, missed.Full+missed.Policies)
}
