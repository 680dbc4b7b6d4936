package envoyrls

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

// drawDescriptors draws descriptors of few keys and values, so that they meet often, without the same one twice.
func drawDescriptors(t *rapid.T, depth int) (ds []descriptorConfig) {
	var seen []entry
	for range rapid.IntRange(0, 4).Draw(t, "descriptors") {
		d := descriptorConfig{
			key:   rapid.StringMatching(`[ab_]{1,2}`).Draw(t, "key"),
			value: rapid.StringMatching(`[ab_*"]{0,3}`).Draw(t, "value"),
		}
		if slices.Contains(seen, entry{d.key, d.value}) {
			continue
		}
		seen = append(seen, entry{d.key, d.value})
		d.detailedMetric, d.valueMetric = rapid.Bool().Draw(t, "detailed_metric"), rapid.Bool().Draw(t, "value_to_metric")
		d.shadow, d.quota = rapid.Bool().Draw(t, "shadow_mode"), rapid.Bool().Draw(t, "quota_mode")
		d.share = strings.Contains(d.value, "*") && rapid.Bool().Draw(t, "share_threshold")
		if rapid.Bool().Draw(t, "limited") {
			d.limit = &limitConfig{requests: rapid.Uint32().Draw(t, "requests_per_unit"), unit: rapid.SampledFrom(units).Draw(t, "unit").name}
		}
		if depth > 0 {
			d.descriptors = drawDescriptors(t, depth-1)
		}
		ds = append(ds, d)
	}
	return ds
}

// naiveMatch reports whether a pattern stands for a value, by trying everything.
func naiveMatch(pattern, value string) bool {
	switch {
	case pattern == "":
		return value == ""
	case pattern[0] != '*':
		return value != "" && value[0] == pattern[0] && naiveMatch(pattern[1:], value[1:])
	default:
		return naiveMatch(pattern[1:], value) || value != "" && naiveMatch(pattern, value[1:])
	}
}

// naiveChild returns the descriptor of the configuration for an entry of a request.
func naiveChild(ds []descriptorConfig, key, value string) *descriptorConfig {
	var wild, alone *descriptorConfig
	for i := range ds {
		switch d := &ds[i]; {
		case d.key != key:
		case d.value == "":
			alone = d
		case d.value == value:
			return d
		case wild == nil && naiveMatch(d.value, value):
			wild = d
		}
	}
	if wild != nil {
		return wild
	}
	return alone
}

// naiveFind returns the path to the descriptor of the configuration that holds, what is counted for it, and the name of
// its counters.
func naiveFind(domain string, ds []descriptorConfig, entries []entry) (path []*descriptorConfig, counted []string, metric string) {
	for _, e := range entries {
		d := naiveChild(ds, e.key, e.value)
		if d == nil {
			return nil, nil, ""
		}
		ds, path = d.descriptors, append(path, d)
	}
	if len(path) == 0 || path[len(path)-1].limit == nil {
		return nil, nil, ""
	}
	metric = domain
	for i, d := range path {
		value := d.value
		if anyValue := value == "" || strings.Contains(value, "*") && !d.share; anyValue {
			counted = append(counted, entries[i].value)
			if d.valueMetric || path[len(path)-1].detailedMetric {
				value = entries[i].value
			}
		}
		metric += "." + d.key
		if value != "" {
			metric += "_" + value
		}
	}
	return path, counted, metric
}

// checkFind compares two descriptors of requests with the naive way.
func checkFind(t *rapid.T) {
	const domain = "d"
	ds := drawDescriptors(t, 2)
	tree, err := build([]domainConfig{{source: "f", domain: domain, descriptors: ds}}, false)
	require.NoError(t, err)
	var rules []*rule
	var keys []string
	var counts [][]string
	for range 2 {
		var entries []entry
		var flat []string
		for range rapid.IntRange(0, 4).Draw(t, "entries") {
			e := entry{rapid.StringMatching(`[ab_]{1,2}`).Draw(t, "key"), rapid.StringMatching(`[ab_*":2]{0,4}`).Draw(t, "value")}
			entries, flat = append(entries, e), append(flat, e.key, e.value)
		}
		m, found := tree.find(domain, descriptor(flat...))
		path, counted, metric := naiveFind(domain, ds, entries)
		require.Equal(t, path != nil, found)
		if !found {
			continue
		}
		want := path[len(path)-1]
		require.Equal(t, want.limit.requests, m.rule.current.GetRequestsPerUnit())
		require.Equal(t, want.shadow, m.rule.shadow)
		require.Equal(t, want.quota, m.rule.quota)
		require.Equal(t, metric, m.metric)
		require.NotEmpty(t, m.key)
		rules, keys, counts = append(rules, m.rule), append(keys, m.key), append(counts, counted)
	}
	if len(rules) == 2 && rules[0] == rules[1] {
		require.Equal(t, slices.Equal(counts[0], counts[1]), keys[0] == keys[1], "%q and %q", counts[0], counts[1])
	}
}

func TestFindAsNaive(t *testing.T) {
	t.Parallel()
	rapid.Check(t, checkFind)
}

func FuzzFind(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkFind)) }

// TestNamesOfPolicies holds that no two rules share a name, and that a name does not depend on the order.
func TestNamesOfPolicies(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var documents []domainConfig
		for i, domain := range []string{"d", "d.a", "d-"} {
			documents = append(documents, domainConfig{source: fmt.Sprint(i), domain: domain, descriptors: drawDescriptors(t, 2)})
		}
		names := func() map[string]string {
			tree, err := build(documents, false)
			require.NoError(t, err)
			names := map[string]string{}
			var walk func(place []string, n *node)
			walk = func(place []string, n *node) {
				if n.rule != nil && !n.rule.policy.IsZero() {
					identity, err := json.Marshal(place)
					require.NoError(t, err)
					before, found := names[n.rule.policy.Name()]
					require.False(t, found, "%s and %s are both named %s", before, identity, n.rule.policy.Name())
					names[n.rule.policy.Name()] = string(identity)
				}
				for e, c := range n.children {
					walk(append(slices.Clone(place), e.key, e.value), c)
				}
			}
			for domain, root := range tree.domains {
				walk([]string{domain}, root)
			}
			return names
		}
		before := names()
		var reverse func([]descriptorConfig)
		reverse = func(ds []descriptorConfig) {
			slices.Reverse(ds)
			for i := range ds {
				reverse(ds[i].descriptors)
			}
		}
		for i := range documents {
			reverse(documents[i].descriptors)
			documents[i].source = fmt.Sprint(9 - i)
		}
		slices.Reverse(documents)
		require.Equal(t, before, names())
	})
}

// written returns a document as YAML.
func written(t require.TestingT, d domainConfig) []byte {
	var descriptors func([]descriptorConfig) []any
	descriptors = func(ds []descriptorConfig) []any {
		list := []any{}
		for _, d := range ds {
			fields := map[string]any{
				"key": d.key, "value": d.value, "shadow_mode": d.shadow, "quota_mode": d.quota, "share_threshold": d.share,
				"detailed_metric": d.detailedMetric, "value_to_metric": d.valueMetric, "metadata": d.metadata,
				"descriptors": descriptors(d.descriptors),
			}
			if l := d.limit; l != nil {
				limit := map[string]any{"name": l.name, "unlimited": l.unlimited}
				replaces := []any{}
				for _, name := range l.replaces {
					replaces = append(replaces, map[string]any{"name": name})
				}
				limit["replaces"] = replaces
				switch {
				case l.policy != "":
					limit["policy"] = l.policy
				case l.unit != "":
					limit["unit"], limit["requests_per_unit"] = l.unit, l.requests
				}
				if l.multiplier > 0 {
					limit["unit_multiplier"] = l.multiplier
				}
				fields["rate_limit"] = limit
			}
			list = append(list, fields)
		}
		return list
	}
	text, err := yaml.Marshal(map[string]any{"domain": d.domain, "descriptors": descriptors(d.descriptors)})
	require.NoError(t, err)
	return text
}

// dump returns all that a tree has.
func dump(t *tree) string {
	var b strings.Builder
	var walk func(indent string, n *node)
	walk = func(indent string, n *node) {
		fmt.Fprintf(&b, "%s%q %q %t %t\n", indent, n.key, n.value, n.share, n.valueMetric)
		if r := n.rule; r != nil {
			fmt.Fprintf(&b, "%s rule %q %s %t %t %v %q %q %t %t %v %d %t %t\n", indent, r.path, r.policy, r.unlimited, r.nothing,
				r.current.String(), r.name, r.replaces, r.shadow, r.quota, r.metadata, r.varying, r.valuesInMetric, r.detailedMetric)
		}
		var entries []entry
		for e := range n.children {
			entries = append(entries, e)
		}
		slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.key+"\x00"+a.value, b.key+"\x00"+b.value) })
		for _, e := range entries {
			walk(indent+"  ", n.children[e])
		}
		var keys []string
		for key := range n.patterns {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for _, key := range keys {
			for _, p := range n.patterns[key] {
				fmt.Fprintf(&b, "%s pattern %q %q\n", indent, key, p.node.value)
			}
		}
	}
	for _, root := range t.domains { // a file has one
		walk("", root)
	}
	return b.String()
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		basic, laughs(2), limits("unit: day, requests_per_unit: 010"), limits(`policy: "100/1m gcra; fail local"`), "'''\n", "0.25: d",
		"domain: d\n---\ndomain: e\n", "domain: d\ndescriptors: &a\n  - {key: k, descriptors: *a}\n", "\ufeffdomain: d",
		"domain: d\ndescriptors:\n  - {key: k, <<: [{value: v*, share_threshold: on}], metadata: {a: [1, .5, yes, null, {b: 0x1F}]}}\n",
		limits("unit: week, unit_multiplier: 2, requests_per_unit: 1_000, name: a, replaces: [{name: b}]"),
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file := File{Name: "f", Data: data}
		tree, err := load([]File{file}, false)
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				require.True(t, strings.HasPrefix(line, "f:") || strings.HasPrefix(line, "and "), line)
			}
			return
		}
		var m mistakes
		document, ok := (&reader{mistakes: &m}).file(file)
		require.True(t, ok)
		require.Empty(t, m)
		again, err := load([]File{{Name: "again", Data: written(t, document)}}, false)
		require.NoError(t, err)
		require.Equal(t, dump(tree), dump(again))
	})
}
