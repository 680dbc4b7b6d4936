package algo

import "math/bits"

// span is a length of bucket time: w whole microseconds and r parts, of which l
// make a microsecond. Keeping the pair instead of multiplying it out is what lets
// every decision add, subtract and compare without ever overflowing.
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
func (a span) ceil() int64 {
	if a.r > 0 {
		return a.w + 1
	}
	return a.w
}

// units is how many whole units of the given weight the span holds.
func (a span) units(weight, l int64) int64 {
	hi, lo := bits.Mul64(uint64(a.w), uint64(l))
	lo, carry := bits.Add64(lo, uint64(a.r), 0)
	hi += carry
	if hi == 0 {
		return int64(lo / uint64(weight))
	}
	q, _ := bits.Div64(hi, lo, uint64(weight))
	return int64(q)
}
