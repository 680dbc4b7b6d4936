package guard_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/guard/internal/sfv"
	"github.com/weir-go/weir/keyfunc"
)

// parsed is a list as a parser that others have written reads it: "name q=1 w=60".
func parsed(t testing.TB, text string) (items []string) {
	t.Helper()
	if text == "" {
		return nil
	}
	list, err := httpsfv.UnmarshalList([]string{text})
	require.NoError(t, err, text)
	for _, member := range list {
		item, ok := member.(httpsfv.Item)
		require.True(t, ok, text)
		line, ok := item.Value.(string)
		require.True(t, ok, text)
		for _, name := range item.Params.Names() {
			value, _ := item.Params.Get(name)
			line += fmt.Sprintf(" %s=%v", name, value)
		}
		items = append(items, line)
	}
	return items
}

// lists are the headers of one answer.
func lists(t testing.TB, g *guard.Guard, h header) (limits, policies []string) {
	t.Helper()
	v := g.Check(from(alice))
	v.SetHeaders(h)
	v.Finish(guard.Final{})
	return parsed(t, h["Ratelimit"]), parsed(t, h["Ratelimit-Policy"])
}

var listed = guard.Headers{XRateLimit: guard.NoXRateLimit, RateLimit: true}

func TestPolicyList(t *testing.T) {
	for policy, want := range map[string][]string{
		"100/1m":                {"default q=100 w=60"},
		"login: 100/1m":         {"login q=100 w=60"},
		"100/1m burst 20":       {"default q=20 w=12"},
		"100/1m burst 250":      {"default q=250 w=150"},
		"100/1m burst 1":        {"default q=1"}, // 0.6 s
		"10/100ms":              {"default q=10"},
		"10/100ms burst 100":    {"default q=100 w=1"},
		"3/1500ms":              {"default q=3"},
		"3/1500ms fixed-window": {"default q=3"},
		"5/1h fixed-window":     {"default q=5 w=3600"},
		"5/1d fixed-window calendar Europe/Berlin": {"default q=5 w=86400"},
		"1/1h burst 600000":                        {"default q=600000 w=2160000000"},
		"2147483648/1s":                            {"default q=2147483648 w=1"},
		"2147483648/366d burst 2":                  {"default q=2"},
		"10/1s leaky-bucket":                       {"default q=10 w=1"},
		"10/1m token-bucket":                       {"default q=10 w=60"},
		"10/1m debt 5":                             {"default q=10 w=60"},
		"3 concurrent":                             {"default q=3 qu=concurrent-requests"},
		"10/1s, 1000/1h":                           {"default/1 q=10 w=1", "default/2 q=1000 w=3600"},
		"10/100ms, 2 concurrent":                   {"default/1 q=10", "default/2 q=2 qu=concurrent-requests"},
		"10/1s, 100/1m, 1000/1h, 9/24h":            {"default/1 q=10 w=1", "default/2 q=100 w=60", "default/3 q=1000 w=3600", "default/4 q=9 w=86400"},
	} {
		g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: policy}, Headers: listed})
		_, policies := lists(t, g, header{})
		assert.Equal(t, want, policies, policy)
	}
}

// All limits of a policy are listed, with what is left of each.
func TestLimitList(t *testing.T) {
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "100/1m, 3/1h fixed-window, 1 concurrent"}, Headers: listed})
	limits, policies := lists(t, g, header{})
	assert.Equal(t, []string{"default/1 r=99 t=1", "default/2 r=2 t=3600", "default/3 r=0"}, limits)
	assert.Len(t, policies, 3)

	v := g.Check(from(alice))
	require.Equal(t, guard.Pass, v.Action)
	h := header{} // the rates admit, and the permits refuse
	limits, policies = lists(t, g, h)
	require.NotEmpty(t, h["Retry-After"])
	assert.Len(t, policies, 3)
	assert.Equal(t, "default/3 r=0", limits[len(limits)-1])
	v.Finish(guard.Final{})
	lists(t, g, header{})

	h = header{} // a rate refuses, and the permits are not asked
	limits, policies = lists(t, g, h)
	assert.Equal(t, []string{"default/1 r=97 t=1", "default/2 r=0 t=" + h["Retry-After"]}, limits)
	assert.Len(t, policies, 3)
}

// A t beyond Retry-After would tell a client to wait longer than it needs.
func TestRetryAfterIsNotBeforeT(t *testing.T) {
	res := core.Result{Limit: 10, RetryAfter: 2_100 * time.Millisecond, ResetAfter: time.Hour, At: epoch}
	res.SetEach(0, core.LimitResult{RetryAfter: 2_100 * time.Millisecond, ResetAfter: 10 * time.Second, Refused: true})
	res.SetEach(1, core.LimitResult{Remaining: 7, ResetAfter: time.Hour})
	res.SetEach(2, core.LimitResult{RetryAfter: 3 * time.Millisecond, ResetAfter: time.Second, Refused: true})
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "5/1s, 10/10s, 100/1h"}, Headers: listed, Store: &answering{res: res}})
	h := header{"Ratelimit": `"outer";r=3;t=4, "near" ; r=1`} // which is no list: a space before a semicolon
	limits, _ := lists(t, g, h)
	assert.Equal(t, "3", h["Retry-After"])
	assert.Equal(t, []string{"default/1 r=0 t=3", "default/2 r=7", "default/3 r=0 t=1"}, limits)

	h = header{"Ratelimit": `"outer";r=3;t=4;pk=:AAAA:, "near"; r=1; t=3`, "Ratelimit-Policy": `"outer";q=9;w=60;pk=:AAAA:, "near";q=1`}
	limits, policies := lists(t, g, h)
	assert.Equal(t, []string{"outer r=3 pk=[0 0 0]", "near r=1 t=3", "default/1 r=0 t=3", "default/2 r=7", "default/3 r=0 t=1"}, limits)
	assert.Equal(t, []string{"outer q=9 w=60 pk=[0 0 0]", "near q=1", "default/1 q=5 w=1", "default/2 q=10 w=10", "default/3 q=100 w=3600"}, policies)

	// An over-limit handler has its own word on how long to wait.
	soon := guard.HandlerFunc("soon", func(*guard.Refusal) (v guard.Verdict) { v.SetField("Retry-After", "1"); return v })
	g = newGuard(t, guard.Config{Rule: guard.Rule{Policy: "5/1s, 10/10s, 100/1h", OverLimit: soon}, Headers: listed, Store: &answering{res: res}})
	limits, _ = lists(t, g, header{})
	assert.Equal(t, []string{"default/1 r=0", "default/2 r=7", "default/3 r=0 t=1"}, limits)

	// A caller that passes all the same gets the whole truth.
	pass := guard.HandlerFunc("pass", func(*guard.Refusal) guard.Verdict { return guard.Verdict{Action: guard.Pass} })
	g = newGuard(t, guard.Config{Rule: guard.Rule{Policy: "5/1s, 10/10s, 100/1h", OverLimit: pass}, Headers: listed, Store: &answering{res: res}})
	h = header{}
	limits, _ = lists(t, g, h)
	assert.Equal(t, []string{"default/1 r=0 t=3", "default/2 r=7 t=3600", "default/3 r=0 t=1"}, limits)
	assert.NotContains(t, h, "Retry-After")
}

// All rules that were asked are listed, and those alone.
func TestListOfRules(t *testing.T) {
	g := newGuard(t, guard.Config{
		Rule: guard.Rule{Policy: "user: 10/10s", Key: keyfunc.Const("alice")},
		Rules: []guard.Rule{
			{Policy: "tenant: 2/1h", Key: keyfunc.Const("acme")},
			{Policy: "all: 100/1m", Key: keyfunc.Const("all")},
			{Policy: "skipped: 7/1m", Skip: func(keyfunc.Request) bool { return true }},
		},
		Headers: listed,
	})
	limits, policies := lists(t, g, header{})
	assert.Equal(t, []string{"user r=9 t=1", "tenant r=1 t=1800", "all r=99 t=1"}, limits)
	assert.Equal(t, []string{"user q=10 w=10", "tenant q=2 w=3600", "all q=100 w=60"}, policies)
	lists(t, g, header{})
	limits, policies = lists(t, g, header{}) // the tenant's refuses, and all are not asked
	require.Len(t, limits, 2)
	assert.Regexp(t, `^user r=\d t=\d$`, limits[0])
	assert.Regexp(t, `^tenant r=0 t=(1800|1799)$`, limits[1])
	assert.Equal(t, []string{"user q=10 w=10", "tenant q=2 w=3600"}, policies)
}

// One policy in two rules is one member: what is tighter.
func TestListOfOnePolicyTwice(t *testing.T) {
	keys := []guard.Rule{
		{Policy: "one: 10/1m", Key: keyfunc.Const("a")},
		{Policy: "one: 10/1m", Key: keyfunc.Const("b"), Cost: func(keyfunc.Request) int64 { return 3 }},
	}
	for range 2 {
		g := newGuard(t, guard.Config{Rules: keys, Rule: guard.Rule{Key: keyfunc.IP(), Policy: "10/1s"}, Headers: listed})
		limits, policies := lists(t, g, header{})
		assert.Equal(t, []string{"default r=9 t=1", "one r=7 t=6"}, limits)
		assert.Equal(t, []string{"default q=10 w=1", "one q=10 w=60"}, policies)
		slices.Reverse(keys)
	}
}

func TestListOfTiers(t *testing.T) {
	tier := ""
	g := newGuard(t, guard.Config{
		Rule: guard.Rule{
			Policy: "10/1m", Tier: func(keyfunc.Request) string { return tier },
			Tiers: map[string]string{"pro": "1000/1h", "admin": "unlimited"},
		},
		Headers: listed,
	})
	_, policies := lists(t, g, header{})
	assert.Equal(t, []string{"default q=10 w=60"}, policies)
	tier = "pro"
	_, policies = lists(t, g, header{})
	assert.Equal(t, []string{"default q=1000 w=3600"}, policies)
	tier = "admin"
	h := header{}
	lists(t, g, h)
	assert.Empty(t, h)
}

// Stacked guards have one list, with the tighter of what has one name.
func TestListsMerge(t *testing.T) {
	outer := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "10/1m"}, Headers: listed})
	login := outer.With("login", "5/1m, 2 concurrent")
	h := header{}
	lists(t, outer, h)
	limits, policies := lists(t, login, h)
	assert.Equal(t, []string{"default r=9 t=6", "login/1 r=4 t=12", "login/2 r=1"}, limits)
	assert.Equal(t, []string{"default q=10 w=60", "login/1 q=5 w=60", "login/2 q=2 qu=concurrent-requests"}, policies)

	// One guard twice, and two guards of one name.
	limits, policies = lists(t, outer, h)
	assert.Equal(t, []string{"login/1 r=4 t=12", "login/2 r=1", "default r=8 t=6"}, limits)
	assert.Len(t, policies, 3)
	wide := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "100/1m"}, Headers: listed})
	limits, policies = lists(t, wide, h)
	assert.Equal(t, []string{"login/1 r=4 t=12", "login/2 r=1", "default r=8 t=6"}, limits)
	assert.Equal(t, []string{"login/1 q=5 w=60", "login/2 q=2 qu=concurrent-requests", "default q=10 w=60"}, policies)

	for _, foreign := range []string{"limit=100, remaining=50, reset=30", "100;w=60", "(a b)", `"open`, `"a",`, `"a";R=1`} {
		h = header{"Ratelimit": foreign, "Ratelimit-Policy": foreign}
		limits, policies = lists(t, wide, h)
		assert.Len(t, limits, 1, foreign)
		assert.Equal(t, []string{"default q=100 w=60"}, policies, foreign)
	}
}

// The partition is a hash, which depends on the key and the secret, and tells neither.
func TestPartition(t *testing.T) {
	partition := func(secret, key string) string {
		style := listed
		style.PartitionSecret = secret
		g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "10/1m, 2 concurrent", Key: keyfunc.Const(key)}, Headers: style})
		h := header{}
		lists(t, g, h)
		var seen []string
		for _, name := range []string{"Ratelimit", "Ratelimit-Policy"} {
			list, err := httpsfv.UnmarshalList([]string{h[name]})
			require.NoError(t, err)
			require.Len(t, list, 2)
			for _, member := range list {
				pk, ok := member.(httpsfv.Item).Params.Get("pk")
				require.True(t, ok)
				require.Len(t, pk, 12)
				seen = append(seen, string(pk.([]byte)))
			}
		}
		require.Len(t, slices.Compact(seen), 1)
		return seen[0]
	}
	one := partition("that of the program", "alice")
	assert.Equal(t, one, partition("that of the program", "alice"))
	assert.NotEqual(t, one, partition("that of the program", "bob"))
	assert.NotEqual(t, one, partition("that of another one", "alice"))
}

// What is set is valid whatever a store answers.
func FuzzLimitList(f *testing.F) {
	f.Add(int64(5), int64(1_000_000), int64(0), int64(7), int64(2_000_000), uint8(1), false)
	f.Add(int64(-1), int64(-1), int64(-1), int64(1)<<62, int64(1)<<62, uint8(0), true)
	f.Fuzz(func(t *testing.T, remaining, reset, retry, remaining2, reset2 int64, outcome uint8, refused bool) {
		micros := func(n int64) time.Duration { return time.Duration(n%(1<<50)) * time.Microsecond }
		res := core.Result{Outcome: core.Outcome(outcome % 4), Limit: 10, Remaining: remaining, ResetAfter: micros(reset), RetryAfter: micros(retry), At: epoch}
		res.SetEach(0, core.LimitResult{Remaining: remaining, ResetAfter: micros(reset), RetryAfter: micros(retry), Refused: refused})
		res.SetEach(1, core.LimitResult{Remaining: remaining2, ResetAfter: micros(reset2)})
		for _, policy := range []string{"10/1m", "10/1m, 20/1h"} {
			g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: policy, Key: keyfunc.IP()}, Headers: listed, Store: &answering{res: res}})
			require.NoError(t, err)
			limits, policies := lists(t, g, header{})
			assert.LessOrEqual(t, len(limits), len(policies))
			for _, item := range limits {
				assert.Regexp(t, `^default(/\d)? r=\d{1,15}( t=[1-9]\d{0,14})?$`, item)
			}
		}
	})
}

// A list that is valid is read, and stays valid when others are added to it.
func FuzzListsMerge(f *testing.F) {
	for _, text := range []string{
		"", `"a"`, `"a";r=1;t=5;pk=:AAAA:`, `"a;\"b,\\";x="c,d;e";y,  "default";r=1`, `"default/1";r=3,"default/2";r=99`,
		`a;r=1`, `("a" "b");r=1`, `"a";t=1;t=2`, `"a";d=%"f%c3%bc"`, `"a";n=-1.5`, `"a";b=?1`, `"a";@=1`, `"a",`,
	} {
		f.Add(text)
	}
	g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "1/1h, 100/1h", Key: keyfunc.IP()}, Headers: listed})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, there string) {
		names, remaining, read := guard.ListNames(there)
		list, err := httpsfv.UnmarshalList([]string{there})
		if err != nil {
			return // what comes of nonsense is nonsense, or replaced
		}
		want := []string{}
		for i, member := range list {
			item, ok := member.(httpsfv.Item)
			if _, isString := item.Value.(string); !ok || !isString {
				require.False(t, read, there)
				return
			}
			if !read { // a t twice
				return
			}
			name := sfv.String(item.Value.(string))
			require.Equal(t, name, names[i], there)
			if r, ok := item.Params.Get("r"); ok {
				if r, ok := r.(int64); ok {
					require.Equal(t, r, remaining[i], there)
				}
			}
			want = append(want, item.Value.(string))
		}
		h := header{"Ratelimit": there, "Ratelimit-Policy": there}
		limits, policies := lists(t, g, h)
		for _, name := range want {
			assert.True(t, slices.ContainsFunc(limits, func(item string) bool { return strings.HasPrefix(item, name) }), there)
			assert.True(t, slices.ContainsFunc(policies, func(item string) bool { return strings.HasPrefix(item, name) }), there)
		}
	})
}
