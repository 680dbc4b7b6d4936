package algo

import (
	"fmt"
	"math/bits"
	"strconv"
	"time"
)

// gcra is the generic cell rate algorithm: a leaky bucket as a meter, whose whole
// state is the instant at which the bucket is empty again.
//
// With g = gcd(rate, period), one unit weighs p = period/g parts and l = rate/g
// parts drain in each microsecond. Both are integers, so that no rate drifts.
// A state is two words: the instant in whole microseconds, and the parts beyond.
//
// Who is not in debt may overdraw by debt units. Who comes too early may be
// charged all the same, ahead of time: the delay says when the turn comes, and
// whoever comes later queues behind.
//
// It comes from ATM traffic control (ITU-T I.371, 1993, annex A).
type gcra struct {
	l, p     int64
	burst    int64
	debt     int64
	ahead    int64
	capacity span // of the whole bucket
	most     span // the highest level that the rules allow: with debt and reservations
	unit     span // charge of one unit
	room     span // the highest level at which one more unit fits
}

// maxSpan bounds how far ahead of the clock any state may lie, in microseconds
// (71 years). It keeps every sum inside the 53 bits that Lua computes exactly.
const maxSpan = 1 << 51

func newGCRA(p Params) (Algorithm, error) { return meter(p) }

func meter(p Params) (*gcra, error) {
	g := gcd(p.Rate, p.Period)
	a := &gcra{l: p.Rate / g, p: p.Period / g, burst: p.Burst, debt: p.Debt, ahead: p.Ahead}
	hi, lo := bits.Mul64(uint64(p.Burst+p.Debt), uint64(a.p))
	if hi < uint64(a.l) { // the quotient fits 64 bits
		q, r := bits.Div64(hi, lo, uint64(a.l))
		if q <= maxSpan && (q+uint64(p.Ahead) < maxSpan || q+uint64(p.Ahead) == maxSpan && r == 0) {
			a.most = span{int64(q) + p.Ahead, int64(r)}
			a.capacity = spanOf(p.Burst, a.p, a.l)
			a.unit = spanOf(1, a.p, a.l)
			if a.room = a.capacity; a.debt == 0 {
				a.room = a.capacity.sub(a.unit, a.l)
			}
			return a, nil
		}
	}
	return nil, fmt.Errorf("a burst of %d%s at this rate takes more than 71 years to drain; give smaller numbers or a higher rate",
		p.Burst, with(p))
}

// with names what else fills a bucket.
func with(p Params) (text string) {
	if p.Debt > 0 {
		text += fmt.Sprintf(" and a debt of %d", p.Debt)
	}
	if p.Ahead > 0 {
		text += fmt.Sprintf(" and a wait of %v", time.Duration(p.Ahead)*time.Microsecond)
	}
	return text
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// weight is what cost units, at most burst and debt, add to the level.
func (a *gcra) weight(cost int64) span {
	if cost == 1 {
		return a.unit
	}
	return spanOf(cost, a.p, a.l)
}

// bound is the highest level at which cost units still fit. It is negative for
// a cost that never fits, and the whole bucket for one that debt covers.
func (a *gcra) bound(cost int64) span {
	switch {
	case cost == 1:
		return a.room
	case cost > a.burst+a.debt:
		return span{w: -1}
	case cost <= a.debt:
		return a.capacity
	default:
		return a.capacity.sub(a.weight(cost-a.debt), a.l)
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

func (a *gcra) Len([]int64) int { return 2 }

func (a *gcra) Load(s []int64, now int64) bool {
	if s[1] >= a.l { // written under another rate: less than 1 us, rounded up
		s[0], s[1] = s[0]+1, 0
	}
	held := level(s, now)
	healed := a.most.less(held)
	if healed {
		held = a.most
	}
	setLevel(s, now, held)
	return healed
}

func (a *gcra) Admits(s []int64, now, cost, ahead int64) bool {
	return cost == 0 || !a.reach(cost, ahead).less(level(s, now))
}

// reach is the highest level at which cost units fit within ahead.
func (a *gcra) reach(cost, ahead int64) span {
	bound := a.bound(cost)
	if bound.w >= 0 {
		bound.w += ahead
	}
	return bound
}

func (a *gcra) Most(s []int64, now int64) int64 {
	held := level(s, now)
	if a.capacity.less(held) {
		return 0
	}
	return a.capacity.sub(held, a.l).units(a.p, a.l)
}

func (a *gcra) Charge(s []int64, now, cost int64) {
	setLevel(s, now, level(s, now).add(a.weight(cost), a.l))
}

// Refund gives back less for every microsecond that has drained since the charge.
// While anybody may be waiting it gives back to the last in line only, and all or nothing,
// so that nobody moves onto another's turn; and before the turn of the charge itself nothing of it has
// drained.
func (a *gcra) Refund(s []int64, now, units int64, r Receipt) bool {
	return a.refund(s, now, units, r, a.calm())
}

// calm is the highest level at which surely nobody waits.
func (a *gcra) calm() span {
	if a.ahead == 0 {
		return a.most
	}
	return a.capacity
}

func (a *gcra) refund(s []int64, now, units int64, r Receipt, calm span) bool {
	held, back := level(s, now), a.weight(min(units, a.burst+a.debt))
	waited := r.Delay > 0 && now < r.At+r.Delay
	if last := [2]int64(s) == r.Charged && units >= r.Units; !last && (waited || calm.less(held)) {
		return false
	}
	if !waited {
		back.w -= max(0, now-r.At)
	}
	if back.w < 0 || back == (span{}) || held == (span{}) {
		return false
	}
	if held.less(back) {
		held = back
	}
	setLevel(s, now, held.sub(back, a.l))
	return true
}

func (a *gcra) Explain(s []int64, now, cost, ahead int64, refused bool) Answer {
	held := level(s, now)
	r := Answer{Remaining: a.Most(s, now), Reset: held.ceil(), Refused: refused}
	switch {
	case refused:
		if r.Never = cost > a.burst+a.debt; !r.Never {
			r.Retry = held.sub(a.reach(cost, ahead), a.l).ceil()
		}
	case cost > 0:
		r.Charged = [2]int64(s)
		// What was charged beyond the bound was reserved.
		if before, bound := held.sub(a.weight(cost), a.l), a.bound(cost); bound.less(before) {
			r.Delay = before.sub(bound, a.l).ceil()
		}
	}
	return r
}

func (a *gcra) Expires(s []int64) int64 { return span{s[0], s[1]}.ceil() }

// AppendParams appends the whole microseconds of the charge, the bound and the
// most, then their parts, then l - 1: where l is 1, the rest is zeros.
func (a *gcra) AppendParams(b []int64, cost, ahead, _ int64) []int64 {
	charge, bound := a.weight(min(cost, a.burst+a.debt)), a.reach(cost, ahead)
	if cost == 0 {
		bound = a.most // a peek always fits
	}
	return append(b, charge.w, bound.w, a.most.w, charge.r, bound.r, a.most.r, a.l-1)
}

// AppendMost appends one unit as the charge, and the whole bucket as the bound.
func (a *gcra) AppendMost(b []int64, _ int64) []int64 {
	return append(b, a.unit.w, a.capacity.w, a.most.w, a.unit.r, a.capacity.r, a.most.r, a.l-1)
}

// AppendRefund appends the state that the charge led to as the bound, when the turn of
// the charge came if it had to wait, and the level up to which surely nobody waits.
func (a *gcra) AppendRefund(b []int64, units int64, r Receipt, _ int64) []int64 {
	return a.appendRefund(b, units, r, a.calm())
}

func (a *gcra) appendRefund(b []int64, units int64, r Receipt, calm span) []int64 {
	charge, turn := a.weight(min(units, a.burst+a.debt)), int64(0)
	if r.Delay > 0 {
		turn = r.At + r.Delay
	}
	if units < r.Units {
		r.Charged = [2]int64{} // an instant that no state has
	}
	return append(b, charge.w, r.Charged[0], a.most.w, charge.r, r.Charged[1], a.most.r, a.l-1, turn, calm.w, calm.r)
}

func (a *gcra) Reply() int { return 2 }

func (a *gcra) ParseReply(s, reply []int64, now, _ int64) bool {
	held := span{reply[0], reply[1]}
	if held.r < 0 || held.r >= a.l || a.most.less(held) {
		return false
	}
	setLevel(s, now, held)
	return true
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
	if !ok || t >= maxExact || len(text) > 40 {
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
