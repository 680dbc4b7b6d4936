package algo

import (
	"slices"
	"strconv"
)

// slidingWindow counts by sub-windows, which begin at multiples of their width: the
// period divided by their number, rounded up. A sub-window counts in full until all of
// it is older than the period, so that no time of that length ever holds more than the
// limit, and a unit comes back at most one sub-window late.
//
// A state is the start of the newest sub-window that counts anything, the width, and a
// count for each sub-window from there into the past: one more than a period has. The
// first count is 0 only in an unused state. Start and width are times, so that every
// count keeps its time after a change of the period: it then belongs to the sub-window
// in which its own ends.
type slidingWindow struct {
	limit   int64
	width   int64 // of a sub-window
	buckets int64 // in a period
}

func newSlidingWindow(p Params) (Algorithm, error) {
	return &slidingWindow{p.Rate, (p.Period + p.Buckets - 1) / p.Buckets, p.Buckets}, nil
}

// The words of a state: the counts are the rest.
const (
	windowStart = iota
	windowWidth
	windowCounts
)

func (a *slidingWindow) Words() int { return windowCounts + 1 + int(a.buckets) }

func (a *slidingWindow) Apart() string { return "" }

func (a *slidingWindow) Len([]int64) int { return a.Words() }

// counts are those of the sub-windows, the newest first.
func (a *slidingWindow) counts(s []int64) []int64 { return s[windowCounts:a.Words()] }

// setNewest makes the first count that of a sub-window.
func (a *slidingWindow) setNewest(s []int64, index int64) {
	s[windowStart], s[windowWidth] = index*a.width, a.width
}

// freed returns the instant at which all of a sub-window is older than the period.
func (a *slidingWindow) freed(index int64) int64 { return (index + a.buckets + 1) * a.width }

func (a *slidingWindow) used(s []int64) (sum int64) {
	for _, c := range a.counts(s) {
		sum += c
	}
	return sum
}

func (a *slidingWindow) Load(s []int64, now int64) (healed bool) {
	counts := a.counts(s)
	if counts[0] == 0 {
		return false
	}
	index, newest := now/a.width, s[windowStart]/a.width
	if newest > index || s[windowWidth] != a.width {
		// What lies ahead of the clock counts as of now. If it were not stored like that, it would count as of later
		// when it is read later, and come back later than an answer said.
		ahead := (s[windowStart] + s[windowWidth] - 1) / a.width
		healed = s[windowStart] > now || ahead > index
		newest = a.move(s, now)
	}
	oldest := newest - (index - a.buckets) // place of the oldest that still counts
	if oldest < 0 {
		clear(s[:a.Words()])
		return healed
	}
	clear(counts[oldest+1:])
	a.setNewest(s, newest)
	return healed
}

// move puts each count into the sub-window in which its own ends, or into that of now,
// and returns the newest.
func (a *slidingWindow) move(s []int64, now int64) (newest int64) {
	counts := a.counts(s)
	old := slices.Clone(counts)
	clear(counts)
	last := s[windowStart] + s[windowWidth] - 1
	newest = min(last, now) / a.width
	for _, c := range old {
		if c > 0 {
			place := newest - min(last, now)/a.width
			if place > a.buckets {
				break
			}
			counts[place] += c
		}
		last -= s[windowWidth]
	}
	return newest
}

func (a *slidingWindow) Admits(s []int64, _, cost, _ int64) bool {
	return cost == 0 || cost <= a.limit-a.used(s)
}

func (a *slidingWindow) Most(s []int64, _ int64, _ bool) int64 { return max(0, a.limit-a.used(s)) }

func (a *slidingWindow) Charge(s []int64, now, cost int64) {
	counts, index := a.counts(s), now/a.width
	if counts[0] > 0 {
		n := index - s[windowStart]/a.width
		copy(counts[n:], counts)
		clear(counts[:n])
	}
	counts[0] += cost
	a.setNewest(s, index)
}

// Refund takes the units from the sub-window that counts the charge: from the newest, if
// the clock has stepped back since and that is older. After a change of the period it may
// be one of several: the oldest of them is free first, and so gives back least.
func (a *slidingWindow) Refund(s []int64, _, units int64, r Receipt) bool {
	counts, newest := a.counts(s), s[windowStart]/a.width
	near := max(0, newest-a.last(r)/a.width)
	j := min(max(0, newest-r.At/a.width), a.buckets)
	for j > near && counts[j] == 0 {
		j--
	}
	if units <= 0 || j < near || counts[j] == 0 {
		return false
	}
	counts[j] -= min(units, counts[j])
	a.trim(s)
	return true
}

// Credit takes the units from the newest sub-windows that count any.
func (a *slidingWindow) Credit(s []int64, _, units int64) bool {
	counts := a.counts(s)
	if counts[0] == 0 {
		return false
	}
	for j := range counts {
		back := min(units, counts[j])
		counts[j] -= back
		units -= back
	}
	a.trim(s)
	return true
}

// trim makes the newest sub-window that counts anything the first.
func (a *slidingWindow) trim(s []int64) {
	counts := a.counts(s)
	n := slices.IndexFunc(counts, func(c int64) bool { return c > 0 })
	if n < 0 {
		clear(s[:a.Words()])
		return
	}
	copy(counts, counts[n:])
	clear(counts[len(counts)-n:])
	a.setNewest(s, s[windowStart]/a.width-int64(n))
}

// last is the end of the sub-window of the charge, inclusive.
func (a *slidingWindow) last(r Receipt) int64 {
	if made, ok := r.Made.(*slidingWindow); ok {
		a = made
	}
	return (r.At/a.width+1)*a.width - 1
}

func (a *slidingWindow) Explain(s []int64, now, cost, _ int64, refused bool) Answer {
	r := Answer{Remaining: a.Most(s, now, false), Reset: max(0, a.Expires(s)-now), Refused: refused}
	if refused {
		if r.Never = cost > a.limit; !r.Never {
			r.Wait = a.freed(s[windowStart]/a.width-a.full(s, cost)) - now
		}
	} else if s[windowCounts] > 0 && a.used(s) <= a.limit {
		r.More = a.freed(s[windowStart]/a.width-a.full(s, r.Remaining+1)) - now
	}
	return r
}

// full returns how many sub-windows before the newest is the one that must go before cost
// units fit: with it and what is newer they do not, without it they do.
func (a *slidingWindow) full(s []int64, cost int64) (j int64) {
	room := a.limit - cost
	for _, c := range a.counts(s) {
		if room -= c; room < 0 {
			break
		}
		j++
	}
	return j
}

func (a *slidingWindow) Expires(s []int64) int64 {
	if s[windowCounts] == 0 {
		return 0
	}
	return s[windowStart] + (a.buckets+1)*s[windowWidth]
}

func (a *slidingWindow) Sections() byte { return 'w' }

// AppendTake appends as the units no more than one beyond what ever fits.
func (a *slidingWindow) AppendTake(b []int64, cost, _, _ int64) []int64 {
	return append(b, a.width, a.buckets, a.limit, min(cost, a.limit+1))
}

// AppendUpTo appends one unit.
func (a *slidingWindow) AppendUpTo(b []int64, _ bool, _ int64) []int64 {
	return append(b, a.width, a.buckets, a.limit, 1)
}

func (a *slidingWindow) AppendRefund(b []int64, units int64, r Receipt, _ int64) []int64 {
	return append(b, a.width, a.buckets, a.limit, units, a.last(r))
}

func (a *slidingWindow) AppendCredit(b []int64, units, _ int64) []int64 {
	return append(b, a.width, a.buckets, a.limit, min(units, maxExact))
}

func (a *slidingWindow) AppendText(b []byte, s []int64) []byte {
	counts := a.counts(s)
	if counts[0] == 0 {
		return b
	}
	b = strconv.AppendInt(append(b, 'w'), s[windowStart], 10)
	b = strconv.AppendInt(append(b, ','), s[windowWidth], 10)
	last := len(counts) - 1
	for counts[last] == 0 {
		last--
	}
	for _, c := range counts[:last+1] {
		b = strconv.AppendInt(append(b, ','), c, 10)
	}
	return b
}

// parse refuses numbers with leading zeros, which the script would copy.
func (a *slidingWindow) parse(s []int64, text []byte) (ok bool) {
	if text[0] != 'w' {
		return false
	}
	start, text, ok := digits(text[1:])
	if !ok || start >= maxExact {
		return false
	}
	width, text, ok := listed(text)
	if !ok || width == 0 || start%width != 0 {
		return false
	}
	s[windowStart], s[windowWidth] = start, width
	counts := a.counts(s)
	for j := range counts {
		if counts[j], text, ok = listed(text); !ok || counts[j] >= maxCount || counts[0] == 0 || start < 0 {
			return false
		}
		if len(text) == 0 {
			return counts[j] > 0
		}
		start -= width
	}
	return false
}

func (a *slidingWindow) Reply() int { return 4 }

// ParseReply makes a state that stands in for the server's where that cost is
// concerned, but for no other: the reply has the start, how many units are in use,
// which sub-window must go before the cost fits, and which is the oldest. The oldest
// holds one unit, the one that must go what else must, and the newest holds the rest.
func (a *slidingWindow) ParseReply(s, reply []int64, now, cost int64) bool {
	start, used, full, oldest := reply[0], reply[1], reply[2], reply[3]
	if used == 0 && start == 0 && full == 0 && oldest == 0 {
		clear(s[:a.Words()])
		return true
	}
	index, newest := now/a.width, start/a.width
	if used < 1 || used >= maxExact || start%a.width != 0 || newest > index || full < 0 || oldest < full || newest-oldest < index-a.buckets {
		return false
	}
	rest := used
	if full > 0 {
		if rest = a.limit - cost; rest < 1 || rest >= used {
			return false
		}
	} else if oldest > 0 {
		rest = used - 1
	}
	counts := a.counts(s)
	clear(counts)
	counts[oldest] = min(1, used-rest)
	counts[full] += used - rest - counts[oldest]
	counts[0] += rest
	a.setNewest(s, newest)
	return counts[0] > 0 && (full == 0 || counts[full] > 0)
}

// Rewind leaves a count of 0 in the newest sub-window, which the next charge is to.
func (a *slidingWindow) Rewind(s []int64, now, units int64) bool {
	counts := a.counts(s)
	if units > 0 && s[windowStart]/a.width != now/a.width {
		return false
	}
	counts[0] -= units
	return counts[0] >= 0
}
