package envoyrls

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	extpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weir-go/weir/core"
)

// mustLoad builds the tree of files without names, which must have no mistake.
func mustLoad(t testing.TB, texts ...string) *tree {
	t.Helper()
	var files []File
	for _, text := range texts {
		files = append(files, File{Name: "config.yaml", Data: []byte(text)})
	}
	tree, err := load(files, true)
	require.NoError(t, err)
	return tree
}

// descriptor makes a descriptor of keys and values in turn.
func descriptor(keysAndValues ...string) *extpb.RateLimitDescriptor {
	d := &extpb.RateLimitDescriptor{}
	for i := 0; i < len(keysAndValues); i += 2 {
		d.Entries = append(d.Entries, &extpb.RateLimitDescriptor_Entry{Key: keysAndValues[i], Value: keysAndValues[i+1]})
	}
	return d
}

const basic = `# Limits of a shop.
domain: shop
descriptors:
  - key: tenant
    value: gold
    descriptors:
      - key: method
        rate_limit: {unit: second, requests_per_unit: 5}
      - key: method
        value: POST
        rate_limit: {unit: second, requests_per_unit: 10}
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 20}
  - key: user
    value: alice
    rate_limit: {unit: minute, requests_per_unit: 30}
  - key: user
    value: free # without a limit
  - key: path
    value: login
    rate_limit: {unit: day, requests_per_unit: 15}
    descriptors:
      - key: from
        value: here
        rate_limit: {unit: day, requests_per_unit: 25}
  - key: open
    rate_limit: {unlimited: true}
`

func TestFind(t *testing.T) {
	t.Parallel()
	const second, minute, day = rlspb.RateLimitResponse_RateLimit_SECOND, rlspb.RateLimitResponse_RateLimit_MINUTE,
		rlspb.RateLimitResponse_RateLimit_DAY
	type unit = rlspb.RateLimitResponse_RateLimit_Unit
	for name, test := range map[string]struct {
		entries     []string
		requests    uint32
		unit        unit
		key, metric string // the metric is "" if there is no rule
	}{
		"nothing":                            {},
		"first level without a limit":        {entries: []string{"tenant", "gold"}},
		"value that is unknown":              {entries: []string{"tenant", "silver"}},
		"any value below a value":            {[]string{"tenant", "gold", "method", "GET"}, 5, second, "GET", "shop.tenant_gold.method"},
		"value before any value":             {[]string{"tenant", "gold", "method", "POST"}, 10, second, "all", "shop.tenant_gold.method_POST"},
		"any value":                          {[]string{"user", "bob"}, 20, minute, "bob", "shop.user"},
		"value":                              {[]string{"user", "alice"}, 30, minute, "all", "shop.user_alice"},
		"value without a limit":              {entries: []string{"user", "free"}},
		"empty value":                        {[]string{"user", ""}, 20, minute, `"`, "shop.user"},
		"more entries than levels":           {entries: []string{"user", "alice", "method", "GET"}},
		"a limit at a level with others":     {[]string{"path", "login"}, 15, day, "all", "shop.path_login"},
		"and the level below":                {[]string{"path", "login", "from", "here"}, 25, day, "all", "shop.path_login.from_here"},
		"a value that the level below lacks": {entries: []string{"path", "login", "from", "there"}},
		"unlimited":                          {[]string{"open", "x"}, 0, 0, "x", "shop.open"},
		"a key that is unknown":              {entries: []string{"nobody", "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, found := mustLoad(t, basic).find("shop", descriptor(test.entries...))
			require.Equal(t, test.metric != "", found)
			if !found {
				return
			}
			assert.Equal(t, test.requests, m.rule.current.GetRequestsPerUnit())
			assert.Equal(t, test.unit, m.rule.current.GetUnit())
			assert.Equal(t, test.key, m.key)
			assert.Equal(t, test.metric, m.metric)
		})
	}
	tree := mustLoad(t, basic)
	assert.True(t, tree.knows("shop"))
	assert.False(t, tree.knows("elsewhere"))
	_, found := tree.find("elsewhere", descriptor("user", "bob"))
	assert.False(t, found)
}

// found returns the result of find as a text: the requests per minute, the key and the name of the counters.
func found(t testing.TB, tree *tree, domain string, entries ...string) string {
	t.Helper()
	m, ok := tree.find(domain, descriptor(entries...))
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d, %s, %s", m.rule.current.GetRequestsPerUnit(), m.key, m.metric)
}

// aMinute is a rate limit of n requests a minute.
func aMinute(n int) string {
	return fmt.Sprintf("rate_limit: {unit: minute, requests_per_unit: %d}", n)
}

func TestPatterns(t *testing.T) {
	t.Parallel()
	tree := mustLoad(t, `
domain: d
descriptors:
  - {key: end, value: foo*, `+aMinute(1)+`}
  - {key: end, value: foobar*, `+aMinute(2)+`}
  - {key: end, value: foobaz, `+aMinute(3)+`}
  - {key: end, `+aMinute(4)+`}
  - {key: middle, value: a*b, `+aMinute(5)+`}
  - {key: several, value: a*b*c*, `+aMinute(6)+`}
  - {key: begin, value: "*.pdf", `+aMinute(7)+`}
  - {key: anything, value: "*", `+aMinute(8)+`}
  - {key: anything, `+aMinute(9)+`}
  - {key: twice, value: "ab*ab", `+aMinute(10)+`}
  - {key: stars, value: "a**b", `+aMinute(11)+`}
  - {key: none, value: foo, `+aMinute(12)+`}
  - key: outer
    value: o*
    descriptors:
      - {key: inner, value: i*, `+aMinute(13)+`}
      - {key: inner, value: ix, `+aMinute(14)+`}
`)
	for entries, want := range map[[2]string]string{
		{"end", "foo"}:             "1, foo, d.end_foo*",
		{"end", "foobar1"}:         "1, foobar1, d.end_foo*", // the first pattern of the configuration
		{"end", "foobaz"}:          "3, all, d.end_foobaz",   // a value before a pattern
		{"end", "foobar*"}:         "2, foobar*, d.end_foobar*",
		{"end", "fo"}:              "4, fo, d.end", // a pattern before any value
		{"middle", "ab"}:           "5, ab, d.middle_a*b",
		{"middle", "axxb"}:         "5, axxb, d.middle_a*b",
		{"middle", "axbx"}:         "",
		{"middle", "a"}:            "",
		{"several", "abc"}:         "6, abc, d.several_a*b*c*",
		{"several", "a1b2c3"}:      "6, a1b2c3, d.several_a*b*c*",
		{"several", "acb"}:         "",
		{"several", "acbxbcc"}:     "6, acbxbcc, d.several_a*b*c*",
		{"begin", "a.pdf"}:         "7, a.pdf, d.begin_*.pdf",
		{"begin", "a.pdf.exe"}:     "",
		{"anything", ""}:           `8, ", d.anything_*`,
		{"anything", "x"}:          "8, x, d.anything_*",
		{"twice", "ab"}:            "", // the two ends are two texts
		{"twice", "abab"}:          "10, abab, d.twice_ab*ab",
		{"stars", "ab"}:            "11, ab, d.stars_a**b",
		{"none", "foo1"}:           "",
		{"outer", "o1"}:            "",
		{"o", "uter"}:              "",
		{"anything_", "x"}:         "",
		{"end_foo", "x"}:           "",
		{"middle", "a\x00ü\nb"}:    "5, a\x00ü\nb, d.middle_a*b",
		{"several", "a*b*c*"}:      "6, a*b*c*, d.several_a*b*c*",
		{"begin", "*.pdf"}:         "7, *.pdf, d.begin_*.pdf",
		{"begin", `".pdf`}:         `7, "".pdf, d.begin_*.pdf`,
		{"anything", `"`}:          `8, "", d.anything_*`,
		{"anything", "all"}:        "8, all, d.anything_*",
		{"anything", "\U0001F600"}: "8, \U0001F600, d.anything_*",
	} {
		assert.Equal(t, want, found(t, tree, "d", entries[:]...), "%q", entries)
	}
	assert.Equal(t, "13, 2:o12:i1, d.outer_o*.inner_i*", found(t, tree, "d", "outer", "o1", "inner", "i1"))
	assert.Equal(t, "14, o1, d.outer_o*.inner_ix", found(t, tree, "d", "outer", "o1", "inner", "ix"))
}

func TestDepth(t *testing.T) {
	t.Parallel()
	text, entries := "domain: d\n", []string{}
	for i := range maxEntries {
		indent := strings.Repeat("  ", i)
		text += indent + "descriptors:\n" + indent + "- key: k\n"
		entries = append(entries, "k", "v")
	}
	tree := mustLoad(t, text+strings.Repeat("  ", maxEntries)+aMinute(1)+"\n")
	assert.Equal(t, "1, "+strings.Repeat("1:v", maxEntries)+", d"+strings.Repeat(".k", maxEntries), found(t, tree, "d", entries...))
	assert.Empty(t, found(t, tree, "d", append(entries, "k", "v")...))
	assert.Empty(t, found(t, tree, "d", entries[2:]...))
}

// TestUnderscores holds that what joined by "_" looks alike stays distinct: keys, values, rules and counts.
func TestUnderscores(t *testing.T) {
	t.Parallel()
	tree := mustLoad(t, `
domain: d
descriptors:
  - {key: a_b, `+aMinute(1)+`}
  - {key: a, value: b, `+aMinute(2)+`}
  - {key: a, value: b_c, `+aMinute(3)+`}
  - {key: a_b, value: c, `+aMinute(4)+`}
  - key: x
    descriptors:
      - {key: y, `+aMinute(5)+`}
`)
	assert.Equal(t, "1, v, d.a_b", found(t, tree, "d", "a_b", "v"))
	assert.Equal(t, "2, all, d.a_b", found(t, tree, "d", "a", "b"))
	assert.Equal(t, "3, all, d.a_b_c", found(t, tree, "d", "a", "b_c"))
	assert.Equal(t, "4, all, d.a_b_c", found(t, tree, "d", "a_b", "c"))
	assert.NotEqual(t, found(t, tree, "d", "x", "1", "y", "21"), found(t, tree, "d", "x", "12", "y", "1"))
	names := map[string]bool{}
	for _, r := range tree.rules {
		names[r.policy.Name()] = true
	}
	assert.Len(t, names, len(tree.rules))
}

// TestEnvoyGateway holds the configuration that Envoy Gateway makes: its keys are the names of routes, which have a "*" for
// the hosts of all.
func TestEnvoyGateway(t *testing.T) {
	t.Parallel()
	tree := mustLoad(t, `
name: default/eg/http
domain: default/eg/http
descriptors:
  - key: httproute/default/backend/rule/0/match/0/*
    value: httproute/default/backend/rule/0/match/0/*
    rate_limit: null
    descriptors:
      - key: rule-0-match-0
        value: ""
        rate_limit: {requests_per_unit: 3, unit: HOUR, unlimited: false, name: "", replaces: []}
        descriptors: []
      - key: rule-0-match-1
        value: rule-0-match-1
        rate_limit: {requests_per_unit: 4, unit: HOUR, unlimited: false, name: "", replaces: []}
        detailed_metric: false
  - key: httproute/default/backend/rule/0/match/0/*_example_com-key
    rate_limit: {requests_per_unit: 5, unit: HOUR}
  - key: httproute/default/backend/rule/0/match/0/*_example_com
    value: httproute/default/backend/rule/0/match/0/*_example_com
    rate_limit: {requests_per_unit: 6, unit: HOUR}
`)
	const domain, route = "default/eg/http", "httproute/default/backend/rule/0/match/0/*"
	const path = domain + "." + route + "_" + route
	assert.Equal(t, "3, 42:"+route+"5:alice, "+path+".rule-0-match-0", found(t, tree, domain, route, route, "rule-0-match-0", "alice"))
	assert.Equal(t, "4, "+route+", "+path+".rule-0-match-1_rule-0-match-1", found(t, tree, domain, route, route, "rule-0-match-1", "rule-0-match-1"))
	assert.Equal(t, "5, x, "+domain+"."+route+"_example_com-key", found(t, tree, domain, route+"_example_com-key", "x"))
	assert.Empty(t, found(t, tree, domain, "httproute/default/backend/rule/0/match/0/www_example_com-key", "x"), "it is a key")
	assert.Equal(t, "6, "+route+"_example_com, "+domain+"."+route+"_example_com_"+route+"_example_com",
		found(t, tree, domain, route+"_example_com", route+"_example_com"))
}

func TestMergedDomains(t *testing.T) {
	t.Parallel()
	files := []File{
		{Name: "2.yaml", Data: []byte("domain: d\ndescriptors:\n  - {key: a, value: x*, " + aMinute(1) + "}\n  - {key: c, " + aMinute(2) + "}\n")},
		{Name: "1.yaml", Data: []byte("domain: d\ndescriptors:\n  - {key: a, value: xy*, " + aMinute(3) + "}\n")},
		{Name: "3.yaml", Data: []byte("domain: e\ndescriptors:\n  - {key: a, " + aMinute(4) + "}\n")},
		{Name: "4.yaml", Data: []byte("domain: d\ndescriptors:\n")},
	}
	for range 2 {
		tree, err := load(files, true)
		require.NoError(t, err)
		assert.Equal(t, "3, xyz, d.a_xy*", found(t, tree, "d", "a", "xyz"), "files have the order of their names")
		assert.Equal(t, "1, xz, d.a_x*", found(t, tree, "d", "a", "xz"))
		assert.Equal(t, "2, 1, d.c", found(t, tree, "d", "c", "1"))
		assert.Equal(t, "4, 1, e.a", found(t, tree, "e", "a", "1"))
		assert.Empty(t, found(t, tree, "e", "c", "1"))
		slices.Reverse(files)
	}
}

// TestFields holds what a rule has of its descriptor.
func TestFields(t *testing.T) {
	t.Parallel()
	tree := mustLoad(t, `
domain: d
descriptors:
  - key: plain
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: all
    shadow_mode: true
    quota_mode: true
    detailed_metric: true
    metadata: {team: web, level: 2, ratio: 0.5, on: true, none: null, day: 2026-11-23, hosts: [a, {b: c}], 5: five}
    rate_limit:
      unit: day
      unit_multiplier: 2
      requests_per_unit: 1
      name: days
      replaces: [{name: hours}, {name: minutes}]
  - key: unlimited
    rate_limit: {unlimited: true, name: free}
  - key: nothing
    rate_limit: {unit: second, requests_per_unit: 0}
  - key: policy
    rate_limit: {name: smooth, policy: "7/1m burst 2; fail closed; shadow"}
`)
	rules := map[string]*rule{}
	for _, r := range tree.rules {
		rules[r.path] = r
	}
	r := rules["d.plain"]
	assert.Equal(t, []bool{false, false, false, false, false}, []bool{r.shadow, r.quota, r.unlimited, r.nothing, r.detailedMetric})
	assert.Empty(t, r.name)
	assert.Empty(t, r.replaces)
	assert.Nil(t, r.metadata)

	r = rules["d.all"]
	assert.Equal(t, []bool{true, true, false, false, true}, []bool{r.shadow, r.quota, r.unlimited, r.nothing, r.detailedMetric})
	assert.Equal(t, "days", r.name)
	assert.Equal(t, "days", r.current.GetName())
	assert.Equal(t, []string{"hours", "minutes"}, r.replaces)
	assert.Equal(t, map[string]any{
		"team": "web", "level": 2., "ratio": .5, "on": true, "none": nil, "day": "2026-11-23",
		"hosts": []any{"a", map[string]any{"b": "c"}}, "5": "five",
	}, r.metadata)
	_, err := structpb.NewStruct(r.metadata)
	require.NoError(t, err)

	r = rules["d.unlimited"]
	assert.True(t, r.unlimited)
	assert.True(t, r.policy.IsZero())
	assert.Nil(t, r.current)
	assert.Equal(t, "free", r.name)

	r = rules["d.nothing"]
	assert.True(t, r.nothing)
	assert.Zero(t, r.current.GetRequestsPerUnit())

	r = rules["d.policy"]
	assert.True(t, r.shadow)
	assert.Equal(t, core.FailClosed, r.policy.Options().Fail)
	assert.Equal(t, "smooth", r.current.GetName())
}

// TestMetrics holds the names of counters.
func TestMetrics(t *testing.T) {
	t.Parallel()
	nested := `
domain: d
descriptors:
  - key: one
    detailed_metric: true
    ` + aMinute(1) + `
  - key: one
    value: known
    ` + aMinute(1) + `
  - key: two
    detailed_metric: true
    ` + aMinute(1) + `
    descriptors:
      - {key: three, detailed_metric: true}
      - {key: three, value: known, detailed_metric: true, ` + aMinute(1) + `}
  - key: plain
    ` + aMinute(1) + `
    descriptors:
      - {key: below, ` + aMinute(1) + `}
      - {key: detailed, detailed_metric: true, ` + aMinute(1) + `}
  - key: route
    value_to_metric: true
    descriptors:
      - key: method
        value_to_metric: true
        descriptors:
          - {key: subject, ` + aMinute(1) + `}
          - {key: detailed, detailed_metric: true, ` + aMinute(1) + `}
      - key: method
        value: GET
        value_to_metric: true
        descriptors:
          - {key: subject, ` + aMinute(1) + `}
      - key: bare
        descriptors:
          - {key: subject, value_to_metric: true, ` + aMinute(1) + `}
  - key: wild
    value: foo*
    ` + aMinute(1) + `
    descriptors:
      - key: other
        value_to_metric: true
        descriptors:
          - {key: limit, ` + aMinute(1) + `}
  - key: action
    value: read*
    value_to_metric: true
    descriptors:
      - {key: resource, ` + aMinute(1) + `}
  - key: files
    value: top/*
    share_threshold: true
    ` + aMinute(1) + `
    descriptors:
      - {key: files, value: nested/*, share_threshold: true, ` + aMinute(1) + `}
      - {key: files, value: other/*, ` + aMinute(1) + `}
      - {key: detailed, detailed_metric: true, ` + aMinute(1) + `}
  - key: api
    value: v*
    share_threshold: true
    value_to_metric: true
    descriptors:
      - {key: method, ` + aMinute(1) + `}
  - {key: middle, value: a*b, share_threshold: true, value_to_metric: true, ` + aMinute(1) + `}
  - {key: several, value: a*b*, value_to_metric: true, ` + aMinute(1) + `}
  - {key: file, value: test1, ` + aMinute(50) + `}
  - {key: file, value: test*, share_threshold: true, detailed_metric: true, ` + aMinute(100) + `}
`
	tree := mustLoad(t, nested)
	for _, test := range []struct{ entries, key, metric string }{
		// detailed_metric has the values of all entries.
		{"one=x", "x", "d.one_x"},
		{"one=known", "all", "d.one_known"},
		{"one=", `"`, "d.one"}, // theirs is "d.one_"
		{"two=x", "x", "d.two_x"},
		{"two=x three=known", "x", "d.two_x.three_known"},
		{"plain=x", "x", "d.plain"},
		{"plain=x below=y", "1:x1:y", "d.plain.below"},
		{"plain=x detailed=y", "1:x1:y", "d.plain_x.detailed_y"},

		// value_to_metric has those of its own level.
		{"route=api method=PUT subject=1", "3:api3:PUT1:1", "d.route_api.method_PUT.subject"},
		{"route=api method=GET subject=1", "3:api1:1", "d.route_api.method_GET.subject"},
		{"route=api bare=b subject=1", "3:api1:b1:1", "d.route_api.bare.subject_1"},
		{"route= method=PUT subject=1", "0:3:PUT1:1", "d.route.method_PUT.subject"},
		{"route= method= subject=1", "0:0:1:1", "d.route.method.subject"},
		{"route=api method=PUT detailed=1", "3:api3:PUT1:1", "d.route_api.method_PUT.detailed_1"},
		{"action=readfile resource=doc", "8:readfile3:doc", "d.action_readfile.resource"},

		// A pattern stands for itself, unless one of them asks for the value.
		{"wild=foo1", "foo1", "d.wild_foo*"},
		{"wild=foo1 other=bar limit=X", "4:foo13:bar1:X", "d.wild_foo*.other_bar.limit"},

		// share_threshold counts a pattern as one, and names it so.
		{"files=top/a", "all", "d.files_top/*"},
		{"files=top/a files=nested/b", "all", "d.files_top/*.files_nested/*"},
		{"files=top/a files=other/b", "other/b", "d.files_top/*.files_other/*"},
		{"files=top/a detailed=b", "b", "d.files_top/*.detailed_b"},
		{"api=v1 method=GET", "GET", "d.api_v*.method"},
		{"middle=a1b", "all", "d.middle_a*b"},
		{"several=a1b2", "a1b2", "d.several_a1b2"},
		{"file=test1", "all", "d.file_test1"},
		{"file=test2", "all", "d.file_test*"},
		{"file=test23", "all", "d.file_test*"},
		{"file=test*", "all", "d.file_test*"}, // a value like the pattern is counted with the others
	} {
		var entries []string
		for entry := range strings.SplitSeq(test.entries, " ") {
			key, value, _ := strings.Cut(entry, "=")
			entries = append(entries, key, value)
		}
		m, ok := tree.find("d", descriptor(entries...))
		if assert.True(t, ok, test.entries) {
			assert.Equal(t, test.key, m.key, test.entries)
			assert.Equal(t, test.metric, m.metric, test.entries)
		}
	}
	assert.Equal(t, "d.key_value.other", entriesMetric("d", descriptor("key", "value", "other", "").GetEntries()))
}

// TestNames holds the names of policies, which must stay as they are: counts are kept under them.
func TestNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long", 20)
	for _, test := range []struct{ domain, key, value, below, want string }{
		{"shop", "user", "", "", "shop.user"},
		{"shop", "remote_address", "", "", "shop.remote_address"},
		{"shop", "user", "alice", "", "shop.user--alice"},
		{"shop", "user", "alice", "path", "shop.user--alice.path"},
		{"azAZ09", "azAZ09", "azAZ09", "", "azAZ09.azAZ09--azAZ09"},
		{"a-b", "c-d", "e_f", "", "a-b.c-d--e_f"},
		{"shop", "address", "50.0.0.5", "", "shop.address--50.0.0.5-"},
		{"shop.example.com", "user", "", "", "shop.example.com.user-"},
		{"shop", "user", "a--b", "", "shop.user--a--b-"},
		{"shop", "user", "-a", "", "shop.user---a-"},
		{"shop", "user-", "a", "", "shop.user---a-"},
		{"shop", "path", "/login*", "", "shop.path--_login_-"},
		{"shop", "name", "Zoë 😀", "", "shop.name--Zo___-"},
		{"shop", "key", long, "", "shop.key--longlonglonglonglonglonglonglonglonglong-"},
		{"shop", "key", strings.Repeat("x", maxName-len("shop.key--")), "", "shop.key--" + strings.Repeat("x", maxName-len("shop.key--"))},
		{"shop", "key", strings.Repeat("x", maxName+1-len("shop.key--")), "", "shop.key--" + strings.Repeat("x", maxName-len("shop.key--")-hashLength-1) + "-"},
		{"shop", "name", "x", "0123456789abc", "shop.name--x.0123456789abc"},
		{"shop", "name", "x-0123456789abc", "", "shop.name--x-0123456789abc-"},
	} {
		path := []*node{{key: test.domain}, {key: test.key, value: test.value}}
		if test.below != "" {
			path = append(path, &node{key: test.below})
		}
		name := policyName(path)
		core.MustParse("1/1s").Named(name) // panics if it is none
		if strings.HasSuffix(test.want, "-") {
			require.True(t, hasHash(name), name)
			name = name[:len(name)-hashLength]
		}
		assert.Equal(t, test.want, name)
	}
	assert.Equal(t, "shop.path--_login_-r9snv0d7s672u", policyName([]*node{{key: "shop"}, {key: "path", value: "/login*"}}))
}
