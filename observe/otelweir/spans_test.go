package otelweir_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
	"github.com/weir-go/weir/observe/otelweir"
)

// tracing keeps the spans that have ended.
type tracing struct {
	*tracetest.SpanRecorder
	*sdktrace.TracerProvider
}

func newTracing(t testing.TB, o ...sdktrace.TracerProviderOption) tracing {
	r := tracetest.NewSpanRecorder()
	p := sdktrace.NewTracerProvider(append(o, sdktrace.WithSpanProcessor(r))...)
	t.Cleanup(func() { _ = p.Shutdown(context.Background()) })
	return tracing{r, p}
}

// serve lets a guard serve a request that has a span, as middleware of OpenTelemetry around it makes one.
func (tr tracing) serve(g *guard.Guard, r *http.Request) {
	ctx, span := tr.Tracer("test").Start(r.Context(), "request")
	defer span.End()
	serve(g, r.WithContext(ctx))
}

// attrs are the attributes of a span.
type attrs map[attribute.Key]any

func attrsOf(span sdktrace.ReadOnlySpan) attrs {
	all := attrs{}
	for _, a := range span.Attributes() {
		if all[a.Key] = a.Value.AsInterface(); a.Value.Type() == attribute.INT64 {
			all[a.Key] = int(a.Value.AsInt64())
		}
	}
	return all
}

// last returns the span of the last request, and those of its decisions.
func (tr tracing) last(t testing.TB) (request sdktrace.ReadOnlySpan, decisions []sdktrace.ReadOnlySpan) {
	t.Helper()
	all := tr.Ended()
	require.NotEmpty(t, all)
	request = all[len(all)-1]
	require.Equal(t, "request", request.Name())
	for _, s := range all[:len(all)-1] {
		if s.Parent().SpanID() == request.SpanContext().SpanID() {
			decisions = append(decisions, s)
		}
	}
	return request, decisions
}

func TestSpans(t *testing.T) {
	down := &core.StoreError{Class: core.ClassDown, Server: "10.0.0.1:6379", Err: errors.New("no connection")}
	nameless := &core.StoreError{Class: core.ClassOther, Err: errors.New("of a store that names no server")}
	breaker := &core.StoreError{Class: core.ClassBreaker, Err: errors.New("it has just failed")}
	policy := func(words string) guard.Config { return guard.Config{Rule: guard.Rule{Policy: "api: 1/1h" + words}} }
	for name, tc := range map[string]struct {
		config    guard.Config
		inProcess bool
		fails     error
		requests  int // the last of them is looked at
		request   attrs
		decisions []attrs
	}{
		"admitted by the store": {
			config: policy(" burst 5"), requests: 1,
			request:   decided("admitted", "store", attrs{"weir.limit": 5, "weir.remaining": 4}),
			decisions: []attrs{decided("admitted", "store", attrs{"weir.limit": 5, "weir.remaining": 4, "weir.shadow": false})},
		},
		"refused by the store": {
			config: policy(""), requests: 2,
			request: decided("refused", "store", attrs{
				"weir.limit": 1, "weir.remaining": 0, "weir.retry_after": 3600.0, "weir.refused": "api",
			}),
			decisions: []attrs{decided("refused", "store", attrs{
				"weir.limit": 1, "weir.remaining": 0, "weir.retry_after": 3600.0, "weir.shadow": false,
			})},
		},
		"decided in the process": {
			config: policy(" burst 5"), requests: 1, inProcess: true,
			request: decided("admitted", "process", attrs{"weir.limit": 5, "weir.remaining": 4}),
		},
		"a store that has failed": {
			config: policy("; fail local"), requests: 1, fails: down,
			request: decided("at-limit", "fallback", attrs{"weir.limit": 1, "weir.remaining": 0, "weir.store.error": "down"}),
			decisions: []attrs{decided("at-limit", "fallback", attrs{
				"weir.limit": 1, "weir.remaining": 0, "weir.shadow": false, "error.type": "down", "server.address": "10.0.0.1:6379",
			})},
		},
		"a store that has failed, and so has the request": {
			config: policy("; fail closed"), requests: 1, fails: down,
			request: decided("refused", "closed", attrs{"weir.store.error": "down", "weir.refused": "api"}),
			decisions: []attrs{decided("refused", "closed", attrs{
				"weir.shadow": false, "error.type": "down", "server.address": "10.0.0.1:6379",
			})},
		},
		"a store without a server": {
			config: policy("; fail open"), requests: 1, fails: nameless,
			request:   decided("admitted", "open", attrs{"weir.store.error": "other"}),
			decisions: []attrs{decided("admitted", "open", attrs{"weir.shadow": false, "error.type": "other"})},
		},
		"a store that was not asked": {
			config: policy("; fail open"), requests: 1, fails: breaker,
			request: decided("admitted", "open", attrs{"weir.store.error": "breaker"}),
		},
		"a trial that would refuse": {
			config: guard.Config{
				Rule:  guard.Rule{Policy: "api: 9/1h"},
				Rules: []guard.Rule{{Policy: "trial: 1/1h; shadow"}},
			},
			requests: 2, inProcess: true,
			request: decided("admitted", "process", attrs{"weir.limit": 9, "weir.remaining": 7, "weir.trial.refused": "trial"}),
		},
		"refused, and let pass": {
			config: guard.Config{
				Rule:  guard.Rule{Policy: "all: 1/1h", OverLimit: guard.Degrade()},
				Rules: []guard.Rule{{Policy: "api: 9/1h"}},
			},
			requests: 2, inProcess: true,
			request: decided("admitted", "process", attrs{
				"weir.rule": "Rules[0]", "weir.limit": 9, "weir.remaining": 7, "weir.retry_after": 3600.0, "weir.refused": "all",
			}),
		},
		"settled": {
			config: guard.Config{Rule: guard.Rule{
				Policy: "api: 9/1h", Settle: func(guard.Final, int64) int64 { return 3 },
			}, Rules: []guard.Rule{{
				Policy: "trial: 9/1h; shadow", Settle: func(guard.Final, int64) int64 { return 4 },
			}}},
			requests: 1, inProcess: true,
			request: decided("admitted", "process", attrs{"weir.limit": 9, "weir.remaining": 8, "weir.units.settled": 3}),
		},
	} {
		t.Run(name, bubble(func(t *testing.T) {
			tr := newTracing(t)
			_, w := newObserver(t, otelweir.Options{MeterProvider: metricnoop.NewMeterProvider(), TracerProvider: tr.TracerProvider})
			store := newRemote(t)
			store.err = tc.fails
			c := tc.config
			c.Key, c.Observe = keyfunc.IP(), w.Observe
			for i := range c.Rules {
				c.Rules[i].Key = keyfunc.IP()
			}
			if !tc.inProcess {
				c.Store = store
			}
			g := newGuard(t, c)
			for range tc.requests {
				tr.serve(g, httptest.NewRequest(http.MethodGet, "/", nil))
			}

			request, decisions := tr.last(t)
			assert.Equal(t, tc.request, attrsOf(request))
			require.Len(t, decisions, len(tc.decisions))
			for i, d := range decisions {
				assert.Equal(t, "weir.decision", d.Name())
				assert.Equal(t, tc.decisions[i], attrsOf(d))
				class, failed := tc.decisions[i]["error.type"]
				assert.Equal(t, failed, d.Status().Code == codes.Error)
				if failed {
					assert.Equal(t, class, d.Status().Description)
				}
			}
			assert.Equal(t, codes.Unset, request.Status().Code, "whether the request has failed is for others to say")
		}))
	}
}

// bubble runs a test with a clock that stands still.
func bubble(test func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) { synctest.Test(t, test) }
}

// decided returns the attributes of a decision of the rule "api", and more.
func decided(outcome, from string, more attrs) attrs {
	all := attrs{"weir.policy": "api", "weir.rule": "Rule", "weir.tier": "", "weir.outcome": outcome, "weir.from": from}
	maps.Copy(all, more)
	return all
}

// The span of a decision lasts as long as it took, and the request's span has the wait for the turn that follows.
func TestSpanTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTracing(t)
		_, w := newObserver(t, otelweir.Options{MeterProvider: metricnoop.NewMeterProvider(), TracerProvider: tr.TracerProvider})
		m, err := core.NewMemory(core.MemoryOptions{})
		require.NoError(t, err)
		g := newGuard(t, guard.Config{
			Rule:    guard.Rule{Policy: "api: 1/1s; wait 5s", Key: keyfunc.IP()},
			Store:   slow{m, 30 * time.Millisecond},
			Observe: w.Observe,
		})
		tr.serve(g, httptest.NewRequest(http.MethodGet, "/", nil))
		began := time.Now()
		tr.serve(g, httptest.NewRequest(http.MethodGet, "/", nil))

		request, decisions := tr.last(t)
		require.Len(t, decisions, 1)
		assert.WithinDuration(t, began, decisions[0].StartTime(), time.Microsecond)
		assert.Equal(t, 30*time.Millisecond, decisions[0].EndTime().Sub(decisions[0].StartTime()))
		assert.InDelta(t, 0.97, attrsOf(request)[otelweir.AttrTimeInQueue], 1e-3)
	})
}

// slow is a store whose answer takes a while.
type slow struct {
	core.Store
	takes time.Duration
}

func (s slow) Take(ctx context.Context, t core.Take) (core.Result, error) {
	wait, cancel := context.WithTimeout(ctx, s.takes)
	defer cancel()
	<-wait.Done()
	return s.Store.Take(ctx, t)
}

// A span that is not recorded, and a request without one, bring about no other.
func TestNoSpanWithoutOne(t *testing.T) {
	for name, tr := range map[string]tracing{
		"not sampled": newTracing(t, sdktrace.WithSampler(sdktrace.NeverSample())),
		"none":        newTracing(t),
	} {
		t.Run(name, func(t *testing.T) {
			_, w := newObserver(t, otelweir.Options{MeterProvider: metricnoop.NewMeterProvider(), TracerProvider: tr.TracerProvider})
			g := newGuard(t, guard.Config{
				Rule: guard.Rule{Policy: "api: 1/1h", Key: keyfunc.IP()}, Store: newRemote(t), Observe: w.Observe,
			})
			request := httptest.NewRequest(http.MethodGet, "/", nil)
			if name == "none" {
				serve(g, request)
			} else {
				tr.serve(g, request)
			}
			assert.Empty(t, tr.Ended())
		})
	}
}

// With the provider of no spans, those of requests are left alone.
func TestSpansCanBeSwitchedOff(t *testing.T) {
	tr := newTracing(t)
	_, w := newObserver(t, otelweir.Options{MeterProvider: metricnoop.NewMeterProvider(), TracerProvider: noop.NewTracerProvider()})
	g := newGuard(t, guard.Config{
		Rule: guard.Rule{Policy: "api: 1/1h", Key: keyfunc.IP()}, Store: newRemote(t), Observe: w.Observe,
	})
	tr.serve(g, httptest.NewRequest(http.MethodGet, "/", nil))
	request, decisions := tr.last(t)
	assert.Empty(t, attrsOf(request))
	assert.Empty(t, decisions)
}

// The handler's spans are children of the request's span, as they are without weir.
func TestHandlersKeepTheRequestsSpan(t *testing.T) {
	tr := newTracing(t)
	_, w := newObserver(t, otelweir.Options{MeterProvider: metricnoop.NewMeterProvider(), TracerProvider: tr.TracerProvider})
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "api: 1/1h", Key: keyfunc.IP()}, Store: newRemote(t), Observe: w.Observe})
	h := nethttp.Limit(g)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, span := tr.Tracer("handler").Start(r.Context(), "work")
		span.End()
	}))
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	ctx, span := tr.Tracer("test").Start(r.Context(), "request")
	h.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
	span.End()
	_, children := tr.last(t)
	require.Len(t, children, 2)
	assert.Equal(t, []string{"weir.decision", "work"}, []string{children[0].Name(), children[1].Name()})
}

// An exemplar of the histogram leads to the trace of a request that is sampled.
func TestExemplars(t *testing.T) {
	tr := newTracing(t)
	reader, provider := newReader(t)
	_, w := newObserver(t, otelweir.Options{MeterProvider: provider, TracerProvider: tr.TracerProvider})
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "api: 9/1h", Key: keyfunc.IP()}, Store: newRemote(t), Observe: w.Observe})
	tr.serve(g, httptest.NewRequest(http.MethodGet, "/", nil))
	request, _ := tr.last(t)
	points := histogramOf(t, collected(t, reader), "weir.decision.duration").DataPoints
	require.Len(t, points, 1)
	require.Len(t, points[0].Exemplars, 1)
	id := request.SpanContext().TraceID()
	assert.Equal(t, id[:], points[0].Exemplars[0].TraceID)
}
