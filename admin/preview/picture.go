package preview

import (
	"cmp"
	"slices"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/internal/inwords"
)

// Picture has the numbers of a picture: what a caller gets that was idle, and then asks for all there is, debt included,
// again and again.
// Where windows are aligned to the clock, the caller begins in the middle of one.
type Picture struct {
	// Period is the period of a limit, and Span the time that the picture shows, 2.5 times as long: nanoseconds.
	Period time.Duration `json:"period"`
	Span   time.Duration `json:"span"`
	// Points are the steps of a curve that only rises: from At on, the caller has got Units.
	Points []Point `json:"points"`
	// Rate is the number of units that its limit lets in for each Period, for a straight line beside the curve, and Most
	// the most in any Period, however well somebody times the requests.
	Rate int64 `json:"rate"`
	Most int64 `json:"most"`
}

// Point is a step of a curve.
type Point struct {
	At    time.Duration `json:"at"` // nanoseconds
	Units int64         `json:"units"`
}

// steps is the number of instants in a picture at which the caller asks. Halves and wholes of the period are among them.
const steps = 100

// pictures returns one picture for each period of a policy's limits.
func pictures(p core.Policy) (all []Picture) {
	for i, l := range p.Limits() {
		same := func(pic Picture) bool { return pic.Period == l.Period }
		if l.Algorithm == core.Concurrent || slices.ContainsFunc(all, same) {
			continue
		}
		pic := Picture{Period: l.Period, Span: l.Period * 5 / 2, Rate: l.Rate}
		for _, other := range p.Limits()[i+1:] {
			if other.Algorithm != core.Concurrent && other.Period == l.Period {
				pic.Rate = min(pic.Rate, other.Rate)
			}
		}
		pic.draw(p, i)
		all = append(all, pic)
	}
	slices.SortFunc(all, func(a, b Picture) int { return cmp.Compare(a.Period, b.Period) })
	for i, within := range inwords.Of(p).Within { // in the same order
		all[i].Most = within.Most
	}
	return all
}

// noon is the instant at which a picture begins, in microseconds: a day in the middle of a month.
const noon = 1_767_225_600_000_000 + 14*24*3600e6 + 12*3600e6

// draw fills in the points, by the library's own decisions.
func (pic *Picture) draw(p core.Policy, limit int) {
	spec, take := p.Spec(), core.Take{Policy: p, Key: "k", Cost: core.MaxRate, AtMost: true, Debt: true}
	began := int64(noon)
	if p.Limits()[limit].Align != "" {
		take.Now = began
		res, _, _ := spec.Step(nil, take)
		began += (res.Each(limit).ResetAfter - pic.Period/2).Microseconds()
	}
	var state []byte
	units, last := int64(0), int64(-1)
	for i := range int64(steps + 1) {
		at := pic.Span.Microseconds() * i / steps
		take.Now = began + at
		res, next, ttl := spec.Step(state, take)
		if ttl > 0 {
			state = next
		}
		units += res.Taken
		if shown := min(units, left(p, time.Duration(at)*time.Microsecond)); shown != last || i == steps {
			pic.Points = append(pic.Points, Point{time.Duration(at) * time.Microsecond, shown})
			last = shown
		}
	}
}

// left returns the most units that have left the leaky buckets of a policy, one by one, after a time.
func left(p core.Policy, after time.Duration) int64 {
	most := int64(1) << 62
	for _, l := range p.Limits() {
		if l.Algorithm == core.LeakyBucket {
			most = min(most, 1+int64(float64(after)/float64(l.Period)*float64(l.Rate)+1e-9))
		}
	}
	return most
}
