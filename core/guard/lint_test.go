package guard_test

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

// A Guard that says what it means gives no cause for warnings.
func TestLintNothing(t *testing.T) {
	routes := []string{"POST /login", "GET /items/{id}", "HEAD /health", "/files/{name}", "example.com/"}
	for name, c := range map[string]guard.Config{
		"one rule":  {Rule: guard.Rule{Policy: "100/1m"}},
		"by route":  {Rule: guard.Rule{Policy: "100/1m", Key: keyfunc.Join(keyfunc.IP(), keyfunc.Route())}},
		"not paths": {Rule: guard.Rule{Policy: "100/1m", Key: keyfunc.Join(keyfunc.Const("path"), keyfunc.Custom("my-path", nothing))}},
		"a table": {Rule: guard.Rule{Policy: "100/1m"}, Routes: map[string]guard.Rule{
			"POST /login": {Policy: "5/1m"}, "/items/{id}": {Policy: "9/1m"}, "GET /health": {Instead: true}, "GET /files/*": {Policy: "9/1s", Instead: true}, "example.com/": {Instead: true},
		}},
		"several keys": {Rule: guard.Rule{Policy: "user: 9/1m", Key: keyfunc.User("user")}, Rules: []guard.Rule{{Policy: "all: 9/1m", Key: keyfunc.Const("all")}}},
		"a trial":      {Rule: guard.Rule{Policy: "100/1m"}, Rules: []guard.Rule{{Policy: "trial: 50/1m; shadow"}}},
		"other costs": {Rule: guard.Rule{Policy: "100/1m"}, Rules: []guard.Rule{
			{Policy: "bytes: 100/1m", Cost: keyfunc.Request.ContentLength},
			{Policy: "tiers: 100/1m", Tier: func(keyfunc.Request) string { return "" }, Tiers: map[string]string{"x": "1/1m"}},
			{Policy: "some: 100/1m", Skip: func(keyfunc.Request) bool { return true }},
		}},
		"a queue": {Rule: guard.Rule{Policy: "10/1s; wait 2s", Waiting: 50}, Rules: []guard.Rule{{Policy: "hour: 9/1h", Key: keyfunc.Const("all")}}},
		"a queue on trial": {Rule: guard.Rule{Policy: "10/1s"}, Rules: []guard.Rule{
			{Policy: "trial: 9/1s; wait 2s; shadow", Waiting: 7}, {Policy: "errors: 9/1h; shadow", After: failed, Waiting: 8},
		}},
		"a bucket": {Rule: guard.Rule{Policy: "2 concurrent, 10/1s leaky-bucket"}},
		"narrow first": {
			Rule: guard.Rule{Policy: "user: 5/1s, 2 concurrent", Key: keyfunc.User("user")},
			Rules: []guard.Rule{
				{Policy: "trial: 9/1s; shadow", Key: keyfunc.Const("trial")},
				{Policy: "address: 50/1s", Key: keyfunc.IP()},
				{Policy: "route: 500/1s", Key: keyfunc.Route()},
				{Policy: "all: 1000/1s leaky-bucket burst 2", Key: keyfunc.Const("all")},
			},
		},
		"two keys": {Rule: guard.Rule{Policy: "100/1m"}, Rules: []guard.Rule{{Policy: "user: 1000/1h", Key: keyfunc.User("user")}}},
		"an entry": {
			Rule:   guard.Rule{Policy: "100/1m"},
			Routes: map[string]guard.Rule{"POST /login": {Policy: "5/1m", Key: keyfunc.Join(keyfunc.IP(), keyfunc.Route())}},
		},
		"two of permits": {Rule: guard.Rule{Policy: "2 concurrent"}, Rules: []guard.Rule{{Policy: "p: 3 concurrent"}}},
	} {
		assert.Empty(t, newGuard(t, c).Lint(routes), name)
	}
	assert.Empty(t, newGuard(t, guard.Config{Rule: guard.Rule{Policy: "100/1m"}}).Lint(nil), "nothing goes by routes")

	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "100/1m", Waiting: 50}})
	search := g.With("search", "10/1s; wait 2s")
	assert.Empty(t, g.Lint(nil), "the places are for another guard of the family")
	assert.Empty(t, search.Lint(nil))
}

// Lint of a Guard warns of its Config alone, and Lint of a Guard of With of its rule.
func TestLintOfWith(t *testing.T) {
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "100/1m", Waiting: 50}})
	inherits := g.With("search", "10/1s")
	own, err := g.WithRule(guard.Rule{Policy: "own: 10/1s", Waiting: 7})
	require.NoError(t, err)
	for _, c := range []struct {
		guard *guard.Guard
		want  []guard.Warning
	}{
		{g, []guard.Warning{{
			Code: "waiting-unused", Where: "Rule",
			Text: `Waiting is 50, but no policy of this Guard lets anybody wait; add a wait to one, as in "10/1s; wait 2s", or leave Waiting out`,
		}}},
		{inherits, nil},
		{own, []guard.Warning{{
			Code: "waiting-unused", Where: "With",
			Text: `Waiting is 7, but with "own: 10/1s" nobody waits; add a wait to the policy, as in "; wait 2s", or leave Waiting out`,
		}}},
	} {
		assert.Equal(t, c.want, c.guard.Lint(nil))
	}
}

// What an unmatched entry is said to be meant for is the route that is nearest to it. Advice that would lift a limit
// from other routes is worse than none.
func TestLintAdvice(t *testing.T) {
	for _, c := range []struct {
		entry  string
		routes []string
		want   string // "" for none
	}{
		{"/login", []string{"GET /{page}", "POST /login/"}, "POST /login/"},
		{"/teams/7", []string{"GET /{kind}/{id}", "GET /teams/{team}", "POST /teams/7/"}, "POST /teams/7/"},
		{"/teams/7", []string{"GET /{kind}/{id}", "GET /teams/{team}"}, "GET /teams/{team}"},
		{"POST /teams/7", []string{"GET /teams/{team}", "POST /teams/{team}"}, "POST /teams/{team}"},
		{"POST /teams/{team}", []string{"GET /teams/:id", "POST /teams/:id"}, "POST /teams/:id"},
		{"POST /teams/{team}", []string{"GET /teams/:id", "POST /teams/{team}/"}, "POST /teams/{team}/"},
		{"PUT /teams/7", []string{"GET /teams/{team}"}, "GET /teams/{team}"},
		{"/static/*", []string{"GET /{page}"}, ""},
		{"/items/static/*", []string{"GET /items/{id}"}, ""},
		{"/items/static/*", []string{"GET /items/static"}, "GET /items/static"},
		{"/login", []string{"GET /*"}, ""},
		{"/login", []string{"GET /{page}"}, ""},
		{"/items/7", []string{"GET /{kind}/:id"}, ""},
		{"/files/x", []string{"GET /files/*"}, ""},
		{"/files/x", []string{"GET /files/*path"}, ""},
		{"/files/x", []string{"GET /files/+"}, ""},
		{"/files/x", []string{"GET /files/{path...}"}, ""},
		{"/files/7/x", []string{"GET /files/{id}/{path...}"}, ""},
		{"/items/7", []string{"GET /items/{$}", "GET /items/{id}"}, "GET /items/{id}"},
		{"/items", []string{"GET /items/{id}", "GET /items/{$}"}, "GET /items/{$}"},
		{"/files/:path", []string{"GET /files/{path...}"}, "GET /files/{path...}"},
	} {
		advice := "write the pattern as the router has it, or leave the entry out"
		if c.want != "" {
			advice = fmt.Sprintf("did you mean %q?", c.want)
		}
		g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "100/1m"}, Routes: map[string]guard.Rule{c.entry: {Instead: true}}})
		var got []string
		for _, w := range g.Lint(c.routes) {
			got = append(got, w.String())
		}
		want := fmt.Sprintf("unmatched-entry: Routes[%q]: it matches no registered route; %s", c.entry, advice)
		assert.Equal(t, []string{want}, got, "%v", c.routes)
	}
}

func nothing(keyfunc.Request) (string, error) { return "", keyfunc.ErrNoKey }

func anyTier(keyfunc.Request) string { return "" }

// Each warning has its code, its place and what to do.
func TestLint(t *testing.T) {
	byPath := keyfunc.Join(keyfunc.IP(), keyfunc.Hash(keyfunc.Path()))
	tenant := keyfunc.Custom("tenant", nothing)
	codes := map[string]bool{}
	for name, c := range map[string]struct {
		config guard.Config
		routes []string
		want   []string
	}{
		"entries that match no route": {
			config: guard.Config{Rule: guard.Rule{Policy: "100/1m"}, Routes: map[string]guard.Rule{
				"POST /login": {Policy: "5/1m"}, "/items/{id}": {Policy: "9/1m"}, "/files/*": {Instead: true}, "GET /health/": {Instead: true}, "/nowhere": {Instead: true},
				"GET /teams/7/members": {Instead: true}, "/items/7/members": {Instead: true},
			}},
			routes: []string{"GET /login", "/items/:id", "/files", "GET /health", "GET /teams/{team}/members"},
			want: []string{
				`unmatched-entry: Routes["/files/*"]: it matches no registered route; did you mean "/files"?`,
				`unmatched-entry: Routes["/items/7/members"]: it matches no registered route; write the pattern as the router has it, or leave the entry out`,
				`unmatched-entry: Routes["/items/{id}"]: it matches no registered route; did you mean "/items/:id"?`,
				`unmatched-entry: Routes["/nowhere"]: it matches no registered route; write the pattern as the router has it, or leave the entry out`,
				`unmatched-entry: Routes["GET /health/"]: it matches no registered route; did you mean "GET /health"?`,
				`unmatched-entry: Routes["GET /teams/7/members"]: it matches no registered route; did you mean "GET /teams/{team}/members"?`,
				`unmatched-entry: Routes["POST /login"]: it matches no registered route; did you mean "GET /login"?`,
			},
		},
		"routes that come before": {
			config: guard.Config{Rule: guard.Rule{Policy: "100/1m"}, Routes: map[string]guard.Rule{
				"POST /login": {Policy: "5/1m"}, "/items/:name": {Policy: "9/1m"}, "/items/new": {Policy: "8/1m"}, "GET /late": {Policy: "7/1m"},
			}},
			routes: []string{"POST /:id<int>", "GET /items/new", "GET /items/:id<int>", "GET /items/:name", "POST /login", "GET /late"},
			want: []string{
				`earlier-route: Routes["/items/:name"]: requests for it are taken for "GET /items/:id<int>", which is registered before it and whose constraint is not looked at; register it after, or write the entry for both`,
				`earlier-route: Routes["POST /login"]: requests for it are taken for "POST /:id<int>", which is registered before it and whose constraint is not looked at; register it after, or write the entry for both`,
			},
		},
		"methods that pass": {
			config: guard.Config{Rule: guard.Rule{Policy: "100/1m"}, Routes: map[string]guard.Rule{
				"POST /login": {Policy: "5/1m"}, "POST /any": {Policy: "6/1m"}, "POST /two": {Policy: "7/1m"}, "GET /page": {Policy: "8/1m"}, "POST /both": {Policy: "9/1m"}, "/both": {Policy: "3/1m"}, "POST /own": {Policy: "4/1m"},
			}},
			routes: []string{
				"/login", "/page", "/both", "/own", "POST /own", "GET /two", "POST /two",
				"GET /any", "POST /any", "PUT /any", "PATCH /any", "DELETE /any", "HEAD /any", "OPTIONS /any", "CONNECT /any", "TRACE /any",
			},
			want: []string{
				`other-methods: Routes["POST /any"]: the route "/any" takes every method, and this entry is for POST alone, so that others pass it; leave the method out of the entry, or register the route with it`,
				`other-methods: Routes["POST /login"]: the route "/login" takes every method, and this entry is for POST alone, so that others pass it; leave the method out of the entry, or register the route with it`,
			},
		},
		"no name on a store": {
			config: guard.Config{Rule: guard.Rule{Policy: "100/1m"}, Store: newMemory(t)},
			want: []string{
				`unnamed-policy: Rule: the policy has no name: on a Store that was given it is called "default", and shares counts with every other policy of that name; give it one, as in "api: 100/1m"`,
			},
		},
		"a router within": {
			config: guard.Config{Rule: guard.Rule{Policy: "100/1m"}, Routes: map[string]guard.Rule{"POST /api/login": {Policy: "5/1m"}, "example.org/items": {Policy: "6/1m"}}},
			routes: []string{"/", "/api/", "GET /items"},
			want: []string{
				`unmatched-entry: Routes["POST /api/login"]: it matches no registered route; if it is of a router within "/api/", mount the limiter in there, or give Lint its routes as well`,
				`unmatched-entry: Routes["example.org/items"]: it matches no registered route; did you mean "GET /items"?`,
			},
		},
		"no routes to look at": {
			config: guard.Config{Rule: guard.Rule{Policy: "100/1m", Key: keyfunc.Join(keyfunc.IP(), keyfunc.Route())}, Routes: map[string]guard.Rule{"/login": {Policy: "5/1m", Key: keyfunc.IP()}}},
			want:   []string{`no-routes: no routes were given, but these depend on them: Routes, Rule.Key; give Lint the patterns that the router has registered, or see to it that the adapter finds them`},
		},
		"the raw path": {
			config: guard.Config{Rule: guard.Rule{Policy: "100/1m"}, Rules: []guard.Rule{{Policy: "x: 5/1m", Key: byPath}}},
			want:   []string{`raw-path: Rules[0]: the key join(ip, hash(path)) has the raw path in it, and clients invent paths: each is a new key with a fresh limit; use keyfunc.Route()`},
		},
		"an address that clients write": {
			config: guard.Config{Rule: guard.Rule{Policy: "100/1m", Key: keyfunc.Join(keyfunc.Header("x-forwarded-for"), keyfunc.Header("X-Tenant"))}},
			want:   []string{`address-header: Rule: the key join(header(X-Forwarded-For), header(X-Tenant)) has the header x-forwarded-for in it, which clients write as they like unless a proxy replaces it, so that each value is a new key with a fresh limit; use keyfunc.ForwardedIP, or Address with Header`},
		},
		"a key that is never asked": {
			config: guard.Config{Rule: guard.Rule{Policy: "100/1m", Key: keyfunc.FirstOf(keyfunc.IP(), keyfunc.User("user"))}},
			want:   []string{`key-behind: Rule: in the key first-of(ip, user(user)), user(user) is never used, because every request but those of unix sockets has the part before it; write it first`},
		},
		"costs of permits": {
			config: guard.Config{Rule: guard.Rule{Policy: "5 concurrent", Cost: keyfunc.Request.ContentLength, Settle: guard.Reported}},
			want: []string{
				`cost-unused: Rule: it has a Cost, and "default: 5 concurrent" has permits alone, of which a request holds one; give the policy a rate, or leave Cost out`,
				`cost-unused: Rule: it has a Settle, and "default: 5 concurrent" has permits alone, of which a request holds one; give the policy a rate, or leave Settle out`,
			},
		},
		"a cost of permits": {
			config: guard.Config{
				Rule:   guard.Rule{Policy: "5 concurrent", Cost: keyfunc.Request.ContentLength},
				Rules:  []guard.Rule{{Policy: "p: 6 concurrent", Key: keyfunc.Const("p"), Cost: one}, {Policy: "q: 6 concurrent", Key: keyfunc.Const("q")}},
				Routes: map[string]guard.Rule{"/upload": {Policy: "bytes: 100/1m"}},
			},
			routes: []string{"/upload"},
			want: []string{
				`cost-unused: Rules[0]: it has a Cost, and "p: 6 concurrent" has permits alone, of which a request holds one; give the policy a rate, or leave Cost out`,
			},
		},
		"tiers of nobody": {
			config: guard.Config{Rule: guard.Rule{Policy: "100/1m"}, Source: sourceOf(&guard.Set{Tiers: map[string]map[string]string{"default": {"pro": "200/1m"}, "other": {}}})},
			want:   []string{`unusable-numbers: Source.Tiers["default"]: Rule has no Tier, so that no request is of a tier; give it one, or leave the entry out`},
		},
		"one rule twice": {
			config: guard.Config{Rule: guard.Rule{Policy: "100/1m"}, Rules: []guard.Rule{{Policy: "again: 100/1m"}}, Routes: map[string]guard.Rule{"/login": {Policy: "100/1m"}}},
			routes: []string{"/login"},
			want: []string{
				`rule-twice: Rules[0]: it has the limits and the key of Rule, which is asked for the same requests; leave one out`,
				`rule-twice: Routes["/login"]: it has the limits and the key of Rule, which is asked for the same requests; leave one out`,
				`rule-twice: Routes["/login"]: it has the limits and the key of Rules[0], which is asked for the same requests; leave one out`,
			},
		},
		"one key twice": {
			config: guard.Config{Rule: guard.Rule{Policy: "100/1m"}, Rules: []guard.Rule{{Policy: "x: 1000/1h"}}},
			want:   []string{`same-key: Rules[0]: it has the key of Rule; write their limits into one policy, as in "20/1s, 1000/1h", which is one round trip to the store`},
		},
		"waits that are none": {
			config: guard.Config{Rule: guard.Rule{Policy: "1/10s, 2 concurrent; wait 2s"}, Rules: []guard.Rule{{Policy: "x: 5/1s", Key: keyfunc.Const("all"), Waiting: 7}}},
			want: []string{
				`permits-do-not-wait: Rule: in "default: 1/10s, 2 concurrent; wait 2s" the wait is for the rates alone: a request that finds no permit is refused, also when it has waited for its turn`,
				`wait-too-short: Rule: with "default: 1/10s, 2 concurrent; wait 2s" turns are 10s apart, and a request waits 2s at most, so that hardly any can; wait longer, or leave it out`,
				`waiting-unused: Rules[0]: Waiting is 7, but with "x: 5/1s" nobody waits; add a wait to the policy, as in "; wait 2s", or leave Waiting out`,
			},
		},
		"places in which nobody waits": {
			config: guard.Config{Rule: guard.Rule{Policy: "10/1s", Waiting: 50}, Rules: []guard.Rule{{Policy: "x: 5/1s", Key: keyfunc.Const("all")}}},
			want:   []string{`waiting-unused: Rule: Waiting is 50, but no policy of this Guard lets anybody wait; add a wait to one, as in "10/1s; wait 2s", or leave Waiting out`},
		},
		"tiers that count apart": {
			config: guard.Config{
				Rule:  guard.Rule{Policy: "10/1m", Tier: anyTier, Tiers: map[string]string{"alike": "20/1m", "pro": "1000/1h", "all": "unlimited", "burst": "10/1m burst 20"}},
				Rules: []guard.Rule{{Policy: "x: 10/1m fixed-window", Key: keyfunc.Const("all"), Tier: anyTier, Tiers: map[string]string{"pro": "1000/1h fixed-window"}}},
			},
			want: []string{
				`tiers-apart: Rule: in "burst" (default: 10/1m burst 20), "pro" (default: 1000/1h) a full bucket takes another time to fill than in "default: 10/1m", so that they count apart, and a client whose tier changes has both; give them one time, as 10/1m and 20/1m have, or an algorithm with windows, unless that is meant`,
			},
		},
		"the wide rule first": {
			config: guard.Config{
				Rule: guard.Rule{Policy: "tenant: 100/1s", Key: tenant},
				Rules: []guard.Rule{
					{Policy: "member: 200/1s", Key: keyfunc.Join(tenant, keyfunc.User("user"))},
					{Policy: "user: 5/1s", Key: keyfunc.User("user")},
				},
				Routes: map[string]guard.Rule{"/export": {Policy: "export: 10/1s", Key: keyfunc.Const("export")}},
			},
			routes: []string{"/export"},
			want: []string{
				`wide-first: Rule: "tenant: 100/1s" is asked before the narrower "member: 200/1s" of Rules[0], and so each request that the latter refuses has taken, until it is given back, what others share; write that one first`,
				`wide-first: Rule: "tenant: 100/1s" is asked before the narrower "user: 5/1s" of Rules[1], and so each request that the latter refuses has taken, until it is given back, what others share; write that one first`,
				`wide-first: Routes["/export"]: "export: 10/1s" is asked before the narrower "tenant: 100/1s" of Rule, and so each request that the latter refuses has taken, until it is given back, what others share; the rule of an entry comes first, so mount it by With inside of this Guard instead`,
				`wide-first: Routes["/export"]: "export: 10/1s" is asked before the narrower "member: 200/1s" of Rules[0], and so each request that the latter refuses has taken, until it is given back, what others share; the rule of an entry comes first, so mount it by With inside of this Guard instead`,
				`wide-first: Routes["/export"]: "export: 10/1s" is asked before the narrower "user: 5/1s" of Rules[1], and so each request that the latter refuses has taken, until it is given back, what others share; the rule of an entry comes first, so mount it by With inside of this Guard instead`,
			},
		},
		"permits held while others wait": {
			config: guard.Config{
				Rule:  guard.Rule{Policy: "user: 2 concurrent, 5/1s", Key: keyfunc.User("user")},
				Rules: []guard.Rule{{Policy: "tenant: 100/1s; wait 31ms", Key: tenant}, {Policy: "all: 200/1s leaky-bucket burst 2", Key: keyfunc.Const("all")}},
			},
			want: []string{
				`permits-held: Rule: its permits are held while requests wait in "tenant: 100/1s; wait 31ms" of Rules[0], where up to 4 of a key do, so that with 2 a caller is refused for requests that only wait; write the permits in a rule after that one and a rate here, or give 4`,
			},
		},
		"nothing narrow": {
			config: guard.Config{
				Rule: guard.Rule{Policy: "user: 2 concurrent", Key: keyfunc.User("user")},
				Rules: []guard.Rule{
					{Policy: "trial: 5/1s; shadow", Key: keyfunc.User("user")},
					{Policy: "tenant: 100/1s", Key: tenant},
				},
				Routes: map[string]guard.Rule{"/export": {Policy: "export: 1 concurrent", Key: keyfunc.User("user")}},
			},
			routes: []string{"/export"},
			want: []string{
				`nothing-narrow: Rule: "user: 2 concurrent" is all that keeps one caller from using up "tenant: 100/1s" of Rules[1], which others share, and it has permits alone, which do not bound how often requests come: 2 of a handler that takes 5ms are 400 a second; give a rate beside it, as in "20/1s"`,
				`nothing-narrow: Rules[0]: "trial: 5/1s; shadow" is all that keeps one caller from using up "tenant: 100/1s" of Rules[1], which others share, and it is on trial, and refuses nothing; give a rate beside it, as in "20/1s"`,
				`nothing-narrow: Routes["/export"]: "export: 1 concurrent" is all that keeps one caller from using up "tenant: 100/1s" of Rules[1], which others share, and it has permits alone, which do not bound how often requests come: 1 of a handler that takes 5ms are 200 a second; give a rate beside it, as in "20/1s"`,
			},
		},
		"numbers of a Source": {
			config: guard.Config{
				Rule: guard.Rule{
					Policy: "100/1m; fail closed", Key: keyfunc.Join(keyfunc.User("uid"), keyfunc.Route()),
					Tier: anyTier, Tiers: map[string]string{"pro": "500/1m"},
				},
				Source: sourceOf(&guard.Set{
					Policies: map[string]string{"default": "100/1m fixed-window"},
					Tiers:    map[string]map[string]string{"default": {"pro": "600/1m; fail open"}},
					Keys: map[string]map[string]string{"default": {
						"user=7&route=/": "unlimited", "user=8&route=/": "300/1m", "user=9&route=/": "3/1m; shadow", "usr=7&route=/": "blocked",
						"hash=~x": "blocked", "user": "blocked", "user=7&": "blocked",
					}},
				}),
			},
			routes: []string{"/"},
			want: []string{
				`unusable-numbers: Source.Policies["default"]: enforce: the variant "default: 100/1m fixed-window; fail closed" of "default: 100/1m; fail closed" differs in more than numbers, and so would not share its counts; give it the same algorithms; until it is mended, the numbers of the Config hold`,
				`unusable-numbers: Source.Tiers["default"]["pro"]: enforce: in "default: 600/1m; fail open" only the numbers may differ; leave the options out, or write those of the policy: "fail closed"; until it is mended, the numbers of the Config hold`,
				`unmatched-key: Source.Keys["default"]["user"]: Rule counts by join(user(uid), route), which makes no such key; write keys as Event.Key returns them, as in "user=7"`,
				`unmatched-key: Source.Keys["default"]["user=7&"]: Rule counts by join(user(uid), route), which makes no such key; write keys as Event.Key returns them, as in "user=7"`,
				`unusable-numbers: Source.Keys["default"]["user=9&route=/"]: enforce: in "default: 3/1m; fail closed; shadow" only the numbers may differ; leave the options out, or write those of the policy: "fail closed"; until it is mended, the numbers of the Config hold`,
				`unmatched-key: Source.Keys["default"]["usr=7&route=/"]: Rule counts by join(user(uid), route), which makes no such key; write keys as Event.Key returns them, as in "user=7"`,
			},
		},
		"numbers of a Source for one of two rules of a policy": {
			config: guard.Config{
				Rule:  guard.Rule{Policy: "api: 100/1m", Key: keyfunc.User("uid"), Tier: anyTier},
				Rules: []guard.Rule{{Policy: "api: 100/1m", Key: keyfunc.Const("all")}},
				Source: sourceOf(&guard.Set{
					Tiers: map[string]map[string]string{"api": {"pro": "200/1m"}},
					Keys:  map[string]map[string]string{"api": {"user=7": "200/1m", "const=all": "300/1m"}},
				}),
			},
		},
		"a key blocked by a trial": {
			config: guard.Config{
				Rule:  guard.Rule{Policy: "100/1m"},
				Rules: []guard.Rule{{Policy: "all: 1000/1m", Key: keyfunc.Const("all")}},
				Source: sourceOf(&guard.Set{
					Policies: map[string]string{"default": "100/1m; shadow"},
					Keys:     map[string]map[string]string{"default": {"ip=192.0.2.1": "blocked"}, "all": {"const=all": "blocked"}},
				}),
			},
			want: []string{`blocked-on-trial: Source.Keys["default"]["ip=192.0.2.1"]: the policy of Rule is on trial, and refuses nobody, a blocked key neither; end the trial, or leave the entry out`},
		},
	} {
		var got []string
		for _, w := range newGuard(t, c.config).Lint(c.routes) {
			got = append(got, w.String())
			codes[w.Code] = true
		}
		assert.Equal(t, c.want, got, name)
	}
	assert.ElementsMatch(t, guard.LintCodes, slices.Collect(maps.Keys(codes)), "each code is tested")
	assert.Equal(t, "code: text", guard.Warning{Code: "code", Text: "text"}.String())
}

// sourceOf has one Set.
func sourceOf(s *guard.Set) guard.Source {
	p := new(atomic.Pointer[guard.Set])
	p.Store(s)
	return p
}

func one(keyfunc.Request) int64 { return 1 }
