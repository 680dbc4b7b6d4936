package otelweir_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/internal/race"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/observe/otelweir"
)

// remote is a store that is not in the process, as far as a Guard knows, and fails when a test says so.
type remote struct {
	core.Store
	err error
}

func (s *remote) Take(ctx context.Context, t core.Take) (core.Result, error) {
	if s.err != nil {
		return core.Result{}, s.err
	}
	return s.Store.Take(ctx, t)
}

func newRemote(t testing.TB) *remote {
	m, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	return &remote{Store: m}
}

// newObserver returns an Observer whose metrics are read from the reader.
func newObserver(t testing.TB, o otelweir.Options) (*observe.Observer, *otelweir.Observer) {
	counts, err := observe.New(observe.Options{})
	require.NoError(t, err)
	w, err := otelweir.New(counts, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	return counts, w
}

func newReader(t testing.TB) (*sdkmetric.ManualReader, metric.MeterProvider) {
	reader := sdkmetric.NewManualReader()
	p := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	t.Cleanup(func() { _ = p.Shutdown(context.Background()) })
	return reader, p
}

// collected returns the metrics by their names.
func collected(t testing.TB, reader *sdkmetric.ManualReader) map[string]metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	metrics := map[string]metricdata.Metrics{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			assert.NotContains(t, metrics, m.Name, "one instrument a name")
			metrics[m.Name] = m
		}
	}
	return metrics
}

func newGuard(t testing.TB, c guard.Config) *guard.Guard {
	g, err := guard.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	return g
}

func serve(g *guard.Guard, r *http.Request) {
	h := nethttp.Limit(g)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	h.ServeHTTP(httptest.NewRecorder(), r)
}

// Counters and gauges have what a Snapshot has, as instruments of the right kind.
func TestMetricsAreThoseOfTheSnapshot(t *testing.T) {
	reader, provider := newReader(t)
	counts, w := newObserver(t, otelweir.Options{MeterProvider: provider})
	g := newGuard(t, guard.Config{
		Rule:    guard.Rule{Policy: "api: 2/1h", Key: keyfunc.IP()},
		Rules:   []guard.Rule{{Policy: "trial: 1/1h; shadow", Key: keyfunc.IP()}},
		Store:   newRemote(t),
		Observe: w.Observe,
	})
	counts.Watch([]*guard.Guard{g})
	for range 5 {
		serve(g, httptest.NewRequest(http.MethodGet, "/", nil))
	}

	metrics := collected(t, reader)
	snapshot := counts.Snapshot()
	for _, f := range snapshot.Families() {
		m, found := metrics[f.Name]
		if !assert.Equal(t, len(f.Points) > 0, found, f.Name) || !found {
			continue
		}
		assert.Equal(t, f.Unit, m.Unit, f.Name)
		assert.Equal(t, f.Help, m.Description, f.Name)
		want := map[attribute.Distinct]observe.Point{}
		for _, p := range f.Points {
			all := make([]attribute.KeyValue, 0, len(f.Attributes))
			for i, name := range f.Attributes {
				if name == observe.AttrShadow || name == observe.AttrBehind {
					all = append(all, attribute.Bool(name, p.Values[i] == "true"))
				} else {
					all = append(all, attribute.String(name, p.Values[i]))
				}
			}
			set := attribute.NewSet(all...)
			want[set.Equivalent()] = p
		}
		switch data := m.Data.(type) {
		case metricdata.Sum[float64]:
			assert.Equal(t, f.Kind == observe.Counter, data.IsMonotonic, f.Name)
			assert.True(t, f.Kind == observe.Counter || strings.HasPrefix(f.Unit, "{"), f.Name)
			assert.Len(t, data.DataPoints, len(want), f.Name)
			for _, p := range data.DataPoints {
				assert.InDelta(t, want[p.Attributes.Equivalent()].Value, p.Value, 0, f.Name)
			}
		case metricdata.Gauge[float64]:
			assert.Equal(t, observe.Gauge, f.Kind, f.Name)
			assert.Len(t, data.DataPoints, len(want), f.Name)
		case metricdata.Histogram[float64]:
			assert.Equal(t, observe.Histograms, f.Kind, f.Name)
			assert.Len(t, data.DataPoints, len(want), f.Name)
			for _, p := range data.DataPoints {
				h := want[p.Attributes.Equivalent()].Histogram
				if assert.NotNil(t, h, "%s %v", f.Name, p.Attributes) {
					assert.Equal(t, h.Count, p.Count, f.Name)
					assert.Equal(t, f.Bounds, p.Bounds, f.Name)
					assert.InEpsilon(t, h.Sum.Seconds(), p.Sum, 1e-9, f.Name)
				}
			}
		default:
			assert.Failf(t, "unexpected", "%s is %T", f.Name, data)
		}
	}
	assert.Contains(t, metrics, "weir.decisions")
	assert.Contains(t, metrics, "weir.decision.duration")
}

// After Close nothing is collected, and events do no harm.
func TestClose(t *testing.T) {
	reader, provider := newReader(t)
	counts, err := observe.New(observe.Options{})
	require.NoError(t, err)
	w, err := otelweir.New(counts, otelweir.Options{MeterProvider: provider})
	require.NoError(t, err)
	w.Observe(guard.Event{Policy: "api", Rule: "Rule"})
	assert.Contains(t, collected(t, reader), "weir.decisions")
	require.NoError(t, w.Close())
	w.Observe(guard.Event{Policy: "api", Rule: "Rule"})
	assert.NotContains(t, collected(t, reader), "weir.decisions")
}

func TestNewNeedsAnObserver(t *testing.T) {
	_, err := otelweir.New(nil, otelweir.Options{})
	assert.ErrorContains(t, err, "observe.New")
}

// A decision and a round trip allocate nothing for their histograms, nor a decision for the span of a request that nobody records.
func TestObserveAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	for name, o := range map[string]otelweir.Options{
		"metrics":           {TracerProvider: noop.NewTracerProvider()},
		"metrics and spans": {},
	} {
		t.Run(name, func(t *testing.T) {
			_, o.MeterProvider = newReader(t)
			counts, w := newObserver(t, o)
			var check [2]func()
			for i, observe := range []func(guard.Event){counts.Observe, w.Observe} {
				g := newGuard(t, guard.Config{
					Rule: guard.Rule{Policy: "api: 2147483648/1s", Key: keyfunc.IP()}, Store: newRemote(t), Observe: observe,
				})
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				h := nethttp.Limit(g)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				rw := httptest.NewRecorder()
				check[i] = func() { h.ServeHTTP(rw, r) }
				check[i]()
			}
			without := testing.AllocsPerRun(200, check[0])
			assert.InDelta(t, without, testing.AllocsPerRun(200, check[1]), 0)
			w.ObserveFlight(stats.Flight{Server: "10.0.0.1:6379", Took: 1})
			assert.Zero(t, testing.AllocsPerRun(200, func() { w.ObserveFlight(stats.Flight{Server: "10.0.0.1:6379", Took: 1}) }))
		})
	}
}

// histogramOf returns the histogram of a name.
func histogramOf(t testing.TB, metrics map[string]metricdata.Metrics, name string) metricdata.Histogram[float64] {
	t.Helper()
	h, ok := metrics[name].Data.(metricdata.Histogram[float64])
	require.True(t, ok, "%s is %T", name, metrics[name].Data)
	return h
}

// Round trips are in a histogram with the server's address, or with "other" beyond the 64th server.
func TestFlights(t *testing.T) {
	reader, provider := newReader(t)
	counts, w := newObserver(t, otelweir.Options{MeterProvider: provider, TracerProvider: noop.NewTracerProvider()})
	const servers = 100
	for range 2 {
		for i := range servers {
			w.ObserveFlight(stats.Flight{Server: "10.0.0." + strconv.Itoa(i) + ":6379", Calls: 3, Took: time.Millisecond})
			w.ObserveFlight(stats.Flight{Server: "10.0.0." + strconv.Itoa(i) + ":6379", Calls: 1, Took: time.Millisecond, Behind: true})
		}
	}
	points := histogramOf(t, collected(t, reader), "weir.flight.duration").DataPoints
	snapshot := counts.Snapshot()
	require.Len(t, points, len(snapshot.Flights))
	require.Less(t, len(points), 2*servers)
	got := map[string]uint64{}
	for _, p := range points {
		server, _ := p.Attributes.Value("server.address")
		behind, _ := p.Attributes.Value("weir.behind")
		got[server.AsString()+" "+strconv.FormatBool(behind.AsBool())] = p.Count
	}
	for _, f := range snapshot.Flights {
		assert.Equal(t, f.Histogram.Count, got[f.Server+" "+strconv.FormatBool(f.Behind)], f.Server)
	}
	assert.EqualValues(t, 2, got["10.0.0.0:6379 false"])
	assert.Greater(t, got["other false"], uint64(2))
}

// However many policies there are, the histograms have no more series than a Snapshot has.
func TestSeriesAreBounded(t *testing.T) {
	reader, provider := newReader(t)
	counts, w := newObserver(t, otelweir.Options{MeterProvider: provider, TracerProvider: noop.NewTracerProvider()})
	const policies = 3000
	for i := range policies {
		w.Observe(guard.Event{
			Policy: "p" + strconv.Itoa(i), Rule: "Rule", Outcome: core.Admitted, From: guard.FromStore,
			Took: time.Millisecond, Waited: time.Second,
		})
	}
	metrics, snapshot := collected(t, reader), counts.Snapshot()
	for name, series := range map[string]int{
		"weir.decision.duration": len(snapshot.Durations), "weir.request.time_in_queue": len(snapshot.Queues),
	} {
		points := histogramOf(t, metrics, name).DataPoints
		assert.Len(t, points, series, name)
		assert.Less(t, series, 200, name)
		count := uint64(0)
		for _, p := range points {
			count += p.Count
		}
		assert.EqualValues(t, policies, count, name)
	}
}
