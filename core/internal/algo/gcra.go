package algo

import (
	"fmt"
	"math/bits"
	"strconv"
)

// gcra is the generic cell rate algorithm: a leaky bucket as a meter, whose whole
// state is the instant at which the bucket is empty again.
//
// With g = gcd(rate, period), one unit weighs p = period/g parts and l = rate/g
// parts drain in each microsecond. Both are integers, so that no rate drifts.
// A state is two words: the instant in whole microseconds, and the parts beyond.
//
// It comes from ATM traffic control (ITU-T I.371, 1993, annex A).
type gcra struct {
	l, p     int64
	burst    int64
	capacity span // of the whole bucket
	unit     span // charge of one unit
	room     span // the highest level at which one more unit fits
}

// maxSpan bounds how far ahead of the clock any state may lie, in microseconds
// (71 years). It keeps every sum inside the 53 bits that Lua computes exactly.
const maxSpan = 1 << 51

func newGCRA(p Params) (*gcra, error) {
	g := gcd(p.Rate, p.Period)
	a := &gcra{l: p.Rate / g, p: p.Period / g, burst: p.Burst}
	hi, lo := bits.Mul64(uint64(a.burst), uint64(a.p))
	if hi < uint64(a.l) { // the quotient fits 64 bits
		q, r := bits.Div64(hi, lo, uint64(a.l))
		a.capacity = span{int64(q), int64(r)}
		if q < maxSpan || q == maxSpan && r == 0 {
			a.unit = spanOf(1, a.p, a.l)
			a.room = a.capacity.sub(a.unit, a.l)
			return a, nil
		}
	}
	return nil, fmt.Errorf("a burst of %d at this rate takes more than 71 years to drain; give a smaller burst or a higher rate", p.Burst)
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// weight is what cost units, at most the burst, add to the level.
func (a *gcra) weight(cost int64) span {
	if cost == 1 {
		return a.unit
	}
	return spanOf(cost, a.p, a.l)
}

// bound is the highest level at which cost units still fit. It is negative for
// a cost that never fits, and the whole capacity for a peek.
func (a *gcra) bound(cost int64) span {
	switch {
	case cost > a.burst:
		return span{w: -1}
	case cost == 1:
		return a.room
	default:
		return a.capacity.sub(a.weight(cost), a.l)
	}
}

func level(s []int64, now int64) span {
	if w := s[0] - now; w >= 0 {
		return span{w, s[1]}
	}
	return span{}
}

func setLevel(s []int64, now int64, held span) {
	if held == (span{}) {
		s[0], s[1] = 0, 0
	} else {
		s[0], s[1] = now+held.w, held.r
	}
}

func (a *gcra) Words() int { return 2 }

func (a *gcra) Load(s []int64, now int64) bool {
	if s[1] >= a.l { // written under another rate: less than 1 us, rounded up
		s[0], s[1] = s[0]+1, 0
	}
	held := level(s, now)
	healed := a.capacity.less(held)
	if healed {
		held = a.capacity
	}
	setLevel(s, now, held)
	return healed
}

func (a *gcra) Admits(s []int64, now, cost int64) bool {
	return cost == 0 || !a.bound(cost).less(level(s, now))
}

func (a *gcra) Charge(s []int64, now, cost int64) {
	setLevel(s, now, level(s, now).add(a.weight(cost), a.l))
}

// Refund gives back less for every microsecond that has drained since the charge.
func (a *gcra) Refund(s []int64, now, at, units int64) bool {
	held, back := level(s, now), a.weight(min(units, a.burst))
	back.w -= max(0, now-at)
	if back.w < 0 || back == (span{}) || held == (span{}) {
		return false
	}
	if held.less(back) {
		held = back
	}
	setLevel(s, now, held.sub(back, a.l))
	return true
}

func (a *gcra) Explain(s []int64, now, cost int64, refused bool) Answer {
	held := level(s, now)
	r := Answer{Reset: held.ceil(), Refused: refused}
	if held.less(a.capacity) {
		r.Remaining = a.capacity.sub(held, a.l).units(a.p, a.l)
	}
	if refused {
		if r.Never = cost > a.burst; !r.Never {
			r.Retry = held.sub(a.bound(cost), a.l).ceil()
		}
	}
	return r
}

func (a *gcra) Expires(s []int64) int64 { return span{s[0], s[1]}.ceil() }

// AppendParams appends the whole microseconds of the charge, the bound and the
// capacity, then their parts, then l - 1: where l is 1, the rest is zeros.
func (a *gcra) AppendParams(b []int64, cost int64) []int64 {
	charge, bound := a.weight(min(cost, a.burst)), a.bound(cost)
	return append(b, charge.w, bound.w, a.capacity.w, charge.r, bound.r, a.capacity.r, a.l-1)
}

func (a *gcra) ParseReply(s []int64, now int64) (fits, ok bool) {
	if fits = s[0] >= 0; !fits {
		s[0] = -1 - s[0]
	}
	held := span{s[0], s[1]}
	if held.r < 0 || held.r >= a.l || a.capacity.less(held) {
		return false, false
	}
	setLevel(s, now, held)
	return fits, true
}

func (a *gcra) AppendText(b []byte, s []int64) []byte {
	if s[0] == 0 {
		return b
	}
	b = strconv.AppendInt(b, s[0], 10)
	if s[1] > 0 {
		b = append(b, '+')
		b = strconv.AppendInt(b, s[1], 10)
	}
	return b
}

func (a *gcra) ParseText(s []int64, text []byte) bool {
	s[0], s[1] = 0, 0
	if len(text) == 0 {
		return true
	}
	t, rest, ok := digits(text)
	if !ok || t >= maxExact {
		return false
	}
	if len(rest) > 0 && rest[0] == '+' {
		rest = rest[1:]
	}
	var parts int64
	if len(rest) > 0 {
		if parts, rest, ok = digits(rest); !ok || len(rest) > 0 {
			return false
		}
	}
	s[0], s[1] = t, parts
	return true
}
