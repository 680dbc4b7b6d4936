package policies

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Decode reads a document from JSON: at most [MaxSize] bytes, with no other fields than those of a document and no name
// twice in one object. The error is [Mistakes]: all there are, each with its line and column. A document of a later
// format has one mistake.
func Decode(data []byte) (*Document, error) {
	root, err := readJSON(data, MaxSize, MaxSize)
	if err != nil {
		return nil, err
	}
	return Build(root, MaxPolicies)
}

// DecodePublished is [Decode] for what a record has published and a program goes by: the texts are not read, so that
// one with a mistake, or with a word that only a later version of weir knows, spoils no other. The policy that it is for
// is [Unusable].
func DecodePublished(data []byte) (*Document, error) {
	root, err := readJSON(data, MaxSize, MaxSize)
	if err != nil {
		return nil, err
	}
	b := builder{policies: MaxPolicies}
	d := b.document(root)
	if err := b.err(); err != nil {
		return nil, err
	}
	return d, nil
}

// DecodePolicy reads one policy from JSON, such as {"text": "200/1m", "tiers": {"pro": "5000/1m"}}. name is that of the
// policy, which its texts may begin with. The error is [Mistakes].
func DecodePolicy(data []byte, name string) (Policy, error) {
	root, err := readJSON(data, MaxSize, MaxSize)
	if err != nil {
		return Policy{}, err
	}
	b := builder{grammar: true}
	p := b.policy(root, "", name)
	if err := b.err(); err != nil {
		return Policy{}, err
	}
	return p, nil
}

// maxDepth is the most objects and lists within each other: those of a document are four, and those of an announcement.
const maxDepth = 5

// readJSON reads one value of JSON, of at most that many bytes and values. It walks the tokens, since encoding/json takes
// the last of two equal names, and takes names in whatever case.
func readJSON(data []byte, size, values int) (*Node, error) {
	if len(data) > size {
		return nil, Mistakes{{Err: fmt.Errorf("the document has %d bytes; give at most %d", len(data), size)}}
	}
	r := jsonReader{data: data, line: 1, column: 1, left: values}
	if !utf8.Valid(data) { // encoding/json would replace what is not
		r.advance(firstInvalid(data))
		return nil, r.mistake(errors.New("these bytes are not UTF-8"))
	}
	r.tokens = json.NewDecoder(bytes.NewReader(data))
	r.tokens.UseNumber()
	root, err := r.value(1)
	if err != nil {
		return nil, err
	}
	r.next()
	if _, err := r.tokens.Token(); !errors.Is(err, io.EOF) {
		return nil, r.mistake(errors.New("something follows the end of the document; remove it"))
	}
	return root, nil
}

// firstInvalid returns the offset of the first byte that is not of valid UTF-8.
func firstInvalid(data []byte) int {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size <= 1 {
			return i
		}
		i += size
	}
	return len(data)
}

// jsonReader reads a value of JSON with the places of its parts.
type jsonReader struct {
	data         []byte
	tokens       *json.Decoder
	offset       int // of line and column
	line, column int
	left         int // values that may follow
}

// advance moves line and column to a later offset.
func (r *jsonReader) advance(offset int) {
	for _, c := range r.data[r.offset:offset] {
		switch {
		case c == '\n':
			r.line++
			r.column = 1
		case utf8.RuneStart(c):
			r.column++
		}
	}
	r.offset = offset
}

// next moves line and column to the next token.
func (r *jsonReader) next() {
	offset := int(r.tokens.InputOffset())
	for offset < len(r.data) && strings.IndexByte(" \t\r\n,:", r.data[offset]) >= 0 {
		offset++
	}
	r.advance(offset)
}

// mistake returns an error at the place of the reader.
func (r *jsonReader) mistake(err error) error {
	return Mistakes{{Line: r.line, Column: r.column, Err: err}}
}

// token returns the next token, whose place is then that of the reader.
func (r *jsonReader) token() (json.Token, error) {
	r.next()
	t, err := r.tokens.Token()
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		r.advance(len(r.data))
		return nil, r.mistake(errors.New("the document ends within a value; it was cut off, or a bracket is missing"))
	case err != nil:
		return nil, r.mistake(fmt.Errorf("this is not JSON: %w", err))
	}
	return t, nil
}

// value reads a value that is within depth - 1 others.
func (r *jsonReader) value(depth int) (*Node, error) {
	t, err := r.token()
	if err != nil {
		return nil, err
	}
	if r.left--; r.left < 0 {
		return nil, r.mistake(errors.New("there are more values than a document has"))
	}
	n := &Node{Line: r.line, Column: r.column}
	switch t := t.(type) {
	case json.Delim:
		if depth > maxDepth {
			return nil, r.mistake(fmt.Errorf("there are more than %d brackets within each other; a document has no more than 4", maxDepth))
		}
		if t == '{' {
			return n, r.object(n, depth)
		}
		return n, r.list(n, depth)
	case string:
		n.Kind, n.Text = Text, t
	case json.Number:
		n.Kind, n.Text = Number, t.String()
	case bool:
		n.Kind, n.Text = Other, fmt.Sprint(t)
	default:
		n.Kind, n.Text = Other, "null"
	}
	return n, nil
}

// object reads the members of an object, whose bracket has been read.
func (r *jsonReader) object(n *Node, depth int) error {
	n.Kind = Object
	for r.tokens.More() {
		t, err := r.token()
		if err != nil {
			return err
		}
		name, ok := t.(string)
		if !ok {
			return r.mistake(fmt.Errorf("this is not JSON: found %v in the place of a name", t))
		}
		m := Member{Name: name, Line: r.line, Column: r.column}
		if m.Value, err = r.value(depth + 1); err != nil {
			return err
		}
		n.Members = append(n.Members, m)
	}
	_, err := r.token()
	return err
}

// list reads the items of a list, whose bracket has been read.
func (r *jsonReader) list(n *Node, depth int) error {
	n.Kind = List
	for r.tokens.More() {
		item, err := r.value(depth + 1)
		if err != nil {
			return err
		}
		n.Items = append(n.Items, item)
	}
	_, err := r.token()
	return err
}
