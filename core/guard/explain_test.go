package guard_test

import (
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
