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
type tokenBucket struct {
	rate, period int64
	burst, debt  int64
	low          int64 // how far below zero the rules allow: debt and reservations
	calm         int64 // the least tokens with which surely nobody waits
}

func newTokenBucket(p Params) (Algorithm, error) {
	a := &tokenBucket{rate: p.Rate, period: p.Period, burst: p.Burst, debt: p.Debt}
	// Within ahead there are at most so many refills.
	hi, reserved := bits.Mul64(uint64(p.Rate), uint64(ceilDiv(p.Ahead, p.Period)))
	if hi > 0 || reserved >= maxSpan || int64(reserved)+p.Burst+p.Debt >= maxSpan {
		return nil, fmt.Errorf("a wait of %v at this rate reserves 2^51 units or more; give a shorter wait or a lower rate",
			time.Duration(p.Ahead)*time.Microsecond)
	}
	a.low = p.Debt + int64(reserved)
	if ceilDiv(p.Burst+a.low, p.Rate) > maxSpan/p.Period {
		return nil, fmt.Errorf("a burst of %d%s at this rate takes more than 71 years to refill; give smaller numbers or a higher rate",
			p.Burst, with(p))
	}
	if p.Ahead == 0 {
		a.calm = -a.low
	}
	return a, nil
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

func (a *tokenBucket) tokens(s []int64) int64 {
	if s[0] == 0 {
		return a.burst
	}
	return s[1]
}

// set writes a state. A full bucket is unused: the next use starts its periods.
func (a *tokenBucket) set(s []int64, last, tokens int64) {
	if tokens >= a.burst {
		s[0], s[1], s[2] = 0, 0, 0
	} else {
		s[0], s[1], s[2] = last, tokens, last+ceilDiv(a.burst-tokens, a.rate)*a.period
	}
}

// wait is how long it takes until cost units fit, if nobody else comes.
func (a *tokenBucket) wait(last, tokens, now, cost int64) int64 {
	need := max(0, cost-a.debt)
	if tokens >= need {
		return 0
	}
	return last + ceilDiv(need-tokens, a.rate)*a.period - now
}

func (a *tokenBucket) Words() int { return 3 }

func (a *tokenBucket) Len([]int64) int { return 3 }

func (a *tokenBucket) Load(s []int64, now int64) (healed bool) {
	last, tokens := s[0], s[1]
	if last == 0 {
		return false
	}
	healed = last > now || tokens < -a.low || tokens >= a.burst
	last, tokens = min(last, now), max(tokens, -a.low)
	// Compare before multiplying: the state may be very old.
	if m := (now - last) / a.period; tokens >= a.burst || m >= ceilDiv(a.burst-tokens, a.rate) {
		a.set(s, 0, a.burst)
	} else {
		a.set(s, last+m*a.period, tokens+m*a.rate)
	}
	return healed
}

func (a *tokenBucket) Admits(s []int64, now, cost, ahead int64) bool {
	return cost == 0 || cost <= a.burst+a.debt && a.wait(s[0], a.tokens(s), now, cost) <= ahead
}

func (a *tokenBucket) Most(s []int64, _ int64) int64 { return max(0, a.tokens(s)) }

func (a *tokenBucket) Charge(s []int64, now, cost int64) {
	tokens := a.tokens(s)
	if s[0] == 0 {
		s[0] = now
	}
	a.set(s, s[0], tokens-cost)
}

// Refund gives back until the next refill: after it, nobody can tell whether the bucket
// would not have been full without the charge; but it cannot have been while the charge
// itself waits. While anybody may be waiting it gives back to the last in line only, all
// or nothing, so that nobody moves onto another's turn.
func (a *tokenBucket) Refund(s []int64, now, units int64, r Receipt) bool {
	back := min(units, a.burst+a.debt)
	if back <= 0 || s[0] == 0 || !a.mayGiveBack(s, now, units, r) {
		return false
	}
	a.set(s, s[0], s[1]+back)
	return true
}

func (a *tokenBucket) mayGiveBack(s []int64, now, units int64, r Receipt) bool {
	since, more := s[0]-r.Charged[0], s[1]-r.Charged[1] // refills and their tokens, if nobody came behind
	last := units >= r.Units && r.Charged[1] < a.burst &&
		since >= 0 && since%a.period == 0 && more%a.rate == 0 && since/a.period == more/a.rate
	if waits := r.Delay > 0 && now < r.At+r.Delay; waits {
		return last
	}
	return since == 0 && (last || s[1] >= a.calm)
}

func (a *tokenBucket) Explain(s []int64, now, cost, ahead int64, refused bool) Answer {
	r := Answer{Remaining: a.Most(s, now), Refused: refused}
	if s[0] > 0 {
		r.Reset = s[2] - now
	}
	switch {
	case refused:
		if r.Never = cost > a.burst+a.debt; !r.Never {
			r.Retry = a.wait(s[0], a.tokens(s), now, cost) - ahead
		}
	case cost > 0:
		r.Charged = [2]int64{s[0], s[1]}
		r.Delay = a.wait(s[0], s[1]+cost, now, cost)
	}
	return r
}

func (a *tokenBucket) Expires(s []int64) int64 { return s[2] }

// AppendParams appends how many tokens the cost needs: more than there can be for a cost
// that never fits, and as few as there can be for a peek.
func (a *tokenBucket) AppendParams(b []int64, cost, ahead, _ int64) []int64 {
	need := max(0, cost-a.debt)
	switch {
	case cost == 0:
		need = -a.low
	case cost > a.burst+a.debt:
		cost, need, ahead = a.burst+a.debt, a.burst+1, 0
	}
	return append(b, a.period, a.rate, a.burst, cost, need, a.low, ahead)
}

// AppendMost appends the cost and the need of one unit.
func (a *tokenBucket) AppendMost(b []int64, _ int64) []int64 {
	return append(b, a.period, a.rate, a.burst, 1, 1, a.low)
}

func (a *tokenBucket) AppendRefund(b []int64, units int64, r Receipt, _ int64) []int64 {
	turn := int64(0)
	if r.Delay > 0 {
		turn = r.At + r.Delay
	}
	if units < r.Units {
		r.Charged[1] = a.burst + 1 // tokens that no state has had
	}
	return append(b, a.period, a.rate, a.burst, min(units, a.burst+a.debt), r.Charged[0], a.low, r.Charged[1], a.calm, turn)
}

func (a *tokenBucket) Reply() int { return 2 }

func (a *tokenBucket) ParseReply(s, reply []int64, now, _ int64) bool {
	last, tokens := reply[0], reply[1]
	if last == 0 && tokens == 0 {
		tokens = a.burst
	} else if last < 1 || last > now || now-last >= a.period || tokens < -a.low || tokens >= a.burst {
		return false
	}
	a.set(s, last, tokens)
	return true
}

func (a *tokenBucket) AppendText(b []byte, s []int64) []byte {
	if s[0] == 0 {
		return b
	}
	b = append(b, 't')
	b = strconv.AppendInt(b, s[0], 10)
	b = append(b, ',')
	return strconv.AppendInt(b, s[1], 10)
}

func (a *tokenBucket) ParseText(s []int64, text []byte) bool {
	s[0], s[1], s[2] = 0, 0, 0
	if len(text) == 0 {
		return true
	}
	if text[0] != 't' {
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
	if !ok || tokens >= maxExact || len(rest) > 0 {
		return false
	}
	s[0], s[1] = last, sign*tokens // Load, which comes next, adds the rest
	return true
}
