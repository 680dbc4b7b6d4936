package guard_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/internal/remotetest"
	"github.com/weir-go/weir/keyfunc"
)

// byHeader makes a key of a header.
func byHeader(kind, name string) keyfunc.Func {
	return keyfunc.Custom(kind, func(r keyfunc.Request) (string, error) { return strings.Join(r.Header(name), ","), nil })
}

// sent is a request with headers, given as pairs.
func sent(pairs ...string) *request {
	r := from(alice)
	r.lines = map[string][]string{}
	for i := 0; i < len(pairs); i += 2 {
		r.lines[pairs[i]] = []string{pairs[i+1]}
	}
	return r
}

// counting is a store that notes which policies were asked and what was given back.
type counting struct {
	*core.Memory
	mu    sync.Mutex
	asked []string
	back  []string
}

func newCounting(t testing.TB) *counting { return &counting{Memory: newMemory(t)} }

func (c *counting) Take(ctx context.Context, t core.Take) (core.Result, error) {
	c.note(&c.asked, t.Policy.Name())
	return c.Memory.Take(ctx, t)
}

func (c *counting) Refund(ctx context.Context, refunds []core.Refund) error {
	for _, r := range refunds {
		c.note(&c.back, r.Policy.Name())
	}
	return c.Memory.Refund(ctx, refunds)
}

func (c *counting) Acquire(ctx context.Context, p core.Permit) (core.Result, error) {
	c.note(&c.asked, "permit:"+p.Policy.Name())
	return c.Memory.Acquire(ctx, p)
}

func (c *counting) note(what *[]string, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*what = append(*what, text)
}

// told returns what was noted since the last call.
func (c *counting) told() (asked, back string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked, back = strings.Join(c.asked, " "), strings.Join(c.back, " ")
	c.asked, c.back = nil, nil
	return asked, back
}

// Rules are asked in order, and the first refusal ends it: what came before is given back, what comes after is never
// charged.
func TestRulesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCounting(t)
		g := newGuard(t, guard.Config{
			Rule: guard.Rule{Policy: "user: 2/1h", Key: byHeader("uid", "User")},
			Rules: []guard.Rule{
				{Policy: "tenant: 3/1h", Key: byHeader("tenant", "Tenant")},
				{Policy: "address: 100/1h", Key: keyfunc.IP()},
			},
			Store: store,
		})
		check := func(user string) guard.Verdict {
			v := g.Check(sent("User", user, "Tenant", "acme"))
			v.Finish(guard.Final{})
			synctest.Wait()
			return v
		}
		told := func(asked, back string) {
			t.Helper()
			a, b := store.told()
			assert.Equal(t, asked, a)
			assert.Equal(t, back, b)
		}
		v := check("ann")
		assert.Equal(t, guard.Pass, v.Action)
		assert.Equal(t, "user", v.Policy, "the headers show the tightest")
		told("user tenant address", "")
		check("ann")
		told("user tenant address", "")
		v = check("ann")
		assert.Equal(t, guard.Reply, v.Action)
		assert.Equal(t, "user", v.Policy)
		told("user", "")
		v = check("bob")
		assert.Equal(t, "tenant", v.Policy, "one unit is left of both; that of the tenant comes back later")
		assert.Equal(t, guard.Pass, v.Action)
		told("user tenant address", "")
		v = check("bob")
		assert.Equal(t, guard.Reply, v.Action)
		assert.Equal(t, "tenant", v.Policy)
		told("user tenant", "user")
		assert.EqualValues(t, 1, remaining(t, store.Memory, g.Policies()[0], "uid=bob"), "what the first took came back")
	})
}

func remaining(t *testing.T, m *core.Memory, p core.Policy, key string) int64 {
	t.Helper()
	res, err := m.Take(t.Context(), core.Take{Policy: p, Key: key})
	require.NoError(t, err)
	return res.Remaining
}

// The text of a key is written where that of the next request will be; what is kept of a request is not.
func TestKeysOutliveTheirRequests(t *testing.T) {
	ann, ben := sent("User", "ann", "Tenant", "acme"), sent("User", "ben", "Tenant", "acme")
	user := byHeader("uid", "User")
	t.Run("settled", func(t *testing.T) {
		store := newMemory(t)
		g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "5/1h", Key: user, Settle: func(guard.Final, int64) int64 { return 0 }}, Store: store})
		v, w := g.Check(ann), g.Check(ben)
		v.Finish(guard.Final{})
		assert.EqualValues(t, 5, remaining(t, store, g.Policies()[0], "uid=ann"))
		assert.EqualValues(t, 4, remaining(t, store, g.Policies()[0], "uid=ben"))
		w.Finish(guard.Final{})
	})
	t.Run("permits", func(t *testing.T) {
		g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1 concurrent", Key: user}})
		v, w := g.Check(ann), g.Check(ben)
		v.Finish(guard.Final{})
		again := g.Check(ann)
		assert.Equal(t, guard.Pass, again.Action)
		again.Finish(guard.Final{})
		assert.Equal(t, guard.Reply, g.Check(ben).Action)
		w.Finish(guard.Final{})
	})
	t.Run("several rules", func(t *testing.T) {
		store := newMemory(t)
		g := newGuard(t, guard.Config{
			Rule:  guard.Rule{Policy: "user: 5/1h", Key: user},
			Rules: []guard.Rule{{Policy: "tenant: 1/1h", Key: byHeader("tenant", "Tenant")}},
			Store: store,
		})
		g.Check(ann)
		assert.Equal(t, "tenant", g.Check(ben).Policy)
		assert.EqualValues(t, 4, remaining(t, store, g.Policies()[0], "uid=ann"))
		assert.EqualValues(t, 5, remaining(t, store, g.Policies()[0], "uid=ben"), "what the first rule took came back")
	})
}

// One user of a tenant cannot lock the others out: beyond its own limit it costs the tenant nothing.
func TestRulesAreFairToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, guard.Config{
			Rule:  guard.Rule{Policy: "user: 50/1s", Key: byHeader("uid", "User")},
			Rules: []guard.Rule{{Policy: "tenant: 120/1s", Key: byHeader("tenant", "Tenant")}},
		})
		refused := 0
		for i := range 10_000 {
			v := g.Check(sent("User", "greedy", "Tenant", "acme"))
			v.Finish(guard.Final{})
			if i%150 == 0 { // 67 a second, of 120 beside the 50 of the other
				v := g.Check(sent("User", fmt.Sprint("victim", i%4), "Tenant", "acme"))
				v.Finish(guard.Final{})
				if v.Action != guard.Pass {
					refused++
				}
			}
			<-time.After(100 * time.Microsecond)
		}
		assert.Zero(t, refused)
	})
}

// Within a policy rates come before permits, and both go back if a later rule refuses.
func TestRulesWithPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCounting(t)
		g := newGuard(t, guard.Config{
			Rule:  guard.Rule{Policy: "user: 10/1h, 2 concurrent", Key: byHeader("uid", "User")},
			Rules: []guard.Rule{{Policy: "tenant: 1/1h", Key: byHeader("tenant", "Tenant")}},
			Store: store,
		})
		first := g.Check(sent("User", "ann", "Tenant", "acme"))
		require.Equal(t, guard.Pass, first.Action)
		asked, _ := store.told()
		assert.Equal(t, "user permit:user tenant", asked)
		v := g.Check(sent("User", "ann", "Tenant", "acme"))
		assert.Equal(t, guard.Reply, v.Action)
		assert.Equal(t, "tenant", v.Policy)
		synctest.Wait()
		asked, back := store.told()
		assert.Equal(t, "user permit:user tenant", asked)
		assert.Equal(t, "user", back)

		second := g.Check(sent("User", "ann", "Tenant", "other"))
		require.Equal(t, guard.Pass, second.Action, "the permit came back")
		third := g.Check(sent("User", "ann", "Tenant", "third"))
		assert.Equal(t, guard.Reply, third.Action, "two are under way")
		assert.Equal(t, "user", third.Policy)
		synctest.Wait()
		asked, back = store.told()
		assert.Equal(t, "user permit:user tenant user permit:user", asked, "the tenant is not charged")
		assert.Equal(t, "user", back)
		first.Finish(guard.Final{})
		second.Finish(guard.Final{})
		synctest.Wait()
		third = g.Check(sent("User", "ann", "Tenant", "third"))
		assert.Equal(t, guard.Pass, third.Action)
		third.Finish(guard.Final{})
		synctest.Wait()
	})
}

// The order written is the order asked, whatever the rules have: rates, a wait, permits.
func TestRulesAsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, queue := range []string{"queue: 10/1s burst 1; wait 5s", "queue: 10/1s leaky-bucket burst 50"} {
			store := newCounting(t)
			g := newGuard(t, guard.Config{
				Rule:   guard.Rule{Policy: queue},
				Rules:  []guard.Rule{{Policy: "few: 9 concurrent"}, {Policy: "hour: 2/1h", Key: keyfunc.Const("all")}},
				Routes: map[string]guard.Rule{"/items/{id}": {Policy: "route: 50/1h"}},
				Store:  store,
			})
			const all = "route queue permit:few hour"
			for _, want := range []struct {
				action guard.Action
				waited time.Duration
				back   string
			}{{guard.Pass, 0, ""}, {guard.Pass, 100 * ms, ""}, {guard.Reply, 100 * ms, "queue route"}} {
				began := time.Now()
				v := g.Check(from(alice))
				synctest.Wait()
				asked, back := store.told()
				assert.Equal(t, want.action, v.Action)
				assert.Equal(t, all, asked, queue)
				assert.Equal(t, want.back, back, queue)
				assert.Equal(t, want.waited, time.Since(began), queue)
				v.Finish(guard.Final{})
			}
			synctest.Wait()
		}
	})
}

// A request may wait in one rule after the other.
func TestRulesThatWaitInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, guard.Config{
			Rule:  guard.Rule{Policy: "user: 10/1s burst 1; wait 5s", Key: byHeader("uid", "User")},
			Rules: []guard.Rule{{Policy: "all: 20/1s leaky-bucket burst 3", Key: keyfunc.Const("all")}},
		})
		var ends ending
		for _, user := range []string{"ann", "ann", "ben", "cat", "dan"} {
			ends.join(g, user)
		}
		advance(time.Second)
		assert.Equal(t, []string{
			"ann pass 0s",
			"dan all 0s", // ann, ben and cat fill the bucket
			"ben pass 50ms",
			"cat pass 100ms",
			"ann pass 150ms", // after 100 ms it is her own turn, and then she waits for that of all
		}, ends.told())
	})
}

// The turn that a request loses to a later refusal comes back only if nobody has queued behind it.
func TestRulesThatLoseATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for behind, want := range [][]string{
			{"eve pass 0s", "ann none 40ms", "ann none 80ms"},
			{"eve pass 0s", "ann none 40ms", "ann none 100ms", "ann none 200ms"},
		} {
			g := newGuard(t, guard.Config{
				Rule: guard.Rule{Policy: "user: 10/1s burst 1; wait 5s", Key: byHeader("uid", "User")},
				Rules: []guard.Rule{
					{Policy: "drip: 25/1s leaky-bucket", Key: keyfunc.Const("all")},
					{Policy: "none: 1/1h", Key: keyfunc.Const("all")},
				},
			})
			var ends ending
			ends.join(g, "eve")
			for range 1 + behind {
				ends.join(g, "ann") // the first one waits for 40 ms, in the second rule
			}
			advance(41 * ms)
			ends.join(g, "ann")
			advance(time.Second)
			assert.Equal(t, want, ends.told())
		}
	})
}

// ending notes how requests end, and when.
type ending struct {
	mu    sync.Mutex
	start time.Time
	notes []string
}

// join starts a request of a user.
func (e *ending) join(g *guard.Guard, user string) {
	if e.start.IsZero() {
		e.start = time.Now()
	}
	go func() {
		v := g.Check(sent("User", user))
		how := "pass"
		if v.Action != guard.Pass {
			how = v.Policy
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.notes = append(e.notes, fmt.Sprint(user, " ", how, " ", time.Since(e.start)))
	}()
	synctest.Wait()
}

func (e *ending) told() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.notes
}

// A handler that lets a request pass does not skip the other rules, and a trial refuses nothing.
func TestRulesGoOn(t *testing.T) {
	var events []guard.Event
	mild := guard.HandlerFunc("mild", func(*guard.Refusal) guard.Verdict { return guard.Verdict{Action: guard.Pass} })
	g := newGuard(t, guard.Config{
		Rule: guard.Rule{Policy: "soft: 1/1h", OverLimit: mild},
		Rules: []guard.Rule{
			{Policy: "trial: 1/1h; shadow", OverLimit: guard.Reject(guard.RejectOptions{})},
			{Policy: "hard: 2/1h", OverLimit: guard.Reject(guard.RejectOptions{})},
		},
		Observe: func(e guard.Event) { events = append(events, e) },
	})
	for i, want := range []struct {
		action guard.Action
		policy string
		events string
	}{
		{guard.Pass, "soft", "soft at-limit, trial at-limit, hard admitted"},
		{guard.Pass, "soft", "soft refused, trial refused, hard at-limit"},
		{guard.Reply, "hard", "soft refused, trial refused, hard refused"},
	} {
		events = nil
		v := g.Check(from(alice))
		v.Finish(guard.Final{})
		assert.Equal(t, want.action, v.Action, i)
		assert.Equal(t, want.policy, v.Policy, i)
		var told []string
		for _, e := range events {
			told = append(told, e.Policy+" "+e.Outcome.String())
		}
		assert.ElementsMatch(t, strings.Split(want.events, ", "), told, i)
	}
}

// New reports rules that make no sense, all at once.
func TestRulesMistakes(t *testing.T) {
	_, err := guard.New(guard.Config{
		Rule: guard.Rule{Policy: "1/1s", Key: keyfunc.IP(), Waiting: -1, Instead: true},
		Rules: []guard.Rule{
			{Policy: "5/1s"},
			{Policy: "x: 5/1s", Instead: true},
			{Policy: "y: 5/1s", Tiers: map[string]string{"pro": "6/1s"}},
			{Policy: "z: 5/1s", Tier: func(keyfunc.Request) string { return "" }, Tiers: map[string]string{"pro": "6/1s fixed-window", "big": "z: 9/1s", "odd": "9/1s; fail open", "none": "unlimited", "bad": "9"}},
		},
		Routes: map[string]guard.Rule{
			"/a": {}, "/e": {Instead: true, OverLimit: guard.Degrade(), Waiting: 5}, "get /b": {Instead: true}, "HEAD /c": {Instead: true}, "": {Instead: true}, "GET /d e": {Instead: true},
			"/items/{id}": {Policy: "1/1s"}, "/items/:id": {Policy: "1/1s"},
		},
	})
	require.Error(t, err)
	for _, want := range []string{
		"guard: Waiting is -1; give how many requests may wait, or 0 for 1000",
		`guard: Rules[0]: the policy "5/1s" has no name`,
		"guard: Instead has a meaning in Routes only; leave it out of the Config itself",
		"guard: Rules[1]: Instead has a meaning in Routes only",
		"guard: Rules[2]: Tiers without Tier",
		`guard: Routes["/a"]: there is neither a Policy nor Instead, so it changes nothing; give a Policy, or leave the entry out`,
		`guard: Routes["/e"]: without a Policy, Instead means no limit, so that there is nothing to do for Waiting, OverLimit; give a Policy, or Instead alone`,
		`guard: Routes["get /b"]: the method "get"; give it in upper case, as in "GET /b"`,
		`guard: Routes["HEAD /c"]: HEAD counts as GET`,
		`guard: Routes[""]: give a pattern`,
		`guard: Routes["GET /d e"]: give a pattern`,
		`guard: Routes["/items/{id}"]: without a name it is called "items-id", and so is "/items/:id"`,
	} {
		assert.ErrorContains(t, err, want)
	}
	_, err = guard.New(guard.Config{Rule: guard.Rule{
		Policy: "z: 5/1s", Key: keyfunc.IP(), Tier: func(keyfunc.Request) string { return "" },
		Tiers: map[string]string{"pro": "6/1s fixed-window", "big": "z: 9/1s", "other": "y: 9/1s", "odd": "9/1s; fail open", "none": "unlimited", "bad": "9"},
	}})
	for _, want := range []string{`guard: in Tiers["pro"]: enforce: the variant`, `guard: in Tiers["other"]: enforce: the variant`, `guard: in Tiers["odd"]: enforce: in "z: 9/1s; fail open" only the numbers may differ`, `guard: in Tiers["bad"]: core: policy "9"`, `; or give "unlimited"`} {
		assert.ErrorContains(t, err, want)
	}
	assert.NotContains(t, err.Error(), `Tiers["big"]`)
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1/1s"}})
	_, err = g.WithRule(guard.Rule{Policy: "a: 1/1s", Instead: true})
	require.ErrorContains(t, err, "WithRule: Instead has a meaning in Routes only")
}

// A panic in a later rule's code leaves nothing of the earlier ones.
func TestRulesSurvivePanics(t *testing.T) {
	memory := newMemory(t)
	g := newGuard(t, guard.Config{
		Rule: guard.Rule{Policy: "user: 5/1h, 1 concurrent"},
		Rules: []guard.Rule{{Policy: "bad: 1/1h", Key: keyfunc.Custom("bad", func(keyfunc.Request) (string, error) {
			panic("boom")
		})}},
		Store: memory,
	})
	for range 3 {
		assert.PanicsWithValue(t, "boom", func() { g.Check(from(alice)) })
	}
	assert.EqualValues(t, 5, remaining(t, memory, g.Policies()[0], "ip="+alice))
}

// What cannot be decided ends it as a refusal does.
func TestRulesFailClosed(t *testing.T) {
	store := remotetest.New(newMemory(t))
	g := newGuard(t, guard.Config{
		Rule:  guard.Rule{Policy: "open: 5/1h; fail open"},
		Rules: []guard.Rule{{Policy: "closed: 5/1h; fail closed"}},
		Store: store, Log: slog.New(new(records)),
	})
	store.Fail(down())
	v := g.Check(from(alice))
	assert.Equal(t, 503, v.Status)
	assert.Equal(t, "closed", v.Policy)
	failed := (*core.StoreError)(nil)
	assert.True(t, errors.As(v.Err, &failed))
}

// New reports mistakes that would otherwise limit nothing, or something else, with the mend.
func TestNewAdvises(t *testing.T) {
	over := func(h guard.OverLimit) guard.Rule { return guard.Rule{Policy: "1/1h", OverLimit: h} }
	for want, r := range map[string]guard.Rule{
		`OverLimit: BreakOptions.Open is 15ns; give a unit with the number, as in 15 * time.Second`:       over(guard.Break(guard.BreakOptions{Open: 15})),
		`OverLimit: BreakOptions.Within is 10ns; give a unit with the number, as in 10 * time.Second`:     over(guard.Break(guard.BreakOptions{Within: 10})),
		`OverLimit: RejectOptions.Body begins with "{", as JSON or HTML does, and without a Content-Type`: over(guard.Reject(guard.RejectOptions{Body: ` {"error":"slow down"}`})),
		`the policy "unlimited": only a tier can be unlimited`:                                            {Policy: "unlimited"},
		`the policy "x: unlimited": only a tier can be unlimited`:                                         {Policy: "x: unlimited"},
	} {
		r.Key = keyfunc.IP()
		_, err := guard.New(guard.Config{Rule: r})
		require.ErrorContains(t, err, want)
	}
	_, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "1/1h", Key: keyfunc.IP()}, Routes: map[string]guard.Rule{"POST": {Policy: "1/1m"}}})
	require.ErrorContains(t, err, `Routes["POST"]: a method alone; add the pattern, as in "POST /login", or "/*" for all`)
	for _, body := range []guard.RejectOptions{
		{Body: "slow down"},
		{Body: "{}", Header: map[string]string{"content-type": "application/json"}},
		{Body: "<slow down>", Header: map[string]string{"Content-Type": "text/plain"}},
	} {
		r := over(guard.Reject(body))
		r.Key = keyfunc.IP()
		_, err := guard.New(guard.Config{Rule: r})
		require.NoError(t, err)
	}
}
