// Package promweir shows Prometheus what an [observe.Observer] counts. It is a module besides weir, so that programs
// without Prometheus do not have its client:
//
//	o, err := observe.New(observe.Options{})
//	...
//	prometheus.MustRegister(promweir.New(o, promweir.Options{})) // a Collector: Describe and Collect are for the registry
//
// The metrics and their labels are listed by [observe.Metrics]: "weir.decision.duration" in seconds is the family
// weir_decision_duration_seconds, as it is where OpenTelemetry's metrics come to Prometheus, so that the alerts and the
// dashboard in observe/ops fit both. Nothing is counted here: each scrape reads [observe.Observer.Snapshot].
package promweir

import (
	"errors"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/weir-go/weir/observe"
)

// Options are the options of [New]. The zero value suits every Prometheus.
type Options struct {
	// Native adds native buckets, eight for each doubling, to the classic ones of each histogram. Only a Prometheus that
	// asks for them receives them, and one that does keeps no classic ones unless it is set to
	// (always_scrape_classic_histograms), without which the alerts and the dashboard in observe/ops have no quantiles.
	Native bool
}

// Collector collects the metrics of an Observer. It is safe for concurrent use.
type Collector struct {
	observer *observe.Observer
	native   bool
	families map[string]*family // by the metric's name
}

var _ prometheus.Collector = (*Collector)(nil)

// New returns a Collector, to be registered once. With two Observers in a program, wrap the Registerer of one by
// [prometheus.WrapRegistererWith] and a label. Without an Observer the registration fails.
func New(observer *observe.Observer, o Options) *Collector {
	c := &Collector{observer: observer, native: o.Native, families: map[string]*family{}}
	for _, m := range observe.Metrics() {
		c.families[m.Name] = newFamily(m)
	}
	return c
}

var errNoObserver = errors.New("promweir: there is no observe.Observer; give one that observe.New has returned")

// Describe sends the descriptions of all metrics.
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	if c.observer == nil {
		descs <- prometheus.NewInvalidDesc(errNoObserver) // of which Register returns the error
		return
	}
	for _, m := range observe.Metrics() {
		descs <- c.families[m.Name].desc
	}
}

// Collect sends what the Observer has counted until now.
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	snapshot := c.observer.Snapshot()
	for _, f := range snapshot.Families() {
		fam := c.families[f.Name]
		for _, p := range f.Points {
			metrics <- &series{family: fam, native: c.native, point: p}
		}
	}
}

// family is a metric as Prometheus has it.
type family struct {
	observe.Metric
	desc   *prometheus.Desc
	labels []string
	sorted []int // the indexes of labels in the order of their names, which the text format wants
}

func newFamily(m observe.Metric) *family {
	f := &family{Metric: m}
	for i, a := range m.Attributes {
		f.labels = append(f.labels, observe.Label(a))
		f.sorted = append(f.sorted, i)
	}
	slices.SortFunc(f.sorted, func(a, b int) int { return strings.Compare(f.labels[a], f.labels[b]) })
	f.desc = prometheus.NewDesc(m.Prometheus(), m.Help, f.labels, nil)
	return f
}

// series is a point of a scrape. client_golang has constant histograms with classic or with native buckets, but none
// with both.
type series struct {
	*family
	native bool
	point  observe.Point
}

func (s *series) Desc() *prometheus.Desc { return s.desc }

func (s *series) Write(m *dto.Metric) error {
	m.Label = make([]*dto.LabelPair, 0, len(s.sorted))
	for _, i := range s.sorted {
		m.Label = append(m.Label, &dto.LabelPair{Name: &s.labels[i], Value: &s.point.Values[i]})
	}
	switch s.Kind {
	case observe.Counter:
		m.Counter = &dto.Counter{Value: &s.point.Value}
	case observe.Gauge:
		m.Gauge = &dto.Gauge{Value: &s.point.Value}
	case observe.Histograms:
		m.Histogram = s.histogram()
	}
	return nil
}
