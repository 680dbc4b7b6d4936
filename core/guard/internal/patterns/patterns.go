// Package patterns compares the patterns of routes, as routers register them, with each other and with paths. It knows
// the spellings of net/http, Gin, Echo and Fiber, and nothing of their routers.
package patterns

import (
	"path"
	"slices"
	"strings"
)

// Param stands for a part of a pattern whose name does not matter: each framework spells it in its way.
const Param = "*"

// Parts returns the parts of a pattern between slashes. "{$}" is no part: net/http has it for a slash at the end and
// nothing more.
func Parts(pattern string) []string {
	parts := strings.Split(strings.TrimSuffix(strings.TrimSuffix(pattern, "{$}"), "/"), "/")
	for i, part := range parts {
		if part != "" && strings.ContainsRune(":{*+", rune(part[0])) {
			parts[i] = Param
		}
	}
	return parts
}

// TakesRest reports whether the last part of a pattern stands for any number of parts: "*rest", "+", "{rest...}".
func TakesRest(pattern string) bool {
	last := pattern[strings.LastIndex(pattern, "/")+1:]
	return strings.HasPrefix(last, "*") || strings.HasPrefix(last, "+") || strings.HasSuffix(last, "...}")
}

// Alike reports whether two patterns differ at most by a slash at the end, and by the names of parameters.
func Alike(a, b string) bool {
	p, q := Read(a, false), Read(b, false)
	return a != "" && b != "" && p.Host == q.Host && p.Rest == q.Rest && slices.Equal(p.Parts, q.Parts)
}

// Pattern describes the paths of a pattern.
type Pattern struct {
	Host  string
	Parts []string // parameters as Param
	Rest  bool     // any number of parts may follow
}

// Read reads a pattern. A prefix is the text with which patterns begin.
func Read(pattern string, prefix bool) Pattern {
	var p Pattern
	p.Host, pattern, _ = strings.Cut(pattern, "/")
	pattern = strings.Trim(strings.TrimSuffix(pattern, "{$}"), "/")
	p.Rest = prefix || TakesRest(pattern)
	if pattern == "" {
		return p
	}
	p.Parts = Parts(pattern)
	if p.Rest && !prefix {
		p.Parts = p.Parts[:len(p.Parts)-1]
	}
	return p
}

// IsHost reports whether a request's host, which may have a port, is that of the pattern. Of a long one it reads no
// more than the pattern has.
func (p *Pattern) IsHost(host string) bool {
	n := len(p.Host)
	return len(host) >= n && strings.EqualFold(host[:n], p.Host) && (len(host) == n || host[n] == ':')
}

// IsPartOf reports whether the other pattern is for the paths of p and for more: in its place it has parameters, or it
// takes the rest. prefix reports that p is one.
func (p *Pattern) IsPartOf(other Pattern, prefix bool) bool {
	if p.Host == other.Host && slices.Equal(p.Parts, other.Parts) && (prefix || p.Rest == other.Rest) {
		return false
	}
	n := min(len(other.Parts), len(p.Parts))
	if n < len(other.Parts) && !p.Rest || n < len(p.Parts) && !other.Rest {
		return false
	}
	for i, part := range other.Parts[:n] {
		if part != Param && part != p.Parts[i] {
			return false
		}
	}
	return true
}

// Path is the path of a request, ready to be compared with patterns. It is read once, because it may be long and the
// patterns many.
type Path struct {
	parts []string // as many as asked for at most
	more  bool     // there are further ones
	stem  string   // of the last one, without what follows a dot; "" if there is none, or there are more
}

// ReadPath reads the first parts of a path, at most as many as a pattern has, and appends them to room.
func ReadPath(text string, most int, room []string) (p Path) {
	if strings.Contains(text, "/.") || strings.Contains(text, "//") {
		text = path.Clean(text)
	}
	parts := room
	for text = strings.Trim(text, "/"); text != "" && len(parts) < most; {
		var part string
		part, text, _ = strings.Cut(text, "/")
		parts = append(parts, part)
	}
	if p.parts, p.more = parts, text != ""; !p.more && len(parts) > 0 {
		last := parts[len(parts)-1]
		p.stem = last[:max(0, strings.LastIndexByte(last, '.'))]
	}
	return p
}

// Fits reports whether a path is one of the pattern, but for case and slashes; with extension, also if its last part
// has a dot and more behind it. Of the path it reads no more than the pattern has.
func (p *Pattern) Fits(of *Path, extension bool) bool {
	n := len(of.parts)
	if n < len(p.Parts) || !p.Rest && (n > len(p.Parts) || of.more) {
		return false
	}
	for i, part := range p.Parts {
		if part == Param || strings.EqualFold(part, of.parts[i]) {
			continue
		}
		if last := i == n-1 && !of.more; !last || !extension || !strings.EqualFold(part, of.stem) {
			return false
		}
	}
	return true
}
