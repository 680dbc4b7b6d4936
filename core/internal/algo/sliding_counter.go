package algo

import (
	"math/bits"
	"strconv"
)

// slidingCounter estimates a sliding window by two counts: of the window that now is
// in, and of the one before, which weighs as much as is still in sight. Windows begin
// at multiples of the period. It takes the units before to be spread evenly: a caller that
// sends them late gets up to twice the limit through within one period.
//
// A state is the start and the length of the current window, its count, and that of the
// one before. Both windows are times, so that they mean the same after a change of the
// period: what they count then belongs to the window in which they end.
type slidingCounter struct{ limit, period int64 }

func newSlidingCounter(p Params) (Algorithm, error) {
	return &slidingCounter{p.Rate, p.Period}, nil
}

// The words of a state.
const (
	counterStart = iota
	counterPeriod
	counterCurrent
	counterPrevious
	counterWords
)

func (a *slidingCounter) Words() int { return counterWords }

func (a *slidingCounter) Apart() string { return "" }

func (a *slidingCounter) Len([]int64) int { return counterWords }

// set makes a state of what is counted in the window with that start.
func (a *slidingCounter) set(s []int64, start, current, previous int64) {
	if current == 0 && previous == 0 {
		clear(s[:counterWords])
		return
	}
	s[counterStart], s[counterPeriod], s[counterCurrent], s[counterPrevious] = start, a.period, current, previous
}

func (a *slidingCounter) Load(s []int64, now int64) (healed bool) {
	if s[counterCurrent] == 0 && s[counterPrevious] == 0 {
		return false
	}
	start, index := s[counterStart], now/a.period
	var counts [2]int64 // of this window and the one before
	// What lies ahead of the clock counts as of now. If it were not stored like that, it would count as of later when
	// it is read later, and weigh for longer than an answer said.
	healed = start > now || s[counterCurrent] > 0 && (start+s[counterPeriod]-1)/a.period > index
	if age := index - min(start+s[counterPeriod]-1, now)/a.period; age <= 1 {
		counts[age] = s[counterCurrent]
	}
	if age := index - min(start-1, now)/a.period; s[counterPrevious] > 0 && age <= 1 {
		counts[age] += s[counterPrevious]
	}
	a.set(s, index*a.period, counts[0], counts[1])
	return healed
}

// used is the estimate. It may exceed the limit where other numbers count on the same key, and after the clock stepped
// back a little, which makes the window before weigh more.
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

func (a *slidingCounter) Most(s []int64, now int64, _ bool) int64 {
	return max(0, a.limit-a.used(s, now))
}

func (a *slidingCounter) Charge(s []int64, now, cost int64) {
	a.set(s, now-now%a.period, s[counterCurrent]+cost, s[counterPrevious])
}

// Refund takes the units from the window that counts the charge, this one or the one
// before. After a change of the period that is not sure: of those that it may be, the
// older one gives back less.
func (a *slidingCounter) Refund(s []int64, now, units int64, r Receipt) bool {
	index := now / a.period
	first, last := min(r.At, now)/a.period, min(a.last(r), now)/a.period
	current, previous := s[counterCurrent], s[counterPrevious]
	switch {
	case units <= 0:
		return false
	case previous > 0 && first < index && index-1 <= last:
		previous -= min(units, previous)
	case current > 0 && last == index:
		current -= min(units, current)
	default:
		return false
	}
	a.set(s, s[counterStart], current, previous)
	return true
}

// Credit takes the units from this window, and what is left of them from the one before, where they give back what they
// still weigh.
func (a *slidingCounter) Credit(s []int64, _, units int64) bool {
	current, previous := s[counterCurrent], s[counterPrevious]
	if current+previous == 0 {
		return false
	}
	back := min(units, current)
	a.set(s, s[counterStart], current-back, previous-min(units-back, previous))
	return true
}

// last is the end of the window of the charge, inclusive.
func (a *slidingCounter) last(r Receipt) int64 {
	if made, ok := r.Made.(*slidingCounter); ok {
		a = made
	}
	return (r.At/a.period+1)*a.period - 1
}

func (a *slidingCounter) Explain(s []int64, now, cost, _ int64, refused bool) Answer {
	r := Answer{Remaining: a.Most(s, now, false), Reset: max(0, a.Expires(s)-now), Refused: refused}
	if refused {
		if r.Never = cost > a.limit; !r.Never {
			r.Wait = a.retry(s, now, cost)
		}
	} else if r.Remaining < a.limit {
		r.More = a.retry(s, now, r.Remaining+1)
	}
	return r
}

// retry returns the wait until the window before has become light enough: in this
// window, if what is counted in it leaves room for the cost; else in the next, where
// it is the one before.
func (a *slidingCounter) retry(s []int64, now, cost int64) int64 {
	start, room, heavy := now-now%a.period, a.limit-cost-s[counterCurrent], s[counterPrevious]
	if room < 0 {
		start, room, heavy = start+a.period, a.limit-cost, s[counterCurrent]
	}
	// heavy * left <= room * period, where left is the part of it that is in sight.
	left, _ := mulDiv(room, a.period, heavy)
	return start + a.period - left - now
}

func (a *slidingCounter) Expires(s []int64) int64 {
	switch {
	case s[counterCurrent] > 0:
		return s[counterStart] + 2*s[counterPeriod]
	case s[counterPrevious] > 0:
		return s[counterStart] + s[counterPeriod]
	default:
		return 0
	}
}

func (a *slidingCounter) Sections() byte { return 'd' }

// AppendTake appends as the cost no more than one unit beyond what ever fits.
func (a *slidingCounter) AppendTake(b []int64, cost, _, _ int64) []int64 {
	return append(b, a.period, a.limit, min(cost, a.limit+1))
}

func (a *slidingCounter) AppendUpTo(b []int64, _ bool, _ int64) []int64 {
	return append(b, a.period, a.limit)
}

func (a *slidingCounter) AppendRefund(b []int64, units int64, r Receipt, _ int64) []int64 {
	return append(b, a.period, units, a.last(r))
}

func (a *slidingCounter) AppendCredit(b []int64, units, _ int64) []int64 {
	return append(b, a.period, min(units, 2*maxCount))
}

func (a *slidingCounter) AppendText(b []byte, s []int64) []byte {
	if s[counterCurrent] == 0 && s[counterPrevious] == 0 {
		return b
	}
	b = strconv.AppendInt(append(b, 'd'), s[counterStart], 10)
	for _, n := range s[counterPeriod:counterWords] {
		b = strconv.AppendInt(append(b, ','), n, 10)
	}
	return b
}

func (a *slidingCounter) parse(s []int64, text []byte) (ok bool) {
	if text[0] != 'd' {
		return false
	}
	if s[counterStart], text, ok = digits(text[1:]); !ok || s[counterStart] >= maxExact {
		return false
	}
	for i := counterPeriod; i < counterWords; i++ {
		if s[i], text, ok = listed(text); !ok {
			return false
		}
	}
	return len(text) == 0 && max(s[counterCurrent], s[counterPrevious]) < maxCount && s[counterPeriod] > 0 && s[counterStart]%s[counterPeriod] == 0 &&
		(s[counterPrevious] > 0 && s[counterStart] > 0 || s[counterPrevious] == 0 && s[counterCurrent] > 0)
}

func (a *slidingCounter) Reply() int { return 2 }

func (a *slidingCounter) ParseReply(s, reply []int64, now, _ int64) bool {
	current, previous := reply[0], reply[1]
	if current < 0 || current >= maxExact || previous < 0 || previous >= maxExact {
		return false
	}
	a.set(s, now-now%a.period, current, previous)
	return true
}

func (a *slidingCounter) Rewind(s []int64, _, units int64) bool {
	if units > s[counterCurrent] {
		return false
	}
	a.set(s, s[counterStart], s[counterCurrent]-units, s[counterPrevious])
	return true
}
