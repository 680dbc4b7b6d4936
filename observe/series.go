package observe

import (
	"strconv"

	"github.com/weir-go/weir/core/guard"
)

// Series is one of the histograms of an Observer: a [Metric] with attributes. [Observer.Count] and [Observer.CountFlight]
// return it.
type Series struct {
	// Values are the values of the metric's attributes, in their order, as a [Point] has them.
	Values []string

	memo guard.Memo
}

// Memo is room for what a library keeps about the series, so that it need not look that up by the Values. It lives as
// long as the Observer.
func (s *Series) Memo() *guard.Memo { return &s.memo }

// timed is the subject of a histogram of decisions.
type timed struct {
	policy string
	from   guard.From
}

// seriesOf returns the series of a policy's decisions that were made there. ls is locked.
func (ls *lines) seriesOf(p *policy, f guard.From) *Series {
	at := timed{p.name, f}
	if p.timed[f] != granted {
		at.policy = Other
	}
	s := ls.timed[at]
	if s == nil {
		s = &Series{Values: []string{at.policy, at.from.String()}}
		ls.timed[at] = s
	}
	return s
}

func newTrips(p path) *trips {
	t := &trips{times: newCounts()}
	t.times.series = &Series{Values: []string{p.server, strconv.FormatBool(p.behind)}}
	return t
}
