package promweir_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/observe/promweir"
)

func newObserver(t testing.TB) *observe.Observer {
	t.Helper()
	o, err := observe.New(observe.Options{})
	require.NoError(t, err)
	return o
}

func registered(t testing.TB, o *observe.Observer, options promweir.Options) *prometheus.Registry {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	require.NoError(t, r.Register(promweir.New(o, options)))
	return r
}

func refused(policy string) guard.Event {
	return guard.Event{Policy: policy, Rule: "Rule", Outcome: core.Refused, Result: core.Result{Outcome: core.Refused, Limit: 1}}
}

func TestCounts(t *testing.T) {
	t.Parallel()
	o := newObserver(t)
	for range 3 {
		o.Observe(refused("api"))
	}
	o.Observe(guard.Event{Policy: "api", Rule: "Rule", Settled: true, Used: 7})
	require.NoError(t, testutil.GatherAndCompare(registered(t, o, promweir.Options{}), strings.NewReader(`
# HELP weir_decisions_total Decisions of rules on requests.
# TYPE weir_decisions_total counter
weir_decisions_total{weir_from="`+observed(o)+`",weir_outcome="refused",weir_policy="api",weir_rule="Rule",weir_shadow="false",weir_tier=""} 3
`), "weir_decisions_total"))
	require.NoError(t, testutil.GatherAndCompare(registered(t, o, promweir.Options{}), strings.NewReader(`
# HELP weir_units_settled_total Units that requests have used in the end, of rules with Settle or After.
# TYPE weir_units_settled_total counter
weir_units_settled_total{weir_policy="api"} 7
`), "weir_units_settled_total"))
}

// observed returns what has decided, as the Observer sees it.
func observed(o *observe.Observer) string { return o.Snapshot().Decisions[0].From }

// Each bucket, classic and native, has the durations that belong in it.
func TestHistograms(t *testing.T) {
	t.Parallel()
	for _, native := range []bool{false, true} {
		o := newObserver(t)
		durations := []time.Duration{
			time.Nanosecond, 10 * time.Microsecond, 10*time.Microsecond + 1, time.Millisecond, 7 * time.Millisecond,
			40 * time.Millisecond, 40*time.Millisecond + 1, time.Second, time.Hour,
		}
		for _, d := range durations {
			e := refused("api")
			e.Took = d
			o.Observe(e)
		}
		h := gathered(t, registered(t, o, promweir.Options{Native: native}), "weir_decision_duration_seconds")
		assert.EqualValues(t, len(durations), h.GetSampleCount())
		sum := time.Duration(0)
		for _, d := range durations {
			sum += d
		}
		assert.InDelta(t, sum.Seconds(), h.GetSampleSum(), 1e-9)
		for _, b := range h.Bucket {
			least := time.Duration(math.Round(b.GetUpperBound() * 1e9))
			want := len(slices.DeleteFunc(slices.Clone(durations), func(d time.Duration) bool { return d > least }))
			assert.EqualValues(t, want, b.GetCumulativeCount(), "up to %v", least)
		}
		assert.Len(t, h.Bucket, 15)
		if !native {
			assert.Nil(t, h.Schema)
			continue
		}
		assert.EqualValues(t, observe.NativeSchema, h.GetSchema())
		inBuckets := h.GetZeroCount()
		buckets := nativeBuckets(h)
		for i, n := range buckets {
			inBuckets += uint64(n)
			low, high := math.Exp2(float64(i-1)/8), math.Exp2(float64(i)/8)
			held := slices.DeleteFunc(slices.Clone(durations), func(d time.Duration) bool {
				// The bounds are kept in whole nanoseconds.
				return d.Seconds() <= low-1e-9 || d.Seconds() > high || d.Seconds() <= observe.NativeZero
			})
			if d := time.Hour; i == highest(buckets) {
				held = append(held, d) // the last one has all that is longer
			}
			assert.Len(t, held, int(n), "bucket %d", i)
		}
		assert.EqualValues(t, len(durations), inBuckets)
	}
}

func highest(buckets map[int]int64) (last int) {
	last = math.MinInt
	for i := range buckets {
		last = max(last, i)
	}
	return last
}

// nativeBuckets reads the buckets as Prometheus does.
func nativeBuckets(h *dto.Histogram) map[int]int64 {
	buckets := map[int]int64{}
	deltas := h.GetPositiveDelta()
	i, n := 0, int64(0)
	for _, span := range h.GetPositiveSpan() {
		i += int(span.GetOffset())
		for range span.GetLength() {
			n += deltas[0]
			deltas = deltas[1:]
			buckets[i] = n
			i++
		}
	}
	return buckets
}

func gathered(t *testing.T, from prometheus.Gatherer, name string) *dto.Histogram {
	t.Helper()
	families, err := from.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			require.Len(t, f.GetMetric(), 1)
			return f.GetMetric()[0].GetHistogram()
		}
	}
	t.Fatalf("no %s", name)
	return nil
}

// Two Observers share a registry if a label keeps them apart.
func TestTwoObservers(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	for _, part := range []string{"a", "b"} {
		o := newObserver(t)
		o.Observe(refused("api"))
		labels := prometheus.Labels{"part": part}
		require.NoError(t, prometheus.WrapRegistererWith(labels, r).Register(promweir.New(o, promweir.Options{})))
	}
	n, err := testutil.GatherAndCount(r, "weir_decisions_total")
	require.NoError(t, err)
	assert.Equal(t, 2, n)
	assert.Error(t, r.Register(promweir.New(newObserver(t), promweir.Options{})), "without a label")
}

// Without an Observer the registration fails, and not each scrape.
func TestNoObserver(t *testing.T) {
	t.Parallel()
	assert.ErrorContains(t, prometheus.NewRegistry().Register(promweir.New(nil, promweir.Options{})), "give one that observe.New has returned")
}

// A program may have any number of policies, whose names and tiers may be anything: a scrape stays small and whole.
func TestManyPolicies(t *testing.T) {
	t.Parallel()
	o := manyPolicies(t)
	text := scrape(t, registered(t, o, promweir.Options{}))
	lines := slices.DeleteFunc(strings.Split(text, "\n"), func(l string) bool { return l == "" || l[0] == '#' })
	assert.LessOrEqual(t, len(lines), 2000)
	assert.Greater(t, len(lines), 1000)
	assert.Contains(t, text, `weir_policy="other"`)
	assert.Contains(t, text, "weir_policy_info{")
}

// manyPolicies returns an Observer of a guard with 1000 policies and 10 000 keys, and of 20 000 policies besides, with
// tiers that break lines or are not UTF-8.
func manyPolicies(t testing.TB) *observe.Observer {
	t.Helper()
	const policies = 1000
	o := newObserver(t)
	routes := make(map[string]guard.Rule, policies)
	for i := range policies {
		routes[fmt.Sprintf("GET /%d", i)] = guard.Rule{Policy: fmt.Sprintf("policy%d: 1/1h; fail open", i)}
	}
	g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "1/1h", Key: keyfunc.Header("Client")}, Routes: routes, Observe: o.Observe})
	require.NoError(t, err)
	o.Watch([]*guard.Guard{g})
	handler := nethttp.Limit(g)(http.NotFoundHandler())
	for i := range 20 * policies {
		r := httptest.NewRequest("GET", fmt.Sprintf("/%d", i%policies), http.NoBody)
		r.Header.Set("Client", fmt.Sprint(i/2))
		handler.ServeHTTP(httptest.NewRecorder(), r)
		e := refused(fmt.Sprint("other policy", i))
		if e.Tier = fmt.Sprintf("%d \n\"\\", i); i%2 > 0 {
			e.Tier += "\xff" // which is not UTF-8
		}
		o.Observe(e)
	}
	return o
}

func scrape(t testing.TB, r prometheus.Gatherer) string {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, 200, w.Code, w.Body)
	return w.Body.String()
}

func BenchmarkScrape(b *testing.B) {
	o := manyPolicies(b)
	r := prometheus.NewRegistry()
	r.MustRegister(promweir.New(o, promweir.Options{}))
	b.SetBytes(int64(len(scrape(b, r))))
	for b.Loop() {
		scrape(b, r)
	}
}

// An exemplar stands at the bucket of its duration, also at the one without a bound.
func TestExemplars(t *testing.T) {
	t.Parallel()
	ids := []string{"4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"}
	o, err := observe.New(observe.Options{Exemplar: func(context.Context) (string, string) { return ids[0], ids[1] }})
	require.NoError(t, err)
	for _, d := range []time.Duration{3 * time.Millisecond, time.Hour} {
		e := refused("api")
		e.Took, e.At = d, time.Now().UnixMicro()
		o.Observe(e)
	}
	for _, native := range []bool{false, true} {
		answer := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
		promhttp.HandlerFor(registered(t, o, promweir.Options{Native: native}), promhttp.HandlerOpts{EnableOpenMetrics: true}).ServeHTTP(answer, r)
		for _, line := range []string{`le="0.005"} 1 # {trace_id="` + ids[0] + `",span_id="` + ids[1] + `"} 0.003`, `le="+Inf"} 2 # {trace_id="` + ids[0]} {
			assert.Contains(t, answer.Body.String(), line)
		}
		assert.Equal(t, 1, strings.Count(answer.Body.String(), `le="+Inf"`))
	}
}
