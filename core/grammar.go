package core

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

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
//	option    = "wait" period | "fail" ( "local" [ "1/" number ] | "open" | "closed" )
//	          | "shadow" [ "off" ] | "epoch" number
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
func Parse(text string) (Policy, error) { return Policy{}.ParseLike(text) }

// ParseLike is [Parse] for the text of a policy that stands in the place of p: the name and the options that the text
// leaves out are those of p. "shadow off", "fail local" and "epoch 0", which say what holds anyway where nothing else
// is said, undo what p says. "fail local" without a share keeps the share of a p that has one.
//
// With a p of "login: 5/1m; fail closed; shadow", the text "9/1m; shadow off" is "login: 9/1m; fail closed".
func (p Policy) ParseLike(text string) (Policy, error) {
	r := parser{text: text}
	name, limits, err := r.policy()
	if err != nil {
		return Policy{}, err
	}
	policy, mistakes := newPolicy(cmp.Or(name, p.Name()), r.optionsLike(p.Options()), limits)
	return policy, joinMistakes(fmt.Sprintf("core: policy %q: ", text), mistakes)
}

// optionsLike returns the options that were read, with those of like in the place of the ones that were left out.
func (p *parser) optionsLike(like PolicyOptions) PolicyOptions {
	o := p.options
	written := func(text string) bool {
		return slices.ContainsFunc(p.given, func(w *word) bool { return w.text == text })
	}
	if !written("wait") {
		o.Wait = like.Wait
	}
	switch {
	case !written("fail"):
		o.Fail, o.Processes = like.Fail, like.Processes
	case o.Fail == FailLocal && like.Fail == FailLocal:
		o.Processes = cmp.Or(o.Processes, like.Processes)
	}
	if !written("shadow") {
		o.Shadow = like.Shadow
	}
	if !written("epoch") {
		o.Epoch = like.Epoch
	}
	return o
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

// SyntaxError is the error of [Parse] for a text that it cannot read.
type SyntaxError struct {
	Text    string // the whole text
	Offset  int    // of the byte that could not be read
	Problem string // what should stand there, or what is wrong with what does
}

// Error implements error.
func (e *SyntaxError) Error() string {
	text, found := e.Text, "the end"
	if e.Offset < len(text) {
		found = strconv.Quote(firstWord(text[e.Offset:]))
	}
	if len(text) > maxText {
		text = text[:maxText] + "..."
	}
	return fmt.Sprintf("core: policy %q: at offset %d, found %s: %s", text, e.Offset, found, e.Problem)
}

// firstWord returns what an error shows of the text at which the parser stopped.
func firstWord(text string) string {
	found := prefix(text[:min(len(text), 32)], func(c byte) bool { return isWordByte(c) || isDigit(c) })
	if found == "" {
		r, _ := utf8.DecodeRuneInString(text)
		return string(r)
	}
	return found
}

// maxText is the longest policy text: far more than any policy needs, so that a
// mistaken file is not parsed for long.
const maxText = 1024

// parser reads a policy from left to right.
type parser struct {
	draft
	text  string
	pos   int     // the next byte
	place place   // where that is
	given []*word // the limit's, or those of all options; after policy, the latter
}

func (p *parser) rest() string { return p.text[p.pos:] }

// fail returns the error for the text at offset.
func (p *parser) fail(offset int, format string, args ...any) error {
	return &SyntaxError{Text: p.text, Offset: offset, Problem: fmt.Sprintf(format, args...)}
}

// unexpected returns an error with what was expected here, or, if a known word stands here, with its mistake.
func (p *parser) unexpected(expected string) error {
	text := prefix(p.rest(), isWordByte)
	if w := wordNamed(strings.ToLower(text)); w != nil {
		problem := misplaced[w.place][p.place]
		if w.text != text && w.place != ofLater {
			problem = "words are in lower case: %q"
		}
		if problem != "" {
			return p.fail(p.pos, "%s", strings.ReplaceAll(problem, "%q", strconv.Quote(w.text)))
		}
	}
	return p.fail(p.pos, "expected %s%s", expected, p.guess())
}

// guess returns what was probably meant by what stands here, as the end of an error's sentence, or "".
func (p *parser) guess() string {
	rest := p.rest()
	rest = rest[:min(len(rest), 32)]
	found := prefix(rest, func(c byte) bool { return isWordByte(c) || isDigit(c) || c == '_' })
	after := strings.TrimLeft(rest[len(found):], spaces)
	switch meant := guesses[p.place][strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(found))]; {
	case found == "":
		return ""
	case meant != "":
		return "; " + meant
	case p.place == atFirst && !isDigit(found[0]) && after != "" && isDigit(after[0]) && !strings.Contains(p.text, ":"):
		return fmt.Sprintf(`; a name ends with ":", as in %q`, found+": 3/1m")
	case p.place == ofPermits && isDigit(found[0]) && p.limit.Lease == 0:
		return fmt.Sprintf("; write %q", "lease "+found)
	}
	return ""
}

// policy reads the whole text.
func (p *parser) policy() (name string, limits []Limit, err error) {
	if len(p.text) > maxText {
		return "", nil, p.fail(maxText, "a policy has at most %d bytes", maxText)
	}
	p.space()
	if name, err = p.name(); err != nil {
		return "", nil, err
	}
	expected := ""
	for more := true; more; {
		if err = p.readLimit(); err != nil {
			return "", nil, err
		}
		limits = append(limits, p.limit)
		such, after := "burst", afterRate
		if p.place == ofPermits {
			such, after = "lease", afterPermits
		}
		expected = fmt.Sprintf(`a word such as %q, "," and another limit, ";" and an option, or the end`, such)
		if more, err = p.separator(','); err != nil {
			return "", nil, err
		}
		if more {
			p.place = after
		}
	}
	for p.given = nil; ; {
		more, err := p.separator(';')
		if err != nil {
			return "", nil, err
		}
		if !more {
			break
		}
		p.place, expected = ofPolicy, `";" and another option, or the end`
		if err := p.oneWord(ofPolicy); err != nil {
			return "", nil, err
		}
	}
	if p.pos < len(p.text) {
		return "", nil, p.unexpected(expected)
	}
	return name, limits, nil
}

// name reads what stands before a colon, if there is one.
func (p *parser) name() (string, error) {
	before, _, found := strings.Cut(p.rest(), ":")
	if !found {
		return "", nil
	}
	name := strings.TrimRight(before, spaces)
	if err := checkName(name); err != nil {
		return "", p.fail(p.pos, `expected a name of 1 to 64 letters, digits, "_", "." or "-" before ":"`)
	}
	p.pos += len(before)
	p.accept(':')
	return name, nil
}

// readLimit reads a limit, of a rate or of permits.
func (p *parser) readLimit() error {
	p.limit, p.zone, p.given = Limit{}, "", nil
	n, err := p.number(`a rate such as "100/1m"`)
	if err != nil {
		return err
	}
	if rest := p.rest(); len(rest) > 1 && rest[0] == ',' && isDigit(rest[1]) {
		return p.fail(p.pos, noSeparators)
	}
	end := p.pos
	p.place = ofNumber
	if p.accept('/') {
		p.limit.Rate, p.place = n, ofRate
		return p.rate()
	}
	if w := wordNamed(prefix(p.rest(), isWordByte)); w == nil || w.place != ofNumber {
		return p.unexpected(`"/" and a period, as in "100/1m", or "concurrent"`)
	}
	if p.pos == end {
		return p.gap()
	}
	p.limit.Burst = n
	if err := p.oneWord(ofNumber); err != nil {
		return err
	}
	p.place = ofPermits
	return p.words()
}

// rate reads what follows the "/" of a limit.
func (p *parser) rate() (err error) {
	start := p.pos
	month := strings.HasPrefix(p.rest(), "1mo") && prefix(p.rest()[1:], isWordByte) == "mo" // which only the calendar has
	if month {
		p.pos += len("1mo")
		p.limit.Period = algo.Month * time.Microsecond
	} else if p.limit.Period, err = p.period(); err != nil {
		return err
	}
	if err := p.gap(); err != nil {
		return err
	}
	if err := p.words(); err != nil {
		return err
	}
	switch unit := algo.CalendarUnit(p.limit.Period.Microseconds()); {
	case p.zone == "" && month:
		return p.fail(start, `a month has no fixed length; write "30d", or add "fixed-window calendar UTC"`)
	case p.zone == "":
	case unit == "" || month != (unit == "month"):
		return p.fail(start, `the calendar has the periods "1m", "1h", "1d", "7d" and "1mo"`)
	default:
		p.limit.Align = unit + " " + p.zone
	}
	return nil
}

// words reads the words that belong here, as many as there are.
func (p *parser) words() error {
	for {
		if found, err := p.word(p.place); err != nil || !found {
			return err
		}
	}
}

// oneWord reads a word of that place, which must be there.
func (p *parser) oneWord(at place) error {
	found, err := p.word(at)
	if err == nil && !found {
		return p.unexpected(wordsLeft(at, p.given))
	}
	return err
}

// word reads a word of that place and what follows it. It reports whether any word stands
// here.
func (p *parser) word(at place) (found bool, err error) {
	p.space()
	start, text := p.pos, prefix(p.rest(), isWordByte)
	if text == "" {
		return false, nil
	}
	w := wordNamed(text)
	if w == nil || w.place != at {
		return true, p.unexpected(wordsLeft(at, p.given))
	}
	for _, v := range p.given {
		if w.excludes(v) {
			return true, p.fail(start, "%q was given already", v.text)
		}
	}
	p.given = append(p.given, w)
	p.pos += len(text)
	v, err := p.operand(w)
	switch {
	case err != nil:
		return true, err
	case w.refuse != nil && w.refuse(v.n):
		return true, p.fail(start, "%s", w.refused)
	}
	w.set(&p.draft, v)
	return true, nil
}

// operand reads what follows w.
func (p *parser) operand(w *word) (v value, err error) {
	if err := p.equals(w); err != nil {
		return v, err
	}
	if err := p.gap(); err != nil {
		return v, err
	}
	switch w.follows {
	case nothing:
		return v, p.noShare(w)
	case aShare:
		v.n, err = p.share()
	case anOff:
		if next := strings.TrimLeft(p.rest(), spaces); strings.EqualFold(prefix(next, isWordByte), offWord) {
			v.n, err = 1, p.oneWord(ofShadow)
		}
	case aNumber:
		v.n, err = p.number(w.such)
	case aPeriod:
		var d time.Duration
		d, err = p.period()
		v.n = int64(d)
	case aZone:
		p.space()
		v.zone = prefix(p.rest(), isZoneByte)
		if p.pos += len(v.zone); v.zone == "" {
			err = p.unexpected(w.such)
		}
	default:
		err = p.oneWord(ofFail)
	}
	if err != nil {
		return v, err
	}
	return v, p.gap()
}

// share reads the "1/4" behind "local", if it stands here, and returns how many share.
func (p *parser) share() (processes int64, err error) {
	if !p.digitFollows() {
		return 0, nil
	}
	p.space()
	start := p.pos
	one, err := p.number("")
	if err != nil {
		return 0, err
	}
	if !p.accept('/') {
		return 0, p.fail(start, `a share is 1 of a number of processes; write "local 1/%d"`, max(one, 2))
	}
	if processes, err = p.number(`how many processes share the limits, as in "local 1/4"`); err != nil {
		return 0, err
	}
	if one != 1 || processes < 1 || processes > maxProcesses {
		return 0, p.fail(start, `a share is 1 of at most %d processes, as in "local 1/4"`, maxProcesses)
	}
	return processes, nil
}

// noShare refuses a share behind another word for a failure.
func (p *parser) noShare(w *word) error {
	if w.place != ofFail || !p.digitFollows() {
		return nil
	}
	p.space()
	return p.fail(p.pos, `only "local" takes a share of the limits; remove it`)
}

// digitFollows reports whether a digit comes next, after space or none.
func (p *parser) digitFollows() bool {
	rest := strings.TrimLeft(p.rest(), spaces)
	return rest != "" && isDigit(rest[0])
}

// equals refuses a "=" between a word and what follows it.
func (p *parser) equals(w *word) error {
	after, found := strings.CutPrefix(strings.TrimLeft(p.rest(), spaces), "=")
	after = prefix(strings.TrimLeft(after, spaces), func(c byte) bool { return strings.IndexByte(spaces+",;", c) < 0 })
	if !found || after == "" || w.follows == nothing {
		return nil
	}
	p.space()
	return p.fail(p.pos, `no "=" stands after a word; write %.80q`, w.text+" "+after)
}

// gap demands that a word, a number or a period ends here.
func (p *parser) gap() error {
	rest := p.rest()
	switch {
	case rest == "" || strings.IndexByte(spaces+",;", rest[0]) >= 0:
		return nil
	case isDigit(rest[0]) || isLetter(rest[0]):
		return p.fail(p.pos, `expected a space between a word and a number, as in "burst 20"`)
	default:
		return p.unexpected(`a space, ",", ";" or the end`)
	}
}

const (
	noSeparators = `a number has no separators, as in "1000"`
	noFraction   = `a number has no fraction; instead of "1.5/1s" write "3/2s", instead of "1.5h" write "1h30m"`
)

// maxDigits keeps every number within an int64.
const maxDigits = 18

func (p *parser) number(expected string) (int64, error) {
	p.space()
	digits := prefix(p.rest(), isDigit)
	switch {
	case digits == "":
		return 0, p.unexpected(expected)
	case len(digits) > maxDigits:
		return 0, p.fail(p.pos, "a number has at most %d digits", maxDigits)
	}
	n, _ := strconv.ParseInt(digits, 10, 64)
	if digits[0] == '0' && len(digits) > 1 {
		return 0, p.fail(p.pos, "a number does not begin with 0; write %d", n)
	}
	p.pos += len(digits)
	if rest := p.rest(); len(rest) > 1 && isDigit(rest[1]) {
		switch rest[0] {
		case '_', '\'':
			return 0, p.fail(p.pos, noSeparators)
		case '.':
			return 0, p.fail(p.pos, noFraction)
		}
	}
	return n, nil
}

func (p *parser) period() (total time.Duration, err error) {
	p.space()
	if name := prefix(p.rest(), isLetter); name != "" {
		if periodUnit(name) < 0 {
			name = "m"
		}
		return 0, p.fail(p.pos, "a number comes before the unit, as in %q", "1"+name)
	}
	for start, last := p.pos, -1; ; {
		n, err := p.number(`a period such as "10s", "1m", "1h30m" or "1d"`)
		if err != nil {
			return 0, err
		}
		name := prefix(p.rest(), isLetter)
		unit, lower := periodUnit(name), strings.ToLower(name)
		switch {
		case unit < 0 && periodUnit(lower) >= 0:
			return 0, p.fail(p.pos, "units are in lower case: %q", lower)
		case name == "w":
			return 0, p.fail(p.pos, "expected a unit right after the number: %s; for weeks write %q", oneOf(unitNames()), strconv.FormatInt(7*n, 10)+"d")
		case unit < 0:
			return 0, p.fail(p.pos, "expected a unit right after the number: %s", oneOf(unitNames()))
		case unit <= last:
			return 0, p.fail(p.pos, "units go from the longest to the shortest, each once")
		case n > int64((math.MaxInt64-total)/periodUnits[unit].d):
			return 0, p.fail(start, "a period is at most %s", periodText(MaxPeriod))
		}
		p.pos += len(name)
		total += time.Duration(n) * periodUnits[unit].d
		last = unit
		if rest := p.rest(); rest == "" || !isDigit(rest[0]) {
			return total, nil
		}
	}
}

const spaces = " \t\r\n"

func (p *parser) space() { p.pos = len(p.text) - len(strings.TrimLeft(p.rest(), spaces)) }

// accept reads c, with the space around it, if it stands here.
func (p *parser) accept(c byte) bool {
	p.space()
	if rest := p.rest(); rest == "" || rest[0] != c {
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
	if rest := p.rest(); rest == "" || rest[0] == ',' || rest[0] == ';' {
		return false, p.fail(at, "nothing follows it; remove it")
	}
	return true, nil
}

// prefix returns the bytes of a kind with which text begins.
func prefix(text string, is func(byte) bool) string {
	for i := range len(text) {
		if !is(text[i]) {
			return text[:i]
		}
	}
	return text
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

func isWordByte(c byte) bool { return isLetter(c) || c == '-' }

func isZoneByte(c byte) bool {
	return isLetter(c) || isDigit(c) || c == '/' || c == '_' || c == '+' || c == '-'
}
