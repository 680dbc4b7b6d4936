package policies

import (
	"encoding/json"
	"errors"
	"fmt"
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

// readJSON reads one value of JSON, of at most that many bytes and values. encoding/json says whether it is JSON; the values
// are found here, since that package takes the last of two equal names, and takes names in whatever case.
func readJSON(data []byte, size, values int) (*Node, error) {
	if len(data) > size {
		return nil, Mistakes{{Err: fmt.Errorf("the document has %d bytes; give at most %d", len(data), size)}}
	}
	r := jsonReader{data: data, line: 1, column: 1, left: values}
	if !utf8.Valid(data) { // encoding/json would replace what is not
		r.advance(firstInvalid(data))
		return nil, r.mistake(errors.New("these bytes are not UTF-8"))
	}
	if !json.Valid(data) {
		return nil, r.invalid()
	}
	return r.value(1)
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

// jsonReader reads a value of valid JSON with the places of its parts.
type jsonReader struct {
	data         []byte
	offset       int
	line, column int // of offset
	left         int // values that may follow
}

// invalid returns the mistake of what is no JSON.
func (r *jsonReader) invalid() error {
	var syntax *json.SyntaxError
	err := json.Unmarshal(r.data, new(json.RawMessage))
	if !errors.As(err, &syntax) {
		return r.mistake(fmt.Errorf("this is not JSON: %w", err))
	}
	if rest := r.data[max(0, min(int(syntax.Offset)-1, len(r.data))):]; json.Valid(r.data[:len(r.data)-len(rest)]) {
		r.advance(len(r.data) - len(rest))
		return r.mistake(errors.New("something follows the end of the document; remove it"))
	}
	if int(syntax.Offset) >= len(r.data) && strings.Contains(syntax.Error(), "unexpected end") {
		r.advance(len(r.data))
		return r.mistake(errors.New("the document ends within a value; it was cut off, or a bracket is missing"))
	}
	r.advance(max(0, int(syntax.Offset)-1))
	return r.mistake(fmt.Errorf("this is not JSON: %w", err))
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

// mistake returns an error at the place of the reader.
func (r *jsonReader) mistake(err error) error {
	return Mistakes{{Line: r.line, Column: r.column, Err: err}}
}

// next moves to the next token, and returns its first byte.
func (r *jsonReader) next() byte {
	offset := r.offset
	for strings.IndexByte(" \t\r\n,:", r.data[offset]) >= 0 {
		offset++
	}
	r.advance(offset)
	return r.data[offset]
}

// text reads the text that begins here.
func (r *jsonReader) text() (text string) {
	end, plain := r.offset+1, true
	for ; r.data[end] != '"'; end++ {
		if r.data[end] == '\\' {
			end++
			plain = false
		}
	}
	quoted := r.data[r.offset : end+1]
	r.advance(end + 1)
	if plain {
		return string(quoted[1 : len(quoted)-1])
	}
	_ = json.Unmarshal(quoted, &text) // it is valid
	return text
}

// word reads the number or the word that begins here.
func (r *jsonReader) word() string {
	end := r.offset
	for end < len(r.data) && strings.IndexByte(" \t\r\n,]}", r.data[end]) < 0 {
		end++
	}
	word := string(r.data[r.offset:end])
	r.advance(end)
	return word
}

// value reads a value that is within depth - 1 others.
func (r *jsonReader) value(depth int) (*Node, error) {
	first := r.next()
	if r.left--; r.left < 0 {
		return nil, r.mistake(errors.New("there are more values than a document has"))
	}
	n := &Node{Line: r.line, Column: r.column}
	switch first {
	case '{', '[':
		if depth > maxDepth {
			return nil, r.mistake(fmt.Errorf("there are more than %d brackets within each other; a document has no more than 4", maxDepth))
		}
		r.advance(r.offset + 1)
		if first == '{' {
			return n, r.object(n, depth)
		}
		return n, r.list(n, depth)
	case '"':
		n.Kind, n.Text = Text, r.text()
	case 't', 'f', 'n':
		n.Kind, n.Text = Other, r.word()
	default:
		n.Kind, n.Text = Number, r.word()
	}
	return n, nil
}

// object reads the members of an object, whose bracket has been read.
func (r *jsonReader) object(n *Node, depth int) (err error) {
	n.Kind = Object
	for r.next() != '}' {
		m := Member{Line: r.line, Column: r.column}
		m.Name = r.text()
		if m.Value, err = r.value(depth + 1); err != nil {
			return err
		}
		n.Members = append(n.Members, m)
	}
	r.advance(r.offset + 1)
	return nil
}

// list reads the items of a list, whose bracket has been read.
func (r *jsonReader) list(n *Node, depth int) error {
	n.Kind = List
	for r.next() != ']' {
		item, err := r.value(depth + 1)
		if err != nil {
			return err
		}
		n.Items = append(n.Items, item)
	}
	r.advance(r.offset + 1)
	return nil
}
