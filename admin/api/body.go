package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/danielgtaylor/huma/v2"
)

// strictJSON is the format of all bodies. huma holds them against the schema of their type, which refuses names that it
// does not have. Policies and documents are read by core/policies, which is as strict.
var strictJSON = huma.Format{
	Marshal: huma.DefaultJSONFormat.Marshal,
	Unmarshal: func(data []byte, into any) error {
		if err := once(data); err != nil {
			return err
		}
		return json.Unmarshal(data, into)
	},
}

// maxDepth bounds how deep values stand in each other.
const maxDepth = 32

// once refuses JSON in which a name stands twice in an object, in whatever case, of which encoding/json would take the
// last one, and what follows the value. The names in an object "keys" are those of people, and are compared exactly.
func once(data []byte) error {
	type object struct {
		names map[string]bool // nil for a list
		last  string          // the name whose value is read
		value bool            // whether the next token is a value
		exact bool
	}
	var open []*object // around the token
	d := json.NewDecoder(bytes.NewReader(data))
	for n := 0; ; n++ {
		token, err := d.Token()
		switch {
		case errors.Is(err, io.EOF) && n > 0 && len(open) == 0:
			return nil
		case err != nil:
			return fmt.Errorf("the body is no JSON: %w", err)
		case n > 0 && len(open) == 0:
			return errors.New("something follows the JSON of the body; send one value")
		}
		var in *object
		if len(open) > 0 {
			in = open[len(open)-1]
		}
		if name, ok := token.(string); ok && in != nil && in.names != nil && !in.value {
			in.last, in.value = name, true
			if !in.exact {
				name = fold(name)
			}
			if in.names[name] {
				return fmt.Errorf("found the name %.64q twice in one object; send it once, in one case", in.last)
			}
			in.names[name] = true
			continue
		}
		switch token {
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
			continue
		case json.Delim('{'), json.Delim('['):
			if len(open) == maxDepth {
				return fmt.Errorf("values stand in each other more than %d deep", maxDepth)
			}
			inner := &object{}
			if token == json.Delim('{') {
				inner.names, inner.exact = map[string]bool{}, in != nil && in.last == "keys"
			}
			open = append(open, inner)
		}
		if in != nil {
			in.value = false
		}
	}
}

// fold returns s such that two texts that differ in case alone are equal, by the rule of [strings.EqualFold].
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return least
	}, s)
}
