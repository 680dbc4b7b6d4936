package policies

// Node is a value in the text of a document, as a reader of some format found it: JSON in [Decode], YAML in the package
// filesource. [Build] makes a Document of it, so that all formats have the same fields, bounds and errors.
type Node struct {
	Kind Kind
	// Text is the text of a Text, and of a Number as it was written: "010" is not 8. Of an Other it names what was
	// found, such as "null".
	Text    string
	Members []Member // of an Object, in the order in which they stand
	Items   []*Node  // of a List
	// Line and Column are the place of the value, from 1, and 0 if it has none. Columns are characters.
	Line, Column int
}

// Member is a name in an [Node] of the kind Object, with its value.
type Member struct {
	Name         string
	Line, Column int // of the name
	Value        *Node
}

// Kind is the kind of a [Node].
type Kind uint8

// The kinds of nodes.
const (
	// Refused, the zero Kind, is for a value with which the reader itself has found a mistake: Build passes over it.
	Refused Kind = iota
	Object
	List
	Text
	Number
	Other // a value that no document has, such as null, true and false
)

// found describes n for an error.
func (n *Node) found() string {
	switch n.Kind {
	case Object:
		return "an object"
	case List:
		return "a list"
	case Text:
		return "the text " + quote(n.Text)
	case Number:
		return "the number " + cut(n.Text, 40)
	default:
		return cut(n.Text, 40)
	}
}

func textNode(s string) *Node { return &Node{Kind: Text, Text: s} }

func numberNode(s string) *Node { return &Node{Kind: Number, Text: s} }

// add appends a member to an Object that has no places.
func (n *Node) add(name string, value *Node) {
	n.Members = append(n.Members, Member{Name: name, Value: value})
}
