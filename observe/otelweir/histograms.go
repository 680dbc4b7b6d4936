package otelweir

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/observe"
)

// The metrics that are filled as events come.
const (
	decisionDuration = "weir.decision.duration"
	timeInQueue      = "weir.request.time_in_queue"
	flightDuration   = "weir.flight.duration"
)

// histograms makes a series of each histogram and each set of attributes once: a list of options that is made for a
// call costs four allocations. There are as many as a Snapshot has, because it is asked under which values it has them.
type histograms struct {
	counts                     *observe.Observer
	decisions, queues, flights instrument
	servers                    atomic.Pointer[map[path]*series] // those with attributes of their own

	mu  sync.Mutex
	all map[string]*series
}

// instrument is a histogram and the metric that it shows.
type instrument struct {
	observe.Metric
	histogram metric.Float64Histogram
}

// series is a histogram with attributes.
type series struct {
	histogram metric.Float64Histogram
	options   []metric.RecordOption
}

func (s *series) record(ctx context.Context, d time.Duration) {
	s.histogram.Record(ctx, d.Seconds(), s.options...)
}

func (h *histograms) init(meter metric.Meter, counts *observe.Observer) (err error) {
	h.counts, h.all = counts, map[string]*series{}
	h.servers.Store(&map[path]*series{})
	for name, in := range map[string]*instrument{decisionDuration: &h.decisions, timeInQueue: &h.queues, flightDuration: &h.flights} {
		metrics := observe.Metrics()
		i := slices.IndexFunc(metrics, func(m observe.Metric) bool { return m.Name == name })
		in.Metric = metrics[i]
		in.histogram, err = meter.Float64Histogram(
			name, metric.WithUnit(in.Unit), metric.WithDescription(in.Help), metric.WithExplicitBucketBoundaries(in.Bounds...),
		)
		if err != nil {
			return fmt.Errorf("otelweir: %w", err)
		}
	}
	return nil
}

// of returns the series of an instrument with these values, which are those of Labels.
func (h *histograms) of(in *instrument, labels []string) *series {
	id := in.Name + "\x00" + strings.Join(labels, "\x00")
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.all[id]
	if s == nil {
		s = &series{in.histogram, []metric.RecordOption{metric.WithAttributeSet(attributes(in.Attributes, labels))}}
		h.all[id] = s
	}
	return s
}

// ruled has the series of a rule.
type ruled struct {
	decisions [guard.FromClosed + 1]atomic.Pointer[series]
	queue     atomic.Pointer[series]
}

// decision records how long a decision took, and the wait for a turn after it. Both are 0 if they were not measured.
func (h *histograms) decision(ctx context.Context, e *guard.Event) {
	if e.Took == 0 && e.Waited == 0 {
		return
	}
	r, known := e.Memo().Load(h).(*ruled)
	if !known {
		r = e.Memo().LoadOrStore(h, new(ruled)).(*ruled) //nolint:forcetypeassert // h stores nothing else
	}
	if e.Took > 0 {
		at := &r.decisions[min(e.From, guard.FromClosed)]
		s := at.Load()
		if s == nil {
			s = h.of(&h.decisions, h.counts.Labels(decisionDuration, e.Policy, e.From.String()))
			at.Store(s)
		}
		s.record(ctx, e.Took)
	}
	if e.Waited > 0 {
		s := r.queue.Load()
		if s == nil {
			s = h.of(&h.queues, h.counts.Labels(timeInQueue, e.Policy))
			r.queue.Store(s)
		}
		s.record(ctx, e.Waited)
	}
}

// path is a server, and whether requests wait for its answers.
type path struct {
	server string
	behind bool
}

// flight records how long a round trip took. Of none it is known which requests it was for.
func (h *histograms) flight(f *core.Flight) {
	ctx := context.Background() //nolint:forbidigo // a round trip has the calls of many requests
	h.server(path{f.Addr, f.Behind}).record(ctx, max(f.Took, 1))
}

// server returns the series of a path.
func (h *histograms) server(p path) *series {
	if s := (*h.servers.Load())[p]; s != nil {
		return s
	}
	labels := h.counts.Labels(flightDuration, p.server, strconv.FormatBool(p.behind))
	s := h.of(&h.flights, labels)
	if labels[0] != p.server {
		return s // such servers may be any number
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	servers := maps.Clone(*h.servers.Load())
	servers[p] = s
	h.servers.Store(&servers)
	return s
}
