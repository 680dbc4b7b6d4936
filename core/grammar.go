package core

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/core/internal/algo"
)

// Parse reads a policy from one line of text:
//
//	policy    = [ name ":" ] limit { "," limit } { ";" option }
//	limit     = rate "/" period { word } | permits "concurrent" [ "lease" period ]
//	word      = algorithm | "burst" units | "debt" units | "buckets" number
//	          | "aligned" | "calendar" zone
//	algorithm = "gcra" | "token-bucket" | "leaky-bucket" | "fixed-window"
//	          | "sliding-window" | "sliding-counter" | "sliding-log"
//	option    = "wait" period | "fail" ( "local" | "open" | "closed" )
//	period    = a number and a unit, once or several times: d, h, m, s, ms, us
//
// For example "100/1m", "login: 100/1m burst 20", "20/1s, 1000/1h; fail closed" and
// "20/1s, 1000/1d fixed-window calendar Europe/Berlin, 5/1m sliding-log". A window of
// the calendar has the period 1m, 1h, 1d, 7d or 1mo: the minute, the hour, the day,
// the week from Monday, the month. Numbers are plain decimal integers: no sign, no
// fraction, no leading zero, no separator. Each word and each option is given at
// most once. See [Limit] for the ranges.
//
// White space is a space, a tab or a line break. It may stand at both ends and
// around ":", "/", "," and ";". It must stand between a word or a number and the
// word or number after it, and a period has none inside: "1/1h30m burst 20".
//
// The error is a [*SyntaxError] where the text cannot be read, and otherwise what
// [NewPolicy] says of the numbers. No text makes Parse panic.
func Parse(text string) (Policy, error) {
	p := parser{text: text}
	name, o, limits, err := p.policy()
	if err != nil {
		return Policy{}, err
	}
	policy, mistakes := newPolicy(name, o, limits)
	return policy, joinMistakes(fmt.Sprintf("core: policy %q: ", text), mistakes)
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

// SyntaxError tells where the text of a policy could not be read, and why.
type SyntaxError struct {
	Text    string // what was to be read
	Offset  int    // the byte at which it went wrong
	Problem string // what should stand there, or what is wrong with what does
}

// Error implements error.
func (e *SyntaxError) Error() string {
	found := "the end"
	if e.Offset < len(e.Text) {
		found = strconv.Quote(firstWord(e.Text[e.Offset:]))
	}
	return fmt.Sprintf("core: policy %q: at offset %d, found %s: %s", clip(e.Text), e.Offset, found, e.Problem)
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

// The words that the grammar has in each place. The parser reads them, its errors
// list them, and a word in the wrong place is told its own.
var (
	limitWords  = append([]string{"burst", "debt", "buckets", "aligned", "calendar"}, algorithmWords()...)
	permitWords = []string{concurrentWord, "lease"}
	optionWords = []string{"wait", "fail"}
	failWords   = []string{FailLocal.String(), FailOpen.String(), FailClosed.String()}
	valueWords  = []string{"burst", "debt", "buckets", "calendar", "lease", "wait", "fail"} // something follows them
)

// later are the words of weir's grammar that this version does not know yet. They
// are refused by name, so that nobody takes a missing feature for a typing error.
var later = map[string]bool{"shadow": true, "advance": true}

// parser reads a policy from left to right; pos is the next byte.
type parser struct {
	text string
	pos  int
}

// fail says what is wrong with the text at offset.
func (p *parser) fail(offset int, format string, args ...any) error {
	return &SyntaxError{Text: p.text, Offset: offset, Problem: fmt.Sprintf(format, args...)}
}

// unexpected says what was expected at offset, unless the word there tells which
// mistake it is. It is the only place that guesses what was meant.
func (p *parser) unexpected(offset int, expected string) error {
	word := p.text[offset : offset+wordLen(p.text[offset:])]
	lower, options := strings.ToLower(word), strings.Contains(p.text[:offset], ";")
	isLimits := slices.Contains(limitWords, lower) || slices.Contains(permitWords, lower)
	isOption := slices.Contains(optionWords, lower)
	part, separator := p.part(offset)
	isFirst, before := strings.Trim(part, spaces) == "", ""
	if separator == ',' {
		before, _ = p.part(strings.LastIndexByte(p.text[:offset], ','))
	}
	switch {
	case later[lower]:
		return p.fail(offset, "this version of weir does not know the word %q yet", lower)
	case word != lower && (isLimits || isOption || slices.Contains(failWords, lower)):
		return p.fail(offset, "words are in lower case: %q", lower)
	case isOption && isFirst && !options && separator != ',':
		return p.fail(offset, `a limit comes first, as in "10/1s; wait 2s"`)
	case isOption && !options:
		return p.fail(offset, `%q is an option of the policy; options follow ";"`, word)
	case isLimits && options:
		return p.fail(offset, `%q belongs to a limit, before ";"`, word)
	case isFirst && slices.Contains(limitWords, word) && strings.Contains(before, "/"),
		isFirst && word == "lease" && strings.Contains(before, concurrentWord):
		return p.fail(offset, `%q belongs to the limit before the comma; remove the comma`, word)
	case isFirst && slices.Contains(permitWords, word):
		return p.fail(offset, `the number of permits comes first, as in "20 concurrent lease 30s"`)
	case slices.Contains(permitWords, word) && strings.Contains(part, "/"):
		return p.fail(offset, `permits have neither a rate nor a period, as in "20 concurrent lease 30s"`)
	case strings.HasPrefix(p.text[offset:], "="):
		if instead := withoutEquals(part, p.text[offset+1:]); instead != "" {
			return p.fail(offset, `no "=" stands after a word; write %.80q`, instead)
		}
		fallthrough
	default:
		return p.fail(offset, "expected %s", expected)
	}
}

// part is what the limit or the option that is being read at offset begins with, and
// the separator before it, or 0.
func (p *parser) part(offset int) (text string, separator byte) {
	i := strings.LastIndexAny(p.text[:offset], ":,;")
	if i >= 0 {
		separator = p.text[i]
	}
	return p.text[i+1 : offset], separator
}

// withoutEquals is how the word before "=" and the value after it are written, or ""
// if there is no such word or no value.
func withoutEquals(before, after string) string {
	words, value := strings.Fields(before), strings.TrimLeft(after, spaces)
	if i := strings.IndexAny(value, spaces+",;"); i >= 0 {
		value = value[:i]
	}
	if len(words) == 0 || !slices.Contains(valueWords, words[len(words)-1]) || value == "" {
		return ""
	}
	return words[len(words)-1] + " " + value
}

func (p *parser) policy() (name string, o Options, limits []Limit, err error) {
	if len(p.text) > maxText {
		return "", o, nil, p.fail(maxText, "a policy has at most %d bytes", maxText)
	}
	p.space()
	if name, err = p.name(); err != nil {
		return "", o, nil, err
	}
	var such string
	for more := true; more; {
		l, err := p.limit()
		if err != nil {
			return "", o, nil, err
		}
		limits = append(limits, l)
		such = "burst"
		if l.Algorithm == Concurrent {
			such = "lease"
		}
		if more, err = p.separator(','); err != nil {
			return "", o, nil, err
		}
	}
	expected := fmt.Sprintf(`a word such as %q, "," and another limit, ";" and an option, or the end`, such)
	for seen := (given{}); ; {
		more, err := p.separator(';')
		if err != nil {
			return "", o, nil, err
		}
		if !more {
			break
		}
		if err := p.option(&o, seen); err != nil {
			return "", o, nil, err
		}
		expected = `";" and another option, or the end`
	}
	if p.pos < len(p.text) {
		return "", o, nil, p.unexpected(p.pos, expected)
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
	if l.Rate, err = p.number(`a rate such as "100/1m"`); err != nil {
		return l, err
	}
	if rest := p.text[p.pos:]; len(rest) > 1 && rest[0] == ',' && isDigit(rest[1]) {
		return l, p.fail(p.pos, noSeparators)
	}
	if !p.accept('/') {
		if rest := p.text[p.pos:]; rest[:wordLen(rest)] == concurrentWord {
			if isDigit(p.text[p.pos-1]) {
				return l, p.gap()
			}
			return p.permits(l.Rate)
		}
		return l, p.unexpected(p.pos, `"/" and a period, as in "100/1m", or "concurrent"`)
	}
	start := p.pos
	month := p.month()
	if month {
		l.Period = algo.Month * time.Microsecond
		err = p.gap()
	} else {
		l.Period, err = p.period()
	}
	if err != nil {
		return l, err
	}
	for seen := (given{}); ; {
		at, word, err := p.word(limitWords, seen)
		if err != nil {
			return l, err
		}
		switch word {
		case "":
			if month && !l.onCalendar() {
				return l, p.fail(start, `a month has no fixed length; write "30d", or add "fixed-window calendar UTC"`)
			}
			return l, nil
		case "burst":
			if l.Burst, err = p.units(`the burst's units, as in "burst 20"`); err != nil {
				return l, err
			}
			if l.Burst == 0 {
				return l, p.fail(at, `a burst of 0 admits nothing; leave "burst" out for a burst of the rate`)
			}
		case "debt":
			if l.Debt, err = p.units(`the debt's units, as in "debt 5"`); err != nil {
				return l, err
			}
		case "buckets":
			n, err := p.units(`the number of buckets, as in "buckets 5"`)
			if err != nil {
				return l, err
			}
			if n < 1 || n > MaxBuckets {
				return l, p.fail(at, "a window is divided into 1 to %d buckets", MaxBuckets)
			}
			l.Buckets = int(n)
		case "aligned":
			l.Align = algo.AlignEpoch
		case "calendar":
			if l.Align, err = p.calendar(l.Period, month, start); err != nil {
				return l, err
			}
		default:
			l.Algorithm, _ = algorithmOf(word)
		}
	}
}

// permits reads the rest of a limit of permits.
func (p *parser) permits(n int64) (l Limit, err error) {
	l = Limit{Algorithm: Concurrent, Burst: n}
	for seen := (given{}); ; {
		_, word, err := p.word(permitWords, seen)
		if err != nil || word == "" {
			return l, err
		}
		if word == "lease" {
			at := p.pos
			if l.Lease, err = p.period(); err != nil {
				return l, err
			}
			if l.Lease == 0 {
				return l, p.fail(at, "a lease is at least %s", periodText(MinLease))
			}
		}
	}
}

// month reads the period "1mo", which only the calendar has.
func (p *parser) month() bool {
	const text = "1mo"
	p.space()
	if rest := p.text[p.pos:]; !strings.HasPrefix(rest, text) || len(rest) > len(text) && isWordByte(rest[len(text)]) {
		return false
	}
	p.pos += len(text)
	return true
}

// calendar reads a zone; the unit follows from the period, which stands at offset. Only
// "1mo" is a month.
func (p *parser) calendar(period time.Duration, month bool, offset int) (align string, err error) {
	unit := algo.CalendarUnit(period.Microseconds())
	if unit == "" || month != (unit == "month") {
		return "", p.fail(offset, `the calendar has the periods "1m", "1h", "1d", "7d" and "1mo"`)
	}
	p.space()
	start := p.pos
	for p.pos < len(p.text) && isZoneByte(p.text[p.pos]) {
		p.pos++
	}
	if p.pos == start {
		return "", p.unexpected(start, `a time zone, as in "calendar Europe/Berlin" or "calendar UTC"`)
	}
	return unit + " " + p.text[start:p.pos], p.gap()
}

func isZoneByte(c byte) bool {
	return isLetter(c) || isDigit(c) || c == '/' || c == '_' || c == '+' || c == '-'
}

func (p *parser) option(o *Options, seen given) error {
	_, word, err := p.word(optionWords, seen)
	if err != nil {
		return err
	}
	switch word {
	case "wait":
		o.Ahead, err = p.period()
		return err
	case "fail":
		_, word, err = p.word(failWords, given{})
		o.Fail = Failure(max(0, slices.Index(failWords, word)))
		if err == nil && word == "" {
			err = p.unexpected(p.pos, oneOf(failWords))
		}
		return err
	default:
		return p.unexpected(p.pos, seen.left(optionWords))
	}
}

// given notes the words that stand in one place, by what they set: a limit has one
// algorithm, whichever words name it.
type given map[string]string

// sets is what a word sets.
func sets(word string) string {
	if _, ok := algorithmOf(word); ok {
		return "algorithm"
	}
	if word == "aligned" || word == "calendar" {
		return "beginning"
	}
	return word
}

// left lists the words that may still be given, for an error.
func (g given) left(words []string) string {
	words = slices.DeleteFunc(slices.Clone(words), func(word string) bool { return g[sets(word)] != "" })
	if len(words) == 0 {
		return "no further word"
	}
	return oneOf(words)
}

// word reads one of the words. It answers "" if no word stands here.
func (p *parser) word(words []string, seen given) (start int, word string, err error) {
	p.space()
	start = p.pos
	p.pos += wordLen(p.text[start:])
	word = p.text[start:p.pos]
	if word == "" {
		return start, "", nil
	}
	if !slices.Contains(words, word) {
		return start, "", p.unexpected(start, seen.left(words))
	}
	if first := seen[sets(word)]; first != "" {
		return start, "", p.fail(start, "%q was given already", first)
	}
	seen[sets(word)] = word
	return start, word, p.gap()
}

// units reads the number after a word.
func (p *parser) units(expected string) (int64, error) {
	n, err := p.number(expected)
	if err != nil {
		return 0, err
	}
	return n, p.gap()
}

// gap demands that a word, a number or a period ends here.
func (p *parser) gap() error {
	if p.pos == len(p.text) || strings.IndexByte(spaces+",;", p.text[p.pos]) >= 0 {
		return nil
	}
	if c := p.text[p.pos]; isDigit(c) || isLetter(c) {
		return p.fail(p.pos, `expected a space between a word and a number, as in "burst 20"`)
	}
	return p.unexpected(p.pos, `a space, ",", ";" or the end`)
}

// What numbers have not, though people write it.
const (
	noSeparators = `a number has no separators, as in "1000"`
	noFraction   = `a number has no fraction; instead of "1.5/1s" write "3/2s", instead of "1.5h" write "1h30m"`
)

// maxDigits keeps every number within an int64.
const maxDigits = 18

func (p *parser) number(expected string) (int64, error) {
	p.space()
	start, n := p.pos, int64(0)
	for ; p.pos < len(p.text) && isDigit(p.text[p.pos]); p.pos++ {
		if p.pos-start == maxDigits {
			return 0, p.fail(start, "a number has at most %d digits", maxDigits)
		}
		n = n*10 + int64(p.text[p.pos]-'0')
	}
	switch digits := p.text[start:p.pos]; {
	case digits == "":
		return 0, p.unexpected(start, expected)
	case digits[0] == '0' && len(digits) > 1:
		return 0, p.fail(start, "a number does not begin with 0; write %d", n)
	}
	if rest := p.text[p.pos:]; len(rest) > 1 && isDigit(rest[1]) {
		switch rest[0] {
		case '_', '\'':
			return 0, p.fail(p.pos, noSeparators)
		case '.':
			return 0, p.fail(p.pos, noFraction)
		}
	}
	return n, nil
}

// periodUnits are the units of a period, the longest first.
var periodUnits = []struct {
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

// periodUnit is the index of a unit, or -1.
func periodUnit(name string) int {
	for i, u := range periodUnits {
		if u.name == name {
			return i
		}
	}
	return -1
}

func (p *parser) period() (time.Duration, error) {
	p.space()
	if name := p.letters(p.pos); name != "" {
		if periodUnit(name) < 0 {
			name = "m"
		}
		return 0, p.fail(p.pos, "a number comes before the unit, as in %q", "1"+name)
	}
	var total time.Duration
	for start, last := p.pos, -1; ; {
		n, err := p.number(`a period such as "10s", "1m", "1h30m" or "1d"`)
		if err != nil {
			return 0, err
		}
		at, name := p.pos, p.letters(p.pos)
		unit := periodUnit(name)
		switch {
		case unit < 0 && periodUnit(strings.ToLower(name)) >= 0:
			return 0, p.fail(at, "units are in lower case: %q", strings.ToLower(name))
		case unit < 0:
			return 0, p.fail(at, "expected a unit right after the number: %s", oneOf(unitNames()))
		case unit <= last:
			return 0, p.fail(at, "units go from the longest to the shortest, each once")
		case n > int64((math.MaxInt64-total)/periodUnits[unit].d):
			return 0, p.fail(start, "a period is at most %s", periodText(MaxPeriod))
		}
		p.pos += len(name)
		total += time.Duration(n) * periodUnits[unit].d
		last = unit
		if p.pos == len(p.text) || !isDigit(p.text[p.pos]) {
			return total, p.gap()
		}
	}
}

func unitNames() []string {
	names := make([]string, len(periodUnits))
	for i, u := range periodUnits {
		names[i] = u.name
	}
	return names
}

// letters is the run of letters that begins at offset.
func (p *parser) letters(offset int) string {
	end := offset
	for end < len(p.text) && isLetter(p.text[end]) {
		end++
	}
	return p.text[offset:end]
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

// separator reads c, if it stands here, and demands that something follows.
func (p *parser) separator(c byte) (bool, error) {
	p.space()
	at := p.pos
	if !p.accept(c) {
		return false, nil
	}
	if p.pos == len(p.text) || strings.IndexByte(",;", p.text[p.pos]) >= 0 {
		return false, p.fail(at, "nothing follows it; remove it")
	}
	return true, nil
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

func isWordByte(c byte) bool { return isLetter(c) || c == '-' }

// wordLen is the length of the word, of letters and hyphens, that text begins with.
func wordLen(text string) int {
	n := 0
	for n < len(text) && isWordByte(text[n]) {
		n++
	}
	return n
}

// oneOf lists words for an error: "a", "b" or "c".
func oneOf(words []string) string {
	var b strings.Builder
	for i, word := range words {
		switch {
		case i > 0 && i == len(words)-1:
			b.WriteString(" or ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(strconv.Quote(word))
	}
	return b.String()
}

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
	return string(p.p.options.appendText(b))
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

// appendText appends what is not the default.
func (o Options) appendText(b []byte) []byte {
	if o.Ahead > 0 {
		b = append(b, "; wait "...)
		b = append(b, periodText(o.Ahead)...)
	}
	if o.Fail != FailLocal {
		b = append(b, "; fail "...)
		b = append(b, o.Fail.String()...)
	}
	return b
}

func (l Limit) appendText(b []byte) []byte {
	if l.Algorithm == Concurrent {
		b = strconv.AppendInt(b, l.Burst, 10)
		b = append(b, ' ')
		b = append(b, concurrentWord...)
		if l.Lease != 0 && l.Lease != DefaultLease {
			b = append(b, " lease "...)
			b = append(b, periodText(l.Lease)...)
		}
		return b
	}
	unit, zone, calendar := strings.Cut(l.Align, " ")
	calendar = calendar && zone != "" && algo.IsCalendarUnit(unit)
	b = strconv.AppendInt(b, l.Rate, 10)
	b = append(b, '/')
	if calendar && unit == "month" {
		b = append(b, "1mo"...)
	} else {
		b = append(b, periodText(l.Period)...)
	}
	if l.Algorithm != GCRA {
		b = append(b, ' ')
		b = append(b, l.Algorithm.String()...)
	}
	if l.Burst != 0 && l.Burst != l.Rate {
		b = append(b, " burst "...)
		b = strconv.AppendInt(b, l.Burst, 10)
	}
	if l.Debt != 0 {
		b = append(b, " debt "...)
		b = strconv.AppendInt(b, l.Debt, 10)
	}
	if l.Buckets != 0 && l.Buckets != DefaultBuckets {
		b = append(b, " buckets "...)
		b = strconv.AppendInt(b, int64(l.Buckets), 10)
	}
	switch {
	case calendar:
		b = append(b, " calendar "...)
		b = append(b, zone...)
	case l.Align == algo.AlignEpoch:
		b = append(b, " aligned"...)
	case l.Align != "": // a mistake, for its error
		b = fmt.Appendf(b, " calendar %.80q", l.Align)
	}
	return b
}

// periodText is d as the grammar has it. What no policy can have is written in the
// same way, for errors: a sign, nanoseconds, and "0s".
func periodText(d time.Duration) string {
	if d == 0 {
		return "0s"
	}
	var b []byte
	rest := uint64(d)
	if d < 0 {
		b, rest = append(b, '-'), -rest
	}
	for _, u := range periodUnits {
		if n := rest / uint64(u.d); n > 0 {
			b = strconv.AppendUint(b, n, 10)
			b = append(b, u.name...)
			rest %= uint64(u.d)
		}
	}
	if rest > 0 {
		b = strconv.AppendUint(b, rest, 10)
		b = append(b, "ns"...)
	}
	return string(b)
}
