package observe

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-go/weir/core/guard"
)

// Options are the options of [New]. The zero value is a good choice to begin with.
type Options struct {
	// MaxSeries bounds the series that policies, rules and tiers bring about, as Prometheus counts them: a classic
	// histogram counts as its buckets and two more. 0 means 2000. Those beyond count as "other". Servers of Redis come on
	// top of them, at most 64.
	MaxSeries int
	// WorstBy is the number by which [Observer.Worst] finds the worst callers: refusals unless set otherwise.
	WorstBy WorstBy
	// NoKeys keeps no key in memory: [Observer.Worst] finds nobody, and [Observer.Refusals] have none.
	NoKeys bool
	// UsageKeys finds for each policy the keys that use most units as well as those that are refused most, for
	// [Observer.Usage], which has keys only with it: they may name people. It takes a second table of callers for each
	// policy, of at most 500 KB for each of the first 32 and 25 MB in all, and about 40ns more for each decision that takes
	// units. With NoKeys it is a mistake.
	UsageKeys bool
	// Exemplar returns the trace and the span of a request's context in hexadecimal, or "" if the request is not traced:
	// then a histogram leads to the trace of a request that took so long. Of each bucket there is one at a time, and it is
	// kept for a second at least. nil means no exemplars. With OpenTelemetry's API it is
	//
	//	func(ctx context.Context) (traceID, spanID string) {
	//		if span := trace.SpanContextFromContext(ctx); span.IsSampled() {
	//			return span.TraceID().String(), span.SpanID().String()
	//		}
	//		return "", ""
	//	}
	Exemplar func(context.Context) (traceID, spanID string)
}

// Observer counts what guards and stores decide. It is safe for concurrent use. One for a program is usual; two count
// twice.
type Observer struct {
	start  time.Time
	noKeys bool

	exemplar func(context.Context) (traceID, spanID string) // nil if there are none
	lines    lines
	failures failures
	flights  flights
	recent   recent
	callers  callers
	usage    *callers // by the number by which callers does not count; nil unless there are UsageKeys

	mu      sync.Mutex // of what follows
	watched watched
	sharing *sharing // nil before Share
	closed  bool
}

// New returns an Observer. The error lists every mistake in o at once.
func New(o Options) (*Observer, error) {
	if o.MaxSeries < 0 || o.MaxSeries > 0 && o.MaxSeries < leastSeries || o.MaxSeries > mostSeries {
		return nil, fmt.Errorf("observe: MaxSeries is %d; give %d to %d, or 0 for %d", o.MaxSeries, leastSeries, mostSeries, defaultSeries)
	}
	if o.WorstBy > ByUnits {
		return nil, fmt.Errorf("observe: WorstBy is %d; give ByRefusals or ByUnits", o.WorstBy)
	}
	if o.UsageKeys && o.NoKeys {
		return nil, errors.New("observe: there are UsageKeys and NoKeys; leave one out")
	}
	if o.MaxSeries == 0 {
		o.MaxSeries = defaultSeries
	}
	ob := &Observer{start: time.Now()}
	ob.callers.by, ob.noKeys = o.WorstBy, o.NoKeys
	if o.UsageKeys {
		ob.usage = &callers{by: ByRefusals + ByUnits - o.WorstBy}
	}
	ob.exemplar = o.Exemplar
	ob.lines.init(o.MaxSeries)
	return ob, nil
}

const (
	leastSeries   = 500
	defaultSeries = 2000
	mostSeries    = 1_000_000
)

// Observe counts an event. Give it to guard.Config.Observe, of as many guards as there are.
func (o *Observer) Observe(e guard.Event) { o.Count(&e) }

// Count counts an event as Observe does, and returns the series of "weir.decision.duration" in which its Took is, and of
// "weir.request.time_in_queue" in which its Waited is, or nil where it has none. It is for libraries whose histograms are
// filled as events come, such as OpenTelemetry.
func (o *Observer) Count(e *guard.Event) (took, waited *Series) {
	l := o.lines.of(o, e)
	if e.Settled {
		if e.Used > 0 {
			l.policy.settled.Add(uint64(e.Used)) //nolint:gosec // it is positive
		}
		return nil, nil
	}
	l.pace.tick(l, e.At)
	if l.spills.Load() {
		l.other.pace.tick(l.other, e.At)
	}
	times := l.at(&o.lines, e.Outcome, e.From, e.Shadow)
	times.count(e.Took)
	if e.Took > 0 {
		took = times.series
		if o.exemplar != nil {
			took.exemplify(e, o.exemplar)
		}
	}
	if e.Waited > 0 {
		times = l.policy.waits(&o.lines)
		times.count(e.Waited)
		waited = times.series
		l.waited.Add(1)
	}
	if e.Err != nil {
		o.failures.count(e.Err)
	}
	refused := !e.Outcome.Allowed()
	if refused {
		o.recent.add(e, !o.noKeys)
	}
	if (refused || o.callers.by != ByRefusals) && !o.noKeys {
		o.callers.count(e, l.policy)
	}
	if o.usage != nil {
		o.usage.count(e, l.policy)
	}
	return took, waited
}

// Snapshot returns all that o knows now. It takes about a millisecond with 1000 series.
func (o *Observer) Snapshot() Snapshot {
	s := Snapshot{At: time.Now(), Start: o.start}
	o.lines.snapshot(&s, s.At)
	o.watchedNow(&s)
	o.flights.snapshot(&s)
	o.failures.snapshot(&s)
	return s
}

// Refusals returns the last refusals, at most 100, the newest first. Of more than 100 in a second it keeps the first
// 100.
func (o *Observer) Refusals() []Refusal { return o.recent.all() }
