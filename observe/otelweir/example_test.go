package otelweir_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/observe/otelweir"
)

// The decisions of a guard as metrics, and on the spans of requests. A program gives its MeterProvider and its
// TracerProvider to otel, and leaves the Options empty.
func Example() {
	reader, spans := sdkmetric.NewManualReader(), tracetest.NewInMemoryExporter()
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))

	o, err := observe.New(observe.Options{})
	if err != nil {
		panic(err)
	}
	w, err := otelweir.New(o, otelweir.Options{MeterProvider: meters, TracerProvider: tracers})
	if err != nil {
		panic(err)
	}
	defer w.Close()
	g, err := guard.New(guard.Config{
		Rule:    guard.Rule{Policy: "api: 2/1h", Key: keyfunc.IP()},
		Observe: w.Observe, // in the place of o.Observe
	})
	if err != nil {
		panic(err)
	}
	o.Watch([]*guard.Guard{g})

	h := nethttp.Limit(g)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for range 3 {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		ctx, span := tracers.Tracer("server").Start(r.Context(), "GET /") // otelhttp does this
		h.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
		span.End()
	}

	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		panic(err)
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[float64]); ok && m.Name == "weir.decisions" {
			total := 0.0
			for _, p := range sum.DataPoints {
				total += p.Value
			}
			fmt.Println(m.Name, total)
		}
	}
	for _, span := range spans.GetSpans() {
		for _, a := range span.Attributes {
			if a.Key == "weir.outcome" || a.Key == otelweir.AttrRefused {
				fmt.Println(span.Name, a.Key, a.Value.AsString())
			}
		}
	}
	// Output:
	// weir.decisions 3
	// GET / weir.outcome admitted
	// GET / weir.outcome at-limit
	// GET / weir.outcome refused
	// GET / weir.refused api
}
