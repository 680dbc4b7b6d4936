package policies

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Mistake is something in a document that cannot be used.
type Mistake struct { //nolint:errname // a value in a list, with a place
	// File is the name of the file, or "".
	File string
	// Line and Column are the place in the text, from 1, and 0 if there is no text. Columns are characters.
	Line, Column int
	// Path is the place in the document, such as `policies.login.tiers["very big"]`, or "" for the document itself.
	Path string
	// Err has the words: what was found there, what was expected and what to do.
	Err error
}

// Error implements error: `pay.yaml:4:11: policies.login.text: ...`.
func (m Mistake) Error() string {
	var b strings.Builder
	if m.File != "" {
		b.WriteString(m.File)
		b.WriteByte(':')
	}
	if m.Line > 0 {
		fmt.Fprintf(&b, "%d:%d:", m.Line, m.Column)
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	if m.Path != "" {
		b.WriteString(m.Path)
		b.WriteString(": ")
	}
	b.WriteString(m.Err.Error())
	return b.String()
}

// Unwrap returns m.Err.
func (m Mistake) Unwrap() error { return m.Err }

// Mistakes are all mistakes of a document, in the order in which they stand in it. It is the error of [Decode].
type Mistakes []Mistake //nolint:errname // a list, which commands print item by item

// The bounds of an error: mistakes that Error lists, and those that are looked for in a document.
const (
	maxListed   = 100
	maxMistakes = 10_000
)

// Error implements error: each mistake has a line, up to a hundred.
func (m Mistakes) Error() string {
	var b strings.Builder
	for i, mistake := range m {
		if i > 0 {
			b.WriteByte('\n')
		}
		if i == maxListed {
			fmt.Fprintf(&b, "and %d more", len(m)-maxListed)
			break
		}
		b.WriteString(mistake.Error())
	}
	return b.String()
}

// Unwrap returns the mistakes one by one, for errors.As.
func (m Mistakes) Unwrap() []error {
	errs := make([]error, len(m))
	for i := range m {
		errs[i] = m[i]
	}
	return errs
}

// In returns the mistakes with the name of the file in which they stand.
func (m Mistakes) In(file string) Mistakes {
	named := slices.Clone(m)
	for i := range named {
		named[i].File = file
	}
	return named
}

// Join returns the mistakes of m and of others, in the order of their places.
func (m Mistakes) Join(others Mistakes) Mistakes {
	all := slices.Concat(m, others)
	slices.SortStableFunc(all, func(a, b Mistake) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return all
}

// appendPath appends the name of a member to the path of its object.
func appendPath(path, name string) string {
	simple := name != ""
	for i := range len(name) {
		c := name[i]
		simple = simple && ('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-')
	}
	switch {
	case !simple:
		return path + "[" + quote(name) + "]"
	case path == "":
		return name
	default:
		return path + "." + name
	}
}

// quote quotes s for an error, and no more than the beginning of it.
func quote(s string) string { return strconv.Quote(cut(s, 80)) }

// cut returns s or, if it has more than n bytes, the beginning of it, with "..." at the end. It never cuts through a
// character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const dots = "..."
	end := max(n-len(dots), 0)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + dots
}
