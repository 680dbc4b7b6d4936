package observe

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
)

// Options are the options of [New]. The zero value is a good choice to begin with.
type Options struct {
	// MaxSeries bounds the series that policies, rules and tiers bring about, as Prometheus counts them: a classic
	// histogram counts as its buckets and two more. 0 means 2000. Those beyond count as "other". Servers of Redis come on
	// top of them, at most 64.
	MaxSeries int
}

// Observer counts what guards and stores decide. It is safe for concurrent use. One for a program is usual; two count
// twice.
type Observer struct {
	start time.Time // the clock counts from here, which is monotonic

	lines    lines
	failures failures
	flights  flights
	recent   recent

	mu      sync.Mutex // of watched
	watched watched
}

// New returns an Observer. The error lists every mistake in o at once.
func New(o Options) (*Observer, error) {
	if o.MaxSeries < 0 || o.MaxSeries > 0 && o.MaxSeries < leastSeries || o.MaxSeries > mostSeries {
		return nil, fmt.Errorf("observe: MaxSeries is %d; give %d to %d, or 0 for %d", o.MaxSeries, leastSeries, mostSeries, defaultSeries)
	}
	if o.MaxSeries == 0 {
		o.MaxSeries = defaultSeries
	}
	ob := &Observer{start: time.Now()}
	ob.lines.init(o.MaxSeries)
	return ob, nil
}

const (
	leastSeries   = 500
	defaultSeries = 2000
	mostSeries    = 1_000_000
)

// Observe counts an event. Give it to guard.Config.Observe, of as many guards as there are.
func (o *Observer) Observe(e guard.Event) {
	l := o.lines.of(&e)
	if e.Settled {
		if e.Used > 0 {
			l.policy.settled.Add(uint64(e.Used)) //nolint:gosec // it is positive
		}
		return
	}
	now := time.Since(o.start)
	l.pace.tick(l, now)
	from := fromOf(&e)
	s := l.at(&o.lines, e.Outcome, from, e.Shadow)
	s.count(e.Took)
	if e.Result.Delay > 0 && e.Outcome.Allowed() {
		l.policy.waits(&o.lines).count(e.Result.Delay)
	}
	if e.Err != nil {
		o.failures.count(e.Err)
	}
	if !e.Outcome.Allowed() {
		o.recent.add(&e, from, now)
	}
}

// fromOf returns what has decided.
func fromOf(e *guard.Event) from {
	var failed *core.StoreError
	switch {
	case e.Result.Limit == 0 && e.Err != nil && errors.As(e.Err, &failed):
		if e.Outcome.Allowed() {
			return fromOpen
		}
		return fromClosed
	case e.Result.Limit == 0:
		return fromNone
	case e.Result.Local:
		return fromFallback
	default:
		return fromStore
	}
}

// Snapshot returns all that o knows now. It takes about a millisecond with 1000 series.
func (o *Observer) Snapshot() Snapshot {
	s := Snapshot{At: time.Now(), Start: o.start}
	o.lines.snapshot(&s, time.Since(o.start))
	o.failures.snapshot(&s)
	o.flights.snapshot(&s)
	return s
}

// Refusals returns the last refusals, at most 100, the newest first. Of more than 100 in a second it keeps the first
// 100.
func (o *Observer) Refusals() []Refusal { return o.recent.all(o.start) }
