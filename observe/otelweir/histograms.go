package otelweir

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/weir-go/weir/observe"
)

// histograms are the metrics that are filled as events come.
type histograms struct{ decisions, queues, flights histogram }

// histogram is an instrument, and the names of its attributes.
type histogram struct {
	instrument metric.Float64Histogram
	attributes []string
}

func (h *histograms) init(meter metric.Meter) error {
	metrics := observe.Metrics()
	for name, in := range map[string]*histogram{
		"weir.decision.duration": &h.decisions, "weir.request.time_in_queue": &h.queues, "weir.flight.duration": &h.flights,
	} {
		m := metrics[slices.IndexFunc(metrics, func(m observe.Metric) bool { return m.Name == name })]
		instrument, err := meter.Float64Histogram(
			name, metric.WithUnit(m.Unit), metric.WithDescription(m.Help), metric.WithExplicitBucketBoundaries(m.Bounds...),
		)
		if err != nil {
			return fmt.Errorf("otelweir: %w", err)
		}
		*in = histogram{instrument, m.Attributes}
	}
	return nil
}

// record records a duration in a series. What it needs of the attributes is made once and kept with the series: a list
// of options that is made for a call costs four allocations.
func (h *histogram) record(ctx context.Context, s *observe.Series, d time.Duration) {
	options, known := s.Memo().Load(h).([]metric.RecordOption)
	if !known {
		options = []metric.RecordOption{metric.WithAttributeSet(attributes(h.attributes, s.Values))}
		s.Memo().LoadOrStore(h, options)
	}
	h.instrument.Record(ctx, d.Seconds(), options...)
}
