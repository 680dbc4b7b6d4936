package observed

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/observe/otelweir"
	"github.com/weir-go/weir/observe/promweir"
)

// deadline gives Redis time also on a busy machine.
const deadline = 500 * time.Millisecond

// readers are one Observer read by promweir, and by otelweir through OpenTelemetry's exporter for Prometheus.
type readers struct {
	counts     *observe.Observer
	otelweir   *otelweir.Observer
	prom, otel *prometheus.Registry
}

func newReaders(t testing.TB, o observe.Options) *readers {
	t.Helper()
	r := &readers{prom: prometheus.NewPedanticRegistry(), otel: prometheus.NewPedanticRegistry()}
	exporter, err := otelprometheus.New(
		otelprometheus.WithRegisterer(r.otel), otelprometheus.WithoutScopeInfo(), otelprometheus.WithoutTargetInfo(),
	)
	require.NoError(t, err)
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
	t.Cleanup(func() { _ = meters.Shutdown(context.Background()) })
	r.counts, err = observe.New(o)
	require.NoError(t, err)
	r.otelweir, err = otelweir.New(r.counts, otelweir.Options{MeterProvider: meters, TracerProvider: noop.NewTracerProvider()})
	require.NoError(t, err)
	require.NoError(t, r.prom.Register(promweir.New(r.counts, promweir.Options{})))
	return r
}

// series are the series of a registry: families with their types, and each sample with its labels.
type series struct {
	families map[string]string
	samples  map[string]float64
}

func gather(t *testing.T, from prometheus.Gatherer) series {
	t.Helper()
	families, err := from.Gather()
	require.NoError(t, err)
	s := series{map[string]string{}, map[string]float64{}}
	for _, f := range families {
		s.families[f.GetName()] = f.GetType().String() + ": " + f.GetHelp()
		for _, m := range f.GetMetric() {
			pairs := slices.SortedFunc(slices.Values(m.GetLabel()), func(a, b *dto.LabelPair) int {
				return cmp.Compare(a.GetName(), b.GetName())
			})
			labels := ""
			for _, p := range pairs {
				labels += fmt.Sprintf("%s=%q,", p.GetName(), p.GetValue())
			}
			add := func(suffix, more string, value float64) {
				id := f.GetName() + suffix + "{" + labels + more + "}"
				assert.NotContains(t, s.samples, id, "twice")
				s.samples[id] = value
			}
			switch h := m.GetHistogram(); {
			case h != nil:
				add("_count", "", float64(h.GetSampleCount()))
				add("_sum", "", h.GetSampleSum())
				for _, b := range h.GetBucket() {
					add("_bucket", "le="+strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64), float64(b.GetCumulativeCount()))
				}
			case m.GetCounter() != nil:
				add("", "", m.GetCounter().GetValue())
			default:
				add("", "", m.GetGauge().GetValue())
			}
		}
	}
	return s
}

// compare demands that both readers show the same now. Nothing may happen meanwhile.
func (r *readers) compare(t *testing.T) series {
	t.Helper()
	prom, otel := gather(t, r.prom), gather(t, r.otel)
	assert.Equal(t, prom.families, otel.families)
	for id, value := range prom.samples {
		other, found := otel.samples[id]
		if !assert.True(t, found, "only promweir has %s", id) {
			continue
		}
		if strings.Contains(id, "_sum{") { // the one adds integers and the other floats
			assert.InEpsilon(t, value, other, 1e-9, id)
		} else {
			assert.InDelta(t, value, other, 0, id)
		}
	}
	for id := range otel.samples {
		assert.Contains(t, prom.samples, id, "only otelweir has it")
	}
	return prom
}

// get sends a request with a key to a guard.
func get(g *guard.Guard, key string) {
	h := nethttp.Limit(g)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { guard.Report(r.Context(), 3) }))
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Key", key)
	h.ServeHTTP(w, r)
}

// The same traffic, with a server that dies, through promweir and through otelweir: equal families, labels and values.
func TestParity(t *testing.T) {
	r := newReaders(t, observe.Options{})
	server := redistest.Single(t)
	store, err := redisstore.New(server.Client(t), redisstore.Options{
		Deadline: deadline, Observe: r.otelweir.ObserveFlight, ObserveBreaker: r.counts.ObserveBreaker,
	})
	require.NoError(t, err)
	memory, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)

	newGuard := func(c guard.Config) *guard.Guard {
		c.Observe = r.otelweir.Observe
		g, err := guard.New(c)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, g.Close()) })
		return g
	}
	key := keyfunc.Header("X-Key")
	var source atomic.Pointer[follow.Set]
	source.Store(&follow.Set{Revision: "7", Policies: map[string]string{"tokens": "99/1h"}})
	local := newGuard(guard.Config{
		Rule: guard.Rule{
			Policy: "local: 5/1h", Key: key, Tiers: map[string]string{"pro": "9/1h", "free": "unlimited"},
			Tier: func(r keyfunc.Request) string { return strings.TrimRight(r.Header("X-Key")[0], "0123456789") },
		},
		Rules: []guard.Rule{
			{Policy: "trial: 3/1h; shadow", Key: key},
			{Policy: "tokens: 100/1h", Key: key, Settle: guard.Reported},
			{Policy: "turns: 200/1s burst 1; wait 10s", Key: key},
			{Policy: "parallel: 2 concurrent", Key: key},
		},
		Store:  memory,
		Source: &source,
	})
	remote := newGuard(guard.Config{
		Rule:  guard.Rule{Policy: "remote: 2/1h", Key: key},
		Rules: []guard.Rule{{Policy: "all: 150/1h", Key: keyfunc.Const("all")}},
		Store: store,
	})
	open := newGuard(guard.Config{Rule: guard.Rule{Policy: "open: 5/1h; fail open", Key: key}, Store: store})
	closed := newGuard(guard.Config{Rule: guard.Rule{Policy: "closed: 5/1h; fail closed", Key: key}, Store: store})
	guards := []*guard.Guard{local, remote, open, closed}
	r.counts.Watch(guards, store, memory)

	traffic := func(keys int) {
		var all sync.WaitGroup
		for caller := range 4 {
			all.Go(func() {
				for i := range 100 {
					g := guards[(caller+i)%len(guards)]
					get(g, []string{"pro", "user", "free", ""}[i/4%4]+strconv.Itoa(keys+i%7))
				}
			})
		}
		all.Wait()
	}
	traffic(0)
	server.Kill()
	traffic(10) // other keys: refusals of the first ones are still remembered
	r.idle(t)

	got := r.compare(t)
	for _, m := range observe.Metrics() {
		assert.Contains(t, got.families, m.Prometheus())
	}
	for _, want := range []string{
		`weir_from="store"`, `weir_from="deny-cache"`, `weir_from="process"`, `weir_from="fallback"`, `weir_from="open"`, `weir_from="closed"`,
		`weir_tier="pro"`, `weir_shadow="true"`, `weir_outcome="at-limit"`, `weir_outcome="refused"`, `weir_store_failures_total{`,
		`weir_request_time_in_queue_seconds_bucket`, `weir_flight_duration_seconds_bucket`,
	} {
		assert.True(t, got.has(want), "the traffic should bring about %s", want)
	}
}

// has reports whether there is a sample that is above 0 and whose name and labels have the text.
func (s series) has(text string) bool {
	for id, value := range s.samples {
		if value > 0 && strings.Contains(id, text) {
			return true
		}
	}
	return false
}

// idle waits until nothing is under way, so that no number changes while the readers are compared.
func (r *readers) idle(t *testing.T) {
	t.Helper()
	last := ""
	require.Eventually(t, func() bool {
		now := fmt.Sprint(gather(t, r.prom).samples)
		same := now == last
		last = now
		return same
	}, time.Minute, 100*time.Millisecond)
}

// With more policies than there may be series, both fold the same ones into "other", also where only some outcomes of a
// policy had room.
func TestParityWithManyPolicies(t *testing.T) {
	r := newReaders(t, observe.Options{MaxSeries: 500})
	memory, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	var guards []*guard.Guard
	for i := range 300 {
		g, err := guard.New(guard.Config{
			Rule:    guard.Rule{Policy: fmt.Sprintf("p%d: 1/1h", i), Key: keyfunc.Header("X-Key")},
			Store:   remoteStore{memory},
			Observe: r.otelweir.Observe,
		})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, g.Close()) })
		guards = append(guards, g)
	}
	for range 3 {
		for _, g := range guards {
			get(g, "a")
		}
	}
	got := r.compare(t)
	assert.True(t, got.has(`weir_decision_duration_seconds_count{weir_from="store",weir_policy="other"`))
	assert.True(t, got.has(`weir_decision_duration_seconds_count{weir_from="store",weir_policy="p0"`))
}
