package guard_test

import (
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

// BenchmarkObserve is a check in the process without and with an Observe that does nothing, in turns, so that both are of
// one machine at one time. What the guard's part of an Event costs is their difference, in adds-ns.
func BenchmarkObserve(b *testing.B) {
	for name, policy := range map[string]string{"admitted": "2147483648/1s", "refused": "1/366d"} {
		b.Run(name, func(b *testing.B) {
			var check [2]func()
			seen := 0
			for i, observe := range []func(guard.Event){nil, func(e guard.Event) { seen += len(e.Policy) }} {
				g := newGuard(b, guard.Config{Rule: guard.Rule{Policy: policy, Key: keyfunc.IP()}, Observe: observe})
				r := from(alice)
				check[i] = func() {
					v := g.Check(r)
					v.Finish(guard.Final{})
				}
				check[i]()
			}
			reportAdded(b, check[0], check[1])
		})
	}
}

// reportAdded runs both functions in turns, and reports the median time of a call of the first, and how much longer one
// of the second takes.
func reportAdded(b *testing.B, without, with func()) {
	b.Helper()
	const calls = 2000
	var took [2][]float64
	for b.Loop() {
		for i, call := range []func(){without, with} {
			began := time.Now()
			for range calls {
				call()
			}
			took[i] = append(took[i], float64(time.Since(began).Nanoseconds())/calls)
		}
	}
	var median [2]float64
	for i := range took {
		slices.Sort(took[i])
		median[i] = took[i][len(took[i])/2]
	}
	b.ReportMetric(median[0], "without-ns")
	b.ReportMetric(median[1]-median[0], "adds-ns")
	b.ReportMetric(0, "ns/op")
}
