package algo

// maxExact is the first integer that Lua's numbers cannot tell from its neighbour.
const maxExact = 1 << 53

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
