package guard_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/internal/remotetest"
	"github.com/weir-go/weir/keyfunc"
)

// The options of the policy of now are those of every tier and key, also of the tiers of the Config, and also where
// nothing else has changed.
func TestTiersTakeTheOptionsOfNow(t *testing.T) {
	store, source, said := remotetest.New(newMemory(t)), new(numbers), new(records)
	g := newGuard(t, guard.Config{
		Rule: guard.Rule{
			Policy: "api: 2/1h fixed-window; fail closed",
			Key:    byHeader("uid", "User"),
			Tier:   func(r keyfunc.Request) string { return r.Header("Tier")[0] },
			Tiers:  map[string]string{"pro": "5/1h fixed-window"},
		},
		Store: store, Source: source, Log: slog.New(said),
	})
	requests := map[string]*request{
		"policy": sent("User", "a", "Tier", ""), "tier of the code": sent("User", "b", "Tier", "pro"),
		"tier of the set": sent("User", "c", "Tier", "new"), "key": sent("User", "d", "Tier", "pro"),
	}
	set := func(text string) {
		source.Store(&guard.Set{
			Policies: map[string]string{"api": text},
			Tiers:    map[string]map[string]string{"api": {"new": "3/1h fixed-window"}},
			Keys:     map[string]map[string]string{"api": {"uid=d": "4/1h fixed-window"}},
		})
	}
	ask := func() map[string]string {
		out := map[string]string{}
		for name, r := range requests {
			out[name] = shown(g, r)
		}
		return out
	}
	set("2/1h fixed-window")
	first := map[string]string{"policy": "true 2 1", "tier of the code": "true 5 4", "tier of the set": "true 3 2", "key": "true 4 3"}
	assert.Equal(t, first, ask())
	set("2/1h fixed-window; epoch 1")
	assert.Equal(t, first, ask(), "all afresh")
	set("2/1h fixed-window; epoch 1; shadow")
	hidden := map[string]string{"policy": "true  ", "tier of the code": "true  ", "tier of the set": "true  ", "key": "true  "}
	for range 6 {
		assert.Equal(t, hidden, ask(), "all on trial")
	}
	set("2/1h fixed-window")
	assert.Equal(t, map[string]string{"policy": "true 2 0", "tier of the code": "true 5 3", "tier of the set": "true 3 1", "key": "true 4 2"}, ask())

	store.Fail(down())
	status := func() map[string]int {
		out := map[string]int{}
		for name, r := range requests {
			v := g.Check(r)
			out[name] = v.Status
			v.Finish(guard.Final{})
		}
		return out
	}
	all := func(status int) map[string]int {
		return map[string]int{"policy": status, "tier of the code": status, "tier of the set": status, "key": status}
	}
	assert.Equal(t, all(503), status())
	set("2/1h fixed-window; fail open")
	for range 9 {
		assert.Equal(t, all(0), status())
	}
	set("2/1h fixed-window; fail local")
	assert.Equal(t, first, ask())
	source.Store(nil)
	assert.Equal(t, all(503), status())
	assert.NotContains(t, said.codes(), "unusable-numbers")
}

// Of two rules that let requests wait, one is on trial and then enforced: a request waits in one after the other.
func TestTwoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := new(numbers)
		g := newGuard(t, guard.Config{
			Rule:   guard.Rule{Policy: "first: 1/1s burst 1; wait 10s"},
			Rules:  []guard.Rule{{Policy: "second: 1/4s burst 1; wait 20s; shadow", Key: keyfunc.Const("all")}},
			Source: source,
		})
		waits := func() time.Duration {
			began := time.Now()
			v := g.Check(from(alice))
			v.Finish(guard.Final{})
			require.Equal(t, guard.Pass, v.Action)
			return time.Since(began)
		}
		rest := func() { <-time.After(time.Hour) }
		assert.Equal(t, time.Duration(0), waits())
		assert.Equal(t, time.Second, waits(), "a trial holds nobody back")
		rest()
		source.Store(policies("second", "1/4s burst 1; wait 20s; shadow off"))
		assert.Equal(t, time.Duration(0), waits())
		assert.Equal(t, 4*time.Second, waits(), "a second in the first, and then the rest of four in the second")
		rest()
		source.Store(policies("first", "1/1s burst 1; wait 10s; shadow", "second", "1/4s burst 1; wait 3s; shadow off"))
		waits()
		v := g.Check(from(alice))
		assert.Equal(t, 429, v.Status, "the wait is shorter than the turn is away")
		assert.Equal(t, "second", v.Policy)
	})
}

// Another epoch of a policy closes its circuits, and going back opens them again.
func TestEpochClosesCircuits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := new(numbers)
		g := newGuard(t, guard.Config{
			Rule: guard.Rule{
				Policy: "1/1h", Tier: func(r keyfunc.Request) string { return fmt.Sprint(r.Header("Tier")) },
				Tiers:     map[string]string{"[pro]": "1/1h"},
				OverLimit: guard.Break(guard.BreakOptions{Refusals: 1, Open: 24 * time.Hour}),
			},
			Source: source,
		})
		for range 2 {
			passes(g, alice)
		}
		assert.False(t, passes(g, alice))
		<-time.After(2 * time.Hour)
		assert.False(t, passes(g, alice), "the circuit is open")
		source.Store(policies("default", "1/1h; epoch 1"))
		assert.True(t, passes(g, alice))
		source.Store(nil)
		assert.False(t, passes(g, alice))
		source.Store(policies("default", "1/1h; epoch 2"))
		v := g.Check(sent("Tier", "pro"))
		assert.Equal(t, guard.Pass, v.Action)
	})
}

// Another epoch of a policy with After has nothing to do with the requests of the one before: those under way take no
// units of it, and those that wait for them go on waiting.
func TestEpochOfAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := new(numbers)
		g := newGuard(t, guard.Config{
			Rule:   guard.Rule{Policy: "1/1h fixed-window", After: func(f guard.Final) int64 { return int64(f.Status - 200) }},
			Source: source,
		})
		running := g.Check(from(alice))
		require.Equal(t, guard.Pass, running.Action)
		waiting := make(chan guard.Verdict)
		go func() { waiting <- g.Check(from(alice)) }()
		synctest.Wait()
		source.Store(policies("default", "1/1h fixed-window; epoch 1"))
		began := time.Now()
		fresh := g.Check(from(alice))
		assert.Equal(t, guard.Pass, fresh.Action)
		assert.Zero(t, time.Since(began), "it waits for nobody")
		running.Finish(guard.Final{Status: 200})
		assert.Equal(t, guard.Pass, (<-waiting).Action)
		fresh.Finish(guard.Final{Status: 201})
		assert.Equal(t, 429, g.Check(from(alice)).Status)
		source.Store(nil)
		assert.Equal(t, guard.Pass, g.Check(from(bob)).Action)
	})
}

// An Event has the revision of the Set by which the request went, also when it is settled, and Describe begins with
// that of now. A Set without a revision, and none, have none.
func TestRevision(t *testing.T) {
	source := new(numbers)
	var revisions []string
	g := newGuard(t, guard.Config{
		Rule:    guard.Rule{Policy: "5/1h", Settle: func(_ guard.Final, taken int64) int64 { return taken }},
		Rules:   []guard.Rule{{Policy: "all: 9/1h", Key: keyfunc.Const("all")}},
		Source:  source,
		Observe: func(e guard.Event) { revisions = append(revisions, e.Policy+" "+e.Revision) },
	})
	ask := func() []string {
		revisions = nil
		v := g.Check(from(alice))
		v.Finish(guard.Final{})
		return revisions
	}
	without := []string{"default ", "all ", "default ", "all "}
	assert.Equal(t, without, ask())
	assert.Regexp(t, "^all others", g.Describe(nil))
	set := policies("all", "8/1h")
	set.Revision = "3.17"
	source.Store(set)
	assert.Equal(t, []string{"default 3.17", "all 3.17", "default 3.17", "all 3.17"}, ask())
	assert.Regexp(t, "^revision 3.17\nall others .*", g.Describe(nil))
	source.Store(&guard.Set{Revision: "3.18"})
	assert.Equal(t, []string{"default 3.18", "all 3.18", "default 3.18", "all 3.18"}, ask(), "of a Set that changes nothing here")
	source.Store(policies("all", "8/1h"))
	assert.Equal(t, without, ask())
	source.Store(nil)
	assert.Equal(t, without, ask())
	assert.Regexp(t, "^all others", g.Describe(nil))
}

// What else may not change is not used: the numbers from before stay, and the log has one line, however often the
// Source says so.
func TestWhatMayNotChange(t *testing.T) {
	for _, c := range []struct{ code, before, text, mistake string }{
		{"10/1h", "20/1h", "30/1h; wait 1s", "waits"},
		{"10/1h", "20/1h", "30/1h fixed-window", "differs in more than numbers"},
		{"10/1h", "20/1h", "30/1h, 40/1d", "differs in more than numbers"},
		{"10/1h", "20/1h", "30/1h, 5 concurrent", "differs in more than numbers"},
		{"10/1h", "20/1h", "other: 30/1h", "another name"},
		{"10/1h", "20/1h", "unlimited", "core: "},
		{"10/1h", "20/1h", "blocked", "core: "},
		{"10/1h; wait 1s", "20/1h; wait 2s", "30/1h; wait 0s", "does not wait"},
		{"10/1h sliding-log", "20/1h sliding-log", "30/1h sliding-counter", "differs in more than numbers"},
		{"10/1h fixed-window", "20/1h fixed-window", "30/1h fixed-window aligned", "differs in more than numbers"},
	} {
		source, said := new(numbers), new(records)
		g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: c.code}, Source: source, Log: slog.New(said)})
		source.Store(policies("default", c.before))
		require.EqualValues(t, 20, g.Check(from(alice)).Result.Limit, c)
		for range 3 {
			source.Store(policies("default", c.text))
			assert.EqualValues(t, 20, g.Check(from(alice)).Result.Limit, c)
		}
		if lines := said.all(); assert.Len(t, lines, 1, c) {
			assert.Contains(t, lines[0], c.mistake, c)
			assert.Contains(t, lines[0], `entry=Policies["default"]`)
		}
		source.Store(nil)
		assert.EqualValues(t, 10, g.Check(from(alice)).Result.Limit, c)
	}
}

// Of tiers and keys nothing but numbers may change, whatever options the policy of now has.
func TestOptionsOfTiersAndKeys(t *testing.T) {
	source, said := new(numbers), new(records)
	g := newGuard(t, guard.Config{
		Rule:   guard.Rule{Policy: "10/1h; wait 1s", Tier: func(r keyfunc.Request) string { return r.Header("Tier")[0] }},
		Source: source, Log: slog.New(said),
	})
	for _, text := range []string{"30/1h; wait 1s", "30/1h; wait 3s", "30/1h; shadow", "30/1h; fail closed", "30/1h; epoch 0"} {
		source.Store(&guard.Set{
			Policies: map[string]string{"default": "20/1h; wait 2s; fail open; epoch 4"},
			Tiers:    map[string]map[string]string{"default": {"pro": text, "same": "40/1h; wait 2s; epoch 4"}},
			Keys:     map[string]map[string]string{"default": {"ip=" + alice: text}},
		})
		pro, same := sent("Tier", "pro"), sent("Tier", "same")
		pro.peer = from(bob).peer
		same.peer = pro.peer
		assert.EqualValues(t, 20, g.Check(pro).Result.Limit, text)
		assert.EqualValues(t, 40, g.Check(same).Result.Limit, text)
		assert.EqualValues(t, 20, g.Check(sent("Tier", "")).Result.Limit, text)
		lines := strings.Join(said.all(), "\n")
		assert.Contains(t, lines, `entry=Tiers["default"]["pro"]`, text)
		assert.Contains(t, lines, `entry=Keys["default"]["ip=203.0.113.7"]`, text)
		assert.Equal(t, 2, strings.Count(lines, "only the numbers may differ"), text)
	}
}
