package policies

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weir-go/weir/core/stats"
)

// Process is the announcement of a process of an app: the version that it has, and what its rules obey. Any program that may
// write an announcement can write what it likes into it, so whatever shows one must quote it.
type Process struct {
	App     string    // the name of its app
	ID      string    // one process has one, for as long as it runs
	Name    string    // for people, such as "host:4711"
	Started time.Time // in whole seconds
	Weir    string    // the version of weir that it was built with
	Version Version   // of the document in use; zero if there is none
	Digest  string    // of that document
	Meaning Meaning   // of the document as a whole: Fleet, Code, Unread or Stale
	Why     string    // more about it, or ""
	Rules   []RuleState
	// Omitted is the number of rules that found no place in the announcement.
	Omitted int
}

// RuleState is a rule of a process, and what it obeys.
type RuleState struct {
	Policy    string            // its name
	Place     string            // where the code has it, such as "GET /orders", or "" for a Limiter
	Key       string            // the kind of its key, such as "ip"
	OverLimit string            // what happens over the limit, such as "reject"
	Code      string            // the policy of the code
	Now       string            // the policy of now
	Tiers     map[string]string // the tiers of the code; nil if there are none, or no place for them
	Meaning   Meaning
	Why       string // more about it, such as why an entry is unusable, or ""
	// Location is the place of its counts, and zero if its store does not say.
	Location stats.Location
}

// Bounds of an announcement.
const (
	ProcessFormat  = 1        // a reader refuses a later one
	MaxProcessSize = 32 << 10 // bytes of a Process as JSON
	maxRules       = 512      // of a Process

	maxProcessValues = 5000 // objects, lists, texts and numbers, of which 32 KiB could have three times as many
)

// Encode writes p as JSON of at most [MaxProcessSize] bytes, for [DecodeProcess]. Texts are cut to 1 KiB. If it is too
// large still, the tiers are left out, and then the last rules. Omitted counts them, and those after the first 512.
func (p *Process) Encode() []byte {
	short := *p
	kept := p.Rules[:min(len(p.Rules), maxRules)]
	short.Omitted += len(p.Rules) - len(kept)
	for _, s := range []*string{&short.App, &short.ID, &short.Name, &short.Weir, &short.Digest, &short.Why} {
		*s = plain(*s)
	}
	short.Rules = make([]RuleState, len(kept))
	for i, r := range kept {
		for _, s := range []*string{&r.Policy, &r.Place, &r.Key, &r.OverLimit, &r.Code, &r.Now, &r.Why, &r.Location.Prefix} {
			*s = plain(*s)
		}
		tiers := make(map[string]string, len(r.Tiers))
		for name, text := range r.Tiers {
			tiers[plain(name)] = plain(text)
		}
		r.Tiers = tiers
		short.Rules[i] = r
	}
	data := appendNode(nil, short.node())
	if len(data) > MaxProcessSize {
		for i := range short.Rules {
			short.Rules[i].Tiers = nil
		}
		data = appendNode(nil, short.node())
	}
	if len(data) > MaxProcessSize {
		short.keepRules()
		data = appendNode(nil, short.node())
	}
	return data
}

// keepRules leaves the last rules out, as far as p would be too large with them.
func (p *Process) keepRules() {
	const others = len(`,"rules":[],"omitted":9223372036854775807`)
	head := *p
	head.Rules = nil
	left := MaxProcessSize - others - len(appendNode(nil, head.node()))
	for i := range p.Rules {
		left -= len(appendNode(nil, p.Rules[i].node())) + len(",")
		if left < 0 {
			p.Omitted += len(p.Rules) - i
			p.Rules = p.Rules[:i]
			return
		}
	}
}

// plain returns s as an announcement has it: valid text, cut.
func plain(s string) string {
	return cut(strings.ToValidUTF8(s, string(utf8.RuneError)), MaxText)
}

func (p *Process) node() *Node {
	n := &Node{Kind: Object}
	n.add("format", numberNode(strconv.Itoa(ProcessFormat)))
	n.addText("app", p.App)
	n.addText("id", p.ID)
	n.addText("name", p.Name)
	if !p.Started.IsZero() {
		n.add("started", numberNode(strconv.FormatInt(p.Started.Unix(), 10)))
	}
	n.addText("weir", p.Weir)
	n.addText("version", p.Version.String())
	n.addText("digest", p.Digest)
	n.addText("meaning", string(p.Meaning))
	n.addText("why", p.Why)
	if len(p.Rules) > 0 {
		rules := &Node{Kind: List}
		for i := range p.Rules {
			rules.Items = append(rules.Items, p.Rules[i].node())
		}
		n.add("rules", rules)
	}
	if p.Omitted > 0 {
		n.add("omitted", numberNode(strconv.Itoa(p.Omitted)))
	}
	return n
}

func (r *RuleState) node() *Node {
	n := &Node{Kind: Object}
	n.addText("policy", r.Policy)
	n.addText("place", r.Place)
	n.addText("key", r.Key)
	n.addText("overLimit", r.OverLimit)
	n.addText("code", r.Code)
	n.addText("now", r.Now)
	if len(r.Tiers) > 0 {
		tiers := &Node{Kind: Object}
		for _, name := range slices.Sorted(maps.Keys(r.Tiers)) {
			tiers.add(name, textNode(r.Tiers[name]))
		}
		n.add("tiers", tiers)
	}
	n.addText("meaning", string(r.Meaning))
	n.addText("why", r.Why)
	n.addText("prefix", r.Location.Prefix)
	n.addFlag("hashed", r.Location.Hashed)
	n.addFlag("process", r.Location.Process)
	return n
}

// addText appends a member, unless it is empty.
func (n *Node) addText(name, text string) {
	if text != "" {
		n.add(name, textNode(text))
	}
}

// addFlag appends a member that is true, unless it is false.
func (n *Node) addFlag(name string, is bool) {
	if is {
		n.add(name, &Node{Kind: Other, Text: "true"})
	}
}

// DecodeProcess reads what [Process.Encode] writes, and nothing else: whoever may write an announcement can write any
// bytes. The error is [Mistakes], of which there is one: nobody mends an announcement, and to look for all in those of a
// thousand processes would take seconds.
func DecodeProcess(data []byte) (*Process, error) {
	root, err := readJSON(data, MaxProcessSize, maxProcessValues)
	if err != nil {
		return nil, err
	}
	b := builder{one: true}
	p := b.process(root)
	if err := b.err(); err != nil {
		return nil, err
	}
	return p, nil
}

// process reads an announcement.
func (b *builder) process(n *Node) *Process {
	p := &Process{}
	if b.isLater(n, ProcessFormat) {
		return p
	}
	var version string
	b.object(n, "", "an announcement",
		field{"format", `"format": 1`, func(*Node, string) {}},
		b.word("app", &p.App), b.word("id", &p.ID), b.word("name", &p.Name),
		field{"started", "", func(n *Node, path string) { p.Started = time.Unix(b.number(n, path), 0).UTC() }},
		b.word("weir", &p.Weir), b.word("version", &version), b.word("digest", &p.Digest),
		b.meaning(&p.Meaning), b.word("why", &p.Why),
		field{"rules", "", func(n *Node, path string) { p.Rules = b.rules(n, path) }},
		field{"omitted", "", func(n *Node, path string) { p.Omitted = int(b.number(n, path)) }},
	)
	var err error
	if p.Version, err = ParseVersion(version); err != nil {
		b.at(n, "version", "%w", err)
	}
	return p
}

func (b *builder) rules(n *Node, path string) (rules []RuleState) {
	if !b.is(n, List, path, "a list of rules") {
		return nil
	}
	if len(n.Items) > maxRules {
		b.at(n, path, "there are %d rules; give at most %d", len(n.Items), maxRules)
		return nil
	}
	for i, item := range n.Items {
		if b.enough() {
			return nil
		}
		var r RuleState
		b.object(item, path+"["+strconv.Itoa(i)+"]", "a rule",
			b.word("policy", &r.Policy), b.word("place", &r.Place), b.word("key", &r.Key), b.word("overLimit", &r.OverLimit),
			b.word("code", &r.Code), b.word("now", &r.Now),
			field{"tiers", "", func(n *Node, path string) {
				if !b.is(n, Object, path, "an object of tiers") {
					return
				}
				b.names(n, path, true)
				r.Tiers = map[string]string{}
				for i := range n.Members {
					var text string
					b.word(n.Members[i].Name, &text).read(n.Members[i].Value, appendPath(path, n.Members[i].Name))
					r.Tiers[n.Members[i].Name] = text
				}
			}},
			b.meaning(&r.Meaning), b.word("why", &r.Why),
			b.word("prefix", &r.Location.Prefix), b.flag("hashed", &r.Location.Hashed), b.flag("process", &r.Location.Process),
		)
		rules = append(rules, r)
	}
	return rules
}

// word is a field with a text of any kind.
func (b *builder) word(name string, to *string) field {
	return field{name, "", func(n *Node, path string) {
		switch {
		case !b.is(n, Text, path, "a text"):
		case len(n.Text) > MaxText:
			b.at(n, path, "the text has %d bytes; give at most %d", len(n.Text), MaxText)
		default:
			*to = n.Text
		}
	}}
}

// flag is a field that is true, or not there.
func (b *builder) flag(name string, to *bool) field {
	return field{name, "", func(n *Node, path string) {
		if n.Kind != Other || n.Text != "true" {
			b.at(n, path, "found %s: give true, or leave it out", n.found())
			return
		}
		*to = true
	}}
}

// meaning is the field of a meaning.
func (b *builder) meaning(to *Meaning) field {
	return field{"meaning", "", func(n *Node, path string) {
		var text string
		if b.word("", &text).read(n, path); text != "" && !Meaning(text).known() {
			b.at(n, path, "found %s: give one of the meanings, such as %q", quote(text), Fleet)
		}
		*to = Meaning(text)
	}}
}
