package observed

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/observe/otelweir"
)

// BenchmarkDecision is a request that is decided in the process, and one whose decision is measured as that of a remote
// store. It reports what an Observer adds to one without Observe, and otelweir with metrics alone; and what otelweir's
// spans add to that, where the request has a span that is not sampled, and where it has one that is.
func BenchmarkDecision(b *testing.B) {
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	b.Cleanup(func() { _ = meters.Shutdown(context.Background()) })
	sampled := sdktrace.NewTracerProvider()
	b.Cleanup(func() { _ = sampled.Shutdown(context.Background()) })
	never := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	b.Cleanup(func() { _ = never.Shutdown(context.Background()) })
	memory, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(b, err)

	for name, store := range map[string]core.Store{"process": memory, "store": remoteStore{memory}} {
		b.Run(name, func(b *testing.B) {
			o, err := observe.New(observe.Options{})
			require.NoError(b, err)
			metrics, err := otelweir.New(o, otelweir.Options{MeterProvider: meters, TracerProvider: noop.NewTracerProvider()})
			require.NoError(b, err)
			spans, err := otelweir.New(o, otelweir.Options{MeterProvider: meters, TracerProvider: sampled})
			require.NoError(b, err)
			ways := []struct {
				name    string
				observe func(guard.Event)
				tracers *sdktrace.TracerProvider
				beside  int // the way to which it adds
				call    func()
				took    []float64
			}{
				{},
				{name: "observe", observe: o.Observe},
				{name: "metrics", observe: metrics.Observe},
				{observe: metrics.Observe, tracers: never},
				{name: "unsampled", observe: spans.Observe, tracers: never, beside: 3},
				{observe: metrics.Observe, tracers: sampled},
				{name: "sampled", observe: spans.Observe, tracers: sampled, beside: 5},
			}
			for i := range ways {
				way := &ways[i]
				g, err := guard.New(guard.Config{
					Rule: guard.Rule{Policy: "api: 2147483648/1s", Key: keyfunc.IP()}, Store: store, Observe: way.observe,
				})
				require.NoError(b, err)
				h := nethttp.Limit(g)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
				way.call = func() { h.ServeHTTP(w, r) }
				if way.tracers != nil { // each request has a span, as it has without otelweir
					way.call = func() {
						ctx, span := way.tracers.Tracer("bench").Start(context.Background(), "request")
						h.ServeHTTP(w, r.WithContext(ctx))
						span.End()
					}
				}
			}
			const calls = 500
			for b.Loop() {
				for i := range ways {
					began := time.Now()
					for range calls {
						ways[i].call()
					}
					ways[i].took = append(ways[i].took, float64(time.Since(began).Nanoseconds())/calls)
				}
			}
			median := func(i int) float64 {
				slices.Sort(ways[i].took)
				return ways[i].took[len(ways[i].took)/2]
			}
			b.ReportMetric(median(0), "without-ns")
			for i, way := range ways[1:] {
				if way.name != "" {
					b.ReportMetric(median(i+1)-median(way.beside), way.name+"-adds-ns")
				}
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
