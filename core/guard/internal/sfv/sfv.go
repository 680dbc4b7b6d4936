// Package sfv reads and writes the part of structured fields (RFC 9651) that RateLimit and RateLimit-Policy need: lists
// of Strings with parameters.
package sfv

import (
	"iter"
	"strings"
)

// maxInteger is the greatest Integer that a field may have.
const maxInteger = 999_999_999_999_999

// Integer returns n in the range of an Integer that is not negative.
func Integer(n int64) int64 { return min(max(n, 0), maxInteger) }

// String returns s as a String, with its quotes. What a String cannot have becomes a question mark.
func String(s string) string {
	b := append(make([]byte, 0, len(s)+2), '"')
	for _, c := range []byte(s) {
		switch {
		case c < 0x20 || c > 0x7e:
			c = '?'
		case c == '"' || c == '\\':
			b = append(b, '\\')
		}
		b = append(b, c)
	}
	return string(append(b, '"'))
}

// Member is a member of a list.
type Member struct {
	Name string // the String, with its quotes
	Text string // the whole of it, with its parameters
}

// Param is a parameter of a [Member]. In its Text it stands from Begin to End, with its semicolon.
type Param struct {
	Key, Value string
	Begin, End int
}

// maxList bounds the length of a list, in bytes: what other middleware has set may come from the request.
const maxList = 16 << 10

// ReadList reads a list of Strings with parameters, in time linear in its length. ok is false for everything else.
func ReadList(s string) (list []Member, ok bool) {
	if len(s) > maxList {
		return nil, false
	}
	for s = strings.Trim(s, " \t"); s != ""; {
		m, ok := readMember(s)
		if !ok {
			return nil, false
		}
		list = append(list, m)
		rest := strings.TrimLeft(s[len(m.Text):], " \t")
		if rest == "" {
			break
		}
		if rest[0] != ',' {
			return nil, false
		}
		if s = strings.TrimLeft(rest[1:], " \t"); s == "" { // a comma at the end
			return nil, false
		}
	}
	return list, true
}

// Params returns the parameters, in order.
func (m Member) Params() iter.Seq[Param] {
	return func(yield func(Param) bool) {
		for at := len(m.Name); at < len(m.Text); {
			p, ok := readParam(m.Text, at)
			if !ok || !yield(p) {
				return
			}
			at = p.End
		}
	}
}

// readMember reads the first member of s.
func readMember(s string) (m Member, ok bool) {
	end, ok := readString(s)
	if !ok {
		return Member{}, false
	}
	m.Name = s[:end]
	for end < len(s) && s[end] == ';' {
		p, ok := readParam(s, end)
		if !ok {
			return Member{}, false
		}
		end = p.End
	}
	m.Text = s[:end]
	return m, true
}

// readParam reads the parameter of which the semicolon is at begin.
func readParam(s string, begin int) (p Param, ok bool) {
	p.Begin = begin
	key := len(s) - len(strings.TrimLeft(s[begin+1:], " "))
	p.End = key
	for p.End < len(s) && strings.IndexByte("abcdefghijklmnopqrstuvwxyz0123456789_-.*", s[p.End]) >= 0 {
		p.End++
	}
	if key == p.End || strings.IndexByte("0123456789_-.", s[key]) >= 0 {
		return Param{}, false
	}
	p.Key = s[key:p.End]
	if p.End < len(s) && s[p.End] == '=' {
		value := p.End + 1
		n, ok := readValue(s[value:])
		if !ok {
			return Param{}, false
		}
		p.End = value + n
		p.Value = s[value:p.End]
	}
	return p, true
}

// readString returns the length of the String at the beginning of s.
func readString(s string) (n int, ok bool) {
	if s == "" || s[0] != '"' {
		return 0, false
	}
	for n = 1; n < len(s); n++ {
		switch c := s[n]; {
		case c == '"':
			return n + 1, true
		case c < 0x20 || c > 0x7e:
			return 0, false
		case c == '\\':
			if n++; n == len(s) || s[n] != '"' && s[n] != '\\' {
				return 0, false
			}
		}
	}
	return 0, false
}

// readValue returns the length of a parameter's value: a String, or what goes to the next parameter or member.
func readValue(s string) (n int, ok bool) {
	if strings.HasPrefix(s, `"`) || strings.HasPrefix(s, `%"`) {
		skip := strings.IndexByte(s, '"')
		n, ok = readString(s[skip:])
		return skip + n, ok
	}
	if n = strings.IndexAny(s, "; \t,\""); n < 0 {
		n = len(s)
	}
	return n, n > 0
}
