package algo

import (
	"fmt"
	"strconv"
)

// slidingLog remembers when each unit was taken and for how long it counts: exact, at
// the price of a state that grows with the limit.
//
// A state is the number of its entries, when the newest expires, and for each entry,
// the oldest first, its time and its count. No two entries have the same time.
type slidingLog struct{ limit, period int64 }

// MaxLog is the largest rate of a log, and the most entries that one has.
const MaxLog = 1000

func newSlidingLog(p Params) (Algorithm, error) {
	if p.Rate > MaxLog {
		return nil, fmt.Errorf("a log remembers every unit, and a rate of %d is too much for it; give at most %d, or use \"sliding-window\"",
			p.Rate, MaxLog)
	}
	return &slidingLog{p.Rate, p.Period}, nil
}

// The words of a state: the entries are the rest.
const (
	logLen = iota
	logExpires
	logEntries
)

// Words does not follow the limit: a log that was written under a higher one is longer.
func (a *slidingLog) Words() int { return logEntries + 2*MaxLog }

func (a *slidingLog) Apart() string { return "" }

func (a *slidingLog) Len(s []int64) int { return logEntries + 2*int(s[logLen]) }

// entries are times and counts in turn.
func (a *slidingLog) entries(s []int64) []int64 { return s[logEntries:a.Len(s)] }

// setLen keeps the first n entries.
func (a *slidingLog) setLen(s []int64, n int) {
	s[logLen], s[logExpires] = int64(n), 0
	if e := a.entries(s); n > 0 {
		s[logExpires] = e[len(e)-2] + a.period
	}
}

func (a *slidingLog) used(s []int64) (sum int64) {
	e := a.entries(s)
	for j := 1; j < len(e); j += 2 {
		sum += e[j]
	}
	return sum
}

func (a *slidingLog) Load(s []int64, now int64) (healed bool) {
	e := a.entries(s)
	if n := len(e); n > 0 && e[n-2] > now { // what lies ahead of the clock counts as of now
		healed = true
		e[n-2] = now
		for ; n > 2 && e[n-4] >= now; n -= 2 {
			e[n-4], e[n-3] = now, e[n-3]+e[n-1]
		}
		e = e[:n]
	}
	first := len(e)
	for first > 0 && now-e[first-2] < a.period {
		first -= 2
	}
	a.setLen(s, copy(e, e[first:])/2)
	return healed
}

func (a *slidingLog) Admits(s []int64, _, cost, _ int64) bool {
	return cost == 0 || cost <= a.limit-a.used(s)
}

func (a *slidingLog) Most(s []int64, _ int64, _ bool) int64 { return max(0, a.limit-a.used(s)) }

// Charge finds room for another entry: each has a unit, and there are no more than
// MaxLog.
func (a *slidingLog) Charge(s []int64, now, cost int64) {
	n := a.Len(s)
	if n > logEntries && s[n-2] == now {
		s[n-1] += cost
		return
	}
	s[n], s[n+1] = now, cost
	a.setLen(s, int(s[logLen])+1)
}

// Refund takes the units from the entry of the charge: from the newest, if the clock has
// stepped back since and that is older.
func (a *slidingLog) Refund(s []int64, _, units int64, r Receipt) bool {
	e := a.entries(s)
	for j := 0; j < len(e); j += 2 {
		if e[j] != r.At && (j+2 < len(e) || e[j] > r.At) || units == 0 {
			continue
		}
		if e[j+1] -= min(units, e[j+1]); e[j+1] == 0 {
			copy(e[j:], e[j+2:])
			a.setLen(s, len(e)/2-1)
		}
		return true
	}
	return false
}

// Credit takes the units from the newest entries.
func (a *slidingLog) Credit(s []int64, _, units int64) bool {
	n := a.Len(s)
	if n == logEntries {
		return false
	}
	for ; n > logEntries && units >= s[n-1]; n -= 2 {
		units -= s[n-1]
	}
	if n > logEntries {
		s[n-1] -= units
	}
	a.setLen(s, (n-logEntries)/2)
	return true
}

func (a *slidingLog) Explain(s []int64, now, cost, _ int64, refused bool) Answer {
	r := Answer{Remaining: a.Most(s, now, false), Reset: max(0, s[logExpires]-now), Refused: refused}
	if refused {
		if r.Never = cost > a.limit; !r.Never {
			r.Wait = a.full(s, cost) + a.period - now
		}
	} else if e := a.entries(s); len(e) > 0 && a.used(s) <= a.limit {
		r.More = e[0] + a.period - now
	}
	return r
}

// full is the time of the entry that must go before cost units fit: with it and what
// is newer they do not, without it they do.
func (a *slidingLog) full(s []int64, cost int64) int64 {
	e, room := a.entries(s), a.limit-cost
	j := len(e)
	for ; room >= 0 && j > 0; j -= 2 {
		room -= e[j-1]
	}
	return e[j]
}

func (a *slidingLog) Expires(s []int64) int64 { return s[logExpires] }

func (a *slidingLog) Sections() byte { return 'x' }

// AppendTake appends as the cost no more than one unit beyond what ever fits.
func (a *slidingLog) AppendTake(b []int64, cost, _, _ int64) []int64 {
	return append(b, a.period, a.limit, min(cost, a.limit+1))
}

func (a *slidingLog) AppendUpTo(b []int64, _ bool, _ int64) []int64 {
	return append(b, a.period, a.limit)
}

func (a *slidingLog) AppendRefund(b []int64, units int64, _ Receipt, _ int64) []int64 {
	return append(b, a.period, units)
}

func (a *slidingLog) AppendCredit(b []int64, units, _ int64) []int64 {
	return append(b, a.period, min(units, MaxLog))
}

// AppendText writes the newest time, how many units there are, and the oldest time and
// its count; then for each entry how long after the one before it was, and its count.
// So the script needs no more than the beginning for most decisions.
func (a *slidingLog) AppendText(b []byte, s []int64) []byte {
	e := a.entries(s)
	if len(e) == 0 {
		return b
	}
	b = strconv.AppendInt(append(b, 'x'), e[len(e)-2], 10)
	for _, n := range [...]int64{a.used(s), e[0], e[1]} {
		b = strconv.AppendInt(append(b, ','), n, 10)
	}
	for j := 2; j < len(e); j += 2 {
		b = strconv.AppendInt(append(b, ','), e[j]-e[j-2], 10)
		b = strconv.AppendInt(append(b, ','), e[j+1], 10)
	}
	return b
}

// parse reads all of the text. The script checks only what it reads, and so goes on
// with some texts that this refuses, until it comes to the part that is wrong.
func (a *slidingLog) parse(s []int64, text []byte) bool {
	if text[0] != 'x' || len(text) > 1 && text[1] == '0' {
		return false
	}
	newest, text, ok := digits(text[1:])
	if !ok || newest >= maxExact {
		return false
	}
	used, text, ok := listed(text)
	if !ok || used > MaxLog {
		return false
	}
	s = s[:a.Words()]
	t, n := int64(0), logEntries
	for used > 0 { // each entry has a unit, so there are no more than MaxLog
		var gap, count int64
		if gap, text, ok = listed(text); !ok || gap == 0 || gap > newest-t {
			return false
		}
		if count, text, ok = listed(text); !ok || count == 0 || count > used {
			return false
		}
		t, used = t+gap, used-count
		s[n], s[n+1] = t, count
		n += 2
	}
	if n == logEntries || t != newest || len(text) > 0 {
		return false
	}
	a.setLen(s, (n-logEntries)/2)
	return true
}

func (a *slidingLog) Reply() int { return 4 }

// ParseReply makes a state that stands in for the server's where that cost is
// concerned, but for no other: the reply says how many units are in use, the newest
// time, the time of the entry that must go before the cost fits, and the oldest time.
// The oldest holds one unit, the one before the newest what else must go, and the newest holds the rest.
func (a *slidingLog) ParseReply(s, reply []int64, now, cost int64) bool {
	used, newest, full, oldest := reply[0], reply[1], reply[2], reply[3]
	if used == 0 && newest == 0 && full == 0 && oldest == 0 {
		a.setLen(s, 0)
		return true
	}
	inSight := func(t int64) bool { return t > 0 && t <= now && now-t < a.period }
	if used < 1 || used > MaxLog || !inSight(newest) || !inSight(oldest) || oldest > newest {
		return false
	}
	if full != 0 && (full < oldest || full > newest || cost <= a.limit-used) {
		return false
	}
	n := 0
	add := func(t, units int64) bool {
		s[logEntries+2*n], s[logEntries+2*n+1] = t, units
		n++
		used -= units
		return units > 0
	}
	if full != 0 && full < newest {
		must := used - (a.limit - cost)
		if oldest < full && (!add(oldest, 1) || !add(full, must-1)) || oldest == full && !add(full, must) {
			return false
		}
	} else if oldest < newest {
		add(oldest, 1)
	}
	ok := add(newest, used)
	a.setLen(s, n)
	return ok
}

// Rewind leaves a count of 0 in the newest entry, which the next charge is to.
func (a *slidingLog) Rewind(s []int64, now, units int64) bool {
	e := a.entries(s)
	if units == 0 {
		return true
	}
	if len(e) == 0 || e[len(e)-2] != now || units > e[len(e)-1] {
		return false
	}
	e[len(e)-1] -= units
	return true
}
