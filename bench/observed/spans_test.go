package observed

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/observe/otelweir"
)

// With a real Redis: a decision that it has made, and one that it could not make, are spans within the request's; one
// that is remembered, and one for which a dead server was not asked, are none.
func TestSpansOfRedis(t *testing.T) {
	server := redistest.Single(t)
	store, err := redisstore.New(server.Client(t), redisstore.Options{Deadline: deadline})
	require.NoError(t, err)
	counts, err := observe.New(observe.Options{})
	require.NoError(t, err)
	spans := tracetest.NewSpanRecorder()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	t.Cleanup(func() { _ = tracers.Shutdown(context.Background()) })
	w, err := otelweir.New(counts, otelweir.Options{MeterProvider: metricnoop.NewMeterProvider(), TracerProvider: tracers})
	require.NoError(t, err)
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{Policy: "api: 1/1h", Key: keyfunc.IP()}, Store: store, Observe: w.Observe,
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, g.Close()) })
	h := nethttp.Limit(g)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))

	// send returns the place where a request was decided, and the spans within its span.
	send := func(peer string) (from string, within []sdktrace.ReadOnlySpan) {
		spans.Reset()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = peer + ":1234"
		ctx, span := tracers.Tracer("test").Start(r.Context(), "request")
		h.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
		span.End()
		all := spans.Ended()
		request := all[len(all)-1]
		for _, a := range request.Attributes() {
			if a.Key == observe.AttrFrom {
				from = a.Value.AsString()
			}
		}
		for _, s := range all[:len(all)-1] {
			assert.Equal(t, request.SpanContext().SpanID(), s.Parent().SpanID())
			assert.False(t, s.StartTime().Before(request.StartTime().Truncate(time.Microsecond)), "it begins after the request")
			assert.False(t, s.EndTime().After(request.EndTime()), "and ends before it")
			assert.Positive(t, s.EndTime().Sub(s.StartTime()))
		}
		return from, all[:len(all)-1]
	}

	from, within := send("192.0.2.1")
	assert.Equal(t, "store", from)
	assert.Len(t, within, 1)
	from, within = send("192.0.2.1")
	assert.Equal(t, "store", from)
	assert.Len(t, within, 1)
	require.Eventually(t, func() bool { // it is remembered for a second at most
		from, within = send("192.0.2.1")
		assert.Len(t, within, map[string]int{"store": 1, "deny-cache": 0}[from])
		return from == "deny-cache"
	}, time.Minute, time.Millisecond)

	server.Kill()
	failed := 0
	require.Eventually(t, func() bool {
		from, within = send("192.0.2.2")
		assert.Equal(t, "fallback", from)
		if len(within) == 0 { // the breaker is open
			return true
		}
		failed++
		assert.Len(t, within, 1)
		assert.Equal(t, codes.Error, within[0].Status().Code)
		return false
	}, time.Minute, time.Millisecond)
	assert.Positive(t, failed)
}
