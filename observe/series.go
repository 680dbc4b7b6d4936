package observe

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/core/guard"
)

// Series is one of the histograms of an Observer: a [Metric] with attributes. [Observer.Count] and [Observer.CountFlight]
// return it.
type Series struct {
	// Values are the values of the metric's attributes, in their order, as a [Point] has them.
	Values []string

	memo      guard.Memo
	exemplars [len(shortBounds) + 1]atomic.Pointer[Exemplar] // of each bucket of a classic histogram
}

// Exemplar is a duration of a histogram, and the trace of the request that took so long; see Options.Exemplar.
type Exemplar struct {
	Took            time.Duration
	At              time.Time
	TraceID, SpanID string
}

// exemplarEvery is the time in microseconds for which a bucket keeps an exemplar at least.
const exemplarEvery = 1e6

// exemplify keeps an event as the exemplar of its bucket, if that of now is old and the request is traced. It looks at the
// clock before it looks into the context, which may take long.
func (s *Series) exemplify(e *guard.Event, trace func(context.Context) (traceID, spanID string)) {
	bucket := 0
	for bucket < len(shortBounds) && e.Took.Seconds() > shortBounds[bucket] {
		bucket++
	}
	if last := s.exemplars[bucket].Load(); last != nil && e.At-last.At.UnixMicro() < exemplarEvery {
		return
	}
	if traceID, spanID := trace(e.Context()); traceID != "" {
		s.exemplars[bucket].Store(&Exemplar{e.Took, time.UnixMicro(e.At), traceID, spanID})
	}
}

// exemplarsNow returns the exemplars, the shortest first.
func (s *Series) exemplarsNow() (all []Exemplar) {
	for i := range s.exemplars {
		if e := s.exemplars[i].Load(); e != nil {
			all = append(all, *e)
		}
	}
	return all
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
