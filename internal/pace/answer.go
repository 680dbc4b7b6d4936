package pace

import (
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// Bounds of what is believed.
const (
	maxNumber = 1_000_000_000_000_000 // 10^15, the numbers of structured fields end below it
	maxField  = 8 << 10               // bytes of one field, all its lines together
	maxWindow = 24 * time.Hour        // longer times count as a day
	unixFrom  = 100_000_000           // a larger Reset is a time since 1970, and no number of seconds to wait
)

// Answer describes the limits of a server as the header of one answer states them.
type Answer struct {
	// RetryAfter is the time for which the server asks for silence. 0 means that it does not.
	RetryAfter time.Duration
	// Refused reports that the request was refused because of a limit or of load: its status is 429 or 503.
	Refused bool
	// Quotas are the limits that the answer names.
	Quotas []Quota
	// Mistakes are the names of the fields that could not be read. They count as absent.
	Mistakes []string
}

// Waits reports whether the answer says for how long to wait.
func (a *Answer) Waits() bool {
	wait := a.RetryAfter > 0
	for _, q := range a.Quotas {
		wait = wait || q.Remaining == 0 && q.Reset > 0
	}
	return wait
}

// Quota is one limit as an answer describes it.
type Quota struct {
	// Name and Partition tell the limits of one server apart. They are "" where the server names none.
	Name, Partition string
	// Limit is the number of requests of a Window. Each is 0 if the answer does not say it.
	Limit  int64
	Window time.Duration
	// Remaining is the number of requests that are left, and Reset the time until there are more. With a Limit of 100 of
	// which 60 are used, and 4 s to go, they are 40 and 4 s. Reset is -1 if the answer does not say it.
	Remaining int64
	Reset     time.Duration
	// More reports that Reset is the time until more than Remaining are left, as RateLimit has it. X-RateLimit-Reset
	// rather is the time until all are there.
	More bool
}

// Read reads the fields of an answer that arrived at the given time. get returns the lines of a field, whose name is in
// the canonical form of net/http. Of several forms in which an answer states its limits the first of these counts:
// RateLimit as a list, as one line of draft 7, RateLimit-Remaining, X-RateLimit-Remaining, X-Rate-Limit-Remaining.
func Read(get func(name string) []string, status int, at time.Time) Answer {
	r := reader{get: get, at: at, answer: Answer{Refused: Refusal(status)}}
	r.readRetryAfter(status)
	if age, ok := r.number("Age"); ok && age > 0 {
		return r.answer // out of a cache: the limits are those of an earlier answer
	}
	if !r.readRateLimit() {
		for i := range numbered {
			if r.readNumbers(&numbered[i]) {
				break
			}
		}
	}
	return r.answer
}

// numbered are the fields that state a limit in three numbers, the most trusted first.
var numbered = [...]struct{ limit, remaining, reset string }{
	{"Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset"},
	{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"},
	{"X-Rate-Limit-Limit", "X-Rate-Limit-Remaining", "X-Rate-Limit-Reset"},
}

// reader reads one answer.
type reader struct {
	get    func(name string) []string
	at     time.Time
	answer Answer
}

// lines returns the lines of a field, or nil if it is absent or too long.
func (r *reader) lines(name string) []string {
	lines, size := r.get(name), 0
	for _, line := range lines {
		size += len(line)
	}
	if size > maxField {
		r.mistake(name)
		return nil
	}
	return lines
}

// mistake notes that a field cannot be read, under its usual name.
func (r *reader) mistake(name string) {
	r.answer.Mistakes = append(r.answer.Mistakes, strings.Replace(name, "Ratelimit", "RateLimit", 1))
}

// number reads a field of one number.
func (r *reader) number(name string) (n int64, ok bool) {
	lines := r.lines(name)
	if len(lines) == 0 {
		return 0, false
	}
	if n, ok = number(lines[0]); !ok || len(lines) > 1 {
		r.mistake(name)
		return 0, false
	}
	return n, true
}

// number reads digits.
func number(text string) (n int64, ok bool) {
	text = strings.TrimSpace(text)
	if text == "" || text[0] < '0' || text[0] > '9' {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n <= maxNumber
}

// roundedUp reads digits with or without decimals.
func roundedUp(text string) (n int64, ok bool) {
	whole, decimals, fraction := strings.Cut(text, ".")
	if n, ok = number(whole); ok && fraction {
		_, ok = number(decimals)
		n++
	}
	return n, ok
}

// seconds is n seconds, at most a day.
func seconds(n int64) time.Duration {
	return time.Duration(min(n, int64(maxWindow/time.Second))) * time.Second
}

// until returns the time from the answer until a date, by the clock of the server where it shows it: then the two clocks
// need not agree. A Date has no fractions of a second, so that the result may be a second too long, but never too short.
func (r *reader) until(then time.Time) time.Duration {
	now := r.at
	if lines := r.get("Date"); len(lines) == 1 {
		if d, err := date(lines[0]); err == nil {
			now = d
		}
	}
	return min(max(then.Sub(now), 0), maxWindow)
}

// Refusal reports whether a status says that the request was not served because of how many there are: 429 or 503.
func Refusal(status int) bool { return status == 429 || status == 503 }

// date reads a date of HTTP in any of its three forms.
func date(text string) (t time.Time, err error) {
	for _, layout := range [...]string{"Mon, 02 Jan 2006 15:04:05 GMT", time.RFC850, time.ANSIC} {
		if t, err = time.Parse(layout, text); err == nil {
			break
		}
	}
	return t, err
}

func (r *reader) readRetryAfter(status int) {
	if !Refusal(status) && (status < 300 || status > 399) {
		return
	}
	const name = "Retry-After"
	lines := r.lines(name)
	if len(lines) == 0 {
		return
	}
	if n, ok := number(lines[0]); ok {
		r.answer.RetryAfter = seconds(n)
	} else if at, err := date(lines[0]); err == nil {
		r.answer.RetryAfter = r.until(at)
	} else {
		r.mistake(name)
	}
}

// readRateLimit reads RateLimit with RateLimit-Policy. It reports whether there was a limit.
func (r *reader) readRateLimit() bool {
	const name = "Ratelimit"
	lines := r.lines(name)
	if len(lines) == 0 {
		return false
	}
	if list, err := httpsfv.UnmarshalList(lines); err == nil {
		return r.readList(list)
	}
	one, err := httpsfv.UnmarshalDictionary(lines) // limit=100, remaining=50, reset=30
	if err != nil {
		r.mistake(name)
		return false
	}
	value := func(key string) any {
		if m, ok := one.Get(key); ok {
			if item, ok := m.(httpsfv.Item); ok {
				return item.Value
			}
		}
		return nil
	}
	q := Quota{Reset: -1}
	var ok bool
	if q.Remaining, ok = natural(value("remaining")); !ok {
		r.mistake(name)
		return false
	}
	q.Limit, _ = natural(value("limit"))
	if n, ok := natural(value("reset")); ok {
		q.Reset = seconds(n)
	}
	for _, p := range r.policies() {
		if p.Limit == q.Limit {
			q.Window = p.Window
		}
	}
	r.answer.Quotas = append(r.answer.Quotas, q)
	return true
}

// readList reads "default";r=50;t=30.
func (r *reader) readList(list httpsfv.List) bool {
	policies := r.policies()
	readable := false
	for _, m := range list {
		item, ok := m.(httpsfv.Item)
		if !ok {
			r.mistake("Ratelimit")
			continue
		}
		q := Quota{Name: text(item.Value), Partition: param(item, "pk"), Reset: -1, More: true}
		n, _ := item.Params.Get("r")
		if q.Remaining, ok = natural(n); !ok {
			r.mistake("Ratelimit")
			continue
		}
		if t, ok := item.Params.Get("t"); ok {
			if n, ok := natural(t); ok {
				q.Reset = seconds(n)
			} else {
				r.mistake("Ratelimit")
			}
		}
		readable = true
		requests := true
		for _, p := range policies {
			if p.Name == q.Name && (p.Partition == q.Partition || q.Partition == "") {
				q.Limit, q.Window, requests = p.Limit, p.Window, p.requests
			}
		}
		if requests {
			r.answer.Quotas = append(r.answer.Quotas, q)
		}
	}
	return readable
}

// policy is a member of RateLimit-Policy.
type policy struct {
	Name, Partition string
	Limit           int64
	Window          time.Duration
	requests        bool // that is the unit of Limit
}

// policies reads "default";q=100;w=60 and, of older drafts, 100;w=60.
func (r *reader) policies() (all []policy) {
	const name = "Ratelimit-Policy"
	list, err := httpsfv.UnmarshalList(r.lines(name))
	if err != nil {
		r.mistake(name)
		return nil
	}
	for _, m := range list {
		item, ok := m.(httpsfv.Item)
		if !ok {
			r.mistake(name)
			continue
		}
		p := policy{Partition: param(item, "pk"), requests: true}
		if p.Limit, ok = natural(item.Value); !ok {
			p.Name = text(item.Value)
			q, _ := item.Params.Get("q")
			if p.Limit, ok = natural(q); !ok {
				r.mistake(name)
			}
		}
		p.Window = windowOf(item)
		if unit, ok := item.Params.Get("qu"); ok {
			p.requests = text(unit) == "requests"
		}
		all = append(all, p)
	}
	return all
}

// windowOf is the parameter w of a policy, or window, as Envoy has it.
func windowOf(item httpsfv.Item) time.Duration {
	for _, key := range [...]string{"w", "window"} {
		if v, ok := item.Params.Get(key); ok {
			if n, ok := natural(v); ok {
				return seconds(n)
			}
		}
	}
	return 0
}

// readNumbers reads three fields of numbers. Where several limiters have added their lines, the first
// lines belong together, and so on.
func (r *reader) readNumbers(names *struct{ limit, remaining, reset string }) bool {
	remaining := r.lines(names.remaining)
	if len(remaining) == 0 {
		return false
	}
	limits, resets := r.lines(names.limit), r.lines(names.reset)
	policies := r.policies()
	found := false
	for i, line := range remaining {
		q := Quota{Reset: -1}
		if i > 0 {
			q.Name = strconv.Itoa(i)
		}
		var ok bool
		if q.Remaining, ok = number(line); !ok {
			r.mistake(names.remaining)
			continue
		}
		if len(limits) == len(remaining) {
			r.readLimit(&q, names.limit, limits[i])
		}
		if len(resets) == len(remaining) {
			r.readReset(&q, names.reset, resets[i])
		}
		for _, p := range policies {
			if p.Limit == q.Limit && q.Window == 0 {
				q.Window = p.Window
			}
		}
		r.answer.Quotas = append(r.answer.Quotas, q)
		found = true
	}
	return found
}

// readLimit reads 100, and 100, 100;w=60, as older drafts and Envoy have it.
func (r *reader) readLimit(q *Quota, name, line string) {
	list, err := httpsfv.UnmarshalList([]string{line})
	if err != nil || len(list) == 0 {
		r.mistake(name)
		return
	}
	for i, m := range list {
		item, ok := m.(httpsfv.Item)
		n, isNumber := natural(item.Value)
		switch {
		case !ok || !isNumber:
			r.mistake(name)
			return
		case i == 0:
			q.Limit = n
		}
		if w := windowOf(item); w > 0 && n == q.Limit && q.Window == 0 {
			q.Window = w
		}
	}
}

// readReset reads Unix seconds or milliseconds, seconds to wait, or a date.
func (r *reader) readReset(q *Quota, name, line string) {
	n, ok := roundedUp(line)
	switch {
	case ok && n > unixFrom*1000:
		q.Reset = r.until(time.UnixMilli(n))
	case ok && n > unixFrom:
		q.Reset = r.until(time.Unix(n, 0))
	case ok:
		q.Reset = seconds(n)
	default:
		at, err := date(line)
		if err != nil {
			r.mistake(name)
			return
		}
		q.Reset = r.until(at)
	}
}

// natural returns a number of a structured field that is not negative.
func natural(value any) (n int64, ok bool) {
	n, ok = value.(int64)
	if !ok || n < 0 || n > maxNumber {
		return 0, false
	}
	return n, true
}

// text returns the name of a limit: a String, or a Token where a server has forgotten the quotes.
func text(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case httpsfv.Token:
		return string(v)
	}
	return ""
}

// param returns a parameter that is a Byte Sequence.
func param(item httpsfv.Item, key string) string {
	v, _ := item.Params.Get(key)
	b, _ := v.([]byte)
	return string(b)
}
