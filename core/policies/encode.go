package policies

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// Encode writes d as JSON, for [Decode]. The bytes are canonical: equal documents have equal bytes, so that their
// digests may be compared. Names are sorted, there are no spaces, and what is empty is left out. The error is
// [Mistakes], for names and numbers that Decode would refuse, or says that the document is too large; the texts are not
// read, which [Document.Check] does.
func (d *Document) Encode() ([]byte, error) {
	root := d.node()
	b := builder{policies: MaxPolicies}
	b.document(root)
	if err := b.err(); err != nil {
		return nil, err
	}
	data := appendNode(nil, root)
	if len(data) > MaxSize {
		return nil, Mistakes{{Err: fmt.Errorf("the document would have %d bytes; at most %d travel: leave tiers or keys out, or divide the app", len(data), MaxSize)}}
	}
	return data, nil
}

// Encode writes p as JSON, for [DecodePolicy], as [Document.Encode] does.
func (p Policy) Encode() ([]byte, error) {
	root := p.node()
	b := builder{}
	b.policy(root, "", "")
	if err := b.err(); err != nil {
		return nil, err
	}
	return appendNode(nil, root), nil
}

// node returns d as Encode writes it.
func (d *Document) node() *Node {
	n := &Node{Kind: Object}
	n.add("format", numberNode(strconv.Itoa(Format)))
	if d.App != "" {
		n.add("app", textNode(d.App))
	}
	if d.Version.Generation != 0 {
		n.add("generation", numberNode(strconv.FormatInt(d.Version.Generation, 10)))
	}
	if d.Version.Revision != 0 {
		n.add("revision", numberNode(strconv.FormatInt(d.Version.Revision, 10)))
	}
	all := &Node{Kind: Object, Members: make([]Member, 0, len(d.Policies))}
	for _, name := range slices.Sorted(maps.Keys(d.Policies)) {
		all.add(name, d.Policies[name].node())
	}
	n.add("policies", all)
	return n
}

// node returns p as Encode writes it.
func (p Policy) node() *Node {
	n := &Node{Kind: Object}
	if p.Text != "" {
		n.add("text", textNode(p.Text))
	}
	for _, entries := range []struct {
		name  string
		texts map[string]string
	}{{"tiers", p.Tiers}, {"keys", p.Keys}} {
		if len(entries.texts) == 0 {
			continue
		}
		of := &Node{Kind: Object, Members: make([]Member, 0, len(entries.texts))}
		for _, name := range slices.Sorted(maps.Keys(entries.texts)) {
			of.add(name, textNode(entries.texts[name]))
		}
		n.add(entries.name, of)
	}
	if len(p.Apps) > 0 {
		apps := &Node{Kind: List}
		for _, app := range slices.Sorted(slices.Values(p.Apps)) {
			apps.Items = append(apps.Items, textNode(app))
		}
		n.add("apps", apps)
	}
	return n
}

// appendNode appends n as JSON. The bytes are those of format 1 for ever: another version of Go or of weir must not
// write others, since their digests are compared.
func appendNode(b []byte, n *Node) []byte {
	switch n.Kind {
	case Object:
		b = append(b, '{')
		for i := range n.Members {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(b, n.Members[i].Name)
			b = append(b, ':')
			b = appendNode(b, n.Members[i].Value)
		}
		return append(b, '}')
	case List:
		b = append(b, '[')
		for i, item := range n.Items {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendNode(b, item)
		}
		return append(b, ']')
	case Text:
		return appendString(b, n.Text)
	default:
		return append(b, n.Text...)
	}
}

// appendString appends s as JSON. Only what JSON demands is escaped.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ':
			b = append(b, `\u00`...)
			b = append(b, hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// Digest returns the SHA-256 of a document as [Document.Encode] writes it, in hexadecimal digits. It tells two documents
// of one version apart.
func Digest(encoded []byte) string {
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:])
}
