package algo

import (
	"math/bits"
	"strconv"
)

// slidingCounter estimates a sliding window by two counts: of the window that now is
// in, and of the one before, which weighs as much as is still in sight. Windows begin
// at multiples of the period. It takes the units before to be spread evenly: whoever
// sends them late gets up to twice the limit through within one period.
//
// A state is the start of the current window, its count, that of the one before, and
// when both expire. The start is a time, not an index, so that it means the same after
// a change of the period.
type slidingCounter struct{ limit, period int64 }

func newSlidingCounter(p Params) (Algorithm, error) {
	return &slidingCounter{p.Rate, p.Period}, nil
}

// The words of a state.
const (
	counterStart = iota
	counterCurrent
	counterPrevious
	counterExpires
	counterWords
)

func (a *slidingCounter) Words() int { return counterWords }

func (a *slidingCounter) Len([]int64) int { return counterWords }

// set makes a state of what is counted in the window with that start.
func (a *slidingCounter) set(s []int64, start, current, previous int64) {
	var expires int64
	switch {
	case current > 0:
		expires = start + 2*a.period
	case previous > 0:
		expires = start + a.period
	default:
		start = 0
	}
	s[counterStart], s[counterCurrent], s[counterPrevious], s[counterExpires] = start, current, previous, expires
}

func (a *slidingCounter) Load(s []int64, now int64) (healed bool) {
	index, stored := now/a.period, s[counterStart]/a.period
	current, previous := s[counterCurrent], s[counterPrevious]
	switch {
	case current == 0 && previous == 0:
		return false
	case stored > index: // what lies ahead of the clock counts as of now
		current, previous, healed = current+previous, 0, true
	case stored == index-1:
		current, previous = 0, current
	case stored < index:
		current, previous = 0, 0
	}
	if current > a.limit {
		current, healed = a.limit, true
	}
	if previous > a.limit {
		previous, healed = a.limit, true
	}
	a.set(s, index*a.period, current, previous)
	return healed
}

// used is the estimate. It may exceed the limit after the clock stepped back a
// little, which makes the window before weigh more.
func (a *slidingCounter) used(s []int64, now int64) int64 {
	weighted, rest := mulDiv(s[counterPrevious], a.period-now%a.period, a.period)
	if rest > 0 {
		weighted++
	}
	return s[counterCurrent] + weighted
}

// mulDiv is x*y/z and the remainder. The quotient must fit 63 bits.
func mulDiv(x, y, z int64) (q, r int64) {
	hi, lo := bits.Mul64(uint64(x), uint64(y))
	quo, rem := bits.Div64(hi, lo, uint64(z))
	return int64(quo), int64(rem)
}

func (a *slidingCounter) Admits(s []int64, now, cost, _ int64) bool {
	return cost == 0 || cost <= a.limit-a.used(s, now)
}

func (a *slidingCounter) Most(s []int64, now int64) int64 { return max(0, a.limit-a.used(s, now)) }

func (a *slidingCounter) Charge(s []int64, now, cost int64) {
	a.set(s, now-now%a.period, s[counterCurrent]+cost, s[counterPrevious])
}

// Refund takes the units from the current window, if the charge was in it.
func (a *slidingCounter) Refund(s []int64, now, units int64, r Receipt) bool {
	if units == 0 || s[counterCurrent] == 0 || r.At/a.period != now/a.period {
		return false
	}
	a.set(s, s[counterStart], max(0, s[counterCurrent]-units), s[counterPrevious])
	return true
}

func (a *slidingCounter) Explain(s []int64, now, cost, _ int64, refused bool) Answer {
	r := Answer{Remaining: a.Most(s, now), Reset: max(0, s[counterExpires]-now), Refused: refused}
	if refused {
		if r.Never = cost > a.limit; !r.Never {
			r.Retry = a.retry(s, now, cost)
		}
	}
	return r
}

// retry is how long to wait until the window before has become light enough: in this
// window, if what is counted in it leaves room for the cost; else in the next, where
// it is the one before.
func (a *slidingCounter) retry(s []int64, now, cost int64) int64 {
	start, room, heavy := now-now%a.period, a.limit-cost-s[counterCurrent], s[counterPrevious]
	if room < 0 {
		start, room, heavy = start+a.period, a.limit-cost, s[counterCurrent]
	}
	// heavy * left <= room * period, where left is how much of it is in sight.
	left, _ := mulDiv(room, a.period, heavy)
	return start + a.period - left - now
}

func (a *slidingCounter) Expires(s []int64) int64 { return s[counterExpires] }

// AppendParams appends the period, the limit and the cost.
func (a *slidingCounter) AppendParams(b []int64, cost, _, _ int64) []int64 {
	return append(b, a.period, a.limit, min(cost, a.limit+1))
}

// AppendMost appends no cost.
func (a *slidingCounter) AppendMost(b []int64, _ int64) []int64 {
	return append(b, a.period, a.limit)
}

// AppendRefund appends the units as the cost.
func (a *slidingCounter) AppendRefund(b []int64, units int64, _ Receipt, guess int64) []int64 {
	return a.AppendParams(b, units, 0, guess)
}

func (a *slidingCounter) Reply() int { return 3 }

func (a *slidingCounter) ParseReply(s, reply []int64, now, _ int64) bool {
	start, current, previous := reply[0], reply[1], reply[2]
	want := now - now%a.period
	if current == 0 && previous == 0 {
		want = 0
	}
	if start != want || current < 0 || current > a.limit || previous < 0 || previous > a.limit {
		return false
	}
	a.set(s, start, current, previous)
	return true
}

func (a *slidingCounter) AppendText(b []byte, s []int64) []byte {
	if s[counterCurrent] == 0 && s[counterPrevious] == 0 {
		return b
	}
	b = append(b, 'c')
	b = strconv.AppendInt(b, s[counterStart], 10)
	b = append(b, ',')
	b = strconv.AppendInt(b, s[counterCurrent], 10)
	b = append(b, ',')
	return strconv.AppendInt(b, s[counterPrevious], 10)
}

func (a *slidingCounter) ParseText(s []int64, text []byte) bool {
	clear(s[:counterWords])
	if len(text) == 0 {
		return true
	}
	if text[0] != 'c' {
		return false
	}
	start, rest, ok := digits(text[1:])
	if !ok || start >= maxExact {
		return false
	}
	current, rest, ok := listed(rest)
	if !ok {
		return false
	}
	previous, rest, ok := listed(rest)
	if !ok || len(rest) > 0 || current == 0 && previous == 0 {
		return false
	}
	s[counterStart], s[counterCurrent], s[counterPrevious] = start, current, previous
	return true
}
