package preview

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/internal/inwords"
)

// Picture has the numbers of a picture: what a caller gets that was idle, and then asks for all there is, debt included,
// again and again. Where windows are aligned to the clock, the caller begins in the middle of one.
type Picture struct {
	// Period is the period of a limit, and Span the time that the picture shows, 2.5 times as long: nanoseconds.
	Period time.Duration `json:"period"`
	Span   time.Duration `json:"span"`
	// Points are the steps of a curve that only rises: from At on, the caller has got Units.
	Points []Point `json:"points"`
	// Most is the most that any Period lets in, however well somebody times the requests.
	Most int64 `json:"most"`
}

// Point is a step of a curve.
type Point struct {
	At    time.Duration `json:"at"` // nanoseconds
	Units int64         `json:"units"`
}

const (
	instants = 100 // of a picture, at even distances
	maxSteps = 50  // of the windows of one limit, which are exact up to here
)

// pictures returns one picture for each period of a policy's limits, the shortest first.
func pictures(p core.Policy) (all []Picture) {
	var rates []core.Limit
	for _, l := range p.Limits() {
		if l.Algorithm != core.Concurrent {
			rates = append(rates, l)
		}
	}
	for _, within := range inwords.Of(p).Within { // in the order of the periods
		all = append(all, Picture{Most: within.Most})
	}
	slices.SortFunc(rates, func(a, b core.Limit) int { return cmp.Compare(a.Period, b.Period) })
	for i, period := range slices.CompactFunc(slices.Clone(rates), func(a, b core.Limit) bool { return a.Period == b.Period }) {
		all[i].Period, all[i].Span = period.Period, period.Period*5/2
		all[i].draw(rates)
	}
	return all
}

// draw fills in the points.
func (pic *Picture) draw(limits []core.Limit) {
	var at []time.Duration
	for i := range instants {
		at = append(at, pic.Span*time.Duration(i)/instants)
	}
	for _, l := range limits {
		if every, first := comesBack(l); every > 0 && pic.Span/every <= maxSteps {
			for t := first; t < pic.Span; t += every {
				at = append(at, t)
			}
		}
	}
	slices.Sort(at)
	last := int64(-1)
	for i, t := range at {
		units := got(limits, t)
		if units != last || i == len(at)-1 {
			pic.Points = append(pic.Points, Point{t, units})
			last = units
		}
	}
	if end := pic.Points[len(pic.Points)-1]; end.At < pic.Span { // what comes at the end is not shown any more
		pic.Points = append(pic.Points, Point{pic.Span, last})
	}
}

// got returns the units that a caller has got after a time of all limits together: what the narrowest of them has let in.
func got(limits []core.Limit, after time.Duration) int64 {
	least := int64(countless)
	for _, l := range limits {
		least = min(least, gotOf(l, after))
	}
	return least
}

// countless stands for more units than a picture can show.
const countless = 1 << 62

// gotOf returns the units that a caller has got of one limit. TestPicturesAreTrue holds it against a caller that asks.
func gotOf(l core.Limit, after time.Duration) int64 {
	full := l.Burst + l.Debt
	switch every, first := comesBack(l); {
	case l.Algorithm == core.GCRA:
		return full + times(after, l.Rate, l.Period)
	case l.Algorithm == core.LeakyBucket: // they leave one by one
		return 1 + times(after, l.Rate, l.Period)
	case l.Algorithm == core.SlidingCounter: // what was taken at once weighs less and less in the second window
		return max(l.Rate, times(after, l.Rate, l.Period))
	case after < first:
		return full
	default: // all at once
		return full + times((after-first)/every+1, min(l.Rate, full), 1)
	}
}

// comesBack returns after which times units come back all at once: first, and then every so often. It returns 0 if they do
// one by one.
func comesBack(l core.Limit) (every, first time.Duration) {
	switch {
	case l.Algorithm == core.FixedWindow && l.Align != "":
		return l.Period, l.Period / 2
	case l.Algorithm == core.TokenBucket, l.Algorithm == core.FixedWindow, l.Algorithm == core.SlidingLog:
		return l.Period, l.Period
	case l.Algorithm == core.SlidingWindow: // of which one part more than the period counts
		part := l.Period / time.Duration(l.Buckets)
		return l.Period + part, l.Period + part
	}
	return 0, 0
}

// times returns a*b/c, rounded down, or countless.
func times(a time.Duration, b int64, c time.Duration) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return countless / 4
	}
	units, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(units, countless/4))
}
