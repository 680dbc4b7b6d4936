package observed

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/observe/otelweir"
)

// remoteStore hides from a Guard that its store is in the process, so that each decision is measured.
type remoteStore struct{ core.Store }

// event returns an Event of a decision of a store.
func event(b *testing.B) (seen guard.Event) {
	m, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(b, err)
	g, err := guard.New(guard.Config{
		Rule:    guard.Rule{Policy: "api: 100/1s", Key: keyfunc.IP()},
		Store:   remoteStore{m},
		Observe: func(e guard.Event) { seen = e },
	})
	require.NoError(b, err)
	h := nethttp.Limit(g)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	require.NoError(b, g.Close())
	require.Equal(b, guard.FromStore, seen.From)
	return seen
}

// BenchmarkHistogram adds a duration to the histogram of otelweir, and one to a native histogram of client_golang with
// the same labels, in turns, so that both are of one machine at one time. The time of otelweir is that by which its
// Observe is longer than that of the Observer which it calls. Beside the times it reports their ratio, which should
// stay below 3.
func BenchmarkHistogram(b *testing.B) {
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	b.Cleanup(func() { _ = meters.Shutdown(context.Background()) })
	o, err := observe.New(observe.Options{})
	require.NoError(b, err)
	w, err := otelweir.New(o, otelweir.Options{MeterProvider: meters, TracerProvider: noop.NewTracerProvider()})
	require.NoError(b, err)
	native := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "took", NativeHistogramBucketFactor: 1.1,
	}, []string{"policy", "from"})

	e := event(b)
	ways := []struct {
		name string
		call func(e guard.Event)
	}{
		{"observe", o.Observe},
		{"otelweir", w.Observe},
		{"native", func(e guard.Event) {
			native.WithLabelValues(e.Policy, e.From.String()).Observe(e.Took.Seconds())
		}},
	}
	const calls = 2000
	took := map[string][]float64{}
	for b.Loop() {
		for _, way := range ways {
			began := time.Now()
			for i := range calls {
				e.Took = time.Duration(i+1) * time.Microsecond
				way.call(e)
			}
			took[way.name] = append(took[way.name], float64(time.Since(began).Nanoseconds())/calls)
		}
	}
	median := map[string]float64{}
	for name, all := range took {
		slices.Sort(all)
		median[name] = all[len(all)/2]
	}
	b.ReportMetric(median["otelweir"]-median["observe"], "otelweir-ns")
	b.ReportMetric(median["native"], "native-ns")
	b.ReportMetric((median["otelweir"]-median["observe"])/median["native"], "times-native")
	b.ReportMetric(0, "ns/op")
}
