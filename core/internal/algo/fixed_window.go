package algo

import "strconv"

// fixedWindow counts units in windows that do not overlap. A window begins with the
// first admitted hit after the last one, or is aligned to the epoch or the calendar.
// It is the cheapest; in any stretch as long as a window, twice the rate may pass.
//
// A state is two words: the end of the window, and the units counted in it.
type fixedWindow struct {
	rate, period int64
	epoch        bool
	calendar     *calendar // nil unless aligned to one
}

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

// end is where a window ends that is in use at now: the latest that the rules allow.
func (a *fixedWindow) end(now int64) int64 {
	switch {
	case a.calendar != nil:
		return a.calendar.end(now)
	case a.epoch:
		return now - now%a.period + a.period
	default:
		return now + a.period
	}
}

func (a *fixedWindow) Words() int { return 2 }

func (a *fixedWindow) Len([]int64) int { return 2 }

func (a *fixedWindow) Load(s []int64, now int64) (healed bool) {
	switch {
	case s[0] <= 0 || s[1] <= 0:
		healed = s[0] != 0 || s[1] != 0
		s[0], s[1] = 0, 0
		return healed
	case s[0] <= now:
		s[0], s[1] = 0, 0
		return false
	}
	if end := a.end(now); s[0] > end {
		s[0], healed = end, true
	}
	if s[1] > a.rate {
		s[1], healed = a.rate, true
	}
	return healed
}

func (a *fixedWindow) Admits(s []int64, _, cost, _ int64) bool { return cost <= a.rate-s[1] }

func (a *fixedWindow) Most(s []int64, _ int64) int64 { return a.rate - s[1] }

func (a *fixedWindow) Charge(s []int64, now, cost int64) {
	if s[1] == 0 {
		s[0] = a.end(now)
	}
	s[1] += cost
}

// Refund gives back nothing once another window has begun, nor once the window was cut
// short: it is not the one of the charge.
func (a *fixedWindow) Refund(s []int64, _, units int64, r Receipt) bool {
	if units <= 0 || s[1] == 0 || s[0] != r.Charged[0] {
		return false
	}
	if s[1] -= min(units, s[1]); s[1] == 0 {
		s[0] = 0
	}
	return true
}

func (a *fixedWindow) Explain(s []int64, now, cost, _ int64, refused bool) Answer {
	r := Answer{Remaining: a.rate - s[1], Refused: refused}
	if s[1] > 0 {
		r.Reset = s[0] - now
	}
	switch {
	case refused:
		if r.Never = cost > a.rate; !r.Never {
			r.Retry = r.Reset
		}
	case cost > 0:
		r.Charged[0] = s[0]
	}
	return r
}

func (a *fixedWindow) Expires(s []int64) int64 { return s[0] }

// AppendParams appends the cost, or one more than ever fits.
func (a *fixedWindow) AppendParams(b []int64, cost, _, guess int64) []int64 {
	return a.appendWindow(b, min(cost, a.rate+1), guess)
}

// AppendMost appends 1 where the others have units.
func (a *fixedWindow) AppendMost(b []int64, guess int64) []int64 {
	return a.appendWindow(b, 1, guess)
}

// AppendRefund appends the end of the window of the charge as well.
func (a *fixedWindow) AppendRefund(b []int64, units int64, r Receipt, guess int64) []int64 {
	return append(a.appendWindow(b, min(units, a.rate), guess), r.Charged[0])
}

// appendWindow appends units, and all of which a window's end follows: the period, the
// period again if it counts from the epoch, and the window of the calendar around guess.
// Windows that begin with a hit come first, so that they need no more than three numbers.
func (a *fixedWindow) appendWindow(b []int64, units, guess int64) []int64 {
	switch {
	case a.calendar != nil:
		w := a.calendar.around(guess)
		return append(b, units, a.rate, 0, 0, w.start, w.end, w.next)
	case a.epoch:
		return append(b, units, a.rate, 0, a.period, 0, 0, 0)
	default:
		return append(b, units, a.rate, a.period, 0, 0, 0, 0)
	}
}

func (a *fixedWindow) Reply() int { return 2 }

func (a *fixedWindow) ParseReply(s, reply []int64, now, _ int64) bool {
	count, end := reply[0], reply[1]
	if count == 0 {
		s[0], s[1] = 0, 0
		return end == 0
	}
	if count < 0 || count > a.rate || end <= now || end > a.end(now) {
		return false
	}
	s[0], s[1] = end, count
	return true
}

func (a *fixedWindow) AppendText(b []byte, s []int64) []byte {
	if s[1] == 0 {
		return b
	}
	b = strconv.AppendInt(append(b, 'f'), s[1], 10)
	return strconv.AppendInt(append(b, ','), s[0], 10)
}

func (a *fixedWindow) ParseText(s []int64, text []byte) bool {
	s[0], s[1] = 0, 0
	if len(text) == 0 {
		return true
	}
	if text[0] != 'f' {
		return false
	}
	count, rest, ok := digits(text[1:])
	if !ok || count == 0 || count >= maxExact || len(rest) == 0 || rest[0] != ',' {
		return false
	}
	end, rest, ok := digits(rest[1:])
	if !ok || end == 0 || end >= maxExact || len(rest) > 0 {
		return false
	}
	s[0], s[1] = end, count
	return true
}
