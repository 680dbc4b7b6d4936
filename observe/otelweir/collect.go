package otelweir

import (
	"context"
	"errors"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/weir-go/weir/observe"
)

// collect makes the counters and gauges, and registers the one function that reads them all: a collection takes one
// Snapshot.
func collect(meter metric.Meter, counts *observe.Observer) (metric.Registration, error) {
	var mistakes []error
	instruments := map[string]metric.Float64Observable{}
	all := []metric.Observable{}
	for _, m := range observe.Metrics() {
		in, err := observable(meter, m)
		if err != nil {
			mistakes = append(mistakes, err)
		} else if in != nil {
			instruments[m.Name] = in
			all = append(all, in)
		}
	}
	if len(mistakes) > 0 {
		return nil, errors.Join(mistakes...)
	}
	return meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		snapshot := counts.Snapshot()
		for _, f := range snapshot.Families() {
			in := instruments[f.Name]
			if in == nil {
				continue
			}
			for _, p := range f.Points {
				to.ObserveFloat64(in, p.Value, metric.WithAttributeSet(attributes(f.Attributes, p.Values)))
			}
		}
		return nil
	}, all...)
}

// observable returns the instrument of a metric, or nil for histograms. A gauge of things, such as "{permit}", is an
// UpDownCounter, because the sum of all processes means something.
func observable(meter metric.Meter, m observe.Metric) (metric.Float64Observable, error) {
	unit, help := metric.WithUnit(m.Unit), metric.WithDescription(m.Help)
	switch {
	case m.Kind == observe.Histograms:
		return nil, nil //nolint:nilnil // there is none
	case m.Kind == observe.Counter:
		return meter.Float64ObservableCounter(m.Name, unit, help)
	case strings.HasPrefix(m.Unit, "{"):
		return meter.Float64ObservableUpDownCounter(m.Name, unit, help)
	default:
		return meter.Float64ObservableGauge(m.Name, unit, help)
	}
}

// attributes returns the attributes of a point.
func attributes(names, values []string) attribute.Set {
	all := make([]attribute.KeyValue, len(names))
	for i, name := range names {
		switch name {
		case observe.AttrShadow, observe.AttrBehind:
			all[i] = attribute.Bool(name, values[i] == "true")
		default:
			all[i] = attribute.String(name, values[i])
		}
	}
	return attribute.NewSet(all...)
}
