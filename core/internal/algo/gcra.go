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
// A caller that is not in debt may overdraw by debt units. One that comes too early may
// be charged all the same, if it can wait: the delay says when its turn comes, and later
// callers queue behind it.
//
// It comes from ATM traffic control (ITU-T I.371, 1993, annex A).
type gcra struct {
	l, p     int64
	burst    int64
	debt     int64
	wait     int64
	capacity span // of the whole bucket
	brim     span // of the bucket and debt
	most     span // the highest level that the rules allow: with debt and reservations
	unit     span // charge of one unit
	room     span // the highest level at which one more unit fits
}

// The words of a state.
const (
	meterEmpty = iota // when the bucket is empty again, in whole microseconds
	meterParts        // and the parts beyond
	meterWords
)

// GCRA lets a caller that knows what it has do without the interface; see its methods Decide and Parts.
type GCRA = gcra

// maxSpan bounds how far ahead of the clock any state may lie, in microseconds
// (71 years). It keeps every sum inside the 53 bits that Lua computes exactly.
const maxSpan = 1 << 51

func newGCRA(p Params) (Algorithm, error) { return meter(p) }

func meter(p Params) (*gcra, error) {
	g := gcd(p.Rate, p.Period)
	a := &gcra{l: p.Rate / g, p: p.Period / g, burst: p.Burst, debt: p.Debt, wait: p.Wait}
	hi, lo := bits.Mul64(uint64(p.Burst+p.Debt), uint64(a.p))
	if hi < uint64(a.l) { // the quotient fits 64 bits
		q, r := bits.Div64(hi, lo, uint64(a.l))
		if q <= maxSpan && (q+uint64(p.Wait) < maxSpan || q+uint64(p.Wait) == maxSpan && r == 0) {
			a.brim = span{int64(q), int64(r)}
			a.most = span{int64(q) + p.Wait, int64(r)}
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
	if p.Wait > 0 {
		text += fmt.Sprintf(" and a wait of %v", time.Duration(p.Wait)*time.Microsecond)
	}
	return text
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// weight returns the rise of the level by cost units, at most burst and debt.
func (a *gcra) weight(cost int64) span {
	if cost == 1 {
		return a.unit
	}
	return spanOf(cost, a.p, a.l)
}

// bound is the highest level at which cost units fit within wait. Without wait, it is the whole bucket for a
// cost that debt covers. It is negative for one that never fits.
func (a *gcra) bound(cost, wait int64) (bound span) {
	switch {
	case cost == 1:
		bound = a.room
	case cost == OneOwed:
		bound = a.brim.sub(a.unit, a.l)
	case cost > a.burst+a.debt:
		return span{w: -1}
	case cost <= a.debt:
		bound = a.capacity
	default:
		bound = a.capacity.sub(a.weight(cost-a.debt), a.l)
	}
	bound.w += wait
	return bound
}

func level(s []int64, now int64) span {
	if w := s[meterEmpty] - now; w >= 0 {
		return span{w, s[meterParts]}
	}
	return span{}
}

func setLevel(s []int64, now int64, held span) {
	m := meterOf(held, now)
	s[meterEmpty], s[meterParts] = m.Empty, m.Parts
}

// meterOf is the state with a level at now.
func meterOf(held span, now int64) Meter {
	if held == (span{}) {
		return Meter{}
	}
	return Meter{now + held.w, held.r}
}

func (a *gcra) Words() int { return meterWords }

func (a *gcra) Len([]int64) int { return meterWords }

// Apart returns the time in which a full bucket with its debt drains, and how far ahead a charge may be reserved: the highest
// level there can be. A meter of a lower one would cut off what the other has counted.
func (a *gcra) Apart() string {
	b := appendTime(nil, a.brim.w)
	if a.brim.r > 0 {
		g := gcd(a.brim.r, a.l)
		b = strconv.AppendInt(append(b, '_'), a.brim.r/g, 10)
		b = strconv.AppendInt(append(b, '_'), a.l/g, 10)
	}
	if a.wait > 0 {
		b = appendTime(append(b, '+'), a.wait)
	}
	return string(b)
}

func (a *gcra) Load(s []int64, now int64) bool {
	held, healed := a.load(Meter{s[meterEmpty], s[meterParts]}, now)
	setLevel(s, now, held)
	return healed
}

// load returns the level to which the rules bring a stored state.
func (a *gcra) load(m Meter, now int64) (held span, healed bool) {
	held = span{m.Empty - now, m.Parts}
	if held.r >= a.l { // written under another rate: less than 1 us, rounded up
		held = span{held.w + 1, 0}
	}
	if held.w < 0 {
		return span{}, false
	}
	if a.most.less(held) {
		return a.most, true
	}
	return held, false
}

func (a *gcra) Admits(s []int64, now, cost, wait int64) bool {
	return cost == 0 || !a.bound(cost, wait).less(level(s, now))
}

func (a *gcra) Most(s []int64, now int64, owing bool) int64 {
	full := a.capacity
	if owing {
		full = a.brim
	}
	return a.left(level(s, now), full)
}

// left returns the number of whole units between two levels.
func (a *gcra) left(held, full span) int64 {
	if full.less(held) {
		return 0
	}
	free := full.sub(held, a.l)
	hi, lo := bits.Mul64(uint64(free.w), uint64(a.l))
	lo, carry := bits.Add64(lo, uint64(free.r), 0)
	if hi += carry; hi == 0 {
		return int64(lo / uint64(a.p))
	}
	q, _ := bits.Div64(hi, lo, uint64(a.p))
	return int64(q)
}

func (a *gcra) Charge(s []int64, now, cost int64) {
	setLevel(s, now, level(s, now).add(a.weight(cost), a.l))
}

// Refund gives back the time that the charge took up, less every microsecond since.
// While callers may be waiting it gives back to the last in line only, and all or
// nothing, so that nobody moves onto another's turn; and before the turn of the charge
// itself nothing of it has drained.
func (a *gcra) Refund(s []int64, now, units int64, r Receipt) bool {
	c := a.charged(r)
	return a.refund(s, now, units, c, a.queue(c.made))
}

// charge is a receipt and the meter that it is from.
type charge struct {
	Receipt
	made *gcra
}

// charged reads a receipt. The state in it may be from another rate, as in Load.
func (a *gcra) charged(r Receipt) charge {
	made := a
	switch m := r.Made.(type) {
	case *gcra:
		made = m
	case leakyBucket:
		made = m.gcra
	}
	if r.Charged[meterParts] >= a.l {
		r.Charged = [meterWords]int64{r.Charged[meterEmpty] + 1}
	}
	return charge{r, made}
}

// weight returns the part of a level that units of the charge added, by the numbers of then.
func (c charge) weight(units int64, a *gcra) span {
	return a.whole(c.made, c.made.weight(min(units, c.made.burst+c.made.debt)))
}

// whole is a span of another meter without the parts, unless they are of the same size.
func (a *gcra) whole(of *gcra, s span) span {
	if of.l != a.l {
		s.r = 0
	}
	return s
}

// queue is the level above which callers may be waiting for their turn.
func (a *gcra) queue(made *gcra) span {
	if a.wait == 0 && made.wait == 0 {
		return a.most
	}
	if then := a.whole(made, made.capacity); then.less(a.capacity) {
		return then
	}
	return a.capacity
}

func (a *gcra) refund(s []int64, now, units int64, c charge, queue span) bool {
	held, back := level(s, now), c.weight(units, a)
	waiting := c.Delay > 0 && now < c.At+c.Delay
	if last := [meterWords]int64(s) == c.Charged && units >= c.Units; !last && (waiting || queue.less(held)) {
		return false
	}
	if !waiting {
		back.w -= max(0, now-c.At)
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

// Credit lowers the level by what the units weigh. So it forgives debt first, and callers that come next have an earlier
// turn than those who wait already.
func (a *gcra) Credit(s []int64, now, units int64) bool {
	held, back := level(s, now), a.credit(units)
	if held.less(back) {
		back = held
	}
	setLevel(s, now, held.sub(back, a.l))
	return back != (span{})
}

// credit is the weight of units, of which no more count than the highest level has.
func (a *gcra) credit(units int64) span {
	hi, lo := bits.Mul64(uint64(units), uint64(a.p))
	if hi < uint64(a.l) { // the quotient fits 64 bits
		if q, r := bits.Div64(hi, lo, uint64(a.l)); q <= uint64(a.most.w) {
			return span{int64(q), int64(r)}
		}
	}
	return a.most
}

func (a *gcra) Explain(s []int64, now, cost, wait int64, refused bool) (r Answer) {
	held := level(s, now)
	r.Remaining, r.Reset, r.Refused = a.left(held, a.capacity), held.ceil(), refused
	switch {
	case refused:
		if r.Never = cost > a.burst+a.debt; !r.Never {
			r.Wait = held.sub(a.bound(cost, wait), a.l).ceil()
		}
	case cost > 0:
		r.Charged = [meterWords]int64(s)
		a.explainReserved(&r, held.sub(a.weight(cost), a.l), cost)
		fallthrough
	default:
		r.More = a.more(held, r.Remaining)
	}
	return r
}

// more returns the time from a level until there is a unit more than remaining.
func (a *gcra) more(held span, remaining int64) int64 {
	switch {
	case remaining == a.burst:
		return 0
	case a.capacity.less(held): // in debt
		return held.sub(a.capacity, a.l).add(a.unit, a.l).ceil()
	}
	// The parts of a unit that are free already are fewer than p, whatever the sums before overflow.
	free := a.capacity.sub(held, a.l)
	lacks := a.p - (free.w*a.l + free.r - remaining*a.p)
	if a.l == 1 {
		return lacks
	}
	return ceilDiv(lacks, a.l)
}

// explainReserved sets the wait for the turn of a charge that was made at a level beyond the bound.
func (a *gcra) explainReserved(r *Answer, before span, cost int64) {
	if bound := a.bound(cost, 0); bound.less(before) {
		r.Wait = before.sub(bound, a.l).ceil()
	}
}

// Meter is a state of a GCRA by itself: when the bucket is empty again, in whole microseconds, and the parts beyond.
type Meter struct{ Empty, Parts int64 }

// Expires is [Arithmetic.Expires].
func (m Meter) Expires() int64 { return span{m.Empty, m.Parts}.ceil() }

// Decide is a whole decision where there is no other limit: Load, Admits, Charge and Explain at once, without the price
// of calls through an interface and of a level that is read again by each, which is a third of a decision in memory. It
// reports whether the state has changed and is to be stored. The Answer must be zero before.
func (a *gcra) Decide(r *Answer, m Meter, now, cost, wait int64) (next Meter, changed bool) {
	held, changed := a.load(m, now)
	bound := a.room
	if cost == 1 {
		bound.w += wait
	} else {
		bound = a.bound(cost, wait)
	}
	switch {
	case cost == 0:
	case bound.less(held):
		r.Refused = true
		if r.Never = cost > a.burst+a.debt; !r.Never {
			r.Wait = held.sub(bound, a.l).ceil()
		}
	default:
		if wait > 0 {
			a.explainReserved(r, held, cost)
		}
		held = held.add(a.weight(cost), a.l)
		r.Charged[meterEmpty], r.Charged[meterParts] = now+held.w, held.r
		changed = true
	}
	r.Remaining, r.Reset = a.left(held, a.capacity), held.ceil()
	if !r.Refused {
		r.More = a.more(held, r.Remaining)
	}
	return meterOf(held, now), changed
}

// Beyond reports whether a state is one that no decision leaves at now or earlier, so that Load would correct it.
func (a *gcra) Beyond(m Meter, now int64) bool {
	_, healed := a.load(m, now)
	return healed
}

// Parts returns the number of parts of a microsecond: those beyond the whole microseconds of a loaded state are fewer.
func (a *gcra) Parts() int64 { return a.l }

// Charges are equal charges at one instant, one after the other, that fit.
type Charges struct {
	of                  *gcra
	now, cost           int64
	held, weight, bound span
	remaining, more     int64
}

// Charges begins with a loaded state, which stays as it is. A charge is of at least one unit, and at most burst and
// debt.
func (a *gcra) Charges(s []int64, now, cost int64) Charges {
	held := level(s, now)
	left := a.left(held, a.capacity)
	c := Charges{of: a, now: now, cost: cost, held: held, weight: a.weight(cost), bound: a.bound(cost, 0), remaining: left}
	if c.more = a.unit.ceil(); left < a.burst { // whole units change nothing of the part of one that has come back
		c.more = a.more(held, left)
	}
	return c
}

// Next is Charge and Explain of the next one, without a division.
func (c *Charges) Next(r *Answer) {
	before := c.held
	c.held, c.remaining = before.add(c.weight, c.of.l), max(0, c.remaining-c.cost)
	*r = Answer{Remaining: c.remaining, Reset: c.held.ceil(), More: c.more, Charged: [meterWords]int64{c.now + c.held.w, c.held.r}}
	if c.of.capacity.less(c.held) { // in debt
		r.More = c.of.more(c.held, 0)
	}
	if c.bound.less(before) {
		r.Wait = before.sub(c.bound, c.of.l).ceil()
	}
}

func (a *gcra) Expires(s []int64) int64 { return span{s[meterEmpty], s[meterParts]}.ceil() }

// Sections are those without parts where there are none. A queue has those of a meter.
func (a *gcra) Sections() byte {
	if a.l == 1 {
		return 'g'
	}
	return 'G'
}

// AppendTake appends the level that the cost adds, the highest at which it fits and the
// highest that there is. Parts come last, if there are any.
func (a *gcra) AppendTake(b []int64, cost, wait, _ int64) []int64 {
	charge, bound := a.weight(min(cost, a.burst+a.debt)), a.bound(cost, wait)
	if cost == 0 {
		bound = a.most // a peek always fits
	}
	return a.appendParts(append(b, charge.w, bound.w, a.most.w), charge.r, bound.r, a.most.r, a.l-1)
}

// AppendUpTo appends one unit, and the whole bucket.
func (a *gcra) AppendUpTo(b []int64, owing bool, _ int64) []int64 {
	full := a.capacity
	if owing {
		full = a.brim
	}
	return a.appendParts(append(b, a.unit.w, full.w, a.most.w), a.unit.r, full.r, a.most.r, a.l-1)
}

func (a *gcra) appendParts(b []int64, parts ...int64) []int64 {
	if a.l == 1 {
		return b
	}
	return append(b, parts...)
}

// AppendRefund appends what was charged, the state that the charge led to, when its
// turn came if it had to wait, and the level above which callers may be waiting.
func (a *gcra) AppendRefund(b []int64, units int64, r Receipt, _ int64) []int64 {
	c := a.charged(r)
	return a.appendRefund(b, units, c, a.queue(c.made))
}

func (a *gcra) appendRefund(b []int64, units int64, c charge, queue span) []int64 {
	charge, turn := c.weight(units, a), int64(0)
	if c.Delay > 0 {
		turn = c.At + c.Delay
	}
	if units < c.Units {
		c.Charged = [meterWords]int64{} // an instant that no state has
	}
	return a.appendParts(append(b, charge.w, c.Charged[meterEmpty], a.most.w, turn, queue.w),
		charge.r, c.Charged[meterParts], a.most.r, a.l-1, queue.r)
}

// AppendCredit appends what the units weigh.
func (a *gcra) AppendCredit(b []int64, units, _ int64) []int64 {
	back := a.credit(units)
	return a.appendParts(append(b, back.w, a.most.w), back.r, a.most.r, a.l-1)
}

func (a *gcra) AppendText(b []byte, s []int64) []byte {
	if s[meterEmpty] == 0 {
		return b
	}
	b = strconv.AppendInt(b, s[meterEmpty], 10)
	if s[meterParts] > 0 {
		b = append(b, '+')
		b = strconv.AppendInt(b, s[meterParts], 10)
	}
	return b
}

func (a *gcra) parse(s []int64, text []byte) bool {
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
	s[meterEmpty], s[meterParts] = t, parts
	return true
}

func (a *gcra) Reply() int { return int(min(a.l, meterWords)) } // without parts where there are none

func (a *gcra) ParseReply(s, reply []int64, now, _ int64) bool {
	held := span{w: reply[0]}
	if a.l > 1 {
		held.r = reply[1]
	}
	if held.r < 0 || held.r >= a.l || a.most.less(held) {
		return false
	}
	s[meterEmpty], s[meterParts] = now+held.w, held.r // what is not stored need not be 0 if unused
	return true
}

func (a *gcra) Rewind(s []int64, now, units int64) bool {
	hi, lo := bits.Mul64(uint64(units), uint64(a.p))
	if hi >= uint64(a.l) { // the quotient does not fit 64 bits
		return false
	}
	q, r := bits.Div64(hi, lo, uint64(a.l))
	held, charged := level(s, now), span{int64(q), int64(r)}
	if q > maxSpan || held.less(charged) {
		return false
	}
	setLevel(s, now, held.sub(charged, a.l))
	return true
}

// span is a length of bucket time: w whole microseconds and r parts, of which l
// make a microsecond. Because the pair is kept instead of being multiplied out, every
// decision adds, subtracts and compares without ever overflowing.
type span struct{ w, r int64 }

// spanOf is units*weight parts as a span. The quotient must fit 63 bits, which
// newGCRA makes sure of.
func spanOf(units, weight, l int64) span {
	hi, lo := bits.Mul64(uint64(units), uint64(weight))
	q, r := bits.Div64(hi, lo, uint64(l))
	return span{int64(q), int64(r)}
}

func (a span) add(b span, l int64) span {
	a.w += b.w
	a.r += b.r
	if a.r >= l {
		a.w++
		a.r -= l
	}
	return a
}

func (a span) sub(b span, l int64) span {
	a.w -= b.w
	a.r -= b.r
	if a.r < 0 {
		a.w--
		a.r += l
	}
	return a
}

func (a span) less(b span) bool { return a.w < b.w || a.w == b.w && a.r < b.r }

// ceil is the span in whole microseconds, rounded up.
func (a span) ceil() int64 { return a.w + min(a.r, 1) }
