package envoyrls

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

// limits returns a file of which the rate limit of one descriptor is given.
func limits(rateLimit string) string {
	return "domain: d\ndescriptors:\n  - key: k\n    rate_limit: {" + rateLimit + "}\n"
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ text, want string }{
		// What their configuration tests hold.
		"no domain":                 {"descriptors:\n", "f:1: the domain is missing or empty; give one"},
		"no key":                    {"domain: d\ndescriptors:\n  - value: v\n", "f:3: the key is missing or empty; give one"},
		"the same descriptor twice": {"domain: d\ndescriptors:\n  - {key: k, value: v}\n\n  - {key: k, value: v}\n", `f:5: the descriptor "d.k_v" stands in f:3 as well; leave one out`},
		"unknown unit":              {limits("unit: foo, requests_per_unit: 5"), `f:4: the unit is "foo"; give second, minute, hour, day, week, month or year`},
		"replaces itself":           {limits("unit: day, requests_per_unit: 5, name: self, replaces: [{name: self}]"), `f:4: replaces has "self", which is the name of the same limit; leave it out`},
		"replaces nothing":          {limits("unit: day, requests_per_unit: 5, name: self, replaces: [{name: }]"), "f:4: replaces has an item without a name; give the name of a limit"},
		"no YAML":                   {"'''\n", "f:2: this is not YAML: found unexpected end of stream"},
		"rate_limit misspelled":     {"domain: d\ndescriptors:\n  - key: k\n    ratelimit:\n      unit: day\n      requests_per_unit: 5\n", `f:4: a descriptor has no field "ratelimit"; give key, value, rate_limit, descriptors, shadow_mode, quota_mode, share_threshold, detailed_metric, value_to_metric, metadata`},
		"requests misspelled":       {limits("unit: day, requestsperunit: 5"), `f:4: rate_limit has no field "requestsperunit"; give requests_per_unit, unit, unit_multiplier, policy, unlimited, name, replaces`},
		"a name that is no text":    {"0.25: d\ndescriptors: []\n", `f:1: the file has no field "0.25"; give domain, descriptors, name` + "\nf:1: the domain is missing or empty; give one"},
		"descriptors of texts":      {"domain: d\ndescriptors:\n  - a\n  - b\n", `f:3: a descriptor is "a"; give fields such as "name: value"` + "\n" + `f:4: a descriptor is "b"; give fields such as "name: value"`},
		"unlimited with a unit":     {limits("unlimited: true, unit: day, requests_per_unit: 25"), "f:4: an unlimited rate_limit has a unit or a policy; leave out one of them"},
		"share_threshold of a value": {
			"domain: d\ndescriptors:\n  - {key: k, value: v, share_threshold: true}\n",
			`f:3: share_threshold is for a value with "*", and this has "v"; leave it out`,
		},

		// What they let pass, or lose.
		"a second document":              {"domain: d\n---\ndomain: e\n", "f:2: a second document begins here; give each domain a file of its own"},
		"a field twice":                  {"domain: d\ndomain: e\n", `f:2: the file has "domain" twice, first in line 1`},
		"a number with a leading zero":   {limits("unit: day, requests_per_unit: 010"), `f:4: requests_per_unit is "010"; a number that begins with 0 may be octal; leave out the 0`},
		"09, which is no octal":          {limits("unit: day, requests_per_unit: 09"), `f:4: requests_per_unit is "09"; a number that begins with 0 may be octal; leave out the 0`},
		"a number below 0":               {limits("unit: day, requests_per_unit: -1"), `f:4: requests_per_unit is "-1"; give 0 or more`},
		"a number that is too large":     {limits("unit: day, requests_per_unit: 4294967296"), `f:4: requests_per_unit is "4294967296"; give at most 4294967295`},
		"a fraction":                     {limits("unit: day, requests_per_unit: 1.5"), `f:4: requests_per_unit is "1.5"; give a whole number`},
		"a number in quotation marks":    {limits(`unit: day, requests_per_unit: "5"`), `f:4: requests_per_unit is "5"; give a number, without quotation marks`},
		"a number that is empty":         {limits("unit: day, requests_per_unit: "), `f:4: requests_per_unit is empty; give a whole number`},
		"no number":                      {limits("unit: day"), "f:4: requests_per_unit is missing; give a number, 0 to refuse everything"},
		"no unit":                        {limits("requests_per_unit: 5"), "f:4: rate_limit has no unit; give second, minute, hour, day, week, month or year"},
		"an empty rate_limit":            {"domain: d\ndescriptors:\n  - key: k\n    rate_limit:\n", "f:4: rate_limit is empty; give requests_per_unit and unit, or null for no limit"},
		"a field of another object":      {"domain: d\ndescriptors:\n  - key: k\n    unit: day\n    requests_per_unit: 5\n", "f:4: a descriptor has no field \"unit\"; it is a field of rate_limit\nf:5: a descriptor has no field \"requests_per_unit\"; it is a field of rate_limit"},
		"shadow_mode of a limit":         {limits("unit: day, requests_per_unit: 5, shadow_mode: true"), `f:4: rate_limit has no field "shadow_mode"; it is a field of a descriptor`},
		"a wildcard in a key":            {"domain: d\ndescriptors:\n  - key: k*\n", `f:3: the key is "k*", but "*" stands for any text in values alone; leave it out, or give a value`},
		"a truth that is a text":         {"domain: d\ndescriptors:\n  - {key: k, shadow_mode: \"true\"}\n", `f:3: shadow_mode is "true"; give true or false`},
		"an alias without an anchor":     {"domain: *d\n", "f: this is not YAML: unknown anchor 'd' referenced"},
		"a tag":                          {"domain: !!binary ZA==\n", `f:1: domain is "ZA==" with the tag "!!binary"; give a text`},
		"a list for a text":              {"domain: [d]\n", "f:1: domain is a list; give a text"},
		"a list for a key":               {"domain: d\ndescriptors:\n  - {key: [k], value: v}\n", "f:3: key is a list; give a text"},
		"a text for a list":              {"domain: d\ndescriptors: k\n", `f:2: descriptors is "k"; give a list`},
		"a list for the file":            {"- domain: d\n", `f:1: the file is a list; give fields such as "name: value"`},
		"an object as a name":            {"domain: d\n? {a: b}\n: c\n", "f:2: the file has a name that is an object; write it as text"},
		"an empty file":                  {"", "f: the file is empty; give a domain and its descriptors"},
		"a file of comments":             {"# nothing\n", "f: the file is empty; give a domain and its descriptors"},
		"bytes that are no UTF-8":        {"domain: \xff\n", "f: this is not YAML: invalid leading UTF-8 octet"},
		"a replaced limit that is text":  {limits("unit: day, requests_per_unit: 5, replaces: [a]"), `f:4: an item of replaces is "a"; give fields such as "name: value"`},
		"a replaced limit with a unit":   {limits("unit: day, requests_per_unit: 5, replaces: [{unit: day}]"), `f:4: an item of replaces has no field "unit"; it is a field of rate_limit`},
		"metadata that JSON cannot have": {"domain: d\ndescriptors:\n  - {key: k, metadata: {a: .inf, b: [!!binary ZA==]}}\n", "f:3: metadata has the number \".inf\"; give one that JSON has\nf:3: metadata has \"ZA==\" with the tag \"!!binary\"; leave out the tag"},

		// What they do not have.
		"a policy and a unit":        {limits(`policy: "5/1m", unit: day`), "f:4: policy stands beside unit, requests_per_unit or unit_multiplier; it says all of them"},
		"a policy and a number":      {limits(`policy: "5/1m", requests_per_unit: 0`), "f:4: policy stands beside unit, requests_per_unit or unit_multiplier; it says all of them"},
		"a policy that is unlimited": {limits(`policy: "5/1m", unlimited: true`), "f:4: an unlimited rate_limit has a unit or a policy; leave out one of them"},
		"an empty policy":            {limits("policy: "), `f:4: policy is empty; give a text such as "100/1m gcra", or leave it out`},
		"no policy":                  {limits("policy: often"), "f:4: policy \"often\": at offset 0, found \"often\": expected a rate such as \"100/1m\""},
		"a policy with mistakes":     {limits(`policy: "0/1m, 5/500d"`), "f:4: policy \"0/1m, 5/500d\": limit 1 (0/1m): Rate is 0; give 1 to 2147483648 units\nf:4: policy \"0/1m, 5/500d\": limit 2 (5/500d): Period is 500d; give 1ms to 366d"},
		"permits":                    {limits(`policy: "5 concurrent"`), `f:4: policy "5 concurrent" has permits, but the service never sees the end of a request; leave them out`},
		"a leaky bucket":             {limits(`policy: "5/1m leaky-bucket"`), `f:4: policy "5/1m leaky-bucket" has a leaky bucket, but the service cannot delay a request; use gcra`},
		"a policy that waits":        {limits(`policy: "5/1m; wait 1s"`), `f:4: policy "5/1m; wait 1s" has wait, but the service answers at once; leave it out`},
		"a multiplier of 0":          {limits("unit: day, requests_per_unit: 5, unit_multiplier: 0"), "f:4: unit_multiplier is 0; give 1 or more, or leave it out"},
		"a multiplier of 2 years":    {limits("unit: year, requests_per_unit: 5, unit_multiplier: 2"), "f:4: unit_multiplier is 2: 2 times a year is too long; give at most 1"},
		"two policies of a name": {
			"domain: d\ndescriptors:\n  - {key: a, rate_limit: {policy: \"n: 5/1m\"}}\n  - {key: b, rate_limit: {policy: \"n: 5/1m\"}}\n",
			`f:4: the policy's name "n" is that of "d.a" as well; give another`,
		},
		"the name of another rule": {
			"domain: d\ndescriptors:\n  - {key: a, rate_limit: {policy: \"d.b: 5/1m\"}}\n  - {key: b, rate_limit: {unit: day, requests_per_unit: 5}}\n",
			`f:3: the policy's name "d.b" is that of "d.b" as well; give another`,
		},

		"several at once": {
			"domain: d\ndescriptors:\n  - key: k\n    rate_limit: {unit: fortnight, requests_per_unit: x}\n    shadow: true\n  - value: v\n    rate_limit: {unit: dya, requests_per_unit: 5, unlimited: maybe}\n",
			"f:4: requests_per_unit is \"x\"; give a whole number\n" +
				"f:5: a descriptor has no field \"shadow\"; give key, value, rate_limit, descriptors, shadow_mode, quota_mode, share_threshold, detailed_metric, value_to_metric, metadata\n" +
				"f:6: the key is missing or empty; give one\n" +
				"f:7: unlimited is \"maybe\"; give true or false\n" +
				"f:7: the unit is \"dya\"; give second, minute, hour, day, week, month or year",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load([]File{{Name: "f", Data: []byte(test.text)}}, false)
			require.Error(t, err)
			assert.Equal(t, strings.Split(test.want, "\n"), strings.Split(err.Error(), "\n"))
		})
	}
}

func TestMistakesOfSeveralFiles(t *testing.T) {
	t.Parallel()
	files := []File{
		{Name: "b.yaml", Data: []byte("domain: shop\ndescriptors:\n  - {key: k}\n")},
		{Name: "a.yaml", Data: []byte("# The shop.\ndomain: shop\ndescriptors:\n  - {key: k}\n  - {kee: k}\n")},
	}
	_, err := load(files, false)
	assert.EqualError(t, err, `a.yaml:5: a descriptor has no field "kee"; give key, value, rate_limit, descriptors, shadow_mode, quota_mode, share_threshold, detailed_metric, value_to_metric, metadata
a.yaml:5: the key is missing or empty; give one
b.yaml:1: the domain "shop" stands in a.yaml:2 as well; give each file another, or merge the domains`)
	_, err = load(files[:1], false)
	assert.NoError(t, err)
	_, err = load([]File{files[0], {Name: "c.yaml", Data: files[0].Data}}, true)
	assert.EqualError(t, err, `c.yaml:3: the descriptor "shop.k" stands in b.yaml:3 as well; leave one out`)
}

func TestMistakesAreBounded(t *testing.T) {
	t.Parallel()
	text := "domain: d\ndescriptors:\n" + strings.Repeat("  - value: v\n", 1000)
	_, err := load([]File{{Name: "f", Data: []byte(text)}}, false)
	require.Error(t, err)
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, maxMistakes+1)
	assert.Equal(t, "f:3: the key is missing or empty; give one", lines[0])
	assert.Equal(t, "and 950 more mistakes", lines[maxMistakes])
}

// What files may have is counted for all of them together.
func TestManyHostileFiles(t *testing.T) {
	t.Parallel()
	metadata := strings.Repeat("a, ", maxNodes/2)
	files := make([]File, 3)
	for i := range files {
		files[i] = File{Name: fmt.Sprintf("f%d", i), Data: []byte(fmt.Sprintf("domain: d%d\ndescriptors: [{key: k, metadata: {l: [%s]}}]", i, metadata))}
	}
	_, err := load(files[:1], false)
	require.NoError(t, err)
	_, err = load(files, false)
	require.ErrorContains(t, err, "f1:2: there are more than 2097152 names, values and items up to here")
	assert.NotContains(t, err.Error(), "\n")
}

// TestAccepted holds what is YAML, and what they read.
func TestAccepted(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"blocks":                   "domain: d\ndescriptors:\n  - key: k\n    value: 404\n    shadow_mode: true\n    rate_limit:\n      unit: minute\n      requests_per_unit: 1000\n",
		"JSON":                     `{"domain": "d", "descriptors": [{"key": "k", "value": "404", "shadow_mode": true, "rate_limit": {"unit": "minute", "requests_per_unit": 1000}}]}`,
		"values that are no text":  "domain: d\ndescriptors:\n  - {key: k, value: 404, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1000}}\n",
		"units in large letters":   "domain: d\ndescriptors:\n  - {key: k, value: 404, shadow_mode: true, rate_limit: {unit: MINUTE, requests_per_unit: 1000}}\n",
		"truths of YAML 1.1":       "domain: d\ndescriptors:\n  - {key: k, value: 404, shadow_mode: yes, quota_mode: off, rate_limit: {unit: minute, requests_per_unit: 1000}}\n",
		"numbers of YAML 1.1":      "domain: d\ndescriptors:\n  - {key: k, value: 404, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1_000}}\n",
		"hexadecimal numbers":      "domain: d\ndescriptors:\n  - {key: k, value: 404, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 0x3E8}}\n",
		"a mark of the byte order": "\ufeffdomain: d\ndescriptors:\n  - {key: k, value: 404, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1000}}\n",
		"a document with marks":    "%YAML 1.1\n---\ndomain: d\ndescriptors:\n  - {key: k, value: 404, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1000}}\n...\n",
		"lines of Windows":         "domain: d\r\ndescriptors:\r\n  - key: k\r\n    value: 404\r\n    shadow_mode: true\r\n    rate_limit:\r\n      unit: minute\r\n      requests_per_unit: 1000\r\n",
		"empty fields":             "domain: d\ndescriptors:\n  - {key: k, value: 404, shadow_mode: true, descriptors: , metadata: , rate_limit: {unit: minute, requests_per_unit: 1000, name: , replaces: }}\n",
		"an alias":                 "domain: d\ndescriptors:\n  - {key: j, rate_limit: &l {unit: minute, requests_per_unit: 1000}}\n  - {key: k, value: 404, shadow_mode: true, rate_limit: *l}\n",
		"a merge":                  "domain: d\ndescriptors:\n  - &j {key: j, value: 1, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1000}}\n  - {key: k, <<: *j, value: 404}\n",
		"a merge of a list":        "domain: d\ndescriptors:\n  - &j {key: j, value: 1, shadow_mode: true, rate_limit: &l {unit: day, requests_per_unit: 1000}}\n  - {<<: [{key: k}, *j], value: 404, rate_limit: {<<: *l, unit: minute}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, found := mustLoad(t, text).find("d", descriptor("k", "404"))
			require.True(t, found)
			assert.Equal(t, "d.k--404: 1000/1m fixed-window aligned", m.rule.policy.String())
			assert.True(t, m.rule.shadow)
			assert.False(t, m.rule.quota)
		})
	}
}

// TestValues holds that a value is the text that was written, whatever YAML takes it for.
func TestValues(t *testing.T) {
	t.Parallel()
	for written, value := range map[string]string{
		"1.50": "1.50", "010": "010", "0x1F": "0x1F", "yes": "yes", "2026-11-23": "2026-11-23", `"a\tb"`: "a\tb", "'404'": "404", ".inf": ".inf",
	} {
		tree := mustLoad(t, "domain: d\ndescriptors:\n  - {key: k, value: "+written+", "+aMinute(1)+"}\n")
		assert.Equal(t, "1, all, d.k_"+value, found(t, tree, "d", "k", value), written)
	}
	for _, empty := range []string{"", "~", "null", `""`} {
		tree := mustLoad(t, "domain: d\ndescriptors:\n  - {key: k, value: "+empty+", "+aMinute(1)+"}\n")
		assert.Equal(t, "1, any, d.k", found(t, tree, "d", "k", "any"), empty)
	}
}

func TestUnits(t *testing.T) {
	t.Parallel()
	for rateLimit, want := range map[string]string{
		"unit: second, requests_per_unit: 5":                             "d.k: 5/1s fixed-window aligned, 5 SECOND",
		"unit: minute, requests_per_unit: 5":                             "d.k: 5/1m fixed-window aligned, 5 MINUTE",
		"unit: hour, requests_per_unit: 5":                               "d.k: 5/1h fixed-window aligned, 5 HOUR",
		"unit: day, requests_per_unit: 5":                                "d.k: 5/1d fixed-window aligned, 5 DAY",
		"unit: week, requests_per_unit: 5":                               "d.k: 5/7d fixed-window aligned, 5 WEEK",
		"unit: month, requests_per_unit: 5":                              "d.k: 5/30d fixed-window aligned, 5 MONTH",
		"unit: year, requests_per_unit: 5":                               "d.k: 5/365d fixed-window aligned, 5 YEAR",
		"unit: Year, requests_per_unit: 5":                               "d.k: 5/365d fixed-window aligned, 5 YEAR",
		"unit: minute, unit_multiplier: 1, requests_per_unit: 5":         "d.k: 5/1m fixed-window aligned, 5 MINUTE",
		"unit: minute, unit_multiplier: 15, requests_per_unit: 5":        "d.k: 5/15m fixed-window aligned, 5 MINUTE by 15",
		"unit: minute, requests_per_unit: 4294967295":                    "d.k: 4294967295/1m fixed-window aligned, 4294967295 MINUTE",
		"unit: minute, requests_per_unit: 0":                             "d.k: 1/1m fixed-window aligned, 0 MINUTE, nothing",
		"unlimited: true":                                                ", unlimited",
		"unlimited: true, requests_per_unit: 0, unit: UNKNOWN":           ", unlimited",
		"unlimited: true, requests_per_unit: 5":                          ", unlimited",
		`policy: "100/1m gcra"`:                                          "d.k: 100/1m, 100 MINUTE",
		`policy: "100/90s token-bucket burst 5"`:                         "d.k: 100/1m30s token-bucket burst 5, 100 SECOND by 90",
		`policy: "20/1s, 1000/1h sliding-window; fail closed"`:           "d.k: 20/1s, 1000/1h sliding-window; fail closed, 20 SECOND",
		`policy: "3/100ms"`:                                              "d.k: 3/100ms, 3 UNKNOWN",
		`policy: "login: 5/14d fixed-window calendar UTC"`:               "",
		`policy: "login: 5/7d fixed-window calendar UTC; shadow"`:        "login: 5/7d fixed-window calendar UTC; shadow, 5 WEEK, shadow",
		`policy: "5/1mo fixed-window calendar UTC; fail local 1/4"`:      "d.k: 5/1mo fixed-window calendar UTC; fail local 1/4, 5 MONTH",
		"unit: second, unit_multiplier: 31622400, requests_per_unit: 5":  "d.k: 5/366d fixed-window aligned, 5 SECOND by 31622400",
		"unit: second, unit_multiplier: 31622401, requests_per_unit: 5":  "",
		"unit: hour, unit_multiplier: 4294967295, requests_per_unit: 10": "",
	} {
		t.Run(rateLimit, func(t *testing.T) {
			t.Parallel()
			tree, err := load([]File{{Name: "f", Data: []byte(limits(rateLimit))}}, false)
			if want == "" {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.Len(t, tree.rules, 1)
			r := tree.rules[0]
			got := r.policy.String()
			if l := r.current; l != nil {
				got += fmt.Sprintf(", %d %s", l.GetRequestsPerUnit(), l.GetUnit())
				if by := l.GetUnitMultiplier(); by != nil {
					got += fmt.Sprintf(" by %d", by.GetValue())
				}
			}
			for text, set := range map[string]bool{", unlimited": r.unlimited, ", nothing": r.nothing, ", shadow": r.shadow} {
				if set {
					got += text
				}
			}
			assert.Equal(t, want, got)
		})
	}
}

// laughs returns a file with aliases of aliases, n times the nine of the line above.
func laughs(n int) string {
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n  - key: k0\n    descriptors: &a0 [{key: x}]\n")
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, "  - key: k%d\n    descriptors: &a%d\n", i, i)
		for j := range 9 {
			fmt.Fprintf(&b, "      - {key: j%d, descriptors: *a%d}\n", j, i-1)
		}
	}
	return b.String()
}

// mergedLaughs returns a file with merges of merges, n times nine of the line above.
func mergedLaughs(n int) string {
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n  - &a0 {key: k}\n")
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, "  - &a%d {value: v%d, <<: [%s*a%d]}\n", i, i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 8), i-1)
	}
	return b.String()
}

func TestHostileFiles(t *testing.T) {
	t.Parallel()
	nested := func(depth int) string {
		var b strings.Builder
		b.WriteString("domain: d\n")
		for i := range depth {
			fmt.Fprintf(&b, "%sdescriptors:\n%s- key: k\n", strings.Repeat("  ", i), strings.Repeat("  ", i))
		}
		return b.String()
	}
	tooMany := fmt.Sprintf("there are more than %d names, values and items up to here, "+
		"with those that aliases repeat, and %d bytes of a text for one more; leave some out", maxNodes, nodeBytes)
	tooWrong := "and more, which was not read because of 2000 mistakes before it"
	// each returns a list of n items, with their numbers in the place of "#".
	each := func(n int, item string) string {
		var b strings.Builder
		b.WriteByte('[')
		for i := range n {
			b.WriteString(strings.ReplaceAll(item, "#", strconv.Itoa(i)))
			b.WriteString(", ")
		}
		b.WriteByte(']')
		return b.String()
	}
	// first returns a file with a descriptor a, whose key and metadata have names for aliases, and then others.
	first := func(metadata, others string) string {
		return "domain: d\ndescriptors:\n  - {key: a, metadata: {x: " + metadata + "}}\n" +
			"  - {key: b, descriptors: " + others + "}\n"
	}
	fields := "&a {" + strings.Trim(each(2000, "x#: 1"), "[]") + "}"
	long := strings.Repeat("x", 100_000)
	limit := "rate_limit: {unit: day, requests_per_unit: 1}"
	for name, test := range map[string]struct{ text, want string }{
		"as deep as requests":    {nested(maxEntries), ""},
		"deeper than requests":   {nested(maxEntries + 1), "f:35: descriptors are nested more than 16 deep; no request has that many entries"},
		"much deeper":            {nested(200), "f:201: lists and objects are nested more than 100 deep"},
		"flow much deeper":       {"domain: d\ndescriptors: " + strings.Repeat("[", 20_000), "f:2: this is not YAML: exceeded max depth of 10000"},
		"a few laughs":           {laughs(3), ""},
		"a billion laughs":       {laughs(9), tooMany},
		"laughs that are merged": {mergedLaughs(9), tooMany},
		"inside of itself":       {"domain: d\ndescriptors: &a\n  - {key: k, descriptors: *a}\n", "f:3: lists and objects are nested more than 100 deep"},
		"merged into itself":     {"domain: d\ndescriptors:\n  - &a {key: k, <<: *a}\n", "f:3: lists and objects are nested more than 100 deep"},
		"metadata in itself":     {"domain: d\ndescriptors:\n  - {key: k, metadata: &a {b: *a}}\n", "f:3: lists and objects are nested more than 100 deep"},
		"merged many times": {
			"domain: d\nx: &a {" + strings.Repeat("?, ", 3000) + "}\n<<: [" + strings.Repeat("*a, ", 3000) + "]\n", tooWrong,
		},
		"fields repeated":            {first(fields, "[{key: c, metadata: {y: "+each(10_000, "*a")+"}}]"), tooMany},
		"wrong fields repeated":      {first(fields, each(10_000, "*a")), tooWrong},
		"fields merged":              {first(fields, "[{key: c, metadata: {<<: "+each(10_000, "*a")+"}}]"), tooMany},
		"nothing merged":             {first("&a {}", "[{key: c, metadata: &b {<<: "+each(2000, "*a")+"}}, {key: d, metadata: {y: "+each(2000, "*b")+"}}]"), tooMany},
		"a long name repeated":       {first("&a {? "+long+"\n : 1}", "[{key: c, metadata: {y: "+each(1000, "*a")+"}}]"), tooMany},
		"a long text repeated":       {first("&a "+long, "[{key: c, metadata: {y: "+each(1000, "*a")+"}}]"), tooMany},
		"a long policy repeated":     {first("&a '"+strings.Repeat("1/1s, ", 20_000)+"'", each(1000, "{key: c#, rate_limit: {policy: *a }}")), tooMany},
		"names of limits repeated":   {first("&a "+each(5000, "{name: x}"), each(1000, "{key: c#, rate_limit: {unlimited: true, replaces: *a }}")), tooMany},
		"a long key repeated":        {first("&a "+long, each(100, "{key: *a , value: v#, "+limit+"}")), "f:4: the key and its value have 100002 bytes; give at most 4096, as no request has more"},
		"a long value":               {first("a", "[{key: c, value: "+strings.Repeat("a*", 1<<11)+"}]"), "f:4: the key and its value have 4097 bytes; give at most 4096, as no request has more"},
		"a key and a value that fit": {first("a", "[{key: c, value: "+strings.Repeat("x", maxEntry-1)+"}]"), ""},
		"a long domain":              {"domain: " + strings.Repeat("x", maxEntry+1), "f:1: the domain has 4097 bytes; give at most 4096, as no request has more"},
		"a long domain that fits":    {"domain: " + strings.Repeat("x", maxEntry), ""},
		"long keys above many":       {first("a", "[{key: "+strings.Repeat("x", 4000)+", descriptors: "+each(10_000, "{key: c#, "+limit+"}")+"}]"), "f:4: the limits up to here have more than 33554432 bytes in their keys and values, with those above each; shorten them"},
		"many mistakes":              {first("a", each(3000, "{key: c#, "+strings.Repeat("y", 100)+": 1}")), tooWrong},
		"many mistakes of an alias":  {first("a", "&a "+each(1000, "{}")+"}\n  - {key: c, descriptors: "+each(3, "{key: c#, descriptors: *a }")), tooWrong},
		"a mistake with a long text": {first("!"+long+" a", "[]"), "f:3: metadata has \"a\" with the tag"},
		"a large file":               {"domain: d # " + strings.Repeat("x", maxFile), "f: the file has more than 16777216 bytes; divide it, and merge the domains"},
		"fields of many names":       {"domain: d\n" + strings.Repeat("x: y\n", 1000), `f:2: the file has no field "x"; give domain, descriptors, name`},
		"names of an alias twice":    {"domain: &d d\n*d : e\n", `f:1: the file has no field "d"; give domain, descriptors, name`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load([]File{{Name: "f", Data: []byte(test.text)}}, false)
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.Error(t, err)
			assert.Contains(t, err.Error(), test.want)
			assert.Less(t, len(err.Error()), 20_000)
		})
	}
}

func TestManyDescriptors(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n")
	const n = 10_000
	for i := range n {
		fmt.Fprintf(&b, "  - key: user\n    value: user%d\n    rate_limit:\n      unit: minute\n      requests_per_unit: %d\n", i, i+1)
	}
	tree := mustLoad(t, b.String())
	require.Len(t, tree.rules, n)
	names := map[string]bool{}
	for _, r := range tree.rules {
		names[r.policy.Name()] = true
	}
	assert.Len(t, names, n)
	m, found := tree.find("d", descriptor("user", "user9999"))
	require.True(t, found)
	assert.Equal(t, core.Limit{Algorithm: core.FixedWindow, Rate: n, Burst: n, Period: time.Minute, Align: "epoch"}, m.rule.policy.Limits()[0])
}
