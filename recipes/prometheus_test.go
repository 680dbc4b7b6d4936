package recipes

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

// Counters and a histogram of Prometheus. The labels have few values, which are the program's own: never a key or a path.
func Example_prometheus() {
	decisions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ratelimit_decisions_total", Help: "What was decided, by policy.",
	}, []string{"policy", "tier", "outcome", "trial"})
	failures := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ratelimit_store_failures_total", Help: "Decisions for which the store did not answer, by why.",
	}, []string{"policy", "class"})
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "ratelimit_decision_seconds", Help: "How long a decision took.", Buckets: prometheus.ExponentialBuckets(1e-6, 4, 10),
	}, []string{"policy"})
	registry := prometheus.NewRegistry()
	registry.MustRegister(decisions, failures, took)

	observe := func(e guard.Event) {
		if e.Settled { // a second event of the request, when it is over
			return
		}
		decisions.WithLabelValues(e.Policy, e.Tier, e.Outcome.String(), strconv.FormatBool(e.Shadow)).Inc()
		if e.Took > 0 { // it was measured
			took.WithLabelValues(e.Policy).Observe(e.Took.Seconds())
		}
		if failed := (*core.StoreError)(nil); errors.As(e.Err, &failed) {
			failures.WithLabelValues(e.Policy, failed.Class).Inc()
		}
	}
	g, err := guard.New(guard.Config{
		Rule:    guard.Rule{Policy: "api: 2/1h", Key: keyfunc.IP()},
		Rules:   []guard.Rule{{Policy: "stricter: 1/1h; shadow"}},
		Observe: observe,
	})
	if err != nil {
		panic(err)
	}

	send(nethttp.Limit(g)(hello), "GET /", "GET /", "GET /")
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "ratelimit_decisions_total") || strings.HasPrefix(line, "ratelimit_decision_seconds_count") {
			fmt.Print(line)
		}
	}
	// Output:
	// GET / 200 limit 2
	// GET / 200 limit 2
	// GET / 429 limit 2
	// ratelimit_decision_seconds_count{policy="api"} 3
	// ratelimit_decision_seconds_count{policy="stricter"} 2
	// ratelimit_decisions_total{outcome="admitted",policy="api",tier="",trial="false"} 1
	// ratelimit_decisions_total{outcome="at-limit",policy="api",tier="",trial="false"} 1
	// ratelimit_decisions_total{outcome="at-limit",policy="stricter",tier="",trial="true"} 1
	// ratelimit_decisions_total{outcome="refused",policy="api",tier="",trial="false"} 1
	// ratelimit_decisions_total{outcome="refused",policy="stricter",tier="",trial="true"} 1
}
