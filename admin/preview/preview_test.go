package preview_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/counts"
	"github.com/weir-go/weir/admin/preview"
	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// memory returns places of counts with one store in the process, whose clock stands still.
func memory(t *testing.T) (*core.Memory, *counts.Stores) {
	t.Helper()
	m, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	s, err := counts.New(counts.Options{Process: m, Now: epoch})
	require.NoError(t, err)
	return m, s
}

func uses(t *testing.T, s core.Store, p core.Policy, key string, units int64) {
	t.Helper()
	res, err := s.Take(t.Context(), core.Take{Policy: p, Key: key, Cost: units, Now: epoch})
	require.NoError(t, err)
	require.True(t, res.Allowed())
}

func of(t *testing.T, s *counts.Stores, ask preview.Ask) preview.Preview {
	t.Helper()
	got, err := preview.Of(t.Context(), s, ask)
	require.NoError(t, err)
	return got
}

// A preview says what differs, what holds after, what is kept, and how keys fare.
func TestPreview(t *testing.T) {
	t.Parallel()
	m, s := memory(t)
	code := core.MustParse("api: 10/1h; fail closed")
	uses(t, m, code, "user=1", 5)
	uses(t, m, code, "user=2", 10)
	rule := counts.Rule{Policy: "api", Code: code.String(), Tiers: map[string]string{"pro": "100/1h"}, Where: counts.Where{Process: true}, Processes: 3}
	got := of(t, s, preview.Ask{
		Policy: "api",
		Before: policies.Policy{Text: "10/1h; shadow", Keys: map[string]string{"user=3": "blocked"}, Apps: []string{"b", "a"}},
		After: policies.Policy{
			Text: "20/1h", Tiers: map[string]string{"pro": "unlimited", "free": "2/1h"}, Keys: map[string]string{"user=4": "1/1h", "user=5": "7/1h fixed-window"},
			Apps: []string{"a", "b"},
		},
		Rules: []counts.Rule{rule},
		Keys: []preview.Key{
			{Key: "user=1", Busiest: true},
			{Key: "user=2", Busiest: true},
			{Key: "user=2", Tier: "free", Busiest: true},
			{Key: "user=1", Tier: "pro"},
			{Key: "user=3"},
			{Key: "user=4"},
		},
	})
	assert.Equal(t, []preview.Difference{
		{Entry: "text", Before: "10/1h; shadow", After: "20/1h"},
		{Entry: "tier free", After: "2/1h"},
		{Entry: "tier pro", After: "unlimited"},
		{Entry: "key user=3", Before: "blocked"},
		{Entry: "key user=4", After: "1/1h"},
		{Entry: "key user=5", After: "7/1h fixed-window"},
	}, got.Differences)
	require.Len(t, got.Rules, 1)
	r := got.Rules[0]
	require.Empty(t, r.Why)
	assert.Equal(t, 3, r.Processes)
	var entries []string
	for _, e := range r.Entries {
		entries = append(entries, fmt.Sprintf("%s: %s > %s", e.Entry, e.Before, e.After))
	}
	assert.Equal(t, []string{
		"text: 10/1h; fail closed; shadow > 20/1h; fail closed",
		"tier free: 10/1h; fail closed; shadow > 2/1h; fail closed",
		"tier pro: 100/1h; fail closed; shadow > unlimited",
		"key user=3: blocked > 20/1h; fail closed",
		"key user=4: 10/1h; fail closed; shadow > 1/1h; fail closed",
		"key user=5: 10/1h; fail closed; shadow > 20/1h; fail closed", // what it cannot use, it leaves
	}, entries)
	assert.Equal(t, int64(39), r.Entries[0].Words.Within[0].Most)
	assert.True(t, r.Entries[0].Change.Kept)
	assert.Contains(t, r.Entries[0].Change.Lines()[1], "the fraction in use is kept")
	assert.Nil(t, r.Entries[2].Words, "nothing is counted")
	assert.Contains(t, r.Entries[5].Why, "differs in more than numbers")

	require.Len(t, r.Keys, 6)
	next := func(i int) string {
		k := r.Keys[i]
		require.Empty(t, k.Why)
		require.Equal(t, int64(epoch), k.At.UnixMicro(), k.Key)
		return fmt.Sprintf("%s %d %v, then %s %d %v", k.Before.Outcome, k.Before.Remaining, k.Before.RetryAfter, k.After.Outcome, k.After.Remaining, k.After.RetryAfter)
	}
	for i, want := range []string{
		"admitted 5 0s, then admitted 10 0s",
		"refused 0 6m0s, then refused 0 3m0s",
		"refused 0 6m0s, then refused 0 30m0s",
		"admitted 50 0s, then admitted -1 0s",
		"refused -1 1m0s, then admitted 20 0s",
		"admitted 10 0s, then at-limit 1 0s",
	} {
		assert.Equal(t, want, next(i), "%+v", r.Keys[i])
	}
	assert.True(t, r.Keys[0].Before.Trial)
	assert.False(t, r.Keys[0].After.Trial)
	assert.Equal(t, `Policies["api"]`, r.Keys[0].After.Numbers)
	assert.Equal(t, `Tiers["api"]["free"]`, r.Keys[2].After.Numbers)
	assert.Equal(t, `Keys["api"]["user=4"]`, r.Keys[5].After.Numbers)
	assert.Equal(t, []int{3, 2, 2, 0}, []int{r.Busiest, r.RefusedBefore, r.RefusedAfter, r.Idle})
	assert.True(t, r.Keys[5].Unused)
}

// Processes of different code count apart, and those that could not use a text go on with what they have.
func TestPreviewOfDifferentCode(t *testing.T) {
	t.Parallel()
	m, s := memory(t)
	uses(t, m, core.MustParse("api: 10/1h"), "user=1", 10)
	rules := []counts.Rule{
		{Policy: "api", Code: "api: 10/1h", Where: counts.Where{Process: true}, Names: []string{"a:1"}},
		{Policy: "api", Code: "api: 10/1h sliding-log", Where: counts.Where{Process: true}, Names: []string{"b:1"}},
		{Policy: "api", Code: "no policy", Where: counts.Where{Process: true}},
	}
	ask := preview.Ask{Policy: "api", After: policies.Policy{Text: "20/1h"}, Rules: rules, Keys: []preview.Key{{Key: "user=1"}}}
	got := of(t, s, ask)
	require.Len(t, got.Rules, 3)
	assert.Equal(t, "20/1h", got.Rules[0].Entries[0].After)
	assert.Equal(t, "refused", got.Rules[0].Keys[0].After.Outcome)
	assert.Contains(t, got.Rules[1].Entries[0].Why, "differs in more than numbers")
	assert.Equal(t, "10/1h sliding-log", got.Rules[1].Entries[0].After)
	assert.Equal(t, "admitted", got.Rules[1].Keys[0].After.Outcome)
	assert.Contains(t, got.Rules[2].Why, "what its processes say of themselves is no policy")
	for range 20 {
		ask.Rules = append(ask.Rules, rules[0])
	}
	got = of(t, s, ask)
	assert.Len(t, got.Rules, 8)
	assert.Equal(t, 15, got.MoreRules)

	// An epoch changes all tiers and keys, of which the first hundred are shown.
	ask = preview.Ask{Policy: "api", After: policies.Policy{Text: "10/1h; epoch 1", Tiers: map[string]string{}}, Rules: rules[:1]}
	for i := range 300 {
		ask.After.Tiers[fmt.Sprintf("t%03d", i)] = "5/1h"
	}
	ask.Before = policies.Policy{Tiers: ask.After.Tiers}
	got = of(t, s, ask)
	assert.Len(t, got.Rules[0].Entries, 100)
	assert.Equal(t, 201, got.Rules[0].More)
	assert.False(t, got.Rules[0].Entries[1].Change.Kept)

	// More tiers than a Set may have are none at all.
	for i := range 1001 {
		ask.After.Tiers[fmt.Sprintf("t%04d", i)] = "5/1h"
	}
	ask.Before = policies.Policy{}
	got = of(t, s, ask)
	assert.Equal(t, "tiers", got.Rules[0].Entries[1].Entry)
	assert.Contains(t, got.Rules[0].Entries[1].Why, "give at most 1000")
}

// Without processes the texts stand for themselves, and what only the code knows is not made up.
func TestPreviewWithoutProcesses(t *testing.T) {
	t.Parallel()
	m, s := memory(t)
	uses(t, m, core.MustParse("api: 10/1h"), "user=1", 10)
	where := []counts.Rule{{Policy: "api", Where: counts.Where{Process: true}}}
	keys := []preview.Key{{Key: "user=1"}}
	got := of(t, s, preview.Ask{Policy: "api", Before: policies.Policy{Text: "10/1h; shadow"}, After: policies.Policy{Text: "20/1h"}, Rules: where, Keys: keys}).Rules[0]
	require.Len(t, got.Entries, 1)
	assert.Equal(t, "10/1h; shadow", got.Entries[0].Before)
	assert.Equal(t, "20/1h", got.Entries[0].After, "what is left out is not as before: it is as in the code")
	assert.Equal(t, "refused", got.Keys[0].After.Outcome)

	got = of(t, s, preview.Ask{Policy: "api", After: policies.Policy{Text: "20/1h"}, Rules: where, Keys: keys}).Rules[0]
	require.Len(t, got.Entries, 1)
	assert.Empty(t, got.Entries[0].Before)
	assert.Nil(t, got.Entries[0].Change)
	assert.Equal(t, "20/1h", got.Entries[0].After)
	assert.Empty(t, got.Keys[0].Before.Outcome)
	assert.Equal(t, "refused", got.Keys[0].After.Outcome)

	got = of(t, s, preview.Ask{Policy: "api", Before: policies.Policy{Text: "20/1h"}, Rules: where, Keys: keys}).Rules[0]
	assert.Equal(t, "20/1h", got.Entries[0].Before)
	assert.Empty(t, got.Entries[0].After)
	assert.Nil(t, got.Entries[0].Words)
	assert.Empty(t, got.Keys[0].After.Outcome)

	got = of(t, s, preview.Ask{Policy: "api", After: policies.Policy{Text: "20 per hour"}, Rules: where}).Rules[0]
	assert.NotEmpty(t, got.Why)
	rules := of(t, s, preview.Ask{Policy: "api", After: policies.Policy{Text: "20/1h"}}).Rules
	require.Len(t, rules, 1)
	assert.Equal(t, "20/1h", rules[0].Entries[0].After, "the words need no counts")
	assert.NotEmpty(t, rules[0].Why)
}

func TestPreviewBounds(t *testing.T) {
	t.Parallel()
	_, s := memory(t)
	_, err := preview.Of(t.Context(), s, preview.Ask{Policy: "api", Keys: make([]preview.Key, 151)})
	require.ErrorContains(t, err, "give at most 150")
	_, err = preview.Of(t.Context(), s, preview.Ask{Policy: "api", Keys: make([]preview.Key, 1)})
	require.ErrorContains(t, err, "there is no key")
}

// MONITOR shows that a preview writes nothing, under any algorithm, and it is quick: the log has how long it takes for the
// busiest keys of a policy.
func TestPreviewWritesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	rdb := server.Client(t)
	store, err := redisstore.New(rdb, redisstore.Options{Deadline: time.Minute})
	require.NoError(t, err)
	s, err := counts.New(counts.Options{Redis: rdb})
	require.NoError(t, err)
	var asks []preview.Ask
	for i, text := range []string{
		"1000/1h", "1000/1h token-bucket", "1000/1h leaky-bucket", "1000/1h fixed-window", "1000/1d fixed-window calendar UTC",
		"1000/1h sliding-window", "1000/1h sliding-counter", "1000/1h sliding-log", "9 concurrent, 1000/1h", "1000/1h, 100/1m sliding-log",
	} {
		name := fmt.Sprintf("p%d", i)
		p := core.MustParse(name + ": " + text)
		ask := preview.Ask{
			Policy: name, After: policies.Policy{Text: text + "; epoch 3"},
			Rules: []counts.Rule{{Policy: name, Code: p.String()}},
		}
		for j := range 100 {
			key := fmt.Sprintf("user=%d", j)
			now := time.Now().Add(time.Duration(j-50) * time.Hour) // half of the states are ahead of the clock
			_, err := store.Take(t.Context(), core.Take{Policy: p, Key: key, Cost: 1 + int64(j), AtMost: true, Now: now.UnixMicro()})
			require.NoError(t, err)
			ask.Keys = append(ask.Keys, preview.Key{Key: key, Busiest: true})
		}
		asks = append(asks, ask)
	}
	took := make([]time.Duration, len(asks))
	seen := server.Monitor(t, func() {
		for i, ask := range asks {
			began := time.Now()
			r := of(t, s, ask).Rules[0]
			took[i] = time.Since(began)
			require.Empty(t, r.Why)
			require.Equal(t, 100, r.Busiest, "%+v", r.Keys)
		}
	})
	t.Logf("100 keys: %v", took)
	assert.GreaterOrEqual(t, seen["get"], 2*100*len(asks))
	for command := range seen {
		assert.Contains(t, []string{"eval", "time", "get", "zrange", "hello", "client", "ping", "command"}, command)
	}
}

// A Redis that is gone leaves the words.
func TestPreviewWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	s, err := counts.New(counts.Options{Redis: server.Client(t)})
	require.NoError(t, err)
	server.Pause(t)
	ask := preview.Ask{
		Policy: "api", After: policies.Policy{Text: "20/1h"}, Rules: []counts.Rule{{Policy: "api", Code: "api: 10/1h"}},
		Keys: []preview.Key{{Key: "user=secret"}, {Key: "user=other"}},
	}
	began := time.Now()
	r := of(t, s, ask).Rules[0]
	t.Logf("%v", time.Since(began))
	assert.Less(t, time.Since(began), 10*time.Second)
	assert.Equal(t, "20/1h", r.Entries[0].After)
	assert.Contains(t, r.Why, "the store in which the services count")
	assert.NotContains(t, r.Why, "secret")
	assert.Zero(t, r.Busiest)
}
