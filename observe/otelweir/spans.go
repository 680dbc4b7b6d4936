package otelweir

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/observe"
)

// The attributes of spans that no metric has. The others are in [observe].
const (
	// AttrRefused is the name of the policy that has refused the request.
	AttrRefused = "weir.refused"
	// AttrTrialRefused is the name of the policy on trial that would have refused it.
	AttrTrialRefused = "weir.trial.refused"
	// AttrStoreError is the class of the failure for which the store has not decided. It is not called error.type, which
	// says of the span of a request why that has failed.
	AttrStoreError = "weir.store.error"
	// AttrLimit, AttrRemaining and AttrRetryAfter are the fields of the core.Result, the latter in seconds.
	AttrLimit      = "weir.limit"
	AttrRemaining  = "weir.remaining"
	AttrRetryAfter = "weir.retry_after"
	// AttrTimeInQueue is the time that the request has waited for its turn, in seconds.
	AttrTimeInQueue = "weir.request.time_in_queue"
	// AttrSettled is the number of units that the request has used in the end.
	AttrSettled = "weir.units.settled"
)

// decision is the name of the span of a decision.
const decision = "weir.decision"

// spans marks the spans of requests.
type spans struct {
	tracer trace.Tracer // nil for no spans
}

// mark marks the request's span, and makes that of a decision for which a store was asked.
func (s *spans) mark(ctx context.Context, e *guard.Event) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	if e.Settled {
		if !e.Shadow {
			span.SetAttributes(attribute.Int64(AttrSettled, e.Used))
		}
		return
	}
	var failed *core.StoreError
	if e.Err != nil {
		errors.As(e.Err, &failed)
	}
	all := make([]attribute.KeyValue, 0, 11)
	if e.Shadow {
		if !e.Outcome.Allowed() {
			all = append(all, attribute.String(AttrTrialRefused, e.Policy))
		}
	} else {
		all = decided(all, e)
		if !e.Outcome.Allowed() {
			all = append(all, attribute.String(AttrRefused, e.Policy))
		}
		if e.Waited > 0 {
			all = append(all, attribute.Float64(AttrTimeInQueue, e.Waited.Seconds()))
		}
		if failed != nil {
			all = append(all, attribute.String(AttrStoreError, failed.Class))
		}
	}
	span.SetAttributes(all...)
	if e.From == guard.FromStore || failed != nil && failed.Class != core.ClassBreaker {
		s.ask(ctx, e, failed)
	}
}

// ask makes the span of a decision, which is over.
func (s *spans) ask(ctx context.Context, e *guard.Event, failed *core.StoreError) {
	began := time.UnixMicro(e.At)
	_, span := s.tracer.Start(ctx, decision, trace.WithTimestamp(began),
		trace.WithAttributes(decided([]attribute.KeyValue{attribute.Bool(observe.AttrShadow, e.Shadow)}, e)...))
	if failed != nil {
		span.SetAttributes(attribute.String(observe.AttrError, failed.Class))
		if failed.Server != "" {
			span.SetAttributes(attribute.String(observe.AttrServer, failed.Server))
		}
		span.SetStatus(codes.Error, failed.Class)
	}
	span.End(trace.WithTimestamp(began.Add(e.Took)))
}

// decided appends the attributes of a decision.
func decided(all []attribute.KeyValue, e *guard.Event) []attribute.KeyValue {
	all = append(all,
		attribute.String(observe.AttrPolicy, e.Policy), attribute.String(observe.AttrRule, e.Rule),
		attribute.String(observe.AttrTier, e.Tier), attribute.String(observe.AttrOutcome, e.Outcome.String()),
		attribute.String(observe.AttrFrom, e.From.String()))
	if e.Result.Limit > 0 {
		all = append(all, attribute.Int64(AttrLimit, e.Result.Limit), attribute.Int64(AttrRemaining, e.Result.Remaining))
	}
	if e.Result.RetryAfter > 0 {
		all = append(all, attribute.Float64(AttrRetryAfter, e.Result.RetryAfter.Seconds()))
	}
	return all
}
