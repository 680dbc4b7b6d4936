package envoyrls

import (
	"slices"
	"strconv"
	"strings"

	extpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

// A tree has the rules of all domains. It is immutable once a Server uses it.
type tree struct {
	domains map[string]*node
	rules   []*rule // all, in the order of the configuration
}

// A node is one descriptor of the configuration, or the root of a domain, whose key is the domain.
type node struct {
	key, value  string // the value is "" if there is none, and a pattern if it has a "*"
	share       bool   // all values that match the pattern are counted as one
	valueMetric bool   // the name of the counters has the value of the request

	rule     *rule // nil without a limit
	children map[entry]*node
	patterns map[string][]pattern // of the children of a key, in the order of the configuration

	source string // of the configuration, for errors
	line   int
}

// An entry is a key with a value, or "" for any.
type entry struct{ key, value string }

// A pattern matches values: "*" stands for any text, "" included.
type pattern struct {
	first, last string // before the first "*" and behind the last
	middle      string // between them, with the others
	node        *node
}

func patternOf(n *node) pattern {
	first, rest, _ := strings.Cut(n.value, "*")
	last := rest[strings.LastIndexByte(rest, '*')+1:]
	return pattern{first, last, rest[:len(rest)-len(last)], n}
}

// A match is a descriptor of a request with the rule that holds for it.
type match struct {
	rule   *rule
	key    string // is counted: the values, so written that no two lists meet
	metric string // "domain.key_value", for counters
}

// varies reports whether a node has descriptors of several values that are counted one by one.
func (n *node) varies() bool { return n.value == "" || !n.share && strings.Contains(n.value, "*") }

// child returns the node for an entry, or nil: that of the value before a pattern, and both before that of any value.
// Of several patterns it is the first of the configuration.
func (n *node) child(key, value string) *node {
	if value != "" {
		if c := n.children[entry{key, value}]; c != nil {
			return c
		}
	}
	for _, p := range n.patterns[key] {
		if p.matches(value) {
			return p.node
		}
	}
	return n.children[entry{key, ""}]
}

// matches reports whether the pattern stands for a value.
func (p pattern) matches(value string) bool {
	if len(value) < len(p.first)+len(p.last) || !strings.HasPrefix(value, p.first) || !strings.HasSuffix(value, p.last) {
		return false
	}
	value = value[len(p.first) : len(value)-len(p.last)]
	var part string
	for rest := p.middle; rest != ""; {
		part, rest, _ = strings.Cut(rest, "*")
		i := strings.Index(value, part)
		if i < 0 {
			return false
		}
		value = value[i+len(part):] // the first place leaves the most for what follows
	}
	return true
}

// find returns the rule of a descriptor in a domain, and whether there is one.
func (t *tree) find(domain string, d *extpb.RateLimitDescriptor) (match, bool) {
	entries := d.GetEntries()
	n := t.domains[domain]
	if n == nil || len(entries) > maxEntries {
		return match{}, false
	}
	var path [maxEntries]*node
	for i, e := range entries {
		if n = n.child(e.GetKey(), e.GetValue()); n == nil {
			return match{}, false
		}
		path[i] = n
	}
	if n.rule == nil {
		return match{}, false
	}
	m := match{rule: n.rule, key: n.rule.key(entries, path[:len(entries)]), metric: n.rule.path}
	if n.rule.valuesInMetric {
		m.metric = n.rule.metric(domain, entries, path[:len(entries)])
	}
	return m, true
}

// knows reports whether the configuration has the domain.
func (t *tree) knows(domain string) bool { return t.domains[domain] != nil }

// onlyKey is the key of a rule all of whose levels have a value.
const onlyKey = "all"

// key returns what is counted of a descriptor. The policy of the rule says the rest.
func (r *rule) key(entries []*extpb.RateLimitDescriptor_Entry, path []*node) string {
	if r.varying == 0 {
		return onlyKey
	}
	var space [128]byte
	key := space[:0]
	for i, n := range path {
		if !n.varies() {
			continue
		}
		value := entries[i].GetValue()
		if r.varying == 1 {
			return singleKey(value)
		}
		key = appendText(key, value)
	}
	return string(key)
}

// singleKey returns a value that is counted alone as it is, so that people find it: behind a quotation mark if it is
// empty or begins with one.
func singleKey(value string) string {
	if value == "" || value[0] == '"' {
		return `"` + value
	}
	return value
}

// appendText appends a text with its length, so that no two lists of texts look alike.
func appendText(b []byte, text string) []byte {
	b = strconv.AppendInt(b, int64(len(text)), 10)
	b = append(b, ':')
	return append(b, text...)
}

// metric returns the name of the counters of a rule that has values of the request in it.
func (r *rule) metric(domain string, entries []*extpb.RateLimitDescriptor_Entry, path []*node) string {
	var space [128]byte
	name := append(space[:0], domain...)
	for i, n := range path {
		value := n.value
		if n.varies() && (n.valueMetric || r.detailedMetric) {
			value = entries[i].GetValue()
		}
		name = appendMetric(name, n.key, value)
	}
	return string(name)
}

// entriesMetric returns the name of the counters of a descriptor with a limit of its own.
func entriesMetric(domain string, entries []*extpb.RateLimitDescriptor_Entry) string {
	var space [128]byte
	name := append(space[:0], domain...)
	for _, e := range entries {
		name = appendMetric(name, e.GetKey(), e.GetValue())
	}
	return string(name)
}

func appendMetric(b []byte, key, value string) []byte {
	b = append(b, '.')
	b = append(b, key...)
	if value != "" {
		b = append(b, '_')
		b = append(b, value...)
	}
	return b
}

// build makes a tree of documents. Its error lists every mistake, with file and line. Documents of one domain are a
// mistake, unless merge is set.
func build(documents []domainConfig, merge bool) (*tree, error) {
	var m mistakes
	t := assemble(documents, merge, &m)
	return t, m.err()
}

// assemble is build, with the mistakes of others before it. The order of the documents does not matter: those of one
// domain are merged by the names of their sources.
func assemble(documents []domainConfig, merge bool, m *mistakes) *tree {
	documents = slices.Clone(documents)
	slices.SortStableFunc(documents, func(a, b domainConfig) int { return strings.Compare(a.source, b.source) })
	a := &assembler{tree: &tree{domains: map[string]*node{}}, mistakes: m, named: map[string]*namedPolicy{}}
	for i := range documents {
		a.document(&documents[i], merge)
	}
	for _, r := range a.tree.rules {
		if n := a.named[r.policy.Name()]; n != nil && n.rule != r {
			m.add(n.source, n.line, "the policy's name %q is that of %.200q as well; give another", n.rule.policy.Name(), r.path)
		}
	}
	return a.tree
}

// assembler builds a tree.
type assembler struct {
	tree     *tree
	mistakes *mistakes
	source   string                  // of the document
	named    map[string]*namedPolicy // the policies whose texts have a name
	paths    int                     // the bytes of the paths of rules
}

// maxPaths bounds the bytes of the paths of all rules: those of a long key count for each rule below it.
const maxPaths = 32 << 20

// A namedPolicy is a rule whose policy has a name in its text.
type namedPolicy struct {
	place
	rule *rule
}

// A place is a line of a source.
type place struct {
	source string
	line   int
}

func (p place) String() string {
	if p.line == 0 {
		return p.source
	}
	return p.source + ":" + strconv.Itoa(p.line)
}

func (a *assembler) wrong(line int, format string, args ...any) {
	a.mistakes.add(a.source, line, format, args...)
}

func (a *assembler) document(d *domainConfig, merge bool) {
	a.source = d.source
	root := a.tree.domains[d.domain]
	switch {
	case d.domain == "":
		if !d.broken {
			a.wrong(d.line, "the domain is missing or empty; give one")
		}
		root = &node{} // for the other mistakes
	case root == nil:
		root = &node{key: d.domain, source: d.source, line: d.line}
		a.tree.domains[d.domain] = root
	case !merge:
		a.wrong(d.line, "the domain %.80q stands in %s as well; give each file another, or merge the domains",
			d.domain, place{root.source, root.line})
		root = &node{key: d.domain}
	}
	if len(d.domain) > maxEntry {
		a.wrong(d.line, "the domain has %d bytes; give at most %d, as no request has more", len(d.domain), maxEntry)
		return
	}
	a.descriptors(d.descriptors, []*node{root})
}

func (a *assembler) descriptors(ds []descriptorConfig, path []*node) {
	if len(path) > maxEntries && len(ds) > 0 {
		a.wrong(ds[0].line, "descriptors are nested more than %d deep; no request has that many entries", maxEntries)
		return
	}
	for i := range ds {
		if a.mistakes.full() || a.paths > maxPaths {
			return
		}
		a.descriptor(&ds[i], path)
	}
}

// descriptor adds a descriptor under the last node of path.
func (a *assembler) descriptor(d *descriptorConfig, path []*node) {
	parent, wild := path[len(path)-1], strings.Contains(d.value, "*")
	n := &node{key: d.key, value: d.value, share: d.share && wild, valueMetric: d.valueMetric, source: a.source, line: d.line}
	before := parent.children[entry{d.key, d.value}]
	switch {
	case d.broken:
	case d.key == "":
		a.wrong(d.line, "the key is missing or empty; give one")
	case len(d.key)+len(d.value) > maxEntry:
		a.wrong(d.line, "the key and its value have %d bytes; give at most %d, as no request has more", len(d.key)+len(d.value), maxEntry)
		return
	case d.value == "" && strings.HasSuffix(d.key, "*"): // elsewhere it is a character, as in the names of Envoy Gateway's routes
		a.wrong(d.line, "the key is %.80q, but \"*\" stands for any text in values alone; leave it out, or give a value", d.key)
	case before != nil:
		a.wrong(d.line, "the descriptor %.200q stands in %s as well; leave one out", pathText(append(path, n)), place{before.source, before.line})
	default:
		parent.add(n, wild)
	}
	if d.share && !wild && !d.broken {
		a.wrong(d.line, "share_threshold is for a value with \"*\", and this has %.80q; leave it out", d.value)
	}
	path = append(path, n)
	if d.limit != nil {
		n.rule = a.rule(d, path)
		a.tree.rules = append(a.tree.rules, n.rule)
	}
	a.descriptors(d.descriptors, path)
}

// add adds a child.
func (n *node) add(c *node, wild bool) {
	if n.children == nil {
		n.children = map[entry]*node{}
	}
	n.children[entry{c.key, c.value}] = c
	if wild {
		if n.patterns == nil {
			n.patterns = map[string][]pattern{}
		}
		n.patterns[c.key] = append(n.patterns[c.key], patternOf(c))
	}
}

// pathText returns where a node stands, for people: "domain.key_value.key".
func pathText(path []*node) string {
	b := []byte(path[0].key)
	for _, n := range path[1:] {
		b = appendMetric(b, n.key, n.value)
	}
	return string(b)
}
