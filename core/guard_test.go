package core_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/internal/race"
	"github.com/weir-go/weir/keyfunc"
)

func newGuard(t testing.TB, c core.Config) *core.Guard {
	t.Helper()
	if c.Key.String() == "" {
		c.Key = keyfunc.IP()
	}
	g, err := core.NewGuard(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	return g
}

func down() error { return &core.StoreError{Class: core.ClassDown, Err: errors.New("gone")} }

func passes(g *core.Guard, peer string) bool {
	v := g.Check(from(peer))
	return v.Action == core.Pass
}

// A mistake is told when the program starts, and all of them at once.
func TestNewGuardTellsEveryMistake(t *testing.T) {
	for _, c := range []struct {
		config core.Config
		want   []string
	}{
		{core.Config{}, []string{"core: Policy is missing", "core: Key is missing"}},
		{
			core.Config{Key: keyfunc.Custom("ip", nil), OverLimit: core.Reject(core.RejectOptions{Status: 200}), NoKey: 9},
			[]string{
				"core: Policy is missing", `core: Key: keyfunc: Custom("ip"): this package uses that kind`, `keyfunc: Custom("ip"): the function is nil`,
				"core: OverLimit: core: RejectOptions.Status is 200; give 400 to 599, or 0 for 429", "core: NoKey is 9",
			},
		},
		{core.Config{Policy: core.MustParse("1/1s"), Key: keyfunc.IP(), OverLimit: core.Func("mine", nil)}, []string{`core: OverLimit: core: Func("mine", nil): give a function`}},
		{core.Config{Policy: core.MustParse("1/1s"), Key: keyfunc.Join()}, []string{"core: Key: keyfunc: Join() of nothing"}},
		{core.Config{Policy: core.MustParse("1/1s"), Key: keyfunc.IP(), OverLimit: core.Reject(core.RejectOptions{Status: 600})}, []string{"RejectOptions.Status is 600"}},
	} {
		g, err := core.NewGuard(c.config)
		require.Error(t, err)
		assert.Nil(t, g)
		for _, want := range c.want {
			assert.ErrorContains(t, err, want)
		}
		assert.Equal(t, len(c.want), strings.Count(err.Error(), "\n")+1, "%v", err)
	}
}

func TestGuardCheck(t *testing.T) {
	g := newGuard(t, core.Config{Policy: core.MustParse("2/1h")})
	assert.Equal(t, "default: 2/1h", g.Policy().String())
	v := g.Check(from(alice))
	assert.Equal(t, core.Pass, v.Action)
	assert.Equal(t, "default", v.Policy)
	assert.Equal(t, int64(1), v.Result.Remaining)
	require.NoError(t, v.Err)
	assert.False(t, v.NeedsContext())
	assert.False(t, v.NeedsFinal())
	v.Finish(core.Final{})
	assert.True(t, passes(g, alice))
	v = g.Check(from(alice))
	assert.Equal(t, core.Reply, v.Action)
	assert.Equal(t, 429, v.Status)
	assert.Equal(t, "too many requests\n", string(v.Body))
	assert.Equal(t, core.Refused, v.Result.Outcome)
	require.NoError(t, v.Err)
	assert.True(t, passes(g, bob))
	require.NoError(t, g.Close())
	assert.True(t, passes(g, bob), "a closed Guard goes on deciding")
}

// The zero Verdict refuses.
func TestZeroVerdict(t *testing.T) {
	var v core.Verdict
	assert.Equal(t, core.Reply, v.Action)
	assert.False(t, v.Result.Allowed())
	h := header{}
	v.SetHeaders(h)
	assert.Equal(t, header{"Cache-Control": "no-store"}, h)
	v.Finish(core.Final{})
	assert.Nil(t, (&core.Verdict{Action: core.Native}).ForNative(false, "net/http"))
	assert.False(t, v.NeedsFinal())
}

func TestGuardCost(t *testing.T) {
	cost := int64(1)
	var seen []core.Event
	g := newGuard(t, core.Config{
		Policy: core.MustParse("10/1h"), Cost: func(keyfunc.Request) int64 { return cost },
		Observe: func(e core.Event) { seen = append(seen, e) },
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
		assert.Equal(t, core.Event{Policy: "default", Outcome: c.outcome}, seen[len(seen)-1])
	}
	cost = -1
	v := g.Check(from(alice))
	assert.Equal(t, 503, v.Status)
	assert.ErrorContains(t, v.Err, "a cost of -1 units")
	assert.Equal(t, core.Refused, seen[len(seen)-1].Outcome)
	assert.Len(t, seen, 7, "one event for each decision")
}

func TestGuardWith(t *testing.T) {
	g := newGuard(t, core.Config{Policy: core.MustParse("5/1h")})
	login := g.With("login", "1/1h")
	assert.Equal(t, "login: 1/1h", login.Policy().String())
	assert.Equal(t, "default: 5/1h", g.Policy().String(), "the Guard itself does not change")
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

func TestGuardWithRule(t *testing.T) {
	g := newGuard(t, core.Config{Policy: core.MustParse("5/1h"), NoKey: core.NoKeyPass})
	_, err := g.WithRule(core.Rule{})
	require.ErrorContains(t, err, "core: Policy is missing")
	_, err = g.WithRule(core.Rule{Policy: core.MustParse("1/1s")})
	require.EqualError(t, err, `core: the policy "1/1s" has no name; give it one, as in "login: 1/1s"`)
	_, err = g.WithRule(core.Rule{Policy: core.MustParse("default: 1/1s")})
	require.EqualError(t, err, `core: the name "default" stands for both "default: 5/1h" and "default: 1/1s"; they would share one count: rename one`)
	_, err = g.WithRule(core.Rule{Policy: core.MustParse("a: 1/1s"), Key: keyfunc.User(nil), NoKey: 7})
	require.ErrorContains(t, err, "core: Key: keyfunc: User(nil)")
	require.ErrorContains(t, err, "core: NoKey is 7")

	teapot, err := g.WithRule(core.Rule{
		Policy: core.MustParse("a: 10/1h"), Key: keyfunc.Route(), Cost: func(keyfunc.Request) int64 { return 10 },
		OverLimit: core.Reject(core.RejectOptions{Status: 418}), NoKey: core.NoKeyRefuse,
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
	g := newGuard(t, core.Config{
		Policy: core.MustParse("1/1h"), Observe: func(core.Event) { events++ },
		Skip: func(r keyfunc.Request) bool { return r.Route() == "/health" },
	})
	health := from(alice)
	health.route = "/health"
	for _, g := range []*core.Guard{g, g.With("login", "1/1h")} {
		for range 3 {
			v := g.Check(health)
			assert.Equal(t, core.Verdict{Action: core.Pass}, v, "untouched")
			h := header{}
			v.SetHeaders(h)
			assert.Empty(t, h)
		}
	}
	assert.Zero(t, events)
	assert.True(t, passes(g, alice))
}

// userKey is where an authentication would store the user.
type userKey struct{}

// A request without a key is never skipped silently.
func TestGuardNoKey(t *testing.T) {
	boom := errors.New("boom")
	failing := keyfunc.Custom("tenant", func(keyfunc.Request) (string, error) { return "", boom })
	for _, c := range []struct {
		name   string
		noKey  core.NoKey
		key    keyfunc.Func
		status []int // of three requests of a 2/1h policy
		err    error
		events []core.Outcome
	}{
		{"default", 0, keyfunc.IP(), []int{403, 403, 403}, keyfunc.ErrNoKey, []core.Outcome{core.Refused, core.Refused, core.Refused}},
		{"refuse", core.NoKeyRefuse, keyfunc.IP(), []int{403, 403, 403}, keyfunc.ErrNoKey, []core.Outcome{core.Refused, core.Refused, core.Refused}},
		{"refuse, failed", core.NoKeyRefuse, failing, []int{403, 403, 403}, boom, []core.Outcome{core.Refused, core.Refused, core.Refused}},
		{"pass", core.NoKeyPass, keyfunc.IP(), []int{0, 0, 0}, keyfunc.ErrNoKey, []core.Outcome{core.Admitted, core.Admitted, core.Admitted}},
		{"pass, failed", core.NoKeyPass, failing, []int{0, 0, 0}, boom, []core.Outcome{core.Admitted, core.Admitted, core.Admitted}},
		{"shared", core.NoKeyShared, keyfunc.IP(), []int{0, 0, 429}, keyfunc.ErrNoKey, []core.Outcome{core.Admitted, core.AtLimit, core.Refused}},
		{"shared, failed", core.NoKeyShared, failing, []int{0, 0, 429}, boom, []core.Outcome{core.Admitted, core.AtLimit, core.Refused}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var seen []core.Outcome
			g := newGuard(t, core.Config{Policy: core.MustParse("2/1h"), Key: c.key, NoKey: c.noKey, Observe: func(e core.Event) {
				seen = append(seen, e.Outcome)
				assert.ErrorIs(t, e.Err, c.err)
			}})
			for i, status := range c.status {
				v := g.Check(from(""))
				assert.Equal(t, status, v.Status, "request %d", i)
				assert.Equal(t, status == 0, v.Action == core.Pass)
				if c.noKey == core.NoKeyShared {
					assert.NoError(t, v.Err, "it is like any other key, but for Observe")
				} else {
					assert.ErrorIs(t, v.Err, c.err)
				}
				h := header{}
				v.SetHeaders(h)
				assert.Equal(t, c.noKey == core.NoKeyShared, h["X-Ratelimit-Limit"] != "", "no numbers where nobody counted")
			}
			assert.Equal(t, c.events, seen)
		})
	}
	// The shared key is nobody's own.
	g := newGuard(t, core.Config{Policy: core.MustParse("1/1h"), Key: keyfunc.FirstOf(keyfunc.User(userKey{}), keyfunc.IP()), NoKey: core.NoKeyShared})
	assert.True(t, passes(g, ""))
	assert.False(t, passes(g, ""))
	r := from("")
	r.ctx = context.WithValue(r.ctx, userKey{}, "none")
	v := g.Check(r)
	assert.Equal(t, core.Pass, v.Action, "a user called none")
}

// The program's own panics come out.
func TestGuardPanicsPass(t *testing.T) {
	boom := func(keyfunc.Request) (string, error) { panic("boom") }
	for name, c := range map[string]core.Config{
		"key":     {Key: keyfunc.Custom("tenant", boom)},
		"skip":    {Skip: func(keyfunc.Request) bool { panic("boom") }},
		"cost":    {Cost: func(keyfunc.Request) int64 { panic("boom") }},
		"handler": {Cost: func(keyfunc.Request) int64 { return 2 }, OverLimit: core.Func("mine", func(*core.Excess) core.Verdict { panic("boom") })},
		"observe": {Observe: func(core.Event) { panic("boom") }},
	} {
		c.Policy = core.MustParse("1/1h")
		g := newGuard(t, c)
		assert.PanicsWithValue(t, "boom", func() { g.Check(from(alice)) }, name)
	}
}

func TestGuardOverLimit(t *testing.T) {
	var excess core.Excess
	var answer core.Verdict
	g := newGuard(t, core.Config{Policy: core.MustParse("1/1h"), OverLimit: core.Func("mine", func(x *core.Excess) core.Verdict {
		excess = *x
		return answer
	})})
	require.True(t, passes(g, alice))
	r := from(alice)
	native := func() {}
	for _, c := range []struct {
		name   string
		answer core.Verdict
		action core.Action
		status int
	}{
		{"zero", core.Verdict{}, core.Reply, 429},
		{"status", core.Verdict{Status: 503}, core.Reply, 503},
		{"too low", core.Verdict{Status: 199}, core.Reply, 429},
		{"too high", core.Verdict{Status: 1000}, core.Reply, 429},
		{"negative", core.Verdict{Status: -1}, core.Reply, 429},
		{"a redirect", core.Verdict{Status: 302}, core.Reply, 302},
		{"pass", core.Verdict{Action: core.Pass}, core.Pass, 429},
		{"native of nothing", core.Verdict{Action: core.Native}, core.Reply, 429},
		{"native", core.Verdict{Action: core.Native, Native: &native}, core.Native, 429},
		{"no action", core.Verdict{Action: 9, Native: &native}, core.Reply, 429},
	} {
		answer = c.answer
		v := g.Check(r)
		assert.Equal(t, c.action, v.Action, c.name)
		assert.Equal(t, c.status, v.Status, c.name)
		assert.Equal(t, "default", v.Policy, c.name)
		assert.Equal(t, core.Refused, v.Result.Outcome, c.name)
		assert.False(t, v.NeedsFinal(), c.name)
	}
	assert.Same(t, r, excess.Request)
	assert.Equal(t, g.Policy(), excess.Rule.Policy)
	assert.Equal(t, core.Refused, excess.Result.Outcome)
	assert.NoError(t, excess.Err)
}

func TestReject(t *testing.T) {
	const over, noStore = "too many requests\n", "the rate limiter cannot decide at the moment\n"
	reject := core.Reject(core.RejectOptions{})
	assert.Equal(t, "reject(429)", reject.String())
	assert.Equal(t, "reject(420)", core.Reject(core.RejectOptions{Status: 420}).String())
	assert.Equal(t, "mine", core.Func("mine", nil).String())
	for _, c := range []struct {
		name   string
		excess core.Excess
		status int
		body   string
		retry  string
	}{
		{"over", core.Excess{}, 420, over, ""},
		{"never", core.Excess{Result: core.Result{Outcome: core.Never}}, 420, "this request costs more than its rate limit ever admits at once\n", ""},
		{"over, locally", core.Excess{Err: down(), Result: core.Result{Local: true}}, 420, over, ""},
		{"never, locally", core.Excess{Err: down(), Result: core.Result{Outcome: core.Never, Local: true}}, 420, "this request costs more than its rate limit ever admits at once\n", ""},
		{"store", core.Excess{Err: fmt.Errorf("wrapped: %w", down())}, 503, noStore, "1"},
		{"no key", core.Excess{Err: fmt.Errorf("wrapped: %w", keyfunc.ErrNoKey)}, 403, "this request does not say who sent it, which its rate limit asks for\n", ""},
		{"other", core.Excess{Err: context.Canceled}, 503, noStore, ""},
	} {
		v := core.Reject(core.RejectOptions{Status: 420}).Serve(&c.excess)
		assert.Equal(t, core.Reply, v.Action, c.name)
		assert.Equal(t, c.status, v.Status, c.name)
		assert.Equal(t, c.body, string(v.Body), c.name)
		h := header{}
		v.SetHeaders(h)
		assert.Equal(t, "text/plain; charset=utf-8", h["Content-Type"], c.name)
		assert.Equal(t, c.retry, h["Retry-After"], c.name)
		assert.Equal(t, "no-store", h["Cache-Control"], c.name)
	}
}

func TestHandleNative(t *testing.T) {
	type handler struct{ name string }
	h := &handler{"cached"}
	said := new(records)
	g := newGuard(t, core.Config{Policy: core.MustParse("1/1h"), OverLimit: core.HandleNative("cached", h), Log: slog.New(said)})
	require.True(t, passes(g, alice))
	for range 3 {
		v := g.Check(from(alice))
		assert.Equal(t, core.Native, v.Action)
		assert.Same(t, h, v.Native)
		assert.Equal(t, 429, v.Status)
		answer := v.ForNative(true, "net/http")
		assert.Equal(t, &v, answer)
		assert.NotSame(t, &v, answer)
		assert.Nil(t, v.ForNative(false, "gin"))
		assert.Equal(t, core.Reply, v.Action)
	}
	assert.Equal(t, []string{"ERROR weir: an over-limit handler is of another framework; a plain answer is sent framework=gin policy=default handler=cached"}, said.all())

	for _, none := range []any{nil, (func())(nil)} {
		_, err := core.NewGuard(core.Config{Policy: core.MustParse("1/1h"), Key: keyfunc.IP(), OverLimit: core.HandleNative("nothing", none)})
		assert.ErrorContains(t, err, `Func("nothing", nil)`)
	}
}

func TestSetField(t *testing.T) {
	shared := core.Reject(core.RejectOptions{})
	v, w := shared.Serve(&core.Excess{}), shared.Serve(&core.Excess{})
	v.SetField("Content-Type", "application/problem+json")
	v.SetField("location", "/slow")
	w.SetField("Location", "/wait")
	v.SetField("Location", "/down")
	for want, v := range map[string]core.Verdict{"application/problem+json /down": v, "text/plain; charset=utf-8 /wait": w, "text/plain; charset=utf-8 ": shared.Serve(&core.Excess{})} {
		h := header{}
		v.SetHeaders(h)
		assert.Equal(t, want, h["Content-Type"]+" "+h["Location"])
	}
}

// The fail word decides, and never with a 429 of its own.
func TestGuardFailWords(t *testing.T) {
	for _, c := range []struct {
		policy  string
		status  []int // of three requests while the store fails
		headers bool
		outcome core.Outcome // of the third
	}{
		{"2/1h", []int{0, 0, 429}, true, core.Refused},
		{"2/1h; fail local", []int{0, 0, 429}, true, core.Refused},
		{"2/1h; fail open", []int{0, 0, 0}, false, core.Admitted},
		{"2/1h; fail closed", []int{503, 503, 503}, false, core.Refused},
	} {
		t.Run(c.policy, func(t *testing.T) {
			store := newRemote(newMemory(t, 0))
			var last core.Event
			g := newGuard(t, core.Config{Store: store, Policy: core.MustParse(c.policy), Observe: func(e core.Event) { last = e }, Log: slog.New(new(records))})
			require.True(t, passes(g, alice))
			require.True(t, passes(g, alice))
			for range 2 { // an outage, and the next
				store.fail(down())
				for i, status := range c.status {
					v := g.Check(from(bob))
					assert.Equal(t, status, v.Status, "request %d", i)
					assert.Equal(t, c.policy != "2/1h; fail closed", v.Result.Local)
					var failed *core.StoreError
					require.ErrorAs(t, v.Err, &failed)
					h := header{}
					v.SetHeaders(h)
					assert.Equal(t, c.headers, h["X-Ratelimit-Limit"] != "")
					assert.Equal(t, status == 503, h["Retry-After"] == "1")
				}
				assert.Equal(t, c.outcome, last.Outcome)
				assert.Equal(t, core.ClassDown, func() string {
					var failed *core.StoreError
					require.ErrorAs(t, last.Err, &failed)
					return failed.Class
				}())
				store.fail(nil)
				assert.False(t, passes(g, alice), "what was counted before is still counted")
				assert.NoError(t, last.Err)
				if c.status[2] == 429 { // the local counts last through the next outage
					c.status = []int{429, 429, 429}
				}
			}
		})
	}
}

// fallback is a store that brings the Memory which stands in for it.
type fallback struct {
	*remote
	local *core.Memory
}

func (f fallback) Fallback() *core.Memory { return f.local }

// All guards and limiters on one store share its fallback: a limit stays one.
func TestFallbackIsShared(t *testing.T) {
	store := fallback{newRemote(newMemory(t, 0)), newMemory(t, 0)}
	store.fail(down())
	quiet := slog.New(new(records))
	a := newGuard(t, core.Config{Store: store, Policy: core.MustParse("1/1h"), Log: quiet})
	b := newGuard(t, core.Config{Store: store, Policy: core.MustParse("1/1h"), Log: quiet})
	l, err := core.NewLimiter(store, core.MustParse("1/1h"))
	require.NoError(t, err)
	assert.True(t, passes(a, alice))
	assert.False(t, passes(b, alice))
	assert.Equal(t, 1, store.local.Len())
	res, err := l.Allow(t.Context(), "ip="+alice)
	require.NoError(t, err)
	assert.False(t, res.Allowed())
	assert.True(t, res.Local)
}

// The log is told at most once a second, and once when it is over.
func TestGuardLogsCalmly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, said := newRemote(newMemory(t, 0)), new(records)
		g := newGuard(t, core.Config{Store: store, Policy: core.MustParse("5/1h"), Log: slog.New(said)})
		other := g.With("other", "5/1h; fail closed")
		passes(g, alice)
		assert.Empty(t, said.all())
		store.fail(down())
		for range 50 {
			passes(g, alice)
			passes(other, alice)
		}
		const failed = "WARN weir: the store failed; each policy's fail word decides class=down error=gone"
		assert.Equal(t, []string{failed}, said.all())
		advance(time.Second - 1)
		passes(g, alice)
		assert.Empty(t, said.all())
		advance(1)
		for range 50 {
			passes(other, alice)
		}
		assert.Equal(t, []string{failed}, said.all())
		for range 50 { // every second one
			store.fail(nil)
			passes(g, alice)
			store.fail(down())
			passes(g, alice)
		}
		store.fail(nil)
		passes(g, alice)
		assert.Empty(t, said.all())
		advance(time.Second)
		for range 50 {
			passes(g, alice)
		}
		assert.Equal(t, []string{"INFO weir: the store is back"}, said.all())
		store.fail(context.Canceled) // no failure of the store
		passes(g, alice)
		store.fail(nil)
		passes(g, alice)
		assert.Empty(t, said.all())
	})
}

// A caller who left gets its context's error; that is no failure of the store.
func TestGuardCallerLeft(t *testing.T) {
	var last core.Event
	g := newGuard(t, core.Config{Policy: core.MustParse("1/1h; fail open"), Observe: func(e core.Event) { last = e }})
	ctx, leave := context.WithCancel(context.Background())
	leave()
	r := from(alice)
	r.ctx = ctx
	v := g.Check(r)
	assert.Equal(t, core.Reply, v.Action)
	assert.Equal(t, 503, v.Status)
	require.ErrorIs(t, v.Err, context.Canceled)
	assert.Equal(t, core.Event{Policy: "default", Outcome: core.Refused, Err: context.Canceled}, last)
	assert.True(t, passes(g, alice), "nothing was charged")
}

// What is mounted twice counts twice, and is told of once.
func TestGuardMountedTwice(t *testing.T) {
	said := new(records)
	g := newGuard(t, core.Config{Policy: core.MustParse("100/1h"), Log: slog.New(said)})
	serve := func(guards ...*core.Guard) (remaining string) {
		r, h := from(alice), header{}
		for _, g := range guards {
			v := g.Check(r)
			require.Equal(t, core.Pass, v.Action)
			v.SetHeaders(h)
			if v.NeedsContext() {
				r.ctx = core.NewContext(r.ctx, v) //nolint:fatcontext // as one middleware within the other does
			}
		}
		return h["X-Ratelimit-Remaining"]
	}
	assert.Equal(t, "99", serve(g))
	v := g.Check(from(bob))
	assert.False(t, v.NeedsContext(), "nobody pays before there is a suspicion")
	assert.Equal(t, "97", serve(g, g))
	assert.Empty(t, said.all(), "now there is")
	assert.Equal(t, "95", serve(g, g))
	assert.Equal(t, []string{"WARN weir: a guard is mounted twice in one request, which it counts twice policy=default route=/items/{id}"}, said.all())
	assert.Equal(t, "92", serve(g, g, g))
	assert.Equal(t, "91", serve(g))
	assert.Empty(t, said.all(), "once is enough")
	v = g.Check(from(bob))
	assert.False(t, v.NeedsContext(), "and nobody pays any more")
	other := g.With("other", "100/1h")
	for range 3 { // another rule with equal numbers is only suspected
		serve(g, other)
	}
	v = other.Check(from(alice))
	assert.Equal(t, int64(96), v.Result.Remaining)
	assert.Empty(t, said.all())
	v = g.Check(from(bob))
	assert.Nil(t, core.NewContext(t.Context(), v).Value("other"), "other values are the context's own")
}

// countFailures is a Settle that gives back what a good answer took.
func countFailures(f core.Final, taken int64) int64 {
	if f.Status < 400 && !f.Panicked {
		return 0
	}
	return taken
}

// A rule can count failures alone.
func TestSettle(t *testing.T) {
	g := newGuard(t, core.Config{Policy: core.MustParse("2/1h"), Settle: countFailures})
	answer := func(f core.Final) int64 {
		v := g.Check(from(alice))
		require.Equal(t, core.Pass, v.Action)
		require.True(t, v.NeedsFinal())
		w := v // copies share the receipt
		v.Finish(f)
		w.Finish(core.Final{Status: 200})
		v.Finish(core.Final{Status: 200})
		return v.Result.Remaining
	}
	for range 10 {
		assert.Equal(t, int64(1), answer(core.Final{Status: 200}))
	}
	assert.Equal(t, int64(1), answer(core.Final{Status: 401}))
	assert.Equal(t, int64(0), answer(core.Final{Status: 200, Panicked: true}), "only the first Finish counts")
	assert.False(t, passes(g, alice))

	for used, want := range map[int64]int64{-5: 10, 0: 10, 3: 7, 10: 0, 99: 0} {
		g := newGuard(t, core.Config{
			Policy: core.MustParse("10/1h"), Cost: func(r keyfunc.Request) int64 { return int64(len(r.Header("X-Cost"))) },
			Settle: func(_ core.Final, taken int64) int64 {
				assert.Equal(t, int64(10), taken)
				return used
			},
		})
		r := from(alice)
		r.lines = map[string][]string{"X-Cost": make([]string, 10)}
		v := g.Check(r)
		v.Finish(core.Final{})
		peek := g.Check(from(alice))
		assert.False(t, peek.NeedsFinal(), "a peek has nothing to settle")
		assert.Equal(t, want, peek.Result.Remaining, "used %d", used)
	}
}

// A remote store is settled behind the caller's back, and Close waits.
func TestSettleRemote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newRemote(newMemory(t, 0))
		store.held = make(chan struct{})
		g := newGuard(t, core.Config{Store: store, Policy: core.MustParse("5000/1h"), Settle: countFailures})
		with := g.With("login", "5000/1h")
		v := g.Check(from(alice))
		v.Finish(core.Final{Status: 401}) // nothing to give back
		for _, g := range []*core.Guard{g, with, g} {
			v := g.Check(from(alice))
			v.Finish(core.Final{Status: 200}) // does not wait
		}
		synctest.Wait()
		assert.Empty(t, store.refunded())
		closed := make(chan struct{}, 2)
		for range 2 {
			go func() {
				assert.NoError(t, with.Close())
				closed <- struct{}{}
			}()
		}
		synctest.Wait()
		assert.Empty(t, closed)
		close(store.held)
		<-closed
		<-closed
		assert.Equal(t, []int64{1, 1, 1}, store.refunded())
		v = g.Check(from(alice))
		assert.Equal(t, int64(4998), v.Result.Remaining, "a closed Guard decides")
		v.Finish(core.Final{Status: 200}) // and gives nothing back
		synctest.Wait()
		assert.Len(t, store.refunded(), 3)
	})
}

// A queue has an end: what does not fit is lost, and nobody waits.
func TestSettleQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newRemote(newMemory(t, 0))
		store.held = make(chan struct{})
		said := new(records)
		g := newGuard(t, core.Config{Store: store, Policy: core.MustParse("5000/1h"), Settle: countFailures, Log: slog.New(said)})
		for range 2000 {
			v := g.Check(from(alice))
			v.Finish(core.Final{Status: 200})
		}
		close(store.held)
		require.NoError(t, g.Close())
		assert.LessOrEqual(t, len(store.refunded()), 1024+8)
		assert.GreaterOrEqual(t, len(store.refunded()), 1024)
		assert.Equal(t, []string{"WARN weir: the store is too slow for what is to be given back; some of it is lost"}, said.all())
	})
}

// A charge is given back to the store that has counted it.
func TestSettleOfLocalResults(t *testing.T) {
	for policy, remaining := range map[string]int64{"2/1h": 1, "2/1h; fail open": 0} {
		store := newRemote(newMemory(t, 0))
		g := newGuard(t, core.Config{Store: store, Policy: core.MustParse(policy), Settle: countFailures, Log: slog.New(new(records))})
		store.fail(down())
		for range 5 {
			v := g.Check(from(alice))
			require.Equal(t, core.Pass, v.Action, policy)
			assert.Equal(t, remaining, v.Result.Remaining)
			v.Finish(core.Final{Status: 200})
		}
		require.NoError(t, g.Close())
		assert.Empty(t, store.refunded(), policy)
	}
}

// What the whole way through a Guard costs: the key's text, and one allocation to spare.
func TestGuardCheckAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector drops pooled keys")
	}
	for _, policy := range []string{"2147483648/1s", "1/1h"} { // admitted, and refused
		g := newGuard(t, core.Config{Policy: core.MustParse(policy), Key: keyfunc.Join(keyfunc.IP(), keyfunc.Route())})
		r := from(alice)
		passes(g, alice)
		assert.LessOrEqual(t, testing.AllocsPerRun(500, func() {
			v := g.Check(r)
			v.Finish(core.Final{})
		}), 2.0, policy)
	}
}

func TestGuardLogsToTheDefault(t *testing.T) {
	said, before := new(records), slog.Default()
	slog.SetDefault(slog.New(said))
	defer slog.SetDefault(before)
	store := newRemote(newMemory(t, 0))
	store.fail(down())
	passes(newGuard(t, core.Config{Store: store, Policy: core.MustParse("1/1h")}), alice)
	assert.Len(t, said.all(), 1)
}

// A client that leaves while its key is looked up is no mistake of the rule; what
// fails afterwards is still told.
func TestGuardKeyOfCallerWhoLeft(t *testing.T) {
	said, err := new(records), context.Canceled
	g := newGuard(t, core.Config{
		Policy: core.MustParse("5/1h"),
		Key:    keyfunc.Custom("session", func(keyfunc.Request) (string, error) { return "", err }),
		Log:    slog.New(said),
	})
	g.Check(from(alice))
	assert.Empty(t, said.all())
	err = errors.New("no such table")
	g.Check(from(alice))
	g.Check(from(alice))
	assert.Len(t, said.all(), 1)
}

// panicking is a remote store whose refunds panic.
type panicking struct{ core.Store }

func (panicking) Refund(context.Context, core.Take, core.Result, int64) error { panic("a hook") }

// A panic behind everybody's back does not end the program.
func TestSettlePanics(t *testing.T) {
	said := new(records)
	g := newGuard(t, core.Config{Store: panicking{newMemory(t, 0)}, Policy: core.MustParse("5/1h"), Settle: countFailures, Log: slog.New(said)})
	v := g.Check(from(alice))
	v.Finish(core.Final{Status: 200})
	require.NoError(t, g.Close())
	assert.Len(t, said.all(), 1)
	v = g.Check(from(alice))
	v.Finish(core.Final{Status: 200})
	assert.Empty(t, said.all(), "after Close nothing is given back, and nothing said")
}
