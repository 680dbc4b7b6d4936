package recipes

import (
	"fmt"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/observe/otelweir"
)

// The spans that otelhttp makes of requests have the decision: otelhttp stands outside of the limit.
func Example_openTelemetry() {
	spans := tracetest.NewInMemoryExporter()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))

	o, err := observe.New(observe.Options{})
	if err != nil {
		panic(err)
	}
	w, err := otelweir.New(o, otelweir.Options{TracerProvider: tracers})
	if err != nil {
		panic(err)
	}
	g, err := guard.New(guard.Config{
		Rule:    guard.Rule{Policy: "api: 2/1h", Key: keyfunc.IP()},
		Rules:   []guard.Rule{{Policy: "stricter: 1/1h; shadow"}},
		Observe: w.Observe,
	})
	if err != nil {
		panic(err)
	}
	handler := otelhttp.NewHandler(nethttp.Limit(g)(hello), "hello", otelhttp.WithTracerProvider(tracers))

	send(handler, "GET /", "GET /", "GET /")
	for _, span := range spans.GetSpans() {
		fmt.Println(span.Name)
		for _, a := range span.Attributes {
			switch a.Key {
			case "weir.outcome", "weir.refused", "weir.trial.refused", "http.response.status_code":
				fmt.Println("  ", a.Key, a.Value.String())
			}
		}
	}
	// Output:
	// GET / 200 limit 2
	// GET / 200 limit 2
	// GET / 429 limit 2
	// GET
	//    weir.outcome admitted
	//    http.response.status_code 200
	// GET
	//    weir.trial.refused stricter
	//    weir.outcome at-limit
	//    http.response.status_code 200
	// GET
	//    weir.outcome refused
	//    weir.refused api
	//    http.response.status_code 429
}
