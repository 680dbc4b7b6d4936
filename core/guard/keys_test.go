package guard_test

import (
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/internal/remotetest"
	"github.com/weir-go/weir/internal/race"
	"github.com/weir-go/weir/keyfunc"
)

// keys returns a Set with numbers of single keys of the policy "default", given as pairs.
func keys(pairs ...string) *guard.Set {
	s := &guard.Set{Keys: map[string]map[string]string{"default": {}}}
	for i := 0; i < len(pairs); i += 2 {
		s.Keys["default"][pairs[i]] = pairs[i+1]
	}
	return s
}

// Numbers of a key go before those of its tier, and Skip goes before both.
func TestKeys(t *testing.T) {
	source, said := new(numbers), new(records)
	var events []guard.Event
	g := newGuard(t, guard.Config{
		Rule: guard.Rule{
			Policy: "2/1h fixed-window",
			Key:    byHeader("uid", "User"),
			Skip:   func(r keyfunc.Request) bool { return len(r.Header("Skip")) > 0 },
			Tier:   func(r keyfunc.Request) string { return strings.Join(r.Header("Tier"), "") },
			Tiers:  map[string]string{"pro": "50/1h fixed-window", "admin": "unlimited"},
		},
		Headers: guard.Headers{RateLimit: true},
		Source:  source,
		Log:     slog.New(said),
		Observe: func(e guard.Event) { events = append(events, e) },
	})
	ask := func(user, tier string, more ...string) (shown, tierSeen string) {
		events = nil
		v, h := g.Check(sent(append([]string{"User", user, "Tier", tier}, more...)...)), header{}
		v.SetHeaders(h)
		v.Finish(guard.Final{})
		for _, e := range events {
			tierSeen += e.Tier
		}
		return strings.TrimSpace(strconv.FormatBool(v.Action == guard.Pass) + " " + h["X-Ratelimit-Limit"] + " " + h["Retry-After"] + " " + h["Ratelimit-Policy"]), tierSeen
	}
	source.Store(keys("uid=ann", "70/1h fixed-window", "uid=eve", "blocked", "uid=root", "unlimited", "uid=bo%20b", "9/1h fixed-window"))
	for _, c := range []struct {
		user, tier  string
		more        []string
		shown, seen string
	}{
		{user: "ann", tier: "pro", shown: `true 70  "default";q=70;w=3600`},
		{user: "ann", tier: "admin", shown: `true 70  "default";q=70;w=3600`},
		{user: "zoe", tier: "pro", shown: `true 50  "default";q=50;w=3600`, seen: "pro"},
		{user: "zoe", shown: `true 2  "default";q=2;w=3600`},
		{user: "zoe", tier: "admin", shown: "true"},
		{user: "eve", tier: "admin", shown: "false  60"},
		{user: "eve", shown: "false  60"},
		{user: "eve", more: []string{"Skip", "1"}, shown: "true"},
		{user: "root", tier: "pro", shown: "true"},
		{user: "bo b", shown: `true 9  "default";q=9;w=3600`},
	} {
		shown, seen := ask(c.user, c.tier, c.more...)
		assert.Equal(t, c.shown, shown, c)
		assert.Equal(t, c.seen, seen, c)
	}
	assert.Empty(t, said.all())
	rules := g.Rules(nil)
	assert.Equal(t, map[string]string{
		"uid=ann": "70/1h fixed-window", "uid=eve": "blocked", "uid=root": "unlimited", "uid=bo%20b": "9/1h fixed-window",
	}, rules[0].Keys)
	assert.Contains(t, g.Describe(nil), "tiers admin, pro; 4 keys")

	source.Store(nil)
	shown, _ := ask("eve", "")
	assert.Equal(t, `true 2  "default";q=2;w=3600`, shown)
	assert.Nil(t, g.Rules(nil)[0].Keys)
	assert.NotContains(t, g.Describe(nil), "key ")
}

// What was counted for a key is kept when it is given numbers, and when it loses them.
func TestKeysKeepCounts(t *testing.T) {
	source := new(numbers)
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "5/1h fixed-window"}, Source: source})
	assert.Equal(t, "true 5 4", shown(g, from(alice)))
	source.Store(keys("ip="+alice, "50/1h fixed-window"))
	assert.Equal(t, "true 50 48", shown(g, from(alice)))
	assert.Equal(t, "true 5 4", shown(g, from(bob)))
	source.Store(keys("ip="+alice, "blocked"))
	assert.Equal(t, "false  ", shown(g, from(alice)))
	source.Store(nil)
	assert.Equal(t, "true 5 2", shown(g, from(alice)))
}

// A blocked key is refused whatever the rule does besides, and the store is not asked.
func TestBlocked(t *testing.T) {
	for name, c := range map[string]guard.Config{
		"rate":       {Rule: guard.Rule{Policy: "5/1h"}},
		"wait":       {Rule: guard.Rule{Policy: "5/1h; wait 1h", Waiting: 1}},
		"leaky":      {Rule: guard.Rule{Policy: "5/1h leaky-bucket", Waiting: 1}},
		"permits":    {Rule: guard.Rule{Policy: "5 concurrent"}, Store: newMemory(t)},
		"both":       {Rule: guard.Rule{Policy: "5/1h, 5 concurrent"}, Store: newMemory(t)},
		"after":      {Rule: guard.Rule{Policy: "5/1h", After: func(guard.Final) int64 { return 1 }}},
		"settle":     {Rule: guard.Rule{Policy: "5/1h", Settle: guard.Reported}},
		"cost of 0":  {Rule: guard.Rule{Policy: "5/1h", Cost: func(keyfunc.Request) int64 { return 0 }}},
		"many":       {Rule: guard.Rule{Policy: "5/1h", Cost: func(keyfunc.Request) int64 { return 1000 }}},
		"open":       {Rule: guard.Rule{Policy: "5/1h; fail open"}},
		"second":     {Rule: guard.Rule{Policy: "5/1h"}, Rules: []guard.Rule{{Policy: "all: 5/1h", Key: keyfunc.Const("all")}}},
		"lists":      {Rule: guard.Rule{Policy: "5/1h"}, Headers: guard.Headers{RateLimit: true, PartitionSecret: "0123456789abcdef"}},
		"in process": {Rule: guard.Rule{Policy: "5/1h"}, Store: newMemory(t)},
	} {
		t.Run(name, func(t *testing.T) {
			source := new(numbers)
			c.Source, c.Log = source, slog.New(slog.DiscardHandler)
			if c.Store == nil {
				store := remotetest.New(newMemory(t))
				store.Fail(down()) // a request that asks it is not refused in this way
				c.Store = store
			}
			g := newGuard(t, c)
			source.Store(keys("ip="+alice, "blocked"))
			for range 3 {
				v := g.Check(from(alice))
				require.Equal(t, guard.Reply, v.Action)
				assert.Equal(t, 429, v.Status)
				assert.Equal(t, time.Minute, v.Result.RetryAfter)
				assert.Equal(t, core.Refused, v.Result.Outcome)
				assert.NoError(t, v.Err)
				v.Finish(guard.Final{})
			}
			assert.Zero(t, g.AfterKeys())
		})
	}
}

// A trial refuses nobody, a blocked key neither.
func TestBlockedOnTrial(t *testing.T) {
	source := new(numbers)
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "5/1h; shadow"}, Source: source})
	source.Store(keys("ip="+alice, "blocked"))
	assert.True(t, passes(g, alice))
	set := keys("ip="+alice, "blocked")
	set.Policies = map[string]string{"default": "5/1h; shadow off"}
	source.Store(set)
	assert.False(t, passes(g, alice))
	set = keys("ip="+alice, "blocked")
	set.Policies = map[string]string{"default": "5/1h; shadow"}
	source.Store(set)
	assert.True(t, passes(g, alice))
}

// A request without a key has no numbers of a key, and what the rule says of such requests holds, an unlimited tier
// included.
func TestKeysOfKeyless(t *testing.T) {
	source := new(numbers)
	calls := 0
	var fails error
	rule := guard.Rule{
		Policy: "5/1h",
		Key:    keyfunc.Custom("uid", func(keyfunc.Request) (string, error) { calls++; return "", fails }),
		Tier:   func(r keyfunc.Request) string { return strings.Join(r.Header("Tier"), "") },
		Tiers:  map[string]string{"staff": "unlimited"},
	}
	for _, fails = range []error{keyfunc.ErrNoKey, errors.New("it fails")} {
		for noKey, status := range map[guard.NoKey]int{guard.NoKeyRefuse: 403, guard.NoKeyShared: 0, guard.NoKeyPass: 0} {
			rule.NoKey = noKey
			g := newGuard(t, guard.Config{Rule: rule, Source: source, Log: slog.New(slog.DiscardHandler)})
			source.Store(keys("uid=ann", "blocked"))
			calls = 0
			assert.Equal(t, status, g.Check(from(alice)).Status, noKey)
			assert.Equal(t, 1, calls, "the key is made once")
			assert.Equal(t, 0, g.Check(sent("Tier", "staff")).Status, noKey)
		}
	}
}

// The look at the numbers of keys allocates nothing, whether they have the request's or not.
func TestKeysAllocateNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector drops what is pooled")
	}
	source := new(numbers)
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1000000/1s"}, Source: source})
	measure := func(peer string) float64 {
		r := from(peer)
		return testing.AllocsPerRun(1000, func() { g.Check(r) })
	}
	without := measure(alice)
	set := keys("ip="+alice, "2000000/1s", "ip=192.0.2.1", "blocked", "ip=192.0.2.2", "unlimited")
	for i := range 900 {
		set.Keys["default"]["ip=198.51.100."+strconv.Itoa(i)] = strconv.Itoa(1_000_000+i) + "/1s"
	}
	source.Store(set)
	for _, peer := range []string{alice, bob, "192.0.2.1", "192.0.2.2"} {
		assert.LessOrEqual(t, measure(peer), without+0.01, peer)
	}
}

// A blocked key opens its circuit as another refusal does.
func TestBlockedOpensTheCircuit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := new(numbers)
		g := newGuard(t, guard.Config{
			Rule:   guard.Rule{Policy: "5/1h", OverLimit: guard.Break(guard.BreakOptions{Refusals: 2, Open: time.Hour})},
			Source: source,
		})
		source.Store(keys("ip="+alice, "blocked"))
		for _, want := range []time.Duration{time.Minute, time.Hour, time.Hour} {
			assert.Equal(t, want, g.Check(from(alice)).Result.RetryAfter)
		}
		require.True(t, passes(g, bob))
	})
}
