package guard_test

import (
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

// What holds for each route can be read in a log.
func TestDescribe(t *testing.T) {
	g := newGuard(t, guard.Config{
		Rule: guard.Rule{
			Policy: "100/1m", Tier: func(keyfunc.Request) string { return "" }, Tiers: map[string]string{"pro": "500/1m", "admin": "unlimited"},
		},
		Routes: map[string]guard.Rule{
			"POST /login": {Policy: "5/1m; fail closed"},
			"GET /health": {Instead: true},
			"GET /trial":  {Policy: "trial: 9/1m; shadow", Instead: true},
		},
	})
	assert.Equal(t, strings.TrimPrefix(`
POST /login  Routes["POST /login"]  post-login: 5/1m; fail closed  by ip  reject(429)
             Rule                   default: 100/1m                by ip  reject(429)  tiers admin, pro
GET /health  no limit
GET /trial   Routes["GET /trial"]   trial: 9/1m; shadow            by ip  reject(429)
GET /items   Rule                   default: 100/1m                by ip  reject(429)  tiers admin, pro
all others   Rule                   default: 100/1m                by ip  reject(429)  tiers admin, pro
`, "\n"), g.Describe([]string{"POST /login", "GET /health", "GET /trial", "GET /items"}))
}

// A route that is given twice, as by two routers, is named twice.
func TestDescribeTwice(t *testing.T) {
	g := newGuard(t, guard.Config{
		Rule:   guard.Rule{Policy: "100/1m"},
		Rules:  []guard.Rule{{Policy: "all: 9/1s", Key: keyfunc.Const("all")}},
		Routes: map[string]guard.Rule{"/health": {Instead: true}},
	})
	assert.Equal(t, strings.TrimPrefix(`
/a          Rule      default: 100/1m  by ip          reject(429)
            Rules[0]  all: 9/1s        by const(all)  reject(429)
/a          Rule      default: 100/1m  by ip          reject(429)
            Rules[0]  all: 9/1s        by const(all)  reject(429)
/health     no limit
/health     no limit
all others  Rule      default: 100/1m  by ip          reject(429)
            Rules[0]  all: 9/1s        by const(all)  reject(429)
`, "\n"), g.Describe([]string{"/a", "/a", "/health", "/health"}))
}

// The order that is printed is the one in which they are asked, which is that in which they are written.
func TestDescribeOrder(t *testing.T) {
	store := newCounting(t)
	g := newGuard(t, guard.Config{
		Rule:   guard.Rule{Policy: "user: 2 concurrent"},
		Rules:  []guard.Rule{{Policy: "drip: 10/1s leaky-bucket", Key: keyfunc.Const("all")}, {Policy: "all: 100/1s", Key: keyfunc.Const("all")}},
		Routes: map[string]guard.Rule{"/items/{id}": {Policy: "items: 10/1s; wait 2s"}},
		Store:  store,
	})
	v := g.Check(from(alice))
	v.Finish(guard.Final{})
	asked, _ := store.told()
	assert.Equal(t, "items permit:user drip all", asked)
	assert.Equal(t, strings.TrimPrefix(`
/items/{id}  Routes["/items/{id}"]  items: 10/1s; wait 2s     by ip          reject(429)
             Rule                   user: 2 concurrent        by ip          reject(429)
             Rules[0]               drip: 10/1s leaky-bucket  by const(all)  reject(429)
             Rules[1]               all: 100/1s               by const(all)  reject(429)
all others   Rule                   user: 2 concurrent        by ip          reject(429)
             Rules[0]               drip: 10/1s leaky-bucket  by const(all)  reject(429)
             Rules[1]               all: 100/1s               by const(all)  reject(429)
`, "\n"), g.Describe([]string{"/items/{id}"}))
}

// The rules are data: what is printed, with the numbers of now, and it survives a trip through JSON.
func TestRules(t *testing.T) {
	numbers := new(atomic.Pointer[guard.Set])
	numbers.Store(&guard.Set{
		Policies: map[string]string{"default": "200/1m"},
		Tiers:    map[string]map[string]string{"default": {"pro": "900/1m"}},
	})
	g := newGuard(t, guard.Config{
		Rule: guard.Rule{
			Policy: "100/1m; fail closed", NoKey: guard.NoKeyPass,
			Tier:  func(keyfunc.Request) string { return "" },
			Tiers: map[string]string{"pro": "500/1m", "admin": "unlimited"},
		},
		Rules: []guard.Rule{{Policy: "all: 9/1s", Key: keyfunc.Const("all")}},
		Routes: map[string]guard.Rule{
			"POST /login": {Policy: "5/1m; shadow", Instead: true},
			"GET /health": {Instead: true},
		},
		Source: numbers,
	})
	base := guard.RuleInfo{
		Place: "Rule", Name: "default", Policy: "default: 200/1m; fail closed", Key: "ip", NoKey: "pass", OverLimit: "reject(429)",
		Tiers: map[string]string{"pro": "900/1m; fail closed", "admin": "unlimited"},
	}
	everybody := guard.RuleInfo{Place: "Rules[0]", Name: "all", Policy: "all: 9/1s", Key: "const(all)", NoKey: "pass", OverLimit: "reject(429)"}
	on := func(r guard.RuleInfo, route string) guard.RuleInfo { r.Route = route; return r }
	want := []guard.RuleInfo{
		{Route: "POST /login", Place: `Routes["POST /login"]`, Name: "post-login", Policy: "post-login: 5/1m; shadow", Key: "ip", NoKey: "pass", OverLimit: "reject(429)", Shadow: true},
		{Route: "HEAD /health", Place: `Routes["GET /health"]`},
		on(base, "/items"), on(everybody, "/items"),
		base, everybody,
	}
	got := g.Rules([]string{"POST /login", "HEAD /health", "/items"})
	assert.Equal(t, want, got)
	health := guard.RuleInfo{Route: "GET /health", Place: `Routes["GET /health"]`}
	assert.Equal(t, []guard.RuleInfo{health, want[0], base, everybody}, g.Rules(nil), "the table, and all others")

	text, err := json.Marshal(got)
	require.NoError(t, err)
	var back []guard.RuleInfo
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, want, back)

	annotation := g.With("search", "10/1s")
	assert.Equal(t, []string{"/search With search: 10/1s", " With search: 10/1s"}, places(annotation.Rules([]string{"/search"})))

	// The texts are those that the Config would take.
	for _, r := range got {
		if r.Name != "" {
			_, err := guard.New(guard.Config{Rule: guard.Rule{
				Policy: r.Policy, Key: keyfunc.IP(), Tiers: r.Tiers, Tier: func(keyfunc.Request) string { return "" },
			}, Source: numbers})
			assert.NoError(t, err, r.Policy)
		}
	}
}

func places(rules []guard.RuleInfo) (lines []string) {
	for _, r := range rules {
		lines = append(lines, r.Route+" "+r.Place+" "+r.Policy)
	}
	return lines
}

// Without routes, Rules lists each entry of the table by its key, so that a check of all rules overlooks none.
func TestRulesWithoutRoutes(t *testing.T) {
	g := newGuard(t, guard.Config{
		Rule: guard.Rule{Policy: "100/1m"},
		Routes: map[string]guard.Rule{
			"/files/*":      {Policy: "files: 5/1m, 2 concurrent", Instead: true},
			"GET /files/*":  {Policy: "reading: 5/1m", Instead: true},
			"/files/big/*":  {Policy: "big: 5/1m", Instead: true},
			"POST /a/{id}":  {Policy: "a: 5/1m"},
			"/a/{id}":       {Policy: "any: 5/1m", Instead: true},
			"GET /nothing*": {Instead: true},
		},
	})
	assert.Equal(t, []string{
		`/a/{id} Routes["/a/{id}"] any: 5/1m`,
		`/files/* Routes["/files/*"] files: 5/1m, 2 concurrent`,
		`/files/big/* Routes["/files/big/*"] big: 5/1m`,
		`GET /files/* Routes["GET /files/*"] reading: 5/1m`,
		`GET /nothing* Routes["GET /nothing*"] `,
		`POST /a/{id} Routes["POST /a/{id}"] a: 5/1m`,
		`POST /a/{id} Rule default: 100/1m`,
		` Rule default: 100/1m`,
	}, places(g.Rules(nil)))
	assert.Equal(t, "all others  Rule  default: 100/1m  by ip  reject(429)\n", g.Describe(nil))
	annotation := g.With("search", "10/1s")
	assert.Equal(t, "/search        With  search: 10/1s  by ip  reject(429)\nwhere mounted  With  search: 10/1s  by ip  reject(429)\n",
		annotation.Describe([]string{"/search"}))
}

// A rule says what it needs beside an answer to whether a request may pass.
func TestRulesNeeds(t *testing.T) {
	page := guard.HandleNative("page", func() {})
	for name, c := range map[string]struct {
		rule guard.Rule
		want guard.Needs
	}{
		"a rate":             {guard.Rule{Policy: "5/1m"}, guard.Needs{}},
		"permits":            {guard.Rule{Policy: "5/1m, 2 concurrent"}, guard.Needs{Permits: true}},
		"Settle":             {guard.Rule{Policy: "5/1m", Settle: guard.Reported}, guard.Needs{Settlement: true}},
		"Settle of permits":  {guard.Rule{Policy: "5 concurrent", Settle: guard.Reported}, guard.Needs{Permits: true}},
		"After":              {guard.Rule{Policy: "5/1m", After: failures}, guard.Needs{Settlement: true, Waiting: true}},
		"wait":               {guard.Rule{Policy: "5/1m; wait 2s"}, guard.Needs{Waiting: true}},
		"leaky-bucket":       {guard.Rule{Policy: "5/1m leaky-bucket"}, guard.Needs{Waiting: true}},
		"Cost":               {guard.Rule{Policy: "5/1m", Cost: keyfunc.Request.ContentLength}, guard.Needs{ContentLength: true}},
		"Degrade":            {guard.Rule{Policy: "5/1m", OverLimit: guard.Degrade()}, guard.Needs{Degrading: true}},
		"Degrade to a page":  {guard.Rule{Policy: "5/1m", OverLimit: guard.Degrade(page)}, guard.Needs{Native: true}},
		"a page":             {guard.Rule{Policy: "5/1m", OverLimit: page}, guard.Needs{Native: true}},
		"Break":              {guard.Rule{Policy: "5/1m", OverLimit: guard.Break(guard.BreakOptions{})}, guard.Needs{}},
		"Break, degrading":   {guard.Rule{Policy: "5/1m", OverLimit: guard.Break(guard.BreakOptions{Before: guard.Degrade()})}, guard.Needs{Degrading: true}},
		"Break, then a page": {guard.Rule{Policy: "5/1m", OverLimit: guard.Break(guard.BreakOptions{Then: guard.Degrade(page)})}, guard.Needs{Native: true}},
		// A trial holds nobody back.
		"a trial of After":    {guard.Rule{Policy: "5/1m; shadow", After: failures}, guard.Needs{Settlement: true}},
		"a trial of wait":     {guard.Rule{Policy: "5/1m; wait 2s; shadow"}, guard.Needs{}},
		"a trial of permits":  {guard.Rule{Policy: "5 concurrent; shadow"}, guard.Needs{Permits: true}},
		"a trial of Degrade":  {guard.Rule{Policy: "5/1m; shadow", OverLimit: guard.Degrade()}, guard.Needs{}},
		"a trial of a page":   {guard.Rule{Policy: "5/1m; shadow", OverLimit: page}, guard.Needs{}},
		"a trial of a Settle": {guard.Rule{Policy: "5/1m; shadow", Settle: guard.Reported}, guard.Needs{Settlement: true}},
	} {
		g := newGuard(t, guard.Config{Rule: c.rule})
		assert.Equal(t, c.want, g.Rules(nil)[0].Needs, name)

		// A Source may end the trial, or begin one, and the rule needs the same all the time.
		source := new(numbers)
		changing := newGuard(t, guard.Config{Rule: c.rule, Source: source})
		c.rule.Policy = strings.TrimSuffix(c.rule.Policy, "; shadow")
		enforced := newGuard(t, guard.Config{Rule: c.rule}).Rules(nil)[0].Needs
		for _, trial := range []string{"; shadow", "; shadow off"} {
			source.Store(policies("default", c.rule.Policy+trial))
			assert.Equal(t, enforced, changing.Rules(nil)[0].Needs, name)
			assert.Equal(t, trial == "; shadow", changing.Rules(nil)[0].Shadow, name)
		}
	}
}

// Without routes, Rules returns one list until the numbers change, also those of a Set without a revision.
func TestRulesAreListedOnce(t *testing.T) {
	set := new(atomic.Pointer[guard.Set])
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "api: 10/1h"}, Source: set})
	for _, text := range []string{"20/1h", "30/1h"} {
		set.Store(&guard.Set{Policies: map[string]string{"api": text}})
		first := g.Rules(nil)
		assert.Contains(t, first[0].Policy, text)
		assert.Same(t, &first[0], &g.Rules(nil)[0])
		assert.NotSame(t, &first[0], &g.Rules([]string{"GET /"})[0])
	}
}
