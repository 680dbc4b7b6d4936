// Package fiberpath matches paths with the patterns of Fiber's routes, as Fiber does. It knows strings alone, so that
// adapters of several versions of Fiber share it.
package fiberpath

import "strings"

// Dialect is the version of Fiber whose patterns are meant, where they differ.
type Dialect int

// The dialects.
const (
	Fiber2 Dialect = 2
	Fiber3 Dialect = 3
)

// Form is the form in which an app compares paths with the patterns of its routes. It follows from the settings of the
// app's configuration that have these names.
type Form struct{ CaseSensitive, StrictRouting bool }

// Of returns a path or a pattern in that form. It is the same string unless it has capital letters, or slashes at
// the end.
func (f Form) Of(path string) string {
	if !f.CaseSensitive && strings.ContainsAny(path, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") { // others are spared the copy
		lower := []byte(path)
		for i, c := range lower {
			if 'A' <= c && c <= 'Z' { // Fiber leaves all other letters as they are
				lower[i] += 'a' - 'A'
			}
		}
		path = string(lower)
	}
	if !f.StrictRouting && len(path) > 1 {
		path = strings.TrimRight(path, "/")
	}
	return path
}

// Pattern is a route's path, parsed once. It matches as Fiber does, which can be
// asked only with a pattern to parse again, at every request. Constraints are left
// out: they may be slow, and a client could choose among routes by them.
type Pattern struct {
	literal string // the pattern without escapes
	parts   []part // none if there is no parameter
	all     bool   // it matches every path, whatever its parts are
}

// part is a constant part of a pattern, or a parameter.
type part struct {
	text          string // "" for a parameter
	optionalSlash bool   // text ends with a slash that a path's end may lack

	optional, greedy bool
	last             bool
	one              bool   // it takes one byte: another parameter follows at once
	until            string // the text that ends it
	untils           int    // how often that follows
}

// Parse reads a pattern. Like the paths that it is to match, it must be in the app's [Form].
func Parse(path string, d Dialect) Pattern {
	p := Literal(path, d)
	params := false
	for path != "" {
		start := d.paramStart(path)
		if start != 0 {
			if start < 0 {
				start = len(path)
			}
			p.parts = append(p.parts, part{text: strings.ReplaceAll(path[:start], `\`, "")})
			path = path[start:]
			continue
		}
		params = true
		param, n := d.parseParam(path)
		p.parts = append(p.parts, param)
		path = path[n:]
	}
	if !params {
		p.parts = nil
	}
	p.link()
	return p
}

// Literal reads a pattern whose parameters, if it has some, Fiber takes for text.
func Literal(path string, d Dialect) Pattern {
	literal := strings.ReplaceAll(path, `\`, "")
	return Pattern{literal: literal, all: d == Fiber3 && literal == "/*"} // there, also where the star was escaped
}

// paramStart returns where the first parameter begins, or -1.
func (d Dialect) paramStart(path string) int {
	for i := range len(path) {
		switch {
		case !startsParam(path[i]) || i > 0 && path[i-1] == '\\':
			continue
		case path[i] == '*' || d == Fiber3 && i == 0:
			return i
		}
		// Of several such signs in a row, Fiber 2 takes the first for text, and Fiber 3 all but the last, unless they
		// come right behind a parameter.
		for i+1 < len(path) && startsParam(path[i+1]) {
			i++
			if d == Fiber2 {
				break
			}
		}
		return i
	}
	return -1
}

func startsParam(c byte) bool { return c == '*' || c == '+' || c == ':' }

// parseParam reads the parameter with which path begins, and returns its length too.
func (d Dialect) parseParam(path string) (part, int) {
	switch path[0] {
	case '*':
		return part{greedy: true, optional: true}, 1
	case '+':
		return part{greedy: true}, 1
	}
	end := 1
	if d == Fiber3 {
		end = nameEnd(path)
	} else {
		for end < len(path) && !endsName(path[end]) {
			if path[end] == '<' {
				end += constraint(path[end:])
			}
			end++
		}
	}
	if end < len(path) && path[end] == '?' {
		return part{optional: true}, end + 1
	}
	return part{}, end
}

func endsName(c byte) bool { return strings.IndexByte(`?:\/-.`, c) >= 0 }

// nameEnd returns where the name and the constraint end of the parameter with which path begins, as Fiber 3 sees it:
// a constraint goes from the first "<" to the first ">", whatever is between.
func nameEnd(path string) int {
	begun, ended := false, false
	for i := 1; i < len(path); i++ {
		escaped := i > 1 && path[i-1] == '\\'
		switch {
		case path[i] == '<' && !begun && !escaped:
			begun = true
		case path[i] == '>' && !ended && !escaped:
			ended = true
		case endsName(path[i]) && begun == ended:
			return i
		}
	}
	return len(path)
}

// constraint returns where the constraint ends with which s begins in Fiber 2: the index of its
// ">". One in parentheses belongs to a regular expression.
func constraint(s string) int {
	depth := 0
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '(':
			depth++
		case ')':
			depth--
		case '>':
			if depth <= 0 {
				return i
			}
		}
	}
	return max(0, strings.LastIndexByte(s, '>')) // without one, "<" is a part of the name
}

// link notes in each part what depends on those that follow.
func (p *Pattern) link() {
	until := ""
	for i := len(p.parts) - 1; i >= 0; i-- {
		part := &p.parts[i]
		part.last = i == len(p.parts)-1
		if part.text == "" {
			part.until = until
			part.one = !part.last && !part.greedy && p.parts[i+1].text == "" && !p.parts[i+1].greedy
			for _, later := range p.parts[i+1:] {
				if until != "" {
					part.untils += strings.Count(later.text, until)
				}
			}
			continue
		}
		part.optionalSlash = strings.HasSuffix(part.text, "/") && (part.last || p.parts[i+1].optional)
		until = part.text
		if len(until) > 1 {
			until = strings.TrimRight(until, "/")
		}
	}
}

// Shape returns a text that is the same for patterns that match the same paths, but for
// constraints.
func (p *Pattern) Shape() string {
	if p.all {
		return `/\*`
	}
	if p.parts == nil {
		return p.literal
	}
	var shape strings.Builder
	for _, part := range p.parts {
		switch { // texts contain no backslash
		case part.text != "":
			shape.WriteString(part.text)
		case part.greedy && part.optional:
			shape.WriteString(`\*`)
		case part.greedy:
			shape.WriteString(`\+`)
		case part.optional:
			shape.WriteString(`\?`)
		default:
			shape.WriteString(`\:`)
		}
	}
	return shape.String()
}

// treeKey is the length of the keys of Fiber's tree of routes. Shorter paths are not
// looked for among the routes that begin with a longer text.
const treeKey = 3

// Matches reports whether p matches path, which is in the app's [Form].
func (p *Pattern) Matches(path string) bool {
	if p.all {
		return true
	}
	if p.parts == nil {
		return path == p.literal
	}
	if len(path) < treeKey && len(p.parts[0].text) >= treeKey {
		return false
	}
	return p.fits(path) || path == p.literal
}

// fits reports whether the parts of p, one after the other, make up path.
func (p *Pattern) fits(path string) bool {
	for i := range p.parts {
		part := &p.parts[i]
		n := len(part.text)
		switch {
		case n == 0:
			if n = part.length(path); n == 0 && !part.optional {
				return false
			}
		case part.optionalSlash && path == part.text[:n-1]:
			n--
		case !strings.HasPrefix(path, part.text):
			return false
		}
		path = path[n:]
	}
	return path == ""
}

// length returns how much of s, the rest of a path, the parameter takes.
func (p *part) length(s string) int {
	switch {
	case p.last && p.greedy:
		return len(s)
	case p.last:
		if i := strings.IndexByte(s, '/'); i >= 0 {
			return i
		}
		return len(s)
	case p.one && s != "":
		return 1
	case p.greedy && strings.Count(s, p.until) > 1:
		return p.greedyLength(s)
	}
	i := strings.Index(s, p.until)
	switch {
	case i < 0:
		return len(s)
	case len(p.until) > 1 && !p.greedy && strings.Contains(s[:i], "/"):
		return 0
	default:
		return i
	}
}

// greedyLength returns how much a greedy parameter takes: it leaves as many of the texts
// that end it as the pattern still needs.
func (p *part) greedyLength(s string) int {
	for count, i := strings.Count(s, p.until), 0; i < p.untils && count > 0; count, i = count-1, i+1 {
		at := strings.LastIndex(s, p.until)
		if at < 0 {
			break
		}
		s = s[:at]
	}
	return len(s)
}
