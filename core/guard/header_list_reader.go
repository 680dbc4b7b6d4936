package guard

import (
	"strconv"
	"strings"
)

// listed is a member of a list that somebody else has set.
type listed struct {
	name       string // a String, with its quotes
	text       string // all of it
	remaining  int64  // r
	after      int64  // t, or 0
	begin, end int    // where t is in text
}

// append adds l, without a t that is beyond wait.
func (l *listed) append(text []byte, wait int64) []byte {
	text = next(text)
	if wait > 0 && l.after > wait {
		return append(append(text, l.text[:l.begin]...), l.text[l.end:]...)
	}
	return append(text, l.text...)
}

// maxList bounds the length of a list, in bytes: what other middleware has set may come from the request.
const maxList = 16 << 10

// readList reads a list of Strings with parameters. ok is false for everything else, which is not weir's: older drafts
// of RateLimit were no such lists.
func readList(s string) (list []listed, ok bool) {
	if len(s) > maxList {
		return nil, false
	}
	for s = strings.Trim(s, " \t"); s != ""; {
		l, rest, ok := readMember(s)
		if !ok {
			return nil, false
		}
		list = append(list, l)
		rest = strings.TrimLeft(rest, " \t")
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

// readMember reads the first member of s.
func readMember(s string) (l listed, rest string, ok bool) {
	end, ok := readString(s)
	if !ok {
		return listed{}, "", false
	}
	l.name = s[:end]
	for end < len(s) && s[end] == ';' {
		begin := end
		key := len(s) - len(strings.TrimLeft(s[end+1:], " "))
		end = key
		for end < len(s) && strings.IndexByte("abcdefghijklmnopqrstuvwxyz0123456789_-.*", s[end]) >= 0 {
			end++
		}
		if key == end || strings.IndexByte("0123456789_-.", s[key]) >= 0 {
			return listed{}, "", false
		}
		name, value := s[key:end], ""
		if end < len(s) && s[end] == '=' {
			n, ok := readValue(s[end+1:])
			if !ok {
				return listed{}, "", false
			}
			value = s[end+1 : end+1+n]
			end += 1 + n
		}
		switch name {
		case "r":
			l.remaining, _ = strconv.ParseInt(value, 10, 64)
		case "t":
			if l.after != 0 { // which of two holds is not worth knowing
				return listed{}, "", false
			}
			l.after, _ = strconv.ParseInt(value, 10, 64)
			l.begin, l.end = begin, end
		}
	}
	l.text = s[:end]
	return l, s[end:], true
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
