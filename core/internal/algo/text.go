package algo

import "strconv"

// maxExact is the first integer that Lua's numbers cannot tell from its neighbour.
const maxExact = 1 << 53

// maxCount is more than a window ever counts: no admitted unit exceeds a limit of 2^31, and what several windows have
// counted is added up only where a change of the period brings them together. A larger number is not one of ours.
const maxCount = 1 << 40

// ParseText reads into s what AppendText of a has written. For anything else it returns
// false, and leaves s unused.
func ParseText(a Algorithm, s []int64, text []byte) bool {
	s = s[:a.Words()]
	clear(s)
	if len(text) == 0 || a.parse(s, text) {
		return true
	}
	clear(s)
	return false
}

// digits reads a run of decimal digits, at most maxExact: a larger number is only
// ever garbage.
func digits(text []byte) (n int64, rest []byte, ok bool) {
	i := 0
	for ; i < len(text) && '0' <= text[i] && text[i] <= '9'; i++ {
		if n = n*10 + int64(text[i]-'0'); n > maxExact {
			n = maxExact
		}
	}
	return n, text[i:], i > 0
}

// listed reads the next number of a list, after its comma.
func listed(text []byte) (n int64, rest []byte, ok bool) {
	if len(text) < 2 || text[0] != ',' || text[1] == '0' && len(text) > 2 && text[2] != ',' {
		return 0, nil, false
	}
	n, rest, ok = digits(text[1:])
	return n, rest, ok && n < maxExact
}

// appendTime appends microseconds as people write them, such as "1m30s".
func appendTime(b []byte, us int64) []byte {
	if us == 0 {
		return append(b, "0us"...)
	}
	for _, unit := range [...]struct {
		us   int64
		name string
	}{{86400e6, "d"}, {3600e6, "h"}, {60e6, "m"}, {1e6, "s"}, {1e3, "ms"}, {1, "us"}} {
		if n := us / unit.us; n > 0 {
			b = append(strconv.AppendInt(b, n, 10), unit.name...)
			us %= unit.us
		}
	}
	return b
}
