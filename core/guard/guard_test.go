package guard_test

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
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/internal/remotetest"
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

// A mistake is told when the program starts, and all of them at once.
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

// The zero Verdict refuses.
func TestZeroVerdict(t *testing.T) {
	var v guard.Verdict
	assert.Equal(t, guard.Reply, v.Action)
	assert.False(t, v.Result.Allowed())
	h := header{}
	v.SetHeaders(h)
	assert.Equal(t, header{"Cache-Control": "no-store"}, h)
	v.Finish(guard.Final{})
	assert.False(t, v.NeedsFinal())
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
	require.EqualError(t, err, `core: the name "default" stands for both "default: 5/1h" and "default: 1/1s"; they would share one count: rename one`)
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

// userKey is where an authentication would store the user.
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
		"observe": {Observe: func(guard.Event) { panic("boom") }},
	} {
		c.Policy = "1/1h"
		g := newGuard(t, c)
		assert.PanicsWithValue(t, "boom", func() { g.Check(from(alice)) }, name)
	}
}

func TestGuardOverLimit(t *testing.T) {
	var refusal guard.Refusal
	var answer guard.Verdict
	g := newGuard(t, guard.Config{
		Rule: guard.Rule{
			Policy: "1/1h",
			OverLimit: guard.HandlerFunc("mine", func(x *guard.Refusal) guard.Verdict {
				refusal = *x
				return answer
			}),
		},
	})
	require.True(t, passes(g, alice))
	r := from(alice)
	native := func() {}
	for _, c := range []struct {
		name   string
		answer guard.Verdict
		action guard.Action
		status int
	}{
		{"zero", guard.Verdict{}, guard.Reply, 429},
		{"status", guard.Verdict{Status: 503}, guard.Reply, 503},
		{"too low", guard.Verdict{Status: 199}, guard.Reply, 429},
		{"too high", guard.Verdict{Status: 1000}, guard.Reply, 429},
		{"negative", guard.Verdict{Status: -1}, guard.Reply, 429},
		{"a redirect", guard.Verdict{Status: 302}, guard.Reply, 302},
		{"pass", guard.Verdict{Action: guard.Pass}, guard.Pass, 429},
		{"native of nothing", guard.Verdict{Action: guard.Native}, guard.Reply, 429},
		{"native", guard.Verdict{Action: guard.Native, Native: &native}, guard.Native, 429},
		{"no action", guard.Verdict{Action: 9, Native: &native}, guard.Reply, 429},
	} {
		answer = c.answer
		v := g.Check(r)
		assert.Equal(t, c.action, v.Action, c.name)
		assert.Equal(t, c.status, v.Status, c.name)
		assert.Equal(t, "default", v.Policy, c.name)
		assert.Equal(t, core.Refused, v.Result.Outcome, c.name)
		assert.False(t, v.NeedsFinal(), c.name)
	}
	assert.Same(t, r, refusal.Request)
	assert.Equal(t, "1/1h", refusal.Rule.Policy)
	assert.Equal(t, core.Refused, refusal.Result.Outcome)
	assert.NoError(t, refusal.Err)
}

func TestReject(t *testing.T) {
	const over, noStore = "too many requests\n", "the rate limiter cannot decide at the moment\n"
	reject := guard.Reject(guard.RejectOptions{})
	assert.Equal(t, "reject(429)", reject.String())
	assert.Equal(t, "reject(420)", guard.Reject(guard.RejectOptions{Status: 420}).String())
	assert.Equal(t, "mine", guard.HandlerFunc("mine", nil).String())
	for _, c := range []struct {
		name    string
		refusal guard.Refusal
		status  int
		body    string
		retry   string
	}{
		{"over", guard.Refusal{}, 420, over, ""},
		{"never", guard.Refusal{Result: core.Result{Outcome: core.Never}}, 420, "this request costs more than its rate limit ever admits at once\n", ""},
		{"over, locally", guard.Refusal{Err: down(), Result: core.Result{Local: true}}, 420, over, ""},
		{"never, locally", guard.Refusal{Err: down(), Result: core.Result{Outcome: core.Never, Local: true}}, 420, "this request costs more than its rate limit ever admits at once\n", ""},
		{"store", guard.Refusal{Err: fmt.Errorf("wrapped: %w", down())}, 503, noStore, "1"},
		{"no key", guard.Refusal{Err: fmt.Errorf("wrapped: %w", keyfunc.ErrNoKey)}, 403, "this request does not say who sent it, which its rate limit asks for\n", ""},
		{"other", guard.Refusal{Err: context.Canceled}, 503, noStore, ""},
	} {
		v := guard.Reject(guard.RejectOptions{Status: 420}).Serve(&c.refusal)
		assert.Equal(t, guard.Reply, v.Action, c.name)
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
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1/1h", OverLimit: guard.HandleNative("cached", h)}, Log: slog.New(said)})
	require.True(t, passes(g, alice))
	x := &exchange{request: from(alice), header: header{}, native: h}
	for range 3 {
		require.NoError(t, g.Serve(x))
		assert.Equal(t, "cached", x.said, "its handler answers")
	}
	x.silent = true
	require.NoError(t, g.Serve(x))
	assert.Equal(t, "420 slow", x.said, "it has said what to answer, and has left that to the guard")
	assert.Empty(t, said.all())
	foreign := &exchange{request: from(alice), header: header{}}
	for range 3 {
		require.NoError(t, g.Serve(foreign))
		assert.Equal(t, "429 too many requests\n", foreign.said)
	}
	assert.Equal(t, []string{"ERROR weir: an over-limit handler is of another framework; a plain answer is sent framework=guard_test policy=default handler=cached"}, said.all())

	for _, none := range []any{nil, (func())(nil)} {
		_, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "1/1h", Key: keyfunc.IP(), OverLimit: guard.HandleNative("nothing", none)}})
		assert.ErrorContains(t, err, `the function of "nothing" is nil`)
	}
}

func TestSetField(t *testing.T) {
	shared := guard.Reject(guard.RejectOptions{})
	v, w := shared.Serve(&guard.Refusal{}), shared.Serve(&guard.Refusal{})
	v.SetField("Content-Type", "application/problem+json")
	v.SetField("location", "/slow")
	w.SetField("Location", "/wait")
	v.SetField("Location", "/down")
	for want, v := range map[string]guard.Verdict{"application/problem+json /down": v, "text/plain; charset=utf-8 /wait": w, "text/plain; charset=utf-8 ": shared.Serve(&guard.Refusal{})} {
		h := header{}
		v.SetHeaders(h)
		assert.Equal(t, want, h["Content-Type"]+" "+h["Location"])
	}

	// What comes from a request must not become a header of its own.
	h := header{}
	v.SetField("Location", "/down\r\nSet-Cookie: a=b")
	v.SetHeaders(h)
	assert.Equal(t, "/down  Set-Cookie: a=b", h["Location"])
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
			store := remotetest.New(newMemory(t))
			var last guard.Event
			g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: c.policy}, Store: store, Observe: func(e guard.Event) { last = e }, Log: slog.New(new(records))})
			require.True(t, passes(g, alice))
			require.True(t, passes(g, alice))
			for range 2 { // an outage, and the next
				store.Fail(down())
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
				store.Fail(nil)
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
	*remotetest.Remote
	local *core.Memory
}

func (f fallback) Fallback() *core.Memory { return f.local }

// All guards and limiters on one store share its fallback: a limit stays one.
func TestFallbackIsShared(t *testing.T) {
	store := fallback{remotetest.New(newMemory(t)), newMemory(t)}
	store.Fail(down())
	quiet := slog.New(new(records))
	a := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1/1h"}, Store: store, Log: quiet})
	b := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1/1h"}, Store: store, Log: quiet})
	l, err := core.NewLimiter(store, core.MustParse("1/1h"), core.LimiterOptions{})
	require.NoError(t, err)
	assert.True(t, passes(a, alice))
	assert.False(t, passes(b, alice))
	assert.Equal(t, 1, store.local.Len())
	res, err := l.Allow(t.Context(), "ip="+alice)
	require.NoError(t, err)
	assert.False(t, res.Allowed())
	assert.True(t, res.Local)
}

// The log is told once that the store fails, once of each class, and once when it is over.
func TestGuardLogsCalmly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, said := remotetest.New(newMemory(t)), new(records)
		g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "5/1h"}, Store: store, Log: slog.New(said)})
		other := g.With("other", "5/1h; fail closed")
		passes(g, alice)
		assert.Empty(t, said.all())
		store.Fail(down())
		for range 50 {
			passes(g, alice)
			passes(other, alice)
		}
		const failed = "WARN weir: the store failed; each policy's fail word decides class=down error=gone"
		assert.Equal(t, []string{failed}, said.all())
		advance(time.Minute)
		for range 50 {
			passes(other, alice)
		}
		assert.Empty(t, said.all())
		for _, class := range []string{core.ClassTimeout, core.ClassBreaker, core.ClassBusy, core.ClassTimeout, core.ClassDown} {
			store.Fail(&core.StoreError{Class: class, Err: errors.New("silent")})
			passes(g, alice)
		}
		assert.Equal(t, []string{"WARN weir: the store failed; each policy's fail word decides class=timeout error=silent"}, said.all())
		for range 50 { // every second one
			store.Fail(nil)
			passes(g, alice)
			store.Fail(down())
			passes(g, alice)
		}
		store.Fail(nil)
		passes(g, alice)
		assert.Empty(t, said.all())
		advance(time.Second)
		for range 50 {
			passes(g, alice)
		}
		assert.Equal(t, []string{"INFO weir: the store is back"}, said.all())
		store.Fail(context.Canceled) // no failure of the store
		passes(g, alice)
		store.Fail(nil)
		passes(g, alice)
		assert.Empty(t, said.all())
		store.Fail(down()) // the next outage
		passes(g, alice)
		assert.Equal(t, []string{failed}, said.all())
	})
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

// What is mounted twice counts twice, and is told of once.
func TestGuardMountedTwice(t *testing.T) {
	said := new(records)
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "100/1h"}, Log: slog.New(said)})
	serve := func(guards ...*guard.Guard) (remaining string) {
		r, h := from(alice), header{}
		for _, g := range guards {
			v := g.Check(r)
			require.Equal(t, guard.Pass, v.Action)
			v.SetHeaders(h)
			if v.NeedsContext() {
				r.ctx = v.Context(r.ctx) //nolint:fatcontext // as one middleware within the other does
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
	assert.Nil(t, v.Context(t.Context()).Value("other"), "other values are the context's own")
}

// countFailures is a Settle that gives back what a good answer took.
func countFailures(f guard.Final, taken int64) int64 {
	if f.Status < 400 && !f.Panicked {
		return 0
	}
	return taken
}

// A rule can count failures alone.
func TestSettle(t *testing.T) {
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "2/1h", Settle: countFailures}})
	answer := func(f guard.Final) int64 {
		v := g.Check(from(alice))
		require.Equal(t, guard.Pass, v.Action)
		require.True(t, v.NeedsFinal())
		w := v // copies share the receipt
		v.Finish(f)
		w.Finish(guard.Final{Status: 200})
		v.Finish(guard.Final{Status: 200})
		return v.Result.Remaining
	}
	for range 10 {
		assert.Equal(t, int64(1), answer(guard.Final{Status: 200}))
	}
	assert.Equal(t, int64(1), answer(guard.Final{Status: 401}))
	assert.Equal(t, int64(0), answer(guard.Final{Status: 200, Panicked: true}), "only the first Finish counts")
	assert.False(t, passes(g, alice))

	for used, want := range map[int64]int64{-5: 10, 0: 10, 3: 7, 10: 0, 99: 0} {
		g := newGuard(t, guard.Config{
			Rule: guard.Rule{
				Policy: "10/1h",
				Cost:   func(r keyfunc.Request) int64 { return int64(len(r.Header("X-Cost"))) },
				Settle: func(_ guard.Final, taken int64) int64 {
					assert.Equal(t, int64(10), taken)
					return used
				},
			},
		})
		r := from(alice)
		r.lines = map[string][]string{"X-Cost": make([]string, 10)}
		v := g.Check(r)
		v.Finish(guard.Final{})
		peek := g.Check(from(alice))
		assert.False(t, peek.NeedsFinal(), "a peek has nothing to settle")
		assert.Equal(t, want, peek.Result.Remaining, "used %d", used)
	}
}

// A remote store is settled behind the caller's back, and Close waits.
func TestSettleRemote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := remotetest.New(newMemory(t))
		store.Held = make(chan struct{})
		g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "5000/1h", Settle: countFailures}, Store: store})
		with := g.With("login", "5000/1h")
		v := g.Check(from(alice))
		v.Finish(guard.Final{Status: 401}) // nothing to give back
		for _, g := range []*guard.Guard{g, with, g} {
			v := g.Check(from(alice))
			v.Finish(guard.Final{Status: 200}) // does not wait
		}
		synctest.Wait()
		assert.Empty(t, store.Refunded())
		closed := make(chan struct{}, 2)
		for range 2 {
			go func() {
				assert.NoError(t, with.Close())
				closed <- struct{}{}
			}()
		}
		synctest.Wait()
		assert.Empty(t, closed)
		close(store.Held)
		<-closed
		<-closed
		assert.Equal(t, []int64{1, 1, 1}, store.Refunded())
		v = g.Check(from(alice))
		assert.Equal(t, int64(4998), v.Result.Remaining, "a closed Guard decides")
		v.Finish(guard.Final{Status: 200}) // and gives back
		synctest.Wait()
		assert.Len(t, store.Refunded(), 4)
	})
}

// A queue has an end: what does not fit is lost, and nobody waits.
func TestSettleQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := remotetest.New(newMemory(t))
		store.Held = make(chan struct{})
		said := new(records)
		g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "50000/1h", Settle: countFailures}, Store: store, Log: slog.New(said)})
		const most = 1 << 14
		for range most + 1000 {
			v := g.Check(from(alice))
			v.Finish(guard.Final{Status: 200})
		}
		close(store.Held)
		require.Error(t, g.Close(), "it says what was lost")
		assert.GreaterOrEqual(t, len(store.Refunded()), most)
		assert.LessOrEqual(t, len(store.Refunded()), most+600, "those that wait, and a batch under way")
		lines := said.all()
		require.Len(t, lines, 1)
		assert.Contains(t, lines[0], "WARN weir: could not be given back, and counts until it expires what=units number=1")
	})
}

// A charge is given back to the store that has counted it.
func TestSettleOfLocalResults(t *testing.T) {
	for policy, remaining := range map[string]int64{"2/1h": 1, "2/1h; fail open": 0} {
		store := remotetest.New(newMemory(t))
		g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: policy, Settle: countFailures}, Store: store, Log: slog.New(new(records))})
		store.Fail(down())
		for range 5 {
			v := g.Check(from(alice))
			require.Equal(t, guard.Pass, v.Action, policy)
			assert.Equal(t, remaining, v.Result.Remaining)
			v.Finish(guard.Final{Status: 200})
		}
		require.NoError(t, g.Close())
		assert.Empty(t, store.Refunded(), policy)
	}
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

func TestGuardLogsToTheDefault(t *testing.T) {
	said, before := new(records), slog.Default()
	slog.SetDefault(slog.New(said))
	defer slog.SetDefault(before)
	store := remotetest.New(newMemory(t))
	store.Fail(down())
	passes(newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1/1h"}, Store: store}), alice)
	assert.Len(t, said.all(), 1)
}

// A client that leaves while its key is looked up is no mistake of the rule; what
// fails afterwards is still told.
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

// panicking is a remote store whose refunds panic.
type panicking struct{ core.Store }

func (panicking) Refund(context.Context, []core.Refund) error { panic("a hook") }

// A panic behind everybody's back does not end the program.
func TestSettlePanics(t *testing.T) {
	said := new(records)
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "5/1h", Settle: countFailures}, Store: panicking{newMemory(t)}, Log: slog.New(said)})
	v := g.Check(from(alice))
	v.Finish(guard.Final{Status: 200})
	require.Error(t, g.Close())
	assert.Len(t, said.all(), 1)
}
