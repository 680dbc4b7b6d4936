package observed

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/observe"
)

// BenchmarkScrape reads all metrics when 10 000 policies were refused, by promweir and by otelweir.
func BenchmarkScrape(b *testing.B) {
	r := newReaders(b, observe.Options{})
	for i := range 10_000 {
		for _, outcome := range []core.Outcome{core.Admitted, core.AtLimit, core.Refused} {
			r.otelweir.Observe(guard.Event{
				Policy: fmt.Sprint("p", i), Rule: "Rule", Outcome: outcome, From: guard.FromStore,
				At: time.Now().UnixMicro(), Took: time.Millisecond, Waited: time.Millisecond,
			})
		}
	}
	for name, from := range map[string]prometheus.Gatherer{"promweir": r.prom, "otelweir": r.otel} {
		b.Run(name, func(b *testing.B) {
			samples := 0
			for b.Loop() {
				families, err := from.Gather()
				require.NoError(b, err)
				samples = 0
				for _, f := range families {
					samples += len(f.GetMetric())
				}
			}
			b.ReportMetric(float64(samples), "series")
		})
	}
}
