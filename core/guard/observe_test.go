package guard_test

import (
	"context"
	"log/slog"
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

// brief is an Event without the particulars.
func brief(e guard.Event) guard.Event {
	return guard.Event{Policy: e.Policy, Outcome: e.Outcome, Err: e.Err}
}

// An Event says which rule has decided what for whom, and how sure that is.
func TestEvent(t *testing.T) {
	type line struct {
		policy, rule, tier string
		outcome            core.Outcome
		shadow             bool
		remaining          int64
		route, key         string
	}
	var seen []line
	tier := "pro"
	c := guard.Config{
		Rule: guard.Rule{
			Policy: "user: 2/1h", Key: keyfunc.IP(),
			Tier: func(keyfunc.Request) string { return tier }, Tiers: map[string]string{"pro": "4/1h", "admin": "unlimited"},
		},
		Rules:  []guard.Rule{{Policy: "trial: 1/1h; shadow", Key: keyfunc.Const("all")}},
		Routes: map[string]guard.Rule{"/login": {Policy: "login: 1/1h"}},
		Observe: func(e guard.Event) {
			assert.False(t, e.Settled)
			assert.NoError(t, e.Err)
			assert.False(t, e.Result.Local)
			assert.Equal(t, e.Outcome, e.Result.Outcome)
			seen = append(seen, line{e.Policy, e.Rule, e.Tier, e.Outcome, e.Shadow, e.Result.Remaining, e.Route(), e.Key()})
		},
	}
	g := newGuard(t, c)
	g.Check(from(alice))
	tier = "unheard-of"
	g.Check(from(bob))
	tier = "admin"
	r := from(alice)
	r.route = "/login"
	g.Check(r)
	g.With("extra", "9/1h").Check(from(bob))
	assert.Equal(t, []line{
		{"user", "Rule", "pro", core.Admitted, false, 3, "/items/{id}", "ip=" + alice},
		{"trial", "Rules[0]", "", core.AtLimit, true, 0, "/items/{id}", "const=all"},
		// Observe is called for a shadow that refuses at once, the others when all have admitted.
		{"trial", "Rules[0]", "", core.Refused, true, 0, "/items/{id}", "const=all"},
		{"user", "Rule", "", core.Admitted, false, 1, "/items/{id}", "ip=" + bob},
		{"trial", "Rules[0]", "", core.Refused, true, 0, "/login", "const=all"},
		{"login", `Routes["/login"]`, "", core.AtLimit, false, 0, "/login", "ip=" + alice},
		{"extra", "With", "", core.Admitted, false, 8, "/items/{id}", "ip=" + bob},
	}, seen)
}

// Frameworks use requests again, so that an Event that is kept knows nothing of its request.
func TestEventKept(t *testing.T) {
	var kept []guard.Event
	keep := func(e guard.Event) { kept = append(kept, e) }
	newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1/1h"}, Observe: keep}).Check(from(alice))
	assert.Panics(t, func() {
		newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1/1h"}, Observe: func(e guard.Event) { keep(e); panic("boom") }}).Check(from(alice))
	})
	for _, e := range append(kept, guard.Event{}) {
		assert.Empty(t, e.Route())
		assert.Empty(t, e.Key())
	}
}

// A request that has no key of its own has none in the Event, or the shared one.
func TestEventWithoutKey(t *testing.T) {
	for noKey, want := range map[guard.NoKey]string{guard.NoKeyRefuse: "", guard.NoKeyPass: "", guard.NoKeyShared: "none"} {
		events := 0
		newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1/1h", NoKey: noKey}, Observe: func(e guard.Event) {
			events++
			assert.Equal(t, want, e.Key())
			assert.ErrorIs(t, e.Err, keyfunc.ErrNoKey)
		}}).Check(from(""))
		assert.Equal(t, 1, events)
	}
}

// A store that is gone is seen in the Result as well.
func TestEventLocal(t *testing.T) {
	store := remotetest.New(newMemory(t))
	store.Fail(down())
	var last guard.Event
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1/1h"}, Store: store, Log: slog.New(new(records)), Observe: func(e guard.Event) { last = e }})
	g.Check(from(alice))
	assert.True(t, last.Result.Local)
	assert.Error(t, last.Err)
}

// slow is a store that takes its time.
type slow struct{ core.Store }

func (s slow) Take(ctx context.Context, t core.Take) (core.Result, error) {
	<-time.After(3 * time.Millisecond)
	return s.Store.Take(ctx, t)
}

// The decision's duration has the store in it, and not the wait for the turn.
func TestEventTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []guard.Event
		g := newGuard(t, guard.Config{
			Rule: guard.Rule{Policy: "1/1s; wait 5s"}, Store: slow{newMemory(t)},
			Observe: func(e guard.Event) { seen = append(seen, e) },
		})
		for range 2 {
			g.Check(from(alice))
		}
		require.Len(t, seen, 2)
		for _, e := range seen {
			assert.Equal(t, 3*time.Millisecond, e.Took)
		}
		assert.Greater(t, seen[1].Result.Delay, 900*time.Millisecond)
	})
}

// What a request has used at last is an Event of its own, also of work that goes on after the handler.
func TestEventSettled(t *testing.T) {
	var seen []guard.Event
	g := newGuard(t, guard.Config{
		Rule: guard.Rule{
			Policy: "10/1h fixed-window", Settle: func(f guard.Final, taken int64) int64 { return f.Bytes }, Cost: func(keyfunc.Request) int64 { return 4 },
			Tier: func(keyfunc.Request) string { return "pro" }, Tiers: map[string]string{"pro": "20/1h fixed-window"},
		},
		Observe: func(e guard.Event) { seen = append(seen, e) },
	})
	v := g.Check(from(alice))
	require.Len(t, seen, 1)
	assert.False(t, seen[0].Settled)
	v.Finish(guard.Final{Status: 200, Bytes: 3})
	v.Finish(guard.Final{Status: 200, Bytes: 1})
	require.Len(t, seen, 2)
	e := seen[1]
	assert.True(t, e.Settled)
	assert.Equal(t, int64(3), e.Used)
	assert.Equal(t, int64(4), e.Result.Taken)
	assert.Equal(t, "pro", e.Tier)
	assert.Equal(t, "Rule", e.Rule)
	assert.Empty(t, e.Route())

	g = newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1/1h"}, Observe: func(guard.Event) { seen = append(seen, e) }})
	v = g.Check(from(alice))
	v.Finish(guard.Final{Status: 200})
	assert.Len(t, seen, 3, "where nothing is settled there is nothing to tell")
}

// A handler that shows what is left gets the Result, if it was asked for.
func TestFromContext(t *testing.T) {
	left := func(g *guard.Guard, ctx context.Context) (context.Context, int64) {
		r := from(alice)
		r.ctx = ctx
		v := g.Check(r)
		defer v.Finish(guard.Final{})
		ctx = v.Context(ctx)
		res, ok := guard.FromContext(ctx)
		if !ok {
			return ctx, -1
		}
		return ctx, res.Remaining
	}
	config := guard.Config{Rule: guard.Rule{Policy: "all: 5/1h"}, Results: true}
	g := newGuard(t, config)
	ctx, n := left(g, t.Context())
	assert.Equal(t, int64(4), n)
	inner, n := left(g.With("login", "2/1h"), ctx)
	assert.Equal(t, int64(1), n)
	_, n = left(g.With("wide", "90/1h"), inner)
	assert.Equal(t, int64(1), n, "that of the tightest guard stays")
	_, n = left(newGuard(t, guard.Config{Rule: guard.Rule{Policy: "50 concurrent"}}), ctx)
	assert.Equal(t, int64(4), n, "a guard that was not asked hides nothing")

	config.Skip = func(keyfunc.Request) bool { return true }
	_, n = left(newGuard(t, config), t.Context())
	assert.Equal(t, int64(-1), n, "nothing was counted")
	config.Skip, config.Results = nil, false
	ctx, n = left(newGuard(t, config), t.Context())
	assert.Equal(t, int64(-1), n)
	assert.Equal(t, t.Context(), ctx, "nothing asked for, nothing paid")
}

// An Event allocates nothing, and neither do the keys of refusals that Observe reads.
func TestEventAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector drops pooled keys")
	}
	count := func(observe func(guard.Event)) float64 {
		g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "2147483648/1s"}, Observe: observe})
		r := from(alice)
		return testing.AllocsPerRun(500, func() {
			v := g.Check(r)
			v.Finish(guard.Final{})
		})
	}
	assert.LessOrEqual(t, count(nil), 0.0)
	var room [64]byte
	assert.LessOrEqual(t, count(func(e guard.Event) {
		if e.Err != nil || string(e.AppendKey(room[:0])) != "ip="+alice || e.Context() == nil {
			t.Error(e.Err)
		}
	}), 0.0)
}
