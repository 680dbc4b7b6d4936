package algo

import (
	"fmt"
	"math/bits"
	"strconv"
	"time"
)

// tokenBucket is refilled in steps: rate tokens arrive together every period, counted
// from the first use after the bucket was full.
//
// A state is three words: the instant of the last refill, the tokens in the bucket, and
// the instant when it will be full, which is as if unused. Tokens are negative in debt,
// and while charges wait for the refill that they are reserved from.
//
// A refill moves the instant on by whole periods only, so that no time is lost between
// uses.
//
// Where other numbers count on the same key, there may be more tokens than the burst, and a
// bucket that is full here may not be for them. So the state is kept until it is full by all
// the numbers that have charged it, and what is full here is forgotten only by a charge, which
// leaves fewer tokens than there were.
type tokenBucket struct {
	rate, period int64
	burst, debt  int64
	wait         int64
	low          int64 // how far below zero the rules allow: debt and reservations
}

// The words of a state.
const (
	bucketLast   = iota // the instant of the last refill
	bucketTokens        // what is in the bucket
	bucketFull          // when it will be full, by all numbers that have charged it
	bucketWords
)

func newTokenBucket(p Params) (Algorithm, error) {
	a := &tokenBucket{rate: p.Rate, period: p.Period, burst: p.Burst, debt: p.Debt, wait: p.Wait}
	// Within wait there are at most so many refills.
	hi, reserved := bits.Mul64(uint64(p.Rate), uint64(ceilDiv(p.Wait, p.Period)))
	if hi > 0 || reserved >= maxSpan || int64(reserved)+p.Burst+p.Debt >= maxSpan {
		return nil, fmt.Errorf("a wait of %v at this rate reserves 2^51 units or more; give a shorter wait or a lower rate",
			time.Duration(p.Wait)*time.Microsecond)
	}
	a.low = p.Debt + int64(reserved)
	if ceilDiv(p.Burst+a.low, p.Rate) > maxSpan/p.Period {
		return nil, fmt.Errorf("a burst of %d%s at this rate takes more than 71 years to refill; give smaller numbers or a higher rate",
			p.Burst, with(p))
	}
	return a, nil
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

func (a *tokenBucket) tokens(s []int64) int64 {
	if s[bucketLast] == 0 {
		return a.burst
	}
	return min(s[bucketTokens], a.burst)
}

// isFull reports whether the bucket is full, and so the next use starts its periods.
func (a *tokenBucket) isFull(s []int64) bool { return a.tokens(s) == a.burst }

// full returns the instant at which a bucket will be full by these numbers.
func (a *tokenBucket) full(last, tokens int64) int64 {
	return last + ceilDiv(max(0, a.burst-tokens), a.rate)*a.period
}

// set writes a state, which is full by other numbers at the instant others, or 0. What is full by all is unused.
func (a *tokenBucket) set(s []int64, last, tokens, others int64) {
	if tokens >= a.burst && others == 0 {
		clear(s[:bucketWords])
	} else {
		s[bucketLast], s[bucketTokens], s[bucketFull] = last, tokens, max(others, a.full(last, tokens))
	}
}

// need returns the tokens that there must be for cost units.
func (a *tokenBucket) need(cost int64) int64 {
	if cost == OneOwed {
		return 1 - a.debt
	}
	return max(0, cost-a.debt)
}

// until returns the time until cost units fit, if nobody else comes.
func (a *tokenBucket) until(last, tokens, now, cost int64) int64 {
	need := a.need(cost)
	if tokens >= need {
		return 0
	}
	return last + ceilDiv(need-tokens, a.rate)*a.period - now
}

func (a *tokenBucket) Words() int { return bucketWords }

func (a *tokenBucket) Len([]int64) int { return bucketWords }

func (a *tokenBucket) Load(s []int64, now int64) (healed bool) {
	last, tokens, full := s[bucketLast], s[bucketTokens], s[bucketFull]
	if last == 0 {
		return false
	}
	if last > now {
		back := a.stepBack(last, now)
		last, full, healed = back, full-(last-back), true
	}
	if tokens < -a.low {
		tokens, healed = -a.low, true
	}
	if full <= now {
		clear(s[:bucketWords])
		return healed
	}
	if tokens < a.burst {
		m := (now - last) / a.period
		last += m * a.period
		if m >= ceilDiv(a.burst-tokens, a.rate) { // compare before multiplying: m may be large
			tokens = a.burst
		} else {
			tokens += m * a.rate
		}
	}
	s[bucketLast], s[bucketTokens], s[bucketFull] = last, tokens, max(full, a.full(last, tokens))
	return healed
}

// After a step back by a period or more there may have been refills when the clock has come again to where it was. So
// that a refund knows, their instants are stepMark microseconds earlier than those of the refills before the step; and
// after so many more steps as make maxSteps, so many times that.
const (
	stepMark = 7
	maxSteps = 16
)

// stepBack returns the instant of the last refill after the clock has stepped back behind it.
func (a *tokenBucket) stepBack(last, now int64) int64 {
	if last-now < a.period {
		return now
	}
	ahead := (last - stepMark - now) % a.period // of the next refill
	if back := now - (a.period-ahead)%a.period; back > 0 {
		return back
	}
	return now
}

// marked reports whether refills so long before a charge may be some that came after it; see stepMark.
func marked(since int64) bool { return since%stepMark == 0 && since >= -stepMark*maxSteps }

func (a *tokenBucket) Admits(s []int64, now, cost, wait int64) bool {
	return cost == 0 || cost <= a.burst+a.debt && a.until(s[bucketLast], a.tokens(s), now, cost) <= wait
}

func (a *tokenBucket) Most(s []int64, _ int64, owing bool) int64 {
	return max(0, a.tokens(s)+a.owed(owing))
}

// owed returns the units below zero.
func (a *tokenBucket) owed(owing bool) int64 {
	if owing {
		return a.debt
	}
	return 0
}

func (a *tokenBucket) Charge(s []int64, now, cost int64) {
	tokens, last := a.tokens(s), s[bucketLast]
	if tokens == a.burst {
		last = now
	}
	a.set(s, last, tokens-cost, s[bucketFull])
}

// Refund gives back until the next refill: after it, nobody can know whether the bucket
// would not have been full without the charge; but it cannot have been while the charge
// itself waits. While callers may be waiting it gives back to the last in line only, all
// or nothing, so that nobody moves onto another's turn.
//
// A clock that steps back takes the last refill along. If that is by less than a period, no
// refill can have come since and be as early as that.
func (a *tokenBucket) Refund(s []int64, now, units int64, r Receipt) bool {
	back := a.back(units, r)
	return back > 0 && !a.isFull(s) && a.mayGiveBack(s, now, units, r) && a.Credit(s, now, back)
}

// Credit adds tokens, up to the burst. So it forgives debt first, and callers that come next have an earlier turn than those
// who wait already.
func (a *tokenBucket) Credit(s []int64, _, units int64) bool {
	if a.isFull(s) {
		return false
	}
	last, tokens, others := s[bucketLast], s[bucketTokens], s[bucketFull]
	if others <= a.full(last, tokens) {
		others = 0
	}
	a.set(s, last, min(tokens+min(units, a.burst+a.low), a.burst), others)
	return true
}

func (a *tokenBucket) mayGiveBack(s []int64, now, units int64, r Receipt) bool {
	// Refills, and their tokens if nobody came behind.
	since, more := s[bucketLast]-r.Charged[bucketLast], s[bucketTokens]-r.Charged[bucketTokens]
	if -a.period < since && since < 0 && !marked(since) {
		since = 0
	}
	last := units >= r.Units &&
		since >= 0 && since%a.period == 0 && more%a.rate == 0 && since/a.period == more/a.rate
	if waiting := r.Delay > 0 && now < r.At+r.Delay; waiting {
		return last
	}
	return since == 0 && (last || s[bucketTokens] >= a.queue(r))
}

// made is the bucket that a receipt is from.
func (a *tokenBucket) made(r Receipt) *tokenBucket {
	if made, ok := r.Made.(*tokenBucket); ok {
		return made
	}
	return a
}

// back returns the tokens that a refund of units gives back.
func (a *tokenBucket) back(units int64, r Receipt) int64 {
	made := a.made(r)
	return min(units, made.burst+made.debt)
}

// queue returns the least tokens that there are while nobody is waiting for a turn.
func (a *tokenBucket) queue(r Receipt) int64 {
	if a.wait > 0 || a.made(r).wait > 0 {
		return 0
	}
	return -a.low
}

func (a *tokenBucket) Explain(s []int64, now, cost, wait int64, refused bool) Answer {
	r := Answer{Remaining: a.Most(s, now, false), Refused: refused}
	if !a.isFull(s) {
		r.Reset = a.full(s[bucketLast], s[bucketTokens]) - now
	}
	switch {
	case refused:
		if r.Never = cost > a.burst+a.debt; !r.Never {
			r.Wait = a.until(s[bucketLast], a.tokens(s), now, cost) - wait
		}
	case cost > 0:
		r.Charged = [2]int64{s[bucketLast], s[bucketTokens]}
		r.Wait = a.until(s[bucketLast], s[bucketTokens]+cost, now, cost)
	}
	if !refused && r.Remaining < a.burst {
		r.More = s[bucketLast] + ceilDiv(r.Remaining+1-s[bucketTokens], a.rate)*a.period - now
	}
	return r
}

func (a *tokenBucket) Expires(s []int64) int64 { return s[bucketFull] }

// Apart returns how far below zero the tokens may be: numbers that allow less would forgive what those that allow more have
// lent.
func (a *tokenBucket) Apart() string {
	if a.low == 0 {
		return ""
	}
	return strconv.FormatInt(a.low, 10)
}

func (a *tokenBucket) Sections() byte { return 'b' }

// AppendTake appends as need more than there can be for a cost that never fits, and as
// few as there can be for a peek.
func (a *tokenBucket) AppendTake(b []int64, cost, wait, _ int64) []int64 {
	need := a.need(cost)
	switch {
	case cost == 0:
		need = -a.low
	case cost > a.burst+a.debt:
		cost, need, wait = a.burst+a.debt, a.burst+1, 0
	}
	return append(b, a.period, a.rate, a.burst, cost, need, a.low, wait)
}

// AppendUpTo appends how far below zero there are units, after what a state is brought to the time by.
func (a *tokenBucket) AppendUpTo(b []int64, owing bool, _ int64) []int64 {
	return append(b, a.period, a.rate, a.burst, a.low, a.owed(owing))
}

// AppendRefund appends the state that the charge led to, how many tokens there are at
// least while nobody is waiting, and when the turn of the charge came if it had to wait.
func (a *tokenBucket) AppendRefund(b []int64, units int64, r Receipt, _ int64) []int64 {
	turn, back := int64(0), a.back(units, r)
	if r.Delay > 0 {
		turn = r.At + r.Delay
	}
	if units < r.Units {
		r.Charged[bucketTokens] = a.burst // tokens that no state has had
	}
	return append(b, a.period, a.rate, a.burst, a.low, back, r.Charged[bucketLast], r.Charged[bucketTokens], a.queue(r), turn)
}

func (a *tokenBucket) AppendCredit(b []int64, units, _ int64) []int64 {
	return append(b, a.period, a.rate, a.burst, a.low, min(units, a.burst+a.low))
}

func (a *tokenBucket) AppendText(b []byte, s []int64) []byte {
	if s[bucketLast] == 0 {
		return b
	}
	b = append(b, 'b')
	b = strconv.AppendInt(b, s[bucketLast], 10)
	b = append(b, ',')
	b = strconv.AppendInt(b, s[bucketTokens], 10)
	b = append(b, ',')
	return strconv.AppendInt(b, s[bucketFull]-s[bucketLast], 10)
}

func (a *tokenBucket) parse(s []int64, text []byte) bool {
	if text[0] != 'b' {
		return false
	}
	last, rest, ok := digits(text[1:])
	if !ok || last == 0 || last >= maxExact || len(rest) == 0 || rest[0] != ',' {
		return false
	}
	rest = rest[1:]
	sign := int64(1)
	if len(rest) > 0 && rest[0] == '-' {
		sign, rest = -1, rest[1:]
	}
	tokens, rest, ok := digits(rest)
	if !ok || tokens >= maxExact || len(rest) == 0 || rest[0] != ',' {
		return false
	}
	gap, rest, ok := digits(rest[1:])
	if !ok || gap > maxSpan || last+gap >= maxExact || len(rest) > 0 {
		return false
	}
	s[bucketLast], s[bucketTokens], s[bucketFull] = last, sign*tokens, last+gap
	return true
}

func (a *tokenBucket) Reply() int { return 2 }

func (a *tokenBucket) ParseReply(s, reply []int64, now, _ int64) bool {
	last, tokens := reply[0], reply[1]
	if last == 0 && tokens == 0 {
		tokens = a.burst
	} else if last < 1 || last > now || now-last >= a.period || tokens < -a.low || tokens >= a.burst {
		return false
	}
	a.set(s, last, tokens, 0)
	return true
}

func (a *tokenBucket) Rewind(s []int64, _, units int64) bool {
	tokens := a.tokens(s)
	if units > a.burst-tokens {
		return false
	}
	a.set(s, s[bucketLast], tokens+units, 0)
	return true
}
