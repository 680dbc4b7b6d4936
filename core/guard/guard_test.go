package guard_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/race"
	"github.com/weir-go/weir/keyfunc"
)

func newGuard(t testing.TB, c guard.Config) *guard.Guard {
	t.Helper()
	if c.Key.String() == "" {
		c.Key = keyfunc.IP()
	}
	g, err := guard.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	return g
}

func down() error { return &core.StoreError{Class: core.ClassDown, Err: errors.New("gone")} }

func passes(g *guard.Guard, peer string) bool {
	v := g.Check(from(peer))
	return v.Action == guard.Pass
}

// New reports every mistake, and all of them at once.
func TestNewGuardTellsEveryMistake(t *testing.T) {
	for _, c := range []struct {
		config guard.Config
		want   []string
	}{
		{guard.Config{}, []string{"guard: the Policy is missing", "guard: Key is missing"}},
		{
			guard.Config{Rule: guard.Rule{Key: keyfunc.Custom("ip", nil), OverLimit: guard.Reject(guard.RejectOptions{Status: 200}), NoKey: 9}},
			[]string{
				"guard: the Policy is missing", `guard: Key: keyfunc: Custom("ip"): this package uses that kind`, `keyfunc: Custom("ip"): the function is nil`,
				"guard: OverLimit: RejectOptions.Status is 200; give 400 to 599, or 0 for 429", "guard: NoKey is 9",
			},
		},
		{guard.Config{Rule: guard.Rule{Policy: "1/1s", Key: keyfunc.IP(), OverLimit: guard.HandlerFunc("mine", nil)}}, []string{`guard: OverLimit: the function of "mine" is nil; give one`}},
		{guard.Config{Rule: guard.Rule{Policy: "1/1s", Key: keyfunc.Join()}}, []string{"guard: Key: keyfunc: Join() of nothing"}},
		{guard.Config{Rule: guard.Rule{Policy: "1/1s", Key: keyfunc.IP(), OverLimit: guard.Reject(guard.RejectOptions{Status: 600})}}, []string{"RejectOptions.Status is 600"}},
	} {
		g, err := guard.New(c.config)
		require.Error(t, err)
		assert.Nil(t, g)
		for _, want := range c.want {
			assert.ErrorContains(t, err, want)
		}
		assert.Equal(t, len(c.want), strings.Count(err.Error(), "\n")+1, "%v", err)
	}
}

func TestGuardCheck(t *testing.T) {
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "2/1h"}})
	assert.Equal(t, "default: 2/1h", g.Policies()[0].String())
	v := g.Check(from(alice))
	assert.Equal(t, guard.Pass, v.Action)
	assert.Equal(t, "default", v.Policy)
	assert.Equal(t, int64(1), v.Result.Remaining)
	require.NoError(t, v.Err)
	assert.False(t, v.NeedsContext())
	assert.False(t, v.NeedsFinal())
	v.Finish(guard.Final{})
	assert.True(t, passes(g, alice))
	v = g.Check(from(alice))
	assert.Equal(t, guard.Reply, v.Action)
	assert.Equal(t, 429, v.Status)
	assert.Equal(t, "too many requests\n", string(v.Body))
	assert.Equal(t, core.Refused, v.Result.Outcome)
	require.NoError(t, v.Err)
	assert.True(t, passes(g, bob))
	require.NoError(t, g.Close())
	assert.True(t, passes(g, bob), "a closed Guard goes on deciding")
}

func TestGuardCost(t *testing.T) {
	cost := int64(1)
	var seen []guard.Event
	g := newGuard(t, guard.Config{
		Rule: guard.Rule{
			Policy: "10/1h",
			Cost:   func(keyfunc.Request) int64 { return cost },
		},
		Observe: func(e guard.Event) { seen = append(seen, e) },
	})
	for _, c := range []struct {
		cost      int64
		outcome   core.Outcome
		remaining int64
		status    int
	}{
		{4, core.Admitted, 6, 0},
		{7, core.Refused, 6, 429},
		{0, core.Admitted, 6, 0}, // a peek is refused by nothing
		{11, core.Never, 6, 429},
		{6, core.AtLimit, 0, 0},
		{0, core.Admitted, 0, 0},
	} {
		cost = c.cost
		v := g.Check(from(alice))
		assert.Equal(t, c.outcome, v.Result.Outcome)
		assert.Equal(t, c.remaining, v.Result.Remaining)
		assert.Equal(t, c.status, v.Status)
		assert.Equal(t, guard.Event{Policy: "default", Outcome: c.outcome}, brief(seen[len(seen)-1]))
	}
	cost = -1
	v := g.Check(from(alice))
	assert.Equal(t, 503, v.Status)
	assert.ErrorContains(t, v.Err, "a cost of -1 units")
	assert.Equal(t, core.Refused, seen[len(seen)-1].Outcome)
	assert.Len(t, seen, 7, "one event for each decision")
}

func TestGuardWith(t *testing.T) {
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "5/1h"}})
	login := g.With("login", "1/1h")
	assert.Equal(t, "login: 1/1h", login.Policies()[0].String())
	assert.Equal(t, "default: 5/1h", g.Policies()[0].String(), "the Guard itself does not change")
	// Alone: login does not ask the default policy, nor the other way round.
	assert.True(t, passes(login, alice))
	assert.False(t, passes(login, alice))
	for range 5 {
		assert.True(t, passes(g, alice))
	}
	assert.False(t, passes(g, alice))
	assert.True(t, passes(login, bob))
	// The same name and the same policy are the same count, wherever it stands.
	assert.False(t, passes(g.With("login", "login: 1/1h"), alice))
	assert.False(t, passes(login.With("login", "1/60m"), alice))

	for name, f := range map[string]func(){
		"not a policy":        func() { g.With("a", "x") },
		"no name":             func() { g.With("", "1/1s") },
		"not a name":          func() { g.With("a b", "1/1s") },
		"two names":           func() { g.With("a", "b: 1/1s") },
		"one name, two means": func() { g.With("login", "2/1h") },
		"the Guard's name":    func() { g.With("default", "2/1h") },
		"a zero rule":         func() { g.With("zero", "0/1s") },
	} {
		assert.Panics(t, f, name)
	}
}

// A mistake of a constant names the call that it stands in.
func TestMistakesNameTheirPlace(t *testing.T) {
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "5/1h"}})
	for want, f := range map[string]func(){
		`guard: With("5/1m", "login"): core: policy "login": at offset 0, found "login": expected a rate such as "100/1m"; the name comes first`:                            func() { g.With("5/1m", "login") },
		`guard: With("a", "5/1x"): core: policy "5/1x": at offset 3, found "x": expected a unit right after the number: "d", "h", "m", "s", "ms" or "us"`:                   func() { g.With("a", "5/1x") },
		`guard: With("a", "b: 5/1m"): the policy brings another name; leave it out`:                                                                                         func() { g.With("a", "b: 5/1m") },
		`guard: Must("login 5/1m", ip): core: policy "login 5/1m": at offset 0, found "login": expected a rate such as "100/1m"; a name ends with ":", as in "login: 3/1m"`: func() { guard.Must("login 5/1m", keyfunc.IP()) },
		`guard: Must("5/1m", no key): Key is missing; say who is counted, as with keyfunc.IP()`:                                                                             func() { guard.Must("5/1m", keyfunc.Func{}) },
	} {
		assert.PanicsWithError(t, want, f)
	}
	_, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "5/1w", Key: keyfunc.IP()}})
	require.EqualError(t, err, `guard: Policy: core: policy "5/1w": at offset 3, found "w": expected a unit right after the number: "d", "h", "m", "s", "ms" or "us"; for weeks write "7d"`)
}

// A policy that could never admit a request is a mistake, wherever it stands.
func TestGuardRefusesPoliciesThatNeverAdmit(t *testing.T) {
	for _, policy := range []string{"0/1m", "5/1m burst 0", "0 concurrent", "5/1m, 0/1h"} {
		key := keyfunc.IP()
		for where, c := range map[string]guard.Config{
			"Rule":   {Rule: guard.Rule{Policy: policy, Key: key}},
			"Rules":  {Rule: guard.Rule{Key: key}, Rules: []guard.Rule{{Policy: "a: " + policy}}},
			"Routes": {Rule: guard.Rule{Key: key}, Routes: map[string]guard.Rule{"/a": {Policy: policy}}},
			"Tiers": {Rule: guard.Rule{
				Policy: "1/1h", Key: key,
				Tier: func(keyfunc.Request) string { return "a" }, Tiers: map[string]string{"a": policy},
			}},
		} {
			_, err := guard.New(c)
			assert.Error(t, err, "%s in %s", policy, where)
		}
	}
}

func TestGuardWithRule(t *testing.T) {
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "5/1h", NoKey: guard.NoKeyPass}})
	_, err := g.WithRule(guard.Rule{})
	require.ErrorContains(t, err, "guard: the Policy is missing")
	_, err = g.WithRule(guard.Rule{Policy: "1/1s"})
	require.EqualError(t, err, `guard: the policy "1/1s" has no name; give it one, as in "login: 1/1s"`)
	_, err = g.WithRule(guard.Rule{Policy: "default: 1/1s"})
	require.EqualError(t, err, `enforce: the name "default" stands for both "default: 5/1h" and "default: 1/1s"; they would share one count: rename one`)
	_, err = g.WithRule(guard.Rule{Policy: "a: 1/1s", Key: keyfunc.User(nil), NoKey: 7})
	require.ErrorContains(t, err, "guard: Key: keyfunc: User(nil)")
	require.ErrorContains(t, err, "guard: NoKey is 7")

	teapot, err := g.WithRule(guard.Rule{
		Policy: "a: 10/1h", Key: keyfunc.Route(), Cost: func(keyfunc.Request) int64 { return 10 },
		OverLimit: guard.Reject(guard.RejectOptions{Status: 418}), NoKey: guard.NoKeyRefuse,
	})
	require.NoError(t, err, "a mistaken rule has not taken the name")
	assert.True(t, passes(teapot, alice))
	v := teapot.Check(from(bob))
	assert.Equal(t, 418, v.Status)
	inherits := teapot.With("b", "1/1h")
	assert.True(t, passes(inherits, ""), "what is left out is the Config's")
}

func TestGuardSkip(t *testing.T) {
	events := 0
	g := newGuard(t, guard.Config{
		Rule: guard.Rule{
			Policy: "1/1h",
			Skip:   func(r keyfunc.Request) bool { return r.Route() == "/health" },
		},
		Observe: func(guard.Event) { events++ },
	})
	health := from(alice)
	health.route = "/health"
	for _, g := range []*guard.Guard{g, g.With("login", "1/1h")} {
		for range 3 {
			v := g.Check(health)
			assert.Equal(t, guard.Pass, v.Action)
			assert.Empty(t, v.Policy, "untouched")
			h := header{}
			v.SetHeaders(h)
			assert.Empty(t, h)
		}
	}
	assert.Zero(t, events)
	assert.True(t, passes(g, alice))
}

// userKey is the context key under which an authentication would store the user.
type userKey struct{}

// A request without a key is never skipped silently.
func TestGuardNoKey(t *testing.T) {
	boom := errors.New("boom")
	failing := keyfunc.Custom("tenant", func(keyfunc.Request) (string, error) { return "", boom })
	for _, c := range []struct {
		name   string
		noKey  guard.NoKey
		key    keyfunc.Func
		status []int // of three requests of a 2/1h policy
		err    error
		events []core.Outcome
	}{
		{"default", 0, keyfunc.IP(), []int{403, 403, 403}, keyfunc.ErrNoKey, []core.Outcome{core.Refused, core.Refused, core.Refused}},
		{"refuse", guard.NoKeyRefuse, keyfunc.IP(), []int{403, 403, 403}, keyfunc.ErrNoKey, []core.Outcome{core.Refused, core.Refused, core.Refused}},
		{"refuse, failed", guard.NoKeyRefuse, failing, []int{403, 403, 403}, boom, []core.Outcome{core.Refused, core.Refused, core.Refused}},
		{"pass", guard.NoKeyPass, keyfunc.IP(), []int{0, 0, 0}, keyfunc.ErrNoKey, []core.Outcome{core.Admitted, core.Admitted, core.Admitted}},
		{"pass, failed", guard.NoKeyPass, failing, []int{0, 0, 0}, boom, []core.Outcome{core.Admitted, core.Admitted, core.Admitted}},
		{"shared", guard.NoKeyShared, keyfunc.IP(), []int{0, 0, 429}, keyfunc.ErrNoKey, []core.Outcome{core.Admitted, core.AtLimit, core.Refused}},
		{"shared, failed", guard.NoKeyShared, failing, []int{0, 0, 429}, boom, []core.Outcome{core.Admitted, core.AtLimit, core.Refused}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var seen []core.Outcome
			g := newGuard(t, guard.Config{
				Rule: guard.Rule{
					Policy: "2/1h",
					Key:    c.key,
					NoKey:  c.noKey,
				},
				Observe: func(e guard.Event) {
					seen = append(seen, e.Outcome)
					assert.ErrorIs(t, e.Err, c.err)
				},
			})
			for i, status := range c.status {
				v := g.Check(from(""))
				assert.Equal(t, status, v.Status, "request %d", i)
				assert.Equal(t, status == 0, v.Action == guard.Pass)
				if c.noKey == guard.NoKeyShared {
					assert.NoError(t, v.Err, "it is like any other key, but for Observe")
				} else {
					assert.ErrorIs(t, v.Err, c.err)
				}
				h := header{}
				v.SetHeaders(h)
				assert.Equal(t, c.noKey == guard.NoKeyShared, h["X-Ratelimit-Limit"] != "", "no numbers where nobody counted")
			}
			assert.Equal(t, c.events, seen)
		})
	}
	// The shared key is nobody's own.
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1/1h", Key: keyfunc.FirstOf(keyfunc.User(userKey{}), keyfunc.IP()), NoKey: guard.NoKeyShared}})
	assert.True(t, passes(g, ""))
	assert.False(t, passes(g, ""))
	r := from("")
	r.ctx = context.WithValue(r.ctx, userKey{}, "none")
	v := g.Check(r)
	assert.Equal(t, guard.Pass, v.Action, "a user called none")
}

// The program's own panics come out.
func TestGuardPanicsPass(t *testing.T) {
	boom := func(keyfunc.Request) (string, error) { panic("boom") }
	for name, c := range map[string]guard.Config{
		"key":     {Rule: guard.Rule{Key: keyfunc.Custom("tenant", boom)}},
		"skip":    {Rule: guard.Rule{Skip: func(keyfunc.Request) bool { panic("boom") }}},
		"cost":    {Rule: guard.Rule{Cost: func(keyfunc.Request) int64 { panic("boom") }}},
		"handler": {Rule: guard.Rule{Cost: func(keyfunc.Request) int64 { return 2 }, OverLimit: guard.HandlerFunc("mine", func(*guard.Refusal) guard.Verdict { panic("boom") })}},
		"tier":    {Rule: guard.Rule{Tier: func(keyfunc.Request) string { panic("boom") }, Tiers: map[string]string{"pro": "2/1h"}}},
		"observe": {Observe: func(guard.Event) { panic("boom") }},
	} {
		c.Policy = "1/1h"
		g := newGuard(t, c)
		assert.PanicsWithValue(t, "boom", func() { g.Check(from(alice)) }, name)
	}
}

// A caller who left gets its context's error; that is no failure of the store.
func TestGuardCallerLeft(t *testing.T) {
	var last guard.Event
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1/1h; fail open"}, Observe: func(e guard.Event) { last = e }})
	ctx, leave := context.WithCancel(context.Background())
	leave()
	r := from(alice)
	r.ctx = ctx
	v := g.Check(r)
	assert.Equal(t, guard.Reply, v.Action)
	assert.Equal(t, 503, v.Status)
	require.ErrorIs(t, v.Err, context.Canceled)
	assert.Equal(t, guard.Event{Policy: "default", Outcome: core.Refused, Err: context.Canceled}, brief(last))
	assert.True(t, passes(g, alice), "nothing was charged")
}

// The whole way through a Guard takes no memory where the key is not kept.
func TestGuardCheckAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector drops pooled keys")
	}
	for _, policy := range []string{"2147483648/1s", "1/1h"} { // admitted, and refused
		g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: policy, Key: keyfunc.Join(keyfunc.IP(), keyfunc.Route())}})
		r := from(alice)
		passes(g, alice)
		assert.LessOrEqual(t, testing.AllocsPerRun(500, func() {
			v := g.Check(r)
			v.Finish(guard.Final{})
		}), 0.0, policy)
	}
}

// A client that leaves while its key is looked up is no mistake of the rule; what
// fails afterwards is logged all the same.
func TestGuardKeyOfCallerWhoLeft(t *testing.T) {
	said, err := new(records), context.Canceled
	g := newGuard(t, guard.Config{
		Rule: guard.Rule{
			Policy: "5/1h",
			Key:    keyfunc.Custom("session", func(keyfunc.Request) (string, error) { return "", err }),
		},
		Log: slog.New(said),
	})
	g.Check(from(alice))
	assert.Empty(t, said.all())
	err = errors.New("no such table")
	g.Check(from(alice))
	g.Check(from(alice))
	assert.Len(t, said.all(), 1)
}
