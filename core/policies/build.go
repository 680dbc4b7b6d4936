package policies

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/follow"
)

// AllApps in the place of the name of an app stands for every app that a record knows. A program never has a document
// of this name: what it says is in the documents of all apps.
const AllApps = "*"

// Bounds of names, in bytes.
const (
	maxTierName = 128
	maxKeyText  = 512
)

// CheckApp returns an error if app is not the name of one app: 1 to 64 letters, digits and the characters "_", "." and
// "-", but not "." and "..".
func CheckApp(app string) error {
	if !isName(app) {
		return fmt.Errorf(`the name %s of an app: give 1 to 64 letters, digits, "_", "." or "-", but not "." or ".."`, quote(app))
	}
	return nil
}

// CheckName returns an error if name is not the name of a policy: 1 to 64 letters, digits and the characters "_", "."
// and "-", but not "." and "..".
func CheckName(name string) error {
	if !isName(name) {
		return fmt.Errorf(`the name %s of a policy: give 1 to 64 letters, digits, "_", "." or "-", but not "." or ".."`, quote(name))
	}
	return nil
}

// isName leaves out the two names that a path of a URL does not keep: a change of the policy ".." would be one of its
// app.
func isName(s string) bool {
	ok := len(s) >= 1 && len(s) <= 64 && s != "." && s != ".."
	for i := range len(s) {
		c := s[i]
		ok = ok && ('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '.' || c == '-')
	}
	return ok
}

// Build makes a Document of the value that a reader found, with at most that many policies: [MaxPolicies] for a
// document that travels. The error is [Mistakes]: all there are, each with its place.
func Build(root *Node, policies int) (*Document, error) {
	b := builder{grammar: true, policies: policies}
	d := b.document(root)
	if err := b.err(); err != nil {
		return nil, err
	}
	return d, nil
}

// Check returns the mistakes of d, which [Decode] would find in it: in names, bounds and texts. It is for documents
// that were not read. The error is [Mistakes].
func (d *Document) Check() error {
	b := builder{grammar: true, policies: MaxPolicies}
	b.document(d.node())
	return b.err()
}

// builder makes a document of nodes. It alone knows the fields and the bounds.
type builder struct {
	grammar  bool // whether the texts are read
	policies int  // the most of one document
	one      bool // whether one mistake is enough
	mistakes Mistakes
}

// err returns the mistakes in the order of their places, nil if there are none.
func (b *builder) err() error {
	if len(b.mistakes) == 0 {
		return nil
	}
	return b.mistakes.Join(nil)
}

// enough reports whether nothing more need be looked for.
func (b *builder) enough() bool { return b.one && len(b.mistakes) > 0 }

// wrong notes a mistake.
func (b *builder) wrong(line, column int, path string, err error) {
	if b.enough() {
		return
	}
	switch len(b.mistakes) {
	case maxMistakes:
		err = fmt.Errorf("there are more than %d mistakes; what follows was not looked at", maxMistakes)
		path = ""
	case maxMistakes + 1:
		return
	}
	b.mistakes = append(b.mistakes, Mistake{Line: line, Column: column, Path: path, Err: err})
}

// at notes a mistake at a value.
func (b *builder) at(n *Node, path, format string, args ...any) {
	if b.enough() {
		return
	}
	b.wrong(n.Line, n.Column, path, fmt.Errorf(format, args...))
}

// is reports whether n is of a kind, and notes a mistake if it is not.
func (b *builder) is(n *Node, kind Kind, path, expected string) bool {
	if n.Kind != kind && n.Kind != Refused {
		b.at(n, path, "found %s: give %s", n.found(), expected)
	}
	return n.Kind == kind
}

// names notes each name that an object has twice. Those that differ in case alone are the same, unless they are exact.
func (b *builder) names(n *Node, path string, exact bool) {
	seen := make(map[string]bool, len(n.Members))
	for i := range n.Members {
		m := &n.Members[i]
		name := m.Name
		if !exact {
			name = folded(name)
		}
		if seen[name] {
			b.wrong(m.Line, m.Column, appendPath(path, m.Name), errors.New("this name stands here twice; leave one out"+inWhateverCase(exact)))
		}
		seen[name] = true
	}
}

func inWhateverCase(exact bool) string {
	if exact {
		return ""
	}
	return " (upper and lower case are the same)"
}

// folded returns s such that two texts that differ in case alone are equal, by the rule of [strings.EqualFold].
func folded(s string) string {
	return strings.Map(func(r rune) rune { // which returns s itself if nothing changes, as with most names
		least := r
		for next := unicode.SimpleFold(r); r >= utf8.RuneSelf && next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		if 'A' <= least && least <= 'Z' {
			least += 'a' - 'A'
		}
		return least
	}, s)
}

// field is a field of an object.
type field struct {
	name     string
	required string // an example, of a field that must be there
	read     func(n *Node, path string)
}

// object reads an object that has these fields.
func (b *builder) object(n *Node, path, of string, fields ...field) {
	if !b.is(n, Object, path, "an object with the fields of "+of) {
		return
	}
	b.names(n, path, false)
	for i := range n.Members {
		if b.enough() {
			return
		}
		m := &n.Members[i]
		at := slices.IndexFunc(fields, func(f field) bool { return f.name == m.Name })
		if at >= 0 {
			fields[at].read(m.Value, appendPath(path, m.Name))
			fields[at].required = ""
			continue
		}
		names := make([]string, len(fields))
		for i, f := range fields {
			names[i] = strconv.Quote(f.name)
		}
		b.wrong(m.Line, m.Column, appendPath(path, m.Name),
			fmt.Errorf("there is no such field: %s has %s", of, strings.Join(names, ", ")))
	}
	for _, f := range fields {
		if f.required != "" {
			b.at(n, path, "%s has no field %q; add %s", of, f.name, f.required)
		}
	}
}

const (
	aDocument = "a document"
	aPolicy   = "a policy"
)

// document reads a document.
func (b *builder) document(n *Node) *Document {
	d := &Document{Policies: map[string]Policy{}}
	if b.isLater(n, Format) {
		return d
	}
	var policies *Node
	b.object(n, "", aDocument,
		field{"format", `"format": 1`, func(*Node, string) {}},
		field{"app", "", func(n *Node, path string) { d.App = b.app(n, path) }},
		field{"generation", "", func(n *Node, path string) { d.Version.Generation = b.number(n, path) }},
		field{"revision", "", func(n *Node, path string) { d.Version.Revision = b.number(n, path) }},
		field{"policies", `"policies": {}`, func(n *Node, _ string) { policies = n }},
	)
	if v := d.Version; (v.Generation > 0) != (v.Revision > 0) && b.mistakes == nil {
		b.at(n, "", "a document has both a generation and a revision, or neither")
	}
	if policies == nil {
		return d
	}
	const path = "policies"
	if !b.is(policies, Object, path, `an object of policies, such as {"login": {"text": "5/1m"}}`) {
		return d
	}
	if len(policies.Members) > b.policies {
		b.at(policies, path, "there are %d policies; give at most %d", len(policies.Members), b.policies)
		return d
	}
	b.names(policies, path, false)
	for i := range policies.Members {
		m := &policies.Members[i]
		at := appendPath(path, m.Name)
		if err := CheckName(m.Name); err != nil {
			b.wrong(m.Line, m.Column, at, err)
		}
		p := b.policy(m.Value, at, m.Name)
		if slices.Contains(p.Apps, d.App) {
			b.at(m.Value, appendPath(at, "apps"), "%q owns the policy; leave it out", d.App)
		}
		d.Policies[m.Name] = p
	}
	return d
}

// isLater reports whether the format of n is not this one, and notes it: nothing else can be said of n then.
func (b *builder) isLater(n *Node, known int) bool {
	if n.Kind != Object {
		return false
	}
	for i := range n.Members {
		m := &n.Members[i]
		if m.Name != "format" {
			continue
		}
		if m.Value.Kind == Refused {
			return true
		}
		if !b.is(m.Value, Number, m.Name, "the number 1") {
			return true
		}
		switch format, err := strconv.Atoi(m.Value.Text); {
		case !isDecimal(m.Value.Text) || err != nil || format < 1:
			b.at(m.Value, m.Name, "found %s: give %d", cut(m.Value.Text, 40), known)
			return true
		case format > known:
			b.at(m.Value, m.Name, "format %d is of a later version of weir: this one reads format %d; update it", format, known)
			return true
		}
	}
	return false
}

// app reads the name of the app of a document.
func (b *builder) app(n *Node, path string) string {
	if !b.is(n, Text, path, `the name of an app, such as "pay"`) {
		return ""
	}
	if err := CheckApp(n.Text); err != nil && n.Text != AllApps {
		b.wrong(n.Line, n.Column, path, fmt.Errorf("%w, or %q for all", err, AllApps))
	}
	return n.Text
}

// number reads a generation or revision.
func (b *builder) number(n *Node, path string) int64 {
	const expected = "a number from 1 on, in plain digits"
	if !b.is(n, Number, path, expected) {
		return 0
	}
	v, err := strconv.ParseInt(n.Text, 10, 64)
	if !isDecimal(n.Text) || err != nil || v < 1 {
		b.at(n, path, "found %s: give %s", cut(n.Text, 40), expected)
		return 0
	}
	return v
}

// isDecimal reports whether s is a number in plain digits: no sign, no fraction, no leading zero.
func isDecimal(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == "" && (s[0] != '0' || s == "0")
}

// policy reads the policy of a name.
func (b *builder) policy(n *Node, path, name string) (p Policy) {
	if !b.is(n, Object, path, `an object, such as {"text": "200/1m"}`) {
		return p
	}
	b.object(n, path, aPolicy,
		field{"text", "", func(n *Node, path string) { p.Text = b.text(n, path, name) }},
		field{"tiers", "", func(n *Node, path string) {
			p.Tiers = b.texts(n, path, name, entries{
				of: "tiers", such: `{"pro": "5000/1m"}`, bound: MaxTiers, name: maxTierName, words: []string{follow.Unlimited},
			})
		}},
		field{"keys", "", func(n *Node, path string) {
			p.Keys = b.texts(n, path, name, entries{
				of: "keys", such: `{"user=7": "5000/1m"}`, bound: MaxKeys, name: maxKeyText, exact: true, words: []string{follow.Unlimited, follow.Blocked},
			})
		}},
		field{"apps", "", func(n *Node, path string) { p.Apps = b.apps(n, path) }},
	)
	return p
}

// apps reads the further apps of a policy, which have no order.
func (b *builder) apps(n *Node, path string) (apps []string) {
	const expected = `a list of names of apps, such as ["billing", "shop"]`
	if !b.is(n, List, path, expected) {
		return nil
	}
	if len(n.Items) > MaxApps {
		b.at(n, path, "there are %d apps; give at most %d", len(n.Items), MaxApps)
		return nil
	}
	seen := map[string]bool{}
	for i, item := range n.Items {
		at := path + "[" + strconv.Itoa(i) + "]"
		if !b.is(item, Text, at, `the name of an app, such as "billing"`) {
			continue
		}
		switch err := CheckApp(item.Text); {
		case err != nil:
			b.wrong(item.Line, item.Column, at, err)
		case seen[item.Text]:
			b.at(item, at, "%q stands here twice; leave one out", item.Text)
		}
		seen[item.Text] = true
		apps = append(apps, item.Text)
	}
	slices.Sort(apps)
	return apps
}

// entries are the tiers or the keys of a policy.
type entries struct {
	of, such string
	bound    int      // how many there may be
	name     int      // bytes of a name
	exact    bool     // whether names that differ in case alone are two
	words    []string // in the place of a text
}

// texts reads tiers or keys.
func (b *builder) texts(n *Node, path, policy string, e entries) map[string]string {
	if !b.is(n, Object, path, "an object of "+e.of+", such as "+e.such) {
		return nil
	}
	if len(n.Members) > e.bound {
		b.at(n, path, "there are %d %s; give at most %d", len(n.Members), e.of, e.bound)
		return nil
	}
	b.names(n, path, e.exact)
	var texts map[string]string
	for i := range n.Members {
		m := &n.Members[i]
		at := appendPath(path, m.Name)
		if !isPlain(m.Name) || len(m.Name) < 1 || len(m.Name) > e.name {
			b.wrong(m.Line, m.Column, at, fmt.Errorf("the name has %d bytes; give 1 to %d, without control characters", len(m.Name), e.name))
		}
		if texts == nil {
			texts = make(map[string]string, len(n.Members))
		}
		texts[m.Name] = b.text(m.Value, at, policy, e.words...)
	}
	return texts
}

// isPlain reports whether s is valid text that a line of a log can show: no control characters, and no replacement
// character, which stands for what somebody could not read.
func isPlain(s string) bool {
	for _, r := range s {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return false
		}
	}
	return true
}

// text reads the text of a policy, or one of these words.
func (b *builder) text(n *Node, path, policy string, words ...string) string {
	if !b.is(n, Text, path, `a text such as "100/1m", in quotes`) {
		return ""
	}
	text := n.Text
	switch {
	case text == "":
		b.at(n, path, "the text is empty; leave the field out")
	case len(text) > MaxText:
		b.at(n, path, "the text has %d bytes; give at most %d", len(text), MaxText)
	case !utf8.ValidString(text):
		b.at(n, path, "the text %s is not UTF-8", quote(text))
	case slices.Contains(words, text):
	case text == follow.Unlimited && len(words) == 0:
		b.at(n, path, `only a tier or a key can be %q; for a limit that refuses nobody write "shadow" behind it`, text)
	case text == follow.Blocked:
		b.at(n, path, "only a key can be %q", text)
	case b.grammar:
		p, err := core.Parse(text)
		if name := p.Name(); err == nil && name != "" && name != policy {
			err = fmt.Errorf("%s: the text names the policy %q, but stands at %q; leave the name out", quote(text), name, policy)
		}
		for _, err := range each(err) {
			b.wrong(n.Line, n.Column, path, textError{err})
		}
	}
	return text
}

// each returns the errors that err has joined.
func each(err error) []error {
	var joined interface{ Unwrap() []error }
	switch {
	case err == nil:
		return nil
	case errors.As(err, &joined):
		return joined.Unwrap()
	}
	return []error{err}
}

// textError is an error of the grammar, without the words that its path has said already.
type textError struct{ error }

func (e textError) Error() string { return strings.TrimPrefix(e.error.Error(), "core: policy ") }

func (e textError) Unwrap() error { return e.error }
