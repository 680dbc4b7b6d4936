package counts_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/admin/counts"
	"github.com/weir-go/weir/core/policies"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

func at(policy, prefix string) counts.Rule {
	return counts.Rule{Policy: policy, Code: policy + ": 10/1h", Where: counts.Where{Prefix: prefix}}
}

// What a process announces does not open the counts of another app.
func TestBind(t *testing.T) {
	t.Parallel()
	s := open(t, counts.Options{})
	for name, c := range map[string]struct {
		app    counts.App
		others []counts.App
		barred string
		with   []string
	}{
		"alone":                        {counts.App{Rules: []counts.Rule{at("login", "shop")}}, []counts.App{{Name: "b", Rules: []counts.Rule{at("login", "bank")}}}, "", nil},
		"another policy":               {counts.App{Rules: []counts.Rule{at("login", "shop")}}, []counts.App{{Name: "b", Rules: []counts.Rule{at("api", "shop")}}}, "", nil},
		"claimed by two":               {counts.App{Rules: []counts.Rule{at("login", "shop")}}, []counts.App{{Name: "b", Rules: []counts.Rule{at("login", "shop")}}}, "shared with other apps", nil},
		"the default":                  {counts.App{Rules: []counts.Rule{at("login", "")}}, []counts.App{{Name: "b", Rules: []counts.Rule{at("login", "weir")}}}, "shared with other apps", nil},
		"bound to another":             {counts.App{Rules: []counts.Rule{at("login", "shop")}}, []counts.App{{Name: "b", Prefixes: []string{"shop"}}}, "shared with other apps", nil},
		"bound":                        {counts.App{Prefixes: []string{"shop"}, Rules: []counts.Rule{at("login", "shop")}}, []counts.App{{Name: "b", Rules: []counts.Rule{at("login", "shop")}}}, "", nil},
		"bound elsewhere":              {counts.App{Prefixes: []string{"shop", "pay"}, Rules: []counts.Rule{at("login", "bank")}}, nil, "it counts under shop, pay", nil},
		"both bound":                   {counts.App{Prefixes: []string{"shop"}, Rules: []counts.Rule{at("login", "shop")}}, []counts.App{{Name: "c", Prefixes: []string{"shop"}, Rules: []counts.Rule{at("login", "shop")}}, {Name: "b", Prefixes: []string{"shop"}, Rules: []counts.Rule{at("login", "shop"), at("login", "shop")}}}, "", []string{"b", "c"}},
		"both bound, another policy":   {counts.App{Prefixes: []string{"shop"}, Rules: []counts.Rule{at("login", "shop")}}, []counts.App{{Name: "b", Prefixes: []string{"shop"}, Rules: []counts.Rule{at("api", "shop")}}}, "", nil},
		"announced beside its setting": {counts.App{Prefixes: []string{"shop"}, Rules: []counts.Rule{at("login", "shop")}}, []counts.App{{Name: "b", Prefixes: []string{"bank"}, Rules: []counts.Rule{at("login", "shop")}}}, "", nil},
		"others are not read":          {counts.App{Rules: []counts.Rule{at("login", "shop")}}, []counts.App{{Name: "b", Unread: true}}, "it is not known which apps count there", nil},
		"a bound one is not read":      {counts.App{Rules: []counts.Rule{at("login", "shop")}}, []counts.App{{Name: "b", Prefixes: []string{"bank"}, Unread: true}}, "", nil},
		"bound, others are not read":   {counts.App{Prefixes: []string{"shop"}, Rules: []counts.Rule{at("login", "shop")}}, []counts.App{{Name: "c", Unread: true}, {Name: "b", Prefixes: []string{"shop"}, Unread: true}}, "", []string{"b"}},
		"in the process":               {counts.App{Rules: []counts.Rule{{Policy: "login", Where: counts.Where{Process: true}}}}, []counts.App{{Name: "b", Rules: []counts.Rule{{Policy: "login", Where: counts.Where{Process: true}}}}}, "", nil},
	} {
		rules := s.Bind(c.app, c.others)
		require.Len(t, rules, 1, name)
		if c.barred == "" {
			assert.Empty(t, rules[0].Barred, name)
		}
		assert.Contains(t, rules[0].Barred, c.barred, name)
		assert.Equal(t, c.with, rules[0].With, name)
		assert.Empty(t, c.app.Rules[0].Barred, "%s: the argument is left alone", name)
	}
}

// Nobody looks into counts that are barred, nor forgets them.
func TestBarred(t *testing.T) {
	t.Parallel()
	rdb := redistest.Single(t).Client(t)
	uses(t, limiter(t, rdb, "login: 10/1h", redisstore.Options{Prefix: "bank"}), "user=7", 4)
	s := open(t, counts.Options{Redis: rdb})
	rules := s.Bind(counts.App{Rules: []counts.Rule{at("login", "bank")}}, []counts.App{{Name: "bank", Prefixes: []string{"bank"}}})
	look := one(t, s, rules[0], nil, "user=7")
	assert.Nil(t, look.Explanation)
	assert.Equal(t, rules[0].Barred, look.Why)
	require.EqualError(t, s.Reset(t.Context(), rules, nil, "user=7"), rules[0].Barred)
	assert.Equal(t, int64(1), rdb.DBSize(t.Context()).Val())
}

// The rules of processes are listed once each, with how many processes have them.
func TestRules(t *testing.T) {
	t.Parallel()
	process := func(id, name string, rules ...policies.RuleState) *policies.Process {
		return &policies.Process{ID: id, Name: name, Rules: rules}
	}
	rules, more := counts.Rules([]*policies.Process{
		process("1", "a:1",
			policies.RuleState{Policy: "login", Code: "login: 5/1m", Place: "POST /login", Key: "ip"},
			policies.RuleState{Policy: "login", Code: "login: 5/1m", Place: "POST /reset", Key: "ip"},
			policies.RuleState{Policy: "api", Code: "api: 10/1s", Tiers: map[string]string{"pro": "100/1s"}}),
		process("2", "", policies.RuleState{Policy: "login", Code: "login: 5/1m", Place: "POST /login", Key: "user"}),
		process("3", "", policies.RuleState{Policy: "login", Code: "login: 9/1m"}),
	})
	assert.Zero(t, more)
	assert.Equal(t, []counts.Rule{
		{Policy: "api", Code: "api: 10/1s", Tiers: map[string]string{"pro": "100/1s"}, Processes: 1, Names: []string{"a:1"}},
		{
			Policy: "login", Code: "login: 5/1m", Keys: []string{"ip", "user"}, Places: []string{"POST /login", "POST /reset"},
			Processes: 2, Names: []string{"a:1", "2"},
		},
		{Policy: "login", Code: "login: 9/1m", Processes: 1, Names: []string{"3"}},
	}, rules)
	var many []*policies.Process
	for i := range 300 {
		many = append(many, process("x", "", policies.RuleState{Policy: "p", Code: "p: " + string(rune('0'+i%10)) + string(rune('a'+i/10))}))
	}
	rules, more = counts.Rules(many)
	assert.Len(t, rules, 200)
	assert.Equal(t, 100, more)
}
