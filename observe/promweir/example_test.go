package promweir_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/observe/promweir"
)

// A guard, and the address that Prometheus scrapes.
func Example() {
	o, err := observe.New(observe.Options{})
	if err != nil {
		panic(err)
	}
	registry := prometheus.NewRegistry() // or prometheus.DefaultRegisterer
	registry.MustRegister(promweir.New(o, promweir.Options{}))
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})

	g, err := guard.New(guard.Config{
		Rule:    guard.Rule{Policy: "api: 2/1h", Key: keyfunc.IP()},
		Observe: o.Observe,
	})
	if err != nil {
		panic(err)
	}
	o.Watch([]*guard.Guard{g})

	app := nethttp.Limit(g)(http.NotFoundHandler())
	for range 3 {
		app.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", http.NoBody))
	}
	w := httptest.NewRecorder()
	metrics.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", http.NoBody))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "weir_decisions_total") || strings.HasPrefix(line, "weir_policy_info") {
			fmt.Print(line)
		}
	}
	// Output:
	// weir_decisions_total{weir_from="process",weir_outcome="admitted",weir_policy="api",weir_rule="Rule",weir_shadow="false",weir_tier=""} 1
	// weir_decisions_total{weir_from="process",weir_outcome="at-limit",weir_policy="api",weir_rule="Rule",weir_shadow="false",weir_tier=""} 1
	// weir_decisions_total{weir_from="process",weir_outcome="refused",weir_policy="api",weir_rule="Rule",weir_shadow="false",weir_tier=""} 1
	// weir_policy_info{weir_limits="2/1h",weir_policy="api"} 1
}
