package filesource

import (
	"fmt"
	"unicode/utf8"

	"github.com/weir-go/weir/core/policies"
)

// Bounds of a file. The parser makes a tree of all that it reads before anything can be judged, so that what would cost
// it much is refused before.
const (
	MaxSize     = 2 << 20 // bytes
	MaxPolicies = 10_000  // more than of a document that travels

	maxLines    = 200_000
	maxMarks    = 300_000 // of the characters that begin or divide values
	maxBrackets = 32      // within each other
)

// scan refuses a file that could cost the parser much, with the place where it becomes too much. It knows little of
// YAML: a bracket within quotes does not count, and any other does, also in a comment.
func scan(data []byte) error {
	if len(data) > MaxSize {
		return policies.Mistakes{{Err: fmt.Errorf("the file has more than %d bytes; divide it", MaxSize)}}
	}
	s := scanner{line: 1, column: 1}
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if err := s.next(r, size); err != nil {
			return policies.Mistakes{{Line: s.line, Column: s.column, Err: err}}
		}
		i += size
	}
	return nil
}

// scanner is the place in a file, and what there has been before it.
type scanner struct {
	line, column int
	marks        int
	brackets     int
	quote        rune // within which the place is, or 0
	before       rune
}

// next takes a character.
func (s *scanner) next(r rune, size int) error {
	switch {
	case r == utf8.RuneError && size <= 1:
		return fmt.Errorf("this is not UTF-8")
	case r < ' ' && r != '\t' && r != '\n' && r != '\r', r == 0x7f, r >= 0x80 && r < 0xa0, r == 0x2028, r == 0x2029:
		return fmt.Errorf("the control character %U; remove it", r)
	}
	if err := s.count(r); err != nil {
		return err
	}
	s.before = r
	s.column++
	if r == '\n' {
		s.line, s.column = s.line+1, 1
		if s.line > maxLines {
			return fmt.Errorf("there are more than %d lines; divide the file", maxLines)
		}
	}
	return nil
}

// count counts what makes nodes.
func (s *scanner) count(r rune) error {
	switch r {
	case '"', '\'':
		s.quoted(r)
	case '[', '{':
		if s.quote != 0 {
			break
		}
		if s.brackets++; s.brackets > maxBrackets {
			return fmt.Errorf("there are more than %d brackets within each other; a file needs no more than 4", maxBrackets)
		}
	case ']', '}':
		if s.quote == 0 {
			s.brackets = max(s.brackets-1, 0)
		}
	}
	switch r {
	case ',', '[', '{', ':', '-', '&', '*', '?', '#', '!', '|', '>', '%':
		if s.marks++; s.marks > maxMarks {
			return fmt.Errorf(`there are more than %d of the characters ,[{:-&*?#!|>%%; divide the file`, maxMarks)
		}
	}
	return nil
}

// quoted takes a quote, which begins a text only where a value may begin.
func (s *scanner) quoted(r rune) {
	switch s.quote {
	case r:
		s.quote = 0
	case 0:
		switch s.before {
		case 0, ' ', '\t', '\n', '\r', ',', '[', '{', ':':
			s.quote = r
		}
	}
}
