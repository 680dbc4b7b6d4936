package core

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Parse reads a policy from one line of text:
//
//	policy   = [ name ":" ] limit { "," limit } { ";" option }
//	limit    = rate "/" period { word }
//	word     = "gcra" | "burst" units
//	option   = "fail" ( "local" | "open" | "closed" )
//	period   = a number and a unit, once or several times: d, h, m, s, ms, us
//
// For example "100/1m", "login: 100/1m burst 20" and
// "20/1s, 1000/1h; fail closed". Numbers are plain decimal integers: no sign, no
// fraction, no leading zero, no separator. See [Limit] for the ranges.
//
// The error is a [*SyntaxError] where the text cannot be read, and otherwise what
// [NewPolicy] says of the numbers. No text makes Parse panic.
func Parse(text string) (Policy, error) {
	p := parser{text: text}
	name, o, limits, err := p.policy()
	if err != nil {
		return Policy{}, err
	}
	policy, err := NewPolicy(name, o, limits...)
	if err != nil {
		return Policy{}, fmt.Errorf("policy %q: %w", text, err)
	}
	return policy, nil
}

// MustParse is like [Parse] but panics on an error. It is for variables and
// programs whose policies are constants.
func MustParse(text string) Policy {
	p, err := Parse(text)
	if err != nil {
		panic(err)
	}
	return p
}

// SyntaxError tells where the text of a policy could not be read, and what was
// expected there.
type SyntaxError struct {
	Text     string // what was to be read
	Offset   int    // the byte at which it went wrong
	Expected string // what should stand there, or what is wrong with what does
}

// Error implements error.
func (e *SyntaxError) Error() string {
	found := "the end"
	if e.Offset < len(e.Text) {
		found = strconv.Quote(firstWord(e.Text[e.Offset:]))
	}
	return fmt.Sprintf("policy %q: at offset %d, found %s: %s", clip(e.Text), e.Offset, found, e.Expected)
}

func clip(s string) string {
	if len(s) > maxText {
		return s[:maxText] + "..."
	}
	return s
}

// maxText is the longest policy text: far more than any policy needs, so that a
// mistaken file is not parsed for long.
const maxText = 1024

// later are the words of weir's grammar that this version does not know yet. They
// are refused by name, so that nobody takes a missing feature for a typing error.
var later = map[string]bool{
	"token-bucket": true, "leaky-bucket": true, "fixed-window": true, "sliding-window": true,
	"sliding-counter": true, "sliding-log": true, "concurrent": true, "lease": true,
	"debt": true, "buckets": true, "aligned": true, "calendar": true,
	"wait": true, "shadow": true, "advance": true,
}

// parser reads a policy from left to right; pos is the next byte.
type parser struct {
	text string
	pos  int
}

func (p *parser) fail(offset int, format string, args ...any) error {
	return &SyntaxError{Text: p.text, Offset: offset, Expected: fmt.Sprintf(format, args...)}
}

func (p *parser) policy() (name string, o Options, limits []Limit, err error) {
	if len(p.text) > maxText {
		return "", o, nil, p.fail(maxText, "a policy has at most %d bytes", maxText)
	}
	p.space()
	if name, err = p.name(); err != nil {
		return "", o, nil, err
	}
	for {
		l, err := p.limit()
		if err != nil {
			return "", o, nil, err
		}
		limits = append(limits, l)
		if !p.accept(',') {
			break
		}
	}
	for seen := false; p.accept(';'); seen = true {
		if err := p.option(&o, seen); err != nil {
			return "", o, nil, err
		}
	}
	if p.pos < len(p.text) {
		return "", o, nil, p.fail(p.pos, `expected a word such as "burst", "," and another limit, ";" and an option, or the end`)
	}
	return name, o, limits, nil
}

// name reads what stands before a colon, if there is one.
func (p *parser) name() (string, error) {
	colon := strings.IndexByte(p.text, ':')
	if colon < 0 {
		return "", nil
	}
	start := p.pos
	name := strings.TrimRight(p.text[start:colon], spaces)
	if err := checkName(name); err != nil {
		return "", p.fail(start, `expected a name of 1 to 64 letters, digits, "_", "." or "-" before ":"`)
	}
	p.pos = colon + 1
	p.space()
	return name, nil
}

func (p *parser) limit() (l Limit, err error) {
	if word := firstWord(p.text[p.pos:]); later[word] {
		return l, p.unknown(p.pos, word, "")
	}
	if l.Rate, err = p.number(`a rate such as "100/1m"`); err != nil {
		return l, err
	}
	p.space()
	if word := firstWord(p.text[p.pos:]); later[word] {
		return l, p.unknown(p.pos, word, "")
	}
	if !p.accept('/') {
		return l, p.fail(p.pos, `expected "/" and a period, as in "100/1m"`)
	}
	if l.Period, err = p.period(); err != nil {
		return l, err
	}
	for {
		p.space()
		start := p.pos
		switch word := p.word(); word {
		case "":
			return l, nil
		case GCRA.String():
			l.Algorithm = GCRA
		case "burst":
			if l.Burst != 0 {
				return l, p.fail(start, "burst was given already")
			}
			if l.Burst, err = p.number(`the burst's units, as in "burst 20"`); err != nil {
				return l, err
			}
			if l.Burst == 0 {
				return l, p.fail(start, `a burst of 0 admits nothing; leave "burst" out for a burst of the rate`)
			}
		default:
			return l, p.unknown(start, word, `expected "burst" or "gcra"`)
		}
	}
}

func (p *parser) option(o *Options, seen bool) error {
	p.space()
	start := p.pos
	word := p.word()
	if word != "fail" {
		return p.unknown(start, word, `expected the option "fail"`)
	}
	if seen {
		return p.fail(start, "fail was given already")
	}
	p.space()
	start = p.pos
	word = p.word()
	for f := FailLocal; f <= FailClosed; f++ {
		if word == f.String() {
			o.Fail = f
			p.space()
			return nil
		}
	}
	return p.fail(start, `expected "local", "open" or "closed"`)
}

func (p *parser) unknown(offset int, word, expected string) error {
	if later[word] {
		return p.fail(offset, "this version of weir does not know the word %q yet", word)
	}
	return p.fail(offset, "%s", expected)
}

func (p *parser) number(what string) (int64, error) {
	p.space()
	start, n := p.pos, int64(0)
	for ; p.pos < len(p.text) && isDigit(p.text[p.pos]); p.pos++ {
		if n > (math.MaxInt64-9)/10 {
			return 0, p.fail(start, "a number of at most 18 digits, please")
		}
		n = n*10 + int64(p.text[p.pos]-'0')
	}
	switch digits := p.text[start:p.pos]; {
	case digits == "":
		return 0, p.fail(start, "expected %s", what)
	case digits[0] == '0' && len(digits) > 1:
		return 0, p.fail(start, "a number does not begin with 0: %d is meant, or is it octal?", n)
	}
	return n, nil
}

// units are those of a period, the longest first.
var units = []struct {
	name string
	d    time.Duration
}{
	{"d", 24 * time.Hour},
	{"h", time.Hour},
	{"m", time.Minute},
	{"s", time.Second},
	{"ms", time.Millisecond},
	{"us", time.Microsecond},
}

func (p *parser) period() (time.Duration, error) {
	const what = `a period such as "10s", "1m", "1h30m" or "1d"`
	var total time.Duration
	p.space()
	for start, last := p.pos, -1; ; {
		n, err := p.number(what)
		if err != nil {
			return 0, err
		}
		at := p.pos
		for p.pos < len(p.text) && 'a' <= p.text[p.pos] && p.text[p.pos] <= 'z' {
			p.pos++
		}
		unit := -1
		for i, u := range units {
			if p.text[at:p.pos] == u.name {
				unit = i
			}
		}
		switch {
		case unit < 0:
			return 0, p.fail(at, `expected a unit after the number: "d", "h", "m", "s", "ms" or "us"`)
		case unit <= last:
			return 0, p.fail(at, "units go from the longest to the shortest, each once")
		case n > int64((math.MaxInt64-total)/units[unit].d):
			return 0, p.fail(start, "a period of more than 366 days")
		}
		total += time.Duration(n) * units[unit].d
		last = unit
		if p.pos == len(p.text) || !isDigit(p.text[p.pos]) {
			return total, nil
		}
	}
}

const spaces = " \t\r\n"

func (p *parser) space() {
	for p.pos < len(p.text) && strings.IndexByte(spaces, p.text[p.pos]) >= 0 {
		p.pos++
	}
}

// accept reads c, with the space around it, if it stands here.
func (p *parser) accept(c byte) bool {
	p.space()
	if p.pos == len(p.text) || p.text[p.pos] != c {
		return false
	}
	p.pos++
	p.space()
	return true
}

// word reads a run of letters and hyphens.
func (p *parser) word() string {
	start := p.pos
	for p.pos < len(p.text) && isWordByte(p.text[p.pos]) {
		p.pos++
	}
	return p.text[start:p.pos]
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isWordByte(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '-' }

// firstWord is what an error shows of the text it stumbled over.
func firstWord(text string) string {
	i := 0
	for i < len(text) && i < 32 && (isWordByte(text[i]) || isDigit(text[i])) {
		i++
	}
	if i == 0 {
		for _, r := range text {
			return string(r)
		}
	}
	return text[:i]
}

// String returns the policy's text, which [Parse] reads back to an equal policy,
// or "" for the zero Policy. The limits stand in the order of [Policy.Limits].
func (p Policy) String() string {
	if p.p == nil {
		return ""
	}
	var b []byte
	if p.p.name != "" {
		b = append(b, p.p.name...)
		b = append(b, ": "...)
	}
	for i, l := range p.p.limits {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = l.appendText(b)
	}
	if f := p.p.options.Fail; f != FailLocal {
		b = append(b, "; fail "...)
		b = append(b, f.String()...)
	}
	return string(b)
}

// MarshalText implements encoding.TextMarshaler, for policies in configuration
// files. The zero Policy is the empty text.
func (p Policy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler with [Parse]. The empty text
// is an error: leave the policy out where none is meant.
func (p *Policy) UnmarshalText(text []byte) error {
	q, err := Parse(string(text))
	if err != nil {
		return err
	}
	*p = q
	return nil
}

func (l Limit) appendText(b []byte) []byte {
	b = strconv.AppendInt(b, l.Rate, 10)
	b = append(b, '/')
	b = appendPeriod(b, l.Period)
	if l.Burst != 0 && l.Burst != l.Rate {
		b = append(b, " burst "...)
		b = strconv.AppendInt(b, l.Burst, 10)
	}
	return b
}

func appendPeriod(b []byte, d time.Duration) []byte {
	if d <= 0 || d%time.Microsecond != 0 {
		return append(b, d.String()...) // only a mistaken limit has such a period
	}
	for _, u := range units {
		if n := d / u.d; n > 0 {
			b = strconv.AppendInt(b, int64(n), 10)
			b = append(b, u.name...)
			d %= u.d
		}
	}
	return b
}
