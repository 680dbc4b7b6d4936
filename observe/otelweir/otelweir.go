// Package otelweir gives OpenTelemetry what an [observe.Observer] counts, and marks the spans of requests. It is a
// module besides weir, so that programs without OpenTelemetry do not have its API:
//
//	o, err := observe.New(observe.Options{})
//	w, err := otelweir.New(o, otelweir.Options{})
//	store, err := redisstore.New(rdb, redisstore.Options{Observe: w.ObserveFlight, ObserveBreaker: o.ObserveBreaker})
//	g, err := guard.New(guard.Config{..., Store: store, Observe: w.Observe})
//	o.Watch([]*guard.Guard{g}, store)
//
// The metrics and their attributes are listed by [observe.Metrics]. Counters and gauges are read from
// [observe.Observer.Snapshot] when OpenTelemetry collects them, so that they cost a request nothing. Histograms are
// filled as the events come, because OpenTelemetry has none that can be read; they have exemplars, where the request's
// span is sampled.
//
// The span of a request, if it is recorded, gets the attributes of the decision; see [Observer.Observe].
package otelweir

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/observe"
)

// scope is the name of the Meter and of the Tracer.
const scope = "github.com/weir-go/weir/observe/otelweir"

// Options are the options of [New]. The zero value uses what the program has given to OpenTelemetry.
type Options struct {
	// MeterProvider makes the instruments. If it is nil, otel.GetMeterProvider returns it.
	MeterProvider metric.MeterProvider
	// TracerProvider makes the spans of decisions. If it is nil, otel.GetTracerProvider returns it. With
	// noop.NewTracerProvider() of go.opentelemetry.io/otel/trace/noop there are no spans of decisions, and those of
	// requests are left alone.
	TracerProvider trace.TracerProvider
}

// Observer passes on what an [observe.Observer] counts. It is safe for concurrent use.
type Observer struct {
	counts     *observe.Observer
	histograms histograms
	spans      spans
	collects   metric.Registration
}

// New returns an Observer, whose metrics are collected from now on. One for each MeterProvider is enough: with a second
// on the same one, OpenTelemetry collects each counter twice.
func New(counts *observe.Observer, o Options) (*Observer, error) {
	if counts == nil {
		return nil, errors.New("otelweir: there is no observe.Observer; give one that observe.New has returned")
	}
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	w := &Observer{counts: counts}
	if _, off := o.TracerProvider.(noop.TracerProvider); !off {
		w.spans.tracer = o.TracerProvider.Tracer(scope)
	}
	meter := o.MeterProvider.Meter(scope)
	if err := w.histograms.init(meter); err != nil {
		return nil, err
	}
	var err error
	w.collects, err = collect(meter, counts)
	return w, err
}

// Close ends the collection of counters and gauges.
func (w *Observer) Close() error { return w.collects.Unregister() }

// Observe counts an event, records how long the decision took, and marks the span of the request. Give it to
// guard.Config.Observe in the place of the Observe of the [observe.Observer], for which it stands.
//
// The request's span, if it is recorded, gets weir.policy, weir.rule, weir.tier, weir.outcome and weir.from of the last
// rule that has decided on the request, which is the one that refused, if one has. [AttrRefused] has the policy that
// refused, also if its handler then let the request pass; [AttrTrialRefused] the one on trial that would have. See the
// other constants as well. A decision for which a store outside of the process was asked is a span within it,
// "weir.decision", which has the attributes of its rule, and an error if the store has failed. No span has a key.
func (w *Observer) Observe(e guard.Event) {
	took, waited := w.counts.Count(&e)
	spans := w.spans.tracer != nil
	if !spans && took == nil && waited == nil {
		return
	}
	ctx := e.Context()
	if took != nil {
		w.histograms.decisions.record(ctx, took, e.Took)
	}
	if waited != nil {
		w.histograms.queues.record(ctx, waited, e.Waited)
	}
	if spans {
		w.spans.mark(ctx, &e)
	}
}

// ObserveFlight counts a round trip, and records how long it took. Give it to redisstore.Options.Observe in the place of
// that of the [observe.Observer], for which it stands.
func (w *Observer) ObserveFlight(f stats.Flight) {
	series := w.counts.CountFlight(&f)
	ctx := context.Background() //nolint:forbidigo // a round trip has the calls of many requests
	w.histograms.flights.record(ctx, series, max(f.Took, 1))
}
