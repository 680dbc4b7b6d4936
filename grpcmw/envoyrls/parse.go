package envoyrls

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// File is a file of the configuration: YAML as envoyproxy/ratelimit reads it, with one domain. docs/envoy.md in the
// repository has what it says beyond that.
type File struct {
	// Name is that of the file, for errors. Files of one domain are merged in the order of their names, by which the
	// first of several wildcards holds.
	Name string
	// Data is YAML, of at most 16 MiB.
	Data []byte
}

// The bounds of files.
const (
	maxFile    = 16 << 20
	maxNodes   = 1 << 21 // of all files together; see [reader.count]
	nodeBytes  = 32      // of a text count as a node
	maxNesting = 100     // of lists and objects
)

// load builds the tree of files. Its error lists the mistakes of all of them, with file and line.
func load(files []File, merge bool) (*tree, error) {
	var m mistakes
	var documents []domainConfig
	r := &reader{mistakes: &m}
	for _, f := range files {
		if d, ok := r.file(f); ok {
			documents = append(documents, d)
		}
	}
	if r.full() {
		return nil, m.err()
	}
	t := assemble(documents, merge, &m)
	return t, m.err()
}

// reader reads the nodes of files. It goes on behind a mistake, so that all are found, up to a bound.
type reader struct {
	source   string // the name of the file
	mistakes *mistakes
	nodes    int // were read
	depth    int
}

// file reads a file. ok is false if nothing in it could be read.
func (r *reader) file(f File) (d domainConfig, ok bool) {
	if r.full() {
		return d, false
	}
	r.source = f.Name
	if len(f.Data) > maxFile {
		r.mistakes.add(f.Name, 0, "the file has more than %d bytes; divide it, and merge the domains", maxFile)
		return d, false
	}
	decoder := yaml.NewDecoder(bytes.NewReader(f.Data))
	var document, another yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		r.mistakes.add(f.Name, 0, "the file is empty; give a domain and its descriptors")
		return d, false
	case err != nil:
		r.syntax(err)
		return d, false
	}
	if err := decoder.Decode(&another); err == nil {
		r.mistakes.add(f.Name, another.Line, "a second document begins here; give each domain a file of its own")
	} else if !errors.Is(err, io.EOF) {
		r.syntax(err)
	}
	return r.domain(document.Content[0]), true
}

// wrong notes a mistake. Behind the last node that may be read there are none: what is missing may be there.
func (r *reader) wrong(n *yaml.Node, format string, args ...any) {
	if !r.full() {
		r.mistakes.add(r.source, n.Line, format, args...)
	}
}

// syntax notes an error of the parser, with its line.
func (r *reader) syntax(err error) {
	text, line := strings.TrimPrefix(err.Error(), "yaml: "), 0
	if rest, found := strings.CutPrefix(text, "line "); found {
		if number, problem, found := strings.Cut(rest, ": "); found {
			if n, err := strconv.Atoi(number); err == nil {
				line, text = n, problem
			}
		}
	}
	r.mistakes.add(r.source, line, "this is not YAML: %s", text)
}

// A field is a name with its value.
type field struct{ name, value *yaml.Node }

// fields returns those of an object, what it merges behind its own. A name that stands twice is a mistake.
func (r *reader) fields(n *yaml.Node, what string) []field {
	size := max(0, min(len(target(n).Content)/2, maxNodes-r.nodes)) // of what may be read
	fields, seen := make([]field, 0, size), make(map[string]seenAt, size)
	r.collect(n, what, &fields, seen)
	return fields
}

// seenAt has the first place of a name: the object, by the number of nodes before it, and the line.
type seenAt struct{ object, line int }

func (r *reader) collect(n *yaml.Node, what string, fields *[]field, seen map[string]seenAt) {
	at := n
	if n = target(n); n.Kind != yaml.MappingNode {
		r.wrong(at, "%s is %s; give fields such as \"name: value\"", what, kindOf(n))
		return
	}
	if !r.enter(at) {
		return
	}
	defer r.leave()
	var merged []*yaml.Node
	object := r.nodes
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := target(n.Content[i]), n.Content[i+1]
		if !r.count(n.Content[i]) || !r.count(value) {
			return
		}
		first, twice := seen[name.Value]
		switch {
		case name.Kind != yaml.ScalarNode || name.Style&yaml.TaggedStyle != 0:
			r.wrong(n.Content[i], "%s has a name that is %s; write it as text", what, kindOf(name))
		case name.Tag == "!!merge":
			merged = append(merged, value)
		case twice && first.object == object:
			r.wrong(n.Content[i], "%s has %.80q twice, first in line %d", what, name.Value, first.line)
		case !twice:
			seen[name.Value] = seenAt{object, name.Line}
			*fields = append(*fields, field{name, value})
		}
	}
	for _, m := range merged {
		list := []*yaml.Node{m}
		if m.Kind == yaml.SequenceNode {
			list = m.Content
		}
		for _, each := range list {
			if !r.count(each) {
				return
			}
			r.collect(each, "what is merged", fields, seen)
		}
	}
}

// enter begins something that may have others of its kind inside, and reports whether it may be read: an alias can stand
// inside of what it repeats. leave ends it.
func (r *reader) enter(n *yaml.Node) bool {
	if r.depth == maxNesting {
		r.wrong(n, "lists and objects are nested more than %d deep", maxNesting)
		return false
	}
	r.depth++
	return true
}

func (r *reader) leave() { r.depth-- }

// count counts a node, and reports whether it may be read. A name, a value and an item of a list are a node each, and
// what an alias repeats counts again: a small file must not make much work. So do long texts.
func (r *reader) count(n *yaml.Node) bool {
	if r.full() {
		return false
	}
	if r.nodes += 1 + len(target(n).Value)/nodeBytes; r.nodes > maxNodes {
		r.mistakes.add(r.source, n.Line, "there are more than %d names, values and items up to here, "+
			"with those that aliases repeat, and %d bytes of a text for one more; leave some out", maxNodes, nodeBytes)
	}
	return r.nodes <= maxNodes
}

// full reports whether nothing more is read.
func (r *reader) full() bool { return r.nodes > maxNodes || r.mistakes.full() }

// target returns n, or what n is an alias for.
func target(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// kindOf describes a node for an error.
func kindOf(n *yaml.Node) string {
	switch n = target(n); {
	case n.Kind == yaml.MappingNode:
		return "an object"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Style&yaml.TaggedStyle != 0:
		return fmt.Sprintf("%.80q with the tag %.80q", n.Value, n.Tag)
	case n.Tag == "!!null":
		return "empty"
	default:
		return fmt.Sprintf("%.80q", n.Value)
	}
}

// text returns a text, which may be a number and the like as it is written: value: 404. What is empty is "".
func (r *reader) text(name string, at *yaml.Node) (text string, ok bool) {
	switch n := target(at); {
	case n.Kind != yaml.ScalarNode || n.Style&yaml.TaggedStyle != 0:
		r.wrong(at, "%s is %s; give a text", name, kindOf(n))
		return "", false
	case n.Tag == "!!null":
		return "", true
	default:
		return n.Value, true
	}
}

// truth returns whether a field is set. The words are those of YAML 1.1.
func (r *reader) truth(name string, at *yaml.Node) bool {
	n := target(at)
	if n.Kind == yaml.ScalarNode && n.Style == 0 {
		switch n.Value {
		case "true", "True", "TRUE", "y", "Y", "yes", "Yes", "YES", "on", "On", "ON":
			return true
		case "false", "False", "FALSE", "n", "N", "no", "No", "NO", "off", "Off", "OFF":
			return false
		}
	}
	r.wrong(at, "%s is %s; give true or false", name, kindOf(n))
	return false
}

// number returns a whole number.
func (r *reader) number(name string, at *yaml.Node) (v uint32, ok bool) {
	n := target(at)
	wrong := func(format string, args ...any) (uint32, bool) {
		r.wrong(at, "%s is %s; %s", name, kindOf(n), fmt.Sprintf(format, args...))
		return 0, false
	}
	switch text := n.Value; {
	case n.Kind != yaml.ScalarNode || n.Style != 0:
		return wrong("give a number, without quotation marks")
	case len(text) > 1 && text[0] == '0' && (text[1] == '_' || '0' <= text[1] && text[1] <= '9'):
		return wrong("a number that begins with 0 may be octal; leave out the 0")
	default:
		u, err := strconv.ParseUint(text, 0, 32)
		switch {
		case errors.Is(err, strconv.ErrRange):
			return wrong("give at most %d", uint32(math.MaxUint32))
		case err != nil && strings.HasPrefix(text, "-"):
			return wrong("give 0 or more")
		case err != nil:
			return wrong("give a whole number")
		}
		return uint32(u), true
	}
}

// list calls read for each item of a list, which may be left empty.
func (r *reader) list(name string, at *yaml.Node, read func(*yaml.Node)) {
	n := target(at)
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return
	case n.Kind != yaml.SequenceNode:
		r.wrong(at, "%s is %s; give a list", name, kindOf(n))
		return
	}
	if !r.enter(at) {
		return
	}
	defer r.leave()
	for _, item := range n.Content {
		if !r.count(item) {
			return
		}
		read(item)
	}
}

// The fields of the configuration, for errors: a field that another object has is often one that is indented wrongly.
var fieldsOf = map[string][]string{
	"the file": {"domain", "descriptors", "name"},
	"a descriptor": {
		"key", "value", "rate_limit", "descriptors", "shadow_mode", "quota_mode", "share_threshold", "detailed_metric",
		"value_to_metric", "metadata",
	},
	"rate_limit":          {"requests_per_unit", "unit", "unit_multiplier", "policy", "unlimited", "name", "replaces"},
	"an item of replaces": {"name"},
}

// unknown notes a field that an object does not have.
func (r *reader) unknown(name *yaml.Node, what string) {
	hint := "give " + strings.Join(fieldsOf[what], ", ")
	for _, other := range []string{"a descriptor", "rate_limit", "the file"} {
		if slices.Contains(fieldsOf[other], name.Value) {
			hint = "it is a field of " + other
			break
		}
	}
	r.wrong(name, "%s has no field %.80q; %s", what, name.Value, hint)
}

// domain reads a whole file.
func (r *reader) domain(root *yaml.Node) domainConfig {
	d := domainConfig{source: r.source, line: root.Line}
	for _, f := range r.fields(root, "the file") {
		switch f.name.Value {
		case "domain":
			var ok bool
			d.domain, ok = r.text("domain", f.value)
			d.line, d.broken = f.value.Line, !ok
		case "descriptors":
			d.descriptors = r.descriptors(f.value)
		case "name": // that an xDS server gives its resource
			_, _ = r.text("name", f.value)
		default:
			r.unknown(f.name, "the file")
		}
	}
	if target(root).Kind != yaml.MappingNode {
		d.broken = true
	}
	return d
}

func (r *reader) descriptors(n *yaml.Node) (ds []descriptorConfig) {
	r.list("descriptors", n, func(item *yaml.Node) { ds = append(ds, r.descriptor(item)) })
	return ds
}

func (r *reader) descriptor(n *yaml.Node) descriptorConfig {
	const what = "a descriptor"
	d := descriptorConfig{line: n.Line, broken: target(n).Kind != yaml.MappingNode}
	for _, f := range r.fields(n, what) {
		name, ok := f.name.Value, true
		switch name {
		case "key":
			d.key, ok = r.text(name, f.value)
		case "value":
			d.value, ok = r.text(name, f.value)
		case "rate_limit":
			d.limit = r.limit(f.value)
		case "descriptors":
			d.descriptors = r.descriptors(f.value)
		case "shadow_mode":
			d.shadow = r.truth(name, f.value)
		case "quota_mode":
			d.quota = r.truth(name, f.value)
		case "share_threshold":
			d.share = r.truth(name, f.value)
		case "detailed_metric":
			d.detailedMetric = r.truth(name, f.value)
		case "value_to_metric":
			d.valueMetric = r.truth(name, f.value)
		case "metadata":
			d.metadata = r.metadata(f.value)
		default:
			r.unknown(f.name, what)
		}
		d.broken = d.broken || !ok
	}
	return d
}

func (r *reader) limit(at *yaml.Node) *limitConfig {
	const what = "rate_limit"
	l := &limitConfig{line: at.Line, broken: target(at).Kind != yaml.MappingNode}
	switch n := target(at); {
	case n.Tag == "!!null" && n.Value == "":
		r.wrong(at, "rate_limit is empty; give requests_per_unit and unit, or null for no limit")
		return l
	case n.Tag == "!!null":
		return nil
	}
	given := map[string]*yaml.Node{}
	for _, f := range r.fields(at, what) {
		name, ok := f.name.Value, true
		given[name] = f.value
		switch name {
		case "requests_per_unit":
			l.requests, ok = r.number(name, f.value)
		case "unit":
			l.unit, ok = r.text(name, f.value)
		case "unit_multiplier":
			if l.multiplier, ok = r.number(name, f.value); ok && l.multiplier == 0 {
				r.wrong(f.value, "unit_multiplier is 0; give 1 or more, or leave it out")
				ok = false
			}
		case "policy":
			if l.policy, ok = r.text(name, f.value); ok && l.policy == "" {
				r.wrong(f.value, "policy is empty; give a text such as \"100/1m gcra\", or leave it out")
				ok = false
			}
		case "unlimited":
			l.unlimited = r.truth(name, f.value)
		case "name":
			l.name, _ = r.text(name, f.value)
		case "replaces":
			r.list(name, f.value, func(item *yaml.Node) { r.replaced(item, l) })
		default:
			r.unknown(f.name, what)
			ok = false // it may be one of the others, spelled wrongly
		}
		l.broken = l.broken || !ok
	}
	counted := given["unit"] != nil || given["requests_per_unit"] != nil || given["unit_multiplier"] != nil
	switch {
	case l.broken:
	case given["policy"] != nil && counted:
		r.wrong(given["policy"], "policy stands beside unit, requests_per_unit or unit_multiplier; it says all of them")
		l.broken = true
	case given["unit"] != nil && given["requests_per_unit"] == nil && !l.unlimited:
		r.wrong(at, "requests_per_unit is missing; give a number, 0 to refuse everything")
		l.broken = true
	}
	return l
}

// replaced reads the name of what a limit replaces.
func (r *reader) replaced(n *yaml.Node, l *limitConfig) {
	const what = "an item of replaces"
	name, ok := "", target(n).Kind == yaml.MappingNode
	for _, f := range r.fields(n, what) {
		if f.name.Value == "name" {
			name, ok = r.text("name", f.value)
		} else {
			r.unknown(f.name, what)
			ok = false
		}
	}
	if ok {
		l.replaces = append(l.replaces, name)
	}
}

// metadata reads what answers carry in their dynamic metadata: what JSON can say.
func (r *reader) metadata(at *yaml.Node) map[string]any {
	if target(at).Tag == "!!null" || !r.enter(at) {
		return nil
	}
	defer r.leave()
	values := map[string]any{}
	for _, f := range r.fields(at, "metadata") {
		values[f.name.Value] = r.value(f.value)
	}
	return values
}

func (r *reader) value(at *yaml.Node) any {
	n := target(at)
	var number float64
	switch {
	case n.Kind == yaml.MappingNode:
		return r.metadata(at)
	case n.Kind == yaml.SequenceNode:
		values := []any{}
		r.list("a list of metadata", at, func(item *yaml.Node) { values = append(values, r.value(item)) })
		return values
	case n.Style&yaml.TaggedStyle != 0:
		r.wrong(at, "metadata has %s; leave out the tag", kindOf(n))
	case n.Tag == "!!null":
	case n.Tag == "!!bool":
		return r.truth("a value of metadata", at)
	case n.Tag != "!!int" && n.Tag != "!!float":
		return n.Value
	case n.Decode(&number) != nil || math.IsInf(number, 0) || math.IsNaN(number):
		r.wrong(at, "metadata has the number %s; give one that JSON has", kindOf(n))
	default:
		return number
	}
	return nil
}
