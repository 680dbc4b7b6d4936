package filesource

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/weir-go/weir/core/policies"
)

// Parse reads a document from YAML, or from JSON, which is YAML as well. A file may have 2 MiB and 10 000 policies, more
// than a document that travels. The error is [policies.Mistakes]: all there are, each with its line and column.
func Parse(data []byte) (*policies.Document, error) {
	if err := scan(data); err != nil {
		return nil, err
	}
	var file, another yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	switch err := decoder.Decode(&file); {
	case errors.Is(err, io.EOF):
		return nil, policies.Mistakes{{Err: errors.New(`the file is empty; a file that changes nothing has the lines "format: 1" and "policies: {}"`)}}
	case err != nil:
		return nil, syntaxMistake(err, decoder, data)
	}
	var w walker
	root := w.node(file.Content[0], 1)
	if err := decoder.Decode(&another); err == nil {
		w.wrong(&another, "a second document begins here; remove it, or make another file of it")
	} else if !errors.Is(err, io.EOF) {
		return nil, syntaxMistake(err, decoder, data)
	}
	d, err := policies.Build(root, MaxPolicies)
	var mistakes policies.Mistakes
	errors.As(err, &mistakes)
	if mistakes = mistakes.Join(w.mistakes); len(mistakes) > 0 {
		return nil, mistakes
	}
	return d, nil
}

// syntaxMistake returns an error of the parser with its place. The parser's text has the line alone, and often that of
// the value which the mistake is in; the column, and the place itself, is in fields of it.
func syntaxMistake(err error, decoder *yaml.Decoder, data []byte) error {
	m := policies.Mistake{Err: fmt.Errorf("this is not YAML: %s", withoutLine(err.Error()))}
	if line, column, ok := placeOf(decoder); ok {
		m.Line, m.Column = line+1, column+1
	} else {
		_, _ = fmt.Sscanf(err.Error(), "yaml: line %d:", &m.Line)
		if m.Line > 0 {
			m.Column = 1
		}
	}
	if line := bytes.Split(data, []byte("\n")); m.Line > 0 && m.Line <= len(line) && bytes.HasPrefix(bytes.TrimLeft(line[m.Line-1], " "), []byte("\t")) {
		m.Err = fmt.Errorf("%w; indent with spaces, not with tabs", m.Err)
	}
	return policies.Mistakes{m}
}

// withoutLine returns the text of an error of the parser without "yaml: line 3: ".
func withoutLine(text string) string {
	text = strings.TrimPrefix(text, "yaml: ")
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		if _, problem, ok := strings.Cut(rest, ": "); ok {
			return problem
		}
	}
	return text
}

// placeOf returns the place, counted from 0, at which the parser has stopped. It reads fields that are not exported: ok
// is false if they are not there.
func placeOf(decoder *yaml.Decoder) (line, column int, ok bool) {
	at := reflect.ValueOf(decoder).Elem()
	for _, name := range []string{"parser", "parser", "problem_mark"} {
		if at.Kind() == reflect.Pointer {
			at = at.Elem()
		}
		if at.Kind() != reflect.Struct {
			return 0, 0, false
		}
		at = at.FieldByName(name)
	}
	if at.Kind() != reflect.Struct {
		return 0, 0, false
	}
	l, c := at.FieldByName("line"), at.FieldByName("column")
	if !l.CanInt() || !c.CanInt() {
		return 0, 0, false
	}
	return int(l.Int()), int(c.Int()), true
}

// walker makes nodes of a document of the nodes of YAML, which are never decoded into values: that would take 010 for 8
// and null for "", and its search for names that stand twice takes time by the square of their number.
type walker struct {
	mistakes policies.Mistakes
}

// maxMistakes bounds what is noted of a file.
const maxMistakes = 10_000

func (w *walker) wrong(n *yaml.Node, format string, args ...any) {
	if len(w.mistakes) < maxMistakes {
		w.mistakes = append(w.mistakes, policies.Mistake{Line: n.Line, Column: n.Column, Err: fmt.Errorf(format, args...)})
	}
}

// maxDepth is the most objects and lists within each other. A document has 4.
const maxDepth = 5

// node returns the node of a value that is within depth - 1 others.
func (w *walker) node(n *yaml.Node, depth int) *policies.Node {
	out := &policies.Node{Line: n.Line, Column: n.Column}
	if !w.plain(n) {
		return out
	}
	if depth > maxDepth && n.Kind != yaml.ScalarNode {
		w.wrong(n, "there are more than %d values within each other; a document has no more than 4", maxDepth)
		return out
	}
	switch n.Kind { //nolint:exhaustive // a document is within none, and plain has refused the alias
	case yaml.MappingNode:
		out.Kind = policies.Object
		out.Members = make([]policies.Member, 0, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			name, value := n.Content[i], n.Content[i+1]
			if w.name(name) {
				out.Members = append(out.Members, policies.Member{
					Name: name.Value, Line: name.Line, Column: name.Column, Value: w.node(value, depth+1),
				})
			}
		}
	case yaml.SequenceNode:
		out.Kind = policies.List
		for _, item := range n.Content {
			out.Items = append(out.Items, w.node(item, depth+1))
		}
	case yaml.ScalarNode:
		out.Kind, out.Text = scalar(n)
	}
	return out
}

// plain reports whether n is written without what makes one value of another, and notes a mistake if it is not.
func (w *walker) plain(n *yaml.Node) bool {
	switch {
	case n.Kind == yaml.AliasNode:
		w.wrong(n, `the alias "*%s"; write the value itself`, short(n.Value))
	case n.Anchor != "":
		w.wrong(n, `the anchor "&%s"; remove it: each value is written where it stands`, short(n.Anchor))
	case n.Style&yaml.TaggedStyle != 0:
		w.wrong(n, "the tag %q; remove it, and put a text in quotes", short(n.Tag))
	default:
		return true
	}
	return false
}

// name reports whether n can be the name of a member, and notes a mistake if it cannot.
func (w *walker) name(n *yaml.Node) bool {
	if !w.plain(n) {
		return false
	}
	if n.Kind != yaml.ScalarNode {
		w.wrong(n, `found a list or an object in the place of a name; give a text such as "login"`)
		return false
	}
	switch kind, text := scalar(n); {
	case n.Tag == "!!merge":
		w.wrong(n, `the merge "<<"; write the values themselves`)
	case kind == policies.Number:
		w.wrong(n, "found the number %s in the place of a name; put it in quotes", short(text))
	case kind != policies.Text:
		w.wrong(n, "found %s in the place of a name; put it in quotes", text)
	default:
		return true
	}
	return false
}

// scalar returns the kind of a value, and its text as it was written.
func scalar(n *yaml.Node) (kind policies.Kind, text string) {
	const quoted = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	switch {
	case n.Style&quoted != 0 || n.Tag == "!!str":
		return policies.Text, n.Value
	case n.Tag == "!!int" || n.Tag == "!!float":
		return policies.Number, n.Value
	case n.Value == "":
		return policies.Other, "nothing"
	default:
		return policies.Other, fmt.Sprintf("%s, which is %s", short(n.Value), kinds[n.Tag])
	}
}

var kinds = map[string]string{
	"!!null": "null", "!!bool": "true or false", "!!timestamp": "a date", "!!merge": "a merge", "!!binary": "binary",
}

// short returns no more than the beginning of s, for an error.
func short(s string) string {
	const most = 40
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
