package guard_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/explaintest"
	"github.com/weir-go/weir/keyfunc"
)

// What Explain says of a request is what Check then decides: for several rules, routes, tiers, single keys, requests
// without a key, trials, circuits, costs and a store that fails.
func TestExplainAgrees(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 17))
		refused := map[string]int{}
		for range 60 {
			g, store := explained(t, random)
			for range 60 {
				pause(time.Duration(random.Int64N(int64(2 * time.Second))))
				synctest.Wait()
				store.Break(random.IntN(12) == 0)
				r := sent("User", []string{"", "anna", "bert", "carl"}[random.IntN(4)], "Tier", []string{"", "pro", "free", "none"}[random.IntN(4)],
					"Cost", fmt.Sprint(random.IntN(5)), "Tenant", "t", "Skip", []string{"", "", "", "yes"}[random.IntN(4)])
				r.route = []string{"/items", "/login"}[random.IntN(2)]
				x, err := g.Explain(r)
				require.NoError(t, err)
				again, err := g.Explain(r)
				require.NoError(t, err)
				require.Equal(t, x, again, "it leaves no trace")
				v := g.Check(r)
				passes := v.Action == guard.Pass
				require.Equal(t, passes, x.Passes, "%v", x)
				if !passes {
					for _, e := range x.Rules {
						if e.Matters {
							require.Equal(t, v.Policy, e.Policy, "%v", x)
							refused[e.Place]++
							if e.Circuit > 0 {
								refused["circuit"]++
							} else if e.Limits != nil {
								require.Equal(t, v.Result.Outcome, e.Limits.Result.Outcome, "%v", x)
								require.Equal(t, v.Result.Local, e.Limits.Result.Local, "%v", x)
							}
						}
					}
				}
				if random.IntN(2) == 0 {
					finish(&v)
				} else {
					defer finish(&v)
				}
			}
			synctest.Wait()
		}
		t.Log(refused)
		for _, what := range []string{"Rule", "Rules[0]", "Rules[1]", `Routes["/login"]`, "circuit"} {
			assert.Positive(t, refused[what], what)
		}
	})
}

func finish(v *guard.Verdict) { v.Finish(guard.Final{Status: 200}) }

// explained makes a guard of some rules.
func explained(t *testing.T, random *rand.Rand) (*guard.Guard, *explaintest.Remote) {
	t.Helper()
	store := explaintest.NewRemote(newMemory(t))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	number := func(name string) func(keyfunc.Request) int64 {
		return func(r keyfunc.Request) (n int64) {
			_, _ = fmt.Sscan(r.Header(name)[0], &n)
			return n
		}
	}
	numbers := new(atomic.Pointer[guard.Set])
	numbers.Store(&guard.Set{
		Revision: "1.7",
		Policies: map[string]string{"user": pick("3/1s", "2/1s burst 5")},
		Keys:     map[string]map[string]string{"user": {"u=bert": pick("blocked", "unlimited", "1/5s")}},
	})
	user := guard.Rule{
		Policy: "user: " + pick("4/1s", "5/2s debt 2", "3/2s burst 6") + pick("", "; fail open", "; fail closed", "; fail local 1/2"),
		Key:    byHeader("u", "User"), NoKey: guard.NoKeyShared,
		Tier: func(r keyfunc.Request) string { return r.Header("Tier")[0] }, Tiers: map[string]string{"pro": "9/1s", "free": "unlimited"},
		Skip: func(r keyfunc.Request) bool { return r.Header("Skip")[0] == "yes" }, Cost: number("Cost"),
	}
	tenant := guard.Rule{Policy: "tenant: " + pick("5/1s fixed-window", "4/2s sliding-log", "6/1s, 3 concurrent"), Key: byHeader("t", "Tenant"), Cost: func(keyfunc.Request) int64 { return 1 }}
	if random.IntN(2) == 0 {
		tenant.OverLimit = guard.Break(guard.BreakOptions{Refusals: 3, Open: 2 * time.Second})
	}
	trial := guard.Rule{Policy: "trial: 2/1s" + pick("; shadow", ""), Key: byHeader("u", "User"), NoKey: guard.NoKeyPass, OverLimit: guard.Reject(guard.RejectOptions{})}
	if random.IntN(2) == 0 {
		trial.OverLimit = guard.Degrade()
	}
	login := guard.Rule{Policy: "login: 2/1s token-bucket", Key: byHeader("u", "User"), NoKey: guard.NoKeyRefuse}
	g, err := guard.New(guard.Config{
		Rule: user, Rules: []guard.Rule{trial, tenant}, Routes: map[string]guard.Rule{"/login": login},
		Store: store, Source: numbers, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = g.Close() })
	return g, store
}

// The handlers of a circuit decide whether a refusal matters: the one of now.
func TestExplainBreak(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, err := guard.New(guard.Config{Rule: guard.Rule{
			Policy: "2/1h", Key: keyfunc.IP(), OverLimit: guard.Break(guard.BreakOptions{Refusals: 3, Open: time.Minute, Before: guard.Degrade()}),
		}})
		require.NoError(t, err)
		r := from(alice)
		var why []string
		for range 6 {
			x, err := g.Explain(r)
			require.NoError(t, err)
			v := g.Check(r)
			finish(&v)
			require.Equal(t, v.Action == guard.Pass, x.Passes, "%v", x)
			why = append(why, x.Rules[0].Why)
		}
		assert.Equal(t, []string{
			"", "", "over the limit; its handler lets the request go on", "over the limit; its handler lets the request go on",
			"over the limit, which opens the circuit of the key", "the circuit of the key is open for 1m0s, and the store is not asked",
		}, why)
		pause(2 * time.Minute)
		x, err := g.Explain(from(alice))
		require.NoError(t, err)
		assert.Zero(t, x.Rules[0].Circuit)
		pause(58 * time.Minute)
		x, err = g.Explain(from(alice))
		require.NoError(t, err)
		assert.Equal(t, "it would be the probe that closes the circuit of the key", x.Rules[0].Why)
	})
}

// A request that would wait passes, unless it would wait too long, or all places to wait in are taken.
func TestExplainWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "1/10s; wait 25s", Key: keyfunc.IP(), Waiting: 1}, Rules: []guard.Rule{
			{Policy: "drips: 1/1s leaky-bucket burst 50", Key: keyfunc.Const("all")},
		}})
		require.NoError(t, err)
		defer func() { _ = g.Close() }()
		explain := func() (guard.Explanation, *guard.RuleExplanation) {
			x, err := g.Explain(from(alice))
			require.NoError(t, err)
			return x, &x.Rules[0]
		}
		v := g.Check(from(alice))
		finish(&v)
		x, e := explain()
		assert.True(t, x.Passes)
		assert.Equal(t, 10*time.Second, e.Limits.Result.Delay)
		done := make(chan struct{})
		go func() {
			defer close(done)
			v := g.Check(from(alice))
			finish(&v)
		}()
		synctest.Wait()
		x, e = explain()
		assert.False(t, x.Passes)
		assert.Equal(t, "over the limit", e.Why, "without a place it may not reserve")
		v = g.Check(from(alice))
		assert.Equal(t, guard.Reply, v.Action)
		<-done
		hurried := from(alice)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		hurried.ctx = ctx
		x, err = g.Explain(hurried)
		require.NoError(t, err)
		assert.False(t, x.Passes, "its turn comes after it has left")
	})
}

// A rule with After looks whether there is a unit, and takes none.
func TestExplainAfter(t *testing.T) {
	t.Parallel()
	g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "logins: 2/1h", Key: keyfunc.IP(), After: func(guard.Final) int64 { return 1 }}})
	require.NoError(t, err)
	defer func() { _ = g.Close() }()
	for range 2 {
		x, err := g.Explain(from(alice))
		require.NoError(t, err)
		assert.True(t, x.Passes)
		assert.Empty(t, x.Rules[0].Limits.Next)
		assert.Zero(t, x.Rules[0].Limits.Cost)
		assert.Contains(t, x.String(), "the rule counts with After")
		v := g.Check(from(alice))
		finish(&v)
	}
	x, err := g.Explain(from(alice))
	require.NoError(t, err)
	assert.False(t, x.Passes)
}

// A page asks by policy and key.
func TestExplainKey(t *testing.T) {
	t.Parallel()
	numbers := new(atomic.Pointer[guard.Set])
	numbers.Store(&guard.Set{Revision: "3", Keys: map[string]map[string]string{"api": {"ip=203.0.113.8": "unlimited"}}})
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{
			Policy: "api: 3/1h", Key: keyfunc.IP(),
			Tier: func(keyfunc.Request) string { return "" }, Tiers: map[string]string{"pro": "9/1h", "free": "unlimited"},
		},
		Source: numbers,
	})
	require.NoError(t, err)
	v := g.Check(from(alice))
	finish(&v)
	for _, test := range []struct{ tier, key, policy, numbers string }{
		{"", "ip=" + alice, "api: 3/1h", "code"},
		{"pro", "ip=" + alice, "api: 9/1h", `the tier "pro" of the code`},
		{"free", "ip=" + alice, "unlimited", `the tier "free" of the code`},
		{"", "ip=" + bob, "unlimited", `Keys["api"]["ip=203.0.113.8"]`},
	} {
		x, err := g.ExplainKey(t.Context(), "api", test.tier, test.key, 1)
		require.NoError(t, err)
		assert.Equal(t, test.policy, x.Policy)
		assert.Equal(t, test.numbers, x.Numbers)
		assert.Equal(t, "3", x.Revision)
		if test.policy == "api: 3/1h" {
			assert.EqualValues(t, 1, x.Limits[0].Used)
		}
	}
	_, err = g.ExplainKey(t.Context(), "api", "none", "k", 1)
	require.ErrorContains(t, err, `no tier "none"`)
	_, err = g.ExplainKey(t.Context(), "other", "", "k", 1)
	require.ErrorContains(t, err, `no rule has the policy "other"`)
	_, err = g.ExplainKey(t.Context(), "api", "", "", 1)
	require.ErrorContains(t, err, "the key is empty")
}

// Explain finds the rule that would refuse a request, and takes nothing.
func ExampleGuard_Explain() {
	g, err := guard.New(guard.Config{
		Rule:  guard.Rule{Policy: "address: 100/1m", Key: keyfunc.IP()},
		Rules: []guard.Rule{{Policy: "exports: 2/1h fixed-window", Key: keyfunc.Const("all")}},
	})
	if err != nil {
		panic(err)
	}
	r := from(alice)
	for range 2 {
		v := g.Check(r)
		v.Finish(guard.Final{})
	}
	x, err := g.Explain(r)
	if err != nil {
		panic(err)
	}
	fmt.Println(x.Passes, x.RefusedBy)
	for _, rule := range x.Rules {
		fmt.Println(rule.Place, rule.Policy, rule.KeyFunc, rule.Key, rule.Limits.Limits[0].Left, rule.Refuses)
	}
	// Output:
	// false Rules[0]
	// Rule address ip ip=203.0.113.7 98 false
	// Rules[0] exports const(all) const=all 0 true
}
