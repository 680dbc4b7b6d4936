package envoyrls

import (
	"math"
	"strconv"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
)

// fewStatuses is the most statuses of a reply. Nearly all requests have no more.
const fewStatuses = 2

// A reply is a response with its statuses, made at once.
type reply struct {
	response rlspb.RateLimitResponse
	statuses [fewStatuses]rlspb.RateLimitResponse_DescriptorStatus
	pointers [fewStatuses]*rlspb.RateLimitResponse_DescriptorStatus
	resets   [fewStatuses]durationpb.Duration
}

// response makes the response of a request that was decided.
func (s *Server) response(r *rlspb.RateLimitRequest, all []demand) *rlspb.RateLimitResponse {
	var response *rlspb.RateLimitResponse
	var statuses []rlspb.RateLimitResponse_DescriptorStatus
	var resets []durationpb.Duration
	if len(all) <= fewStatuses {
		made := &reply{}
		response, statuses, resets = &made.response, made.statuses[:], made.resets[:]
		response.Statuses = made.pointers[:len(all)]
	} else {
		response = &rlspb.RateLimitResponse{Statuses: make([]*rlspb.RateLimitResponse_DescriptorStatus, len(all))}
		statuses, resets = make([]rlspb.RateLimitResponse_DescriptorStatus, len(all)), make([]durationpb.Duration, len(all))
	}
	response.OverallCode = rlspb.RateLimitResponse_OK
	tightest, least := -1, int64(math.MaxUint32)
	retry := time.Duration(0)
	for i := range all {
		x, st := &all[i], &statuses[i]
		response.Statuses[i] = st
		st.Code = rlspb.RateLimitResponse_OK
		if x.form == free || x.unlimited {
			if x.unlimited || x.rule != nil && x.rule.unlimited {
				st.LimitRemaining = math.MaxUint32
			}
			continue
		}
		st.CurrentLimit = x.current()
		if !x.over {
			st.LimitRemaining = count32(min(x.left, int64(st.GetCurrentLimit().GetRequestsPerUnit())))
		}
		x.times()
		if int64(st.GetLimitRemaining()) < least {
			tightest, least = i, int64(st.GetLimitRemaining())
		}
		if x.over && !x.shadow && !x.rule.quota && !s.config.Quota {
			st.Code = rlspb.RateLimitResponse_OVER_LIMIT
			response.OverallCode = rlspb.RateLimitResponse_OVER_LIMIT
			tightest, least = i, 0
			retry = max(retry, x.retry)
		}
		if x.reset > 0 {
			resets[i].Seconds, resets[i].Nanos = int64(x.reset/time.Second), int32(x.reset%time.Second)
			st.DurationUntilReset = &resets[i]
		}
	}
	if s.config.Shadow && response.GetOverallCode() == rlspb.RateLimitResponse_OVER_LIMIT {
		response.OverallCode = rlspb.RateLimitResponse_OK
		s.counters.shadow.Add(1)
	}
	if tightest >= 0 && s.config.Headers != (Headers{}) {
		s.addHeaders(response, response.GetStatuses()[tightest], all[tightest].reset, least, retry)
	}
	if s.config.Metadata {
		response.DynamicMetadata = s.metadata(r, all)
	}
	return response
}

// addHeaders adds the headers of the tightest limit.
func (s *Server) addHeaders(
	response *rlspb.RateLimitResponse, tightest *rlspb.RateLimitResponse_DescriptorStatus,
	reset time.Duration, left int64, retry time.Duration,
) {
	add := func(name string, n int64) {
		if name != "" {
			response.ResponseHeadersToAdd = append(response.ResponseHeadersToAdd,
				&corepb.HeaderValue{Key: name, Value: strconv.FormatInt(n, 10)})
		}
	}
	add(s.config.Headers.Limit, int64(tightest.GetCurrentLimit().GetRequestsPerUnit()))
	add(s.config.Headers.Remaining, left)
	add(s.config.Headers.Reset, seconds(reset))
	if response.GetOverallCode() == rlspb.RateLimitResponse_OVER_LIMIT && retry > 0 {
		add("Retry-After", seconds(retry))
	}
}

// seconds returns whole seconds, rounded up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// current returns the limit that has decided, as answers show it: the rule's, or the tightest of several, or that of
// other numbers which a Source has.
func (x *demand) current() *rlspb.RateLimitResponse_RateLimit {
	current := x.rule.current
	if x.policy.IsZero() || x.policy == x.rule.policy && (x.limit == 0 || x.limit == int64(current.GetRequestsPerUnit())) {
		return current
	}
	for _, l := range x.policy.Limits() {
		if l.Burst == x.limit {
			return shownLimit(l, current.GetName())
		}
	}
	return current
}

// times fills in the reset and the retry of x: of windows the time until the one ends that is under way, also if
// nothing was counted in it. A key that a Source blocks keeps its retry: no window decides about it.
func (x *demand) times() {
	period := x.rule.period
	if period == 0 {
		if x.retry == 0 && x.over && x.cost <= x.limit { // a part of the cost was charged
			x.retry = x.reset
		}
		if x.retry > 0 {
			x.reset = x.retry
		}
		return
	}
	if !x.policy.IsZero() && x.policy != x.rule.policy { // it has other numbers, by a Source
		period = x.policy.Limits()[0].Period
	}
	at := x.at
	if at == 0 {
		at = time.Now().UnixMicro()
	}
	x.reset = period - time.Duration(at%period.Microseconds())*time.Microsecond
	switch {
	case x.known && x.policy.IsZero():
	case x.over && x.limit > 0 && x.cost <= x.limit:
		x.retry = x.reset
	default:
		x.retry = 0
	}
}

// metadata returns the dynamic metadata of a response, with the fields of envoyproxy/ratelimit: those of its versions
// before 2026, and the metadata of the rules that let their descriptors pass, as the later ones have it. A quota that is
// over lets none pass, though the request may; a rule in shadow mode does.
func (s *Server) metadata(r *rlspb.RateLimitRequest, all []demand) *structpb.Struct {
	descriptors := make([]*structpb.Value, len(all))
	var violations []*structpb.Value
	quota, merged := false, map[string]any{}
	for i := range all {
		x := &all[i]
		descriptors[i] = structpb.NewStructValue(described(x.descriptor))
		if x.form == free {
			continue
		}
		quota = quota || x.rule.quota
		switch {
		case !x.over || x.shadow:
			merge(merged, x.rule.metadata)
		case s.config.Quota || x.rule.quota:
			violations = append(violations, structpb.NewNumberValue(float64(i)))
		}
	}
	fields := map[string]*structpb.Value{
		"domain":           structpb.NewStringValue(r.GetDomain()),
		"descriptors":      structpb.NewListValue(&structpb.ListValue{Values: descriptors}),
		"quotaModeEnabled": structpb.NewBoolValue(quota),
	}
	if hits := r.GetHitsAddend(); hits != 0 {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(hits))
	}
	if len(violations) > 0 {
		fields["quotaModeViolations"] = structpb.NewListValue(&structpb.ListValue{Values: violations})
	}
	if len(merged) > 0 {
		if own, err := structpb.NewStruct(merged); err == nil { // it fails for bytes that are no text
			fields["metadata"] = structpb.NewStructValue(own)
		}
	}
	return &structpb.Struct{Fields: fields}
}

// merge adds to an object what it does not have, and to the objects in it. Nothing of from is changed later.
func merge(into, from map[string]any) {
	for name, value := range from {
		object, isObject := value.(map[string]any)
		before, had := into[name]
		switch known, isKnown := before.(map[string]any); {
		case had && isKnown && isObject:
			merge(known, object)
		case had:
		case isObject:
			own := map[string]any{}
			merge(own, object)
			into[name] = own
		default:
			into[name] = value
		}
	}
}

// described returns a descriptor as metadata has it.
func described(d *extpb.RateLimitDescriptor) *structpb.Struct {
	entries := make([]*structpb.Value, len(d.GetEntries()))
	for i, e := range d.GetEntries() {
		entries[i] = structpb.NewStringValue(e.GetKey() + "=" + e.GetValue())
	}
	fields := map[string]*structpb.Value{"entries": structpb.NewListValue(&structpb.ListValue{Values: entries})}
	if limit := d.GetLimit(); limit != nil {
		fields["limit"] = structpb.NewStringValue(limit.String())
	}
	if hits := d.GetHitsAddend(); hits != nil {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(hits.GetValue()))
	}
	return &structpb.Struct{Fields: fields}
}
