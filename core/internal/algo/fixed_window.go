package algo

import "strconv"

// fixedWindow counts units in windows that do not overlap. A window begins with the
// first admitted hit after the last one, or is aligned to the epoch or the calendar.
// It is the cheapest; in any stretch as long as a window, twice the rate may pass.
//
// A state is the end of the window, and the units counted in it. These may be more than the rate, where other numbers
// count on the same key: they stay counted until the window ends.
type fixedWindow struct {
	rate, period int64
	epoch        bool
	calendar     *calendar // nil unless aligned to one
}

// maxWindowRate is as many units as any uint32 counts, and a small part of maxCount: nothing here multiplies them.
const maxWindowRate = 1 << 32

// The words of a state.
const (
	fixedEnd = iota
	fixedCount
	fixedWords
)

func newFixedWindow(p Params) (Algorithm, error) {
	a := &fixedWindow{rate: p.Rate, period: p.Period}
	switch p.Align {
	case "":
	case AlignEpoch:
		a.epoch = true
	default:
		var err error
		if a.calendar, err = newCalendar(p.Align); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// latest is the latest that a window which is in use at now may end.
func (a *fixedWindow) latest(now int64) int64 {
	switch {
	case a.calendar != nil:
		return a.calendar.end(now)
	case a.epoch:
		return now - now%a.period + a.period
	default:
		return now + a.period
	}
}

func (a *fixedWindow) Words() int { return fixedWords }

func (a *fixedWindow) Apart() string { return "" }

func (a *fixedWindow) Len([]int64) int { return fixedWords }

func (a *fixedWindow) Load(s []int64, now int64) (healed bool) {
	switch {
	case s[fixedEnd] <= 0 || s[fixedCount] <= 0:
		healed = s[fixedEnd] != 0 || s[fixedCount] != 0
		s[fixedEnd], s[fixedCount] = 0, 0
		return healed
	case s[fixedEnd] <= now:
		s[fixedEnd], s[fixedCount] = 0, 0
		return false
	}
	if latest := a.latest(now); s[fixedEnd] > latest {
		s[fixedEnd], healed = latest, true
	}
	return healed
}

func (a *fixedWindow) Admits(s []int64, _, cost, _ int64) bool {
	return cost == 0 || cost <= a.rate-s[fixedCount]
}

func (a *fixedWindow) Most(s []int64, _ int64, _ bool) int64 { return max(0, a.rate-s[fixedCount]) }

func (a *fixedWindow) Charge(s []int64, now, cost int64) {
	if s[fixedCount] == 0 {
		s[fixedEnd] = a.latest(now)
	}
	s[fixedCount] += cost
}

// Refund takes the units from the window of the charge: one that the charge lies in, and
// that ends when it did then, or earlier, because the clock stepped back or the period
// was lowered.
func (a *fixedWindow) Refund(s []int64, _, units int64, r Receipt) bool {
	if units <= 0 || s[fixedEnd] < r.At || s[fixedEnd] > a.last(r) {
		return false
	}
	return a.Credit(s, 0, units)
}

// Credit takes the units from the window of now.
func (a *fixedWindow) Credit(s []int64, _, units int64) bool {
	if s[fixedCount] == 0 {
		return false
	}
	if s[fixedCount] -= min(units, s[fixedCount]); s[fixedCount] == 0 {
		s[fixedEnd] = 0
	}
	return true
}

// last is the latest end of a window that has the charge.
func (a *fixedWindow) last(r Receipt) int64 { return min(r.Charged[fixedEnd], a.latest(r.At)) }

func (a *fixedWindow) Explain(s []int64, now, cost, _ int64, refused bool) Answer {
	r := Answer{Remaining: a.Most(s, now, false), Refused: refused}
	if s[fixedCount] > 0 {
		r.Reset = s[fixedEnd] - now
	}
	switch {
	case refused:
		if r.Never = cost > a.rate; !r.Never {
			r.Wait = r.Reset
		}
	case cost > 0:
		r.Charged[fixedEnd] = s[fixedEnd]
	}
	if !refused {
		r.More = r.Reset
	}
	return r
}

func (a *fixedWindow) Expires(s []int64) int64 { return s[fixedEnd] }

func (a *fixedWindow) Sections() byte { return 'f' }

// AppendTake appends as the cost no more than one unit beyond what ever fits.
func (a *fixedWindow) AppendTake(b []int64, cost, _, guess int64) []int64 {
	return a.appendWindow(append(b, min(cost, a.rate+1), a.rate), guess)
}

func (a *fixedWindow) AppendUpTo(b []int64, _ bool, guess int64) []int64 {
	return a.appendWindow(append(b, a.rate), guess)
}

func (a *fixedWindow) AppendRefund(b []int64, units int64, r Receipt, guess int64) []int64 {
	return append(a.appendWindow(append(b, units), guess), a.last(r))
}

func (a *fixedWindow) AppendCredit(b []int64, units, guess int64) []int64 {
	return a.appendWindow(append(b, min(units, maxCount)), guess)
}

// appendWindow appends what a window's end follows from: the period, the
// period again if it counts from the epoch, and the window of the calendar around guess.
// Windows that begin with a hit come first, so that they need the fewest numbers.
func (a *fixedWindow) appendWindow(b []int64, guess int64) []int64 {
	switch {
	case a.calendar != nil:
		w := a.calendar.around(guess)
		return append(b, 0, 0, w.start, w.end, w.next)
	case a.epoch:
		return append(b, 0, a.period, 0, 0, 0)
	default:
		return append(b, a.period, 0, 0, 0, 0)
	}
}

func (a *fixedWindow) AppendText(b []byte, s []int64) []byte {
	if s[fixedCount] == 0 {
		return b
	}
	b = strconv.AppendInt(append(b, 'f'), s[fixedCount], 10)
	return strconv.AppendInt(append(b, ','), s[fixedEnd], 10)
}

func (a *fixedWindow) parse(s []int64, text []byte) bool {
	if text[0] != 'f' {
		return false
	}
	count, rest, ok := digits(text[1:])
	if !ok || count == 0 || count >= maxCount || len(rest) == 0 || rest[0] != ',' {
		return false
	}
	end, rest, ok := digits(rest[1:])
	if !ok || end == 0 || end >= maxExact || len(rest) > 0 {
		return false
	}
	s[fixedEnd], s[fixedCount] = end, count
	return true
}

func (a *fixedWindow) Reply() int { return 2 }

func (a *fixedWindow) ParseReply(s, reply []int64, now, _ int64) bool {
	count, end := reply[0], reply[1]
	if count == 0 {
		s[fixedEnd], s[fixedCount] = 0, 0
		return end == 0
	}
	if count < 0 || count >= maxCount || end <= now || end > a.latest(now) {
		return false
	}
	s[fixedEnd], s[fixedCount] = end, count
	return true
}

// Rewind does not look at the end of the window: that of the first charge in it is the
// same.
func (a *fixedWindow) Rewind(s []int64, _, units int64) bool {
	s[fixedCount] -= units
	return s[fixedCount] >= 0
}
