package envoyrls_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/grpcmw/envoyrls"
)

// The dynamic metadata are those of envoyproxy/ratelimit, with what the configuration adds for descriptors that pass.
func TestDynamicMetadata(t *testing.T) {
	const config = `
domain: edge
descriptors:
  - key: user
    quota_mode: true
    metadata: {plan: free, cost: {low: 1}}
    rate_limit: {unit: year, requests_per_unit: 1}
  - key: tenant
    metadata: {plan: paid, cost: {low: 2, high: [3, true, null]}}
    rate_limit: {unit: year, requests_per_unit: 2}
`
	s := newServer(t, envoyrls.Config{Metadata: true}, config)
	ask := func(want string, n uint32, user uint64) {
		t.Helper()
		res, err := s.ShouldRateLimit(t.Context(), cost(n, of("user=1", hits(user)), of("tenant=1,method=GET"), of("tenant=1")))
		require.NoError(t, err)
		text, err := json.Marshal(res.GetDynamicMetadata().AsMap())
		require.NoError(t, err)
		require.JSONEq(t, want, string(text))
	}
	const descriptors = `"descriptors": [{"entries": ["user=1"], "hitsAddend": 1}, {"entries": ["tenant=1", "method=GET"]}, {"entries": ["tenant=1"]}]`
	ask(`{"domain": "edge", "quotaModeEnabled": true, `+descriptors+`,
		"metadata": {"plan": "free", "cost": {"low": 1, "high": [3, true, null]}}}`, 0, 1)
	ask(`{"domain": "edge", "quotaModeEnabled": true, "quotaModeViolations": [0], "hitsAddend": 2, `+descriptors+`}`, 2, 1)

	res, err := s.ShouldRateLimit(t.Context(), request(limited(5, typepb.RateLimitUnit_HOUR, 0)))
	require.NoError(t, err)
	require.Regexp(t, `^requests_per_unit:5 +unit:HOUR$`, res.GetDynamicMetadata().AsMap()["descriptors"].([]any)[0].(map[string]any)["limit"])
	require.Equal(t, false, res.GetDynamicMetadata().AsMap()["quotaModeEnabled"])

	s = newServer(t, envoyrls.Config{Quota: true, Metadata: true}, basic)
	res, err = s.ShouldRateLimit(t.Context(), request(of("tenant=1"), of("user=1", hits(4))))
	require.NoError(t, err)
	require.Equal(t, []any{1.0}, res.GetDynamicMetadata().AsMap()["quotaModeViolations"])
	res, err = newServer(t, envoyrls.Config{}, basic).ShouldRateLimit(t.Context(), request(of("tenant=1")))
	require.NoError(t, err)
	require.Nil(t, res.GetDynamicMetadata())
}

// Each rule has its name as metadata, and 1 to give. A descriptor with 1 hit passes, one with 2 is over the limit.
func TestDynamicMetadataOfQuotas(t *testing.T) {
	t.Parallel()
	rule := func(name, more string) string {
		return "  - {key: " + name + ", metadata: {passed: {" + name + ": 1}}, " + more + "}\n"
	}
	const limit = "rate_limit: {unit: year, requests_per_unit: 1, name: %}"
	config := "domain: edge\ndescriptors:\n"
	for name, more := range map[string]string{
		"plain": limit, "quota": "quota_mode: true, " + limit, "quota2": "quota_mode: true, " + limit, "shadow": "shadow_mode: true, " + limit,
		"both": "shadow_mode: true, quota_mode: true, " + limit, "free": "rate_limit: {unlimited: true}",
		"instead": "rate_limit: {unit: year, requests_per_unit: 1, replaces: [{name: quota}]}", "nothing": "quota_mode: true, detailed_metric: true",
	} {
		config += rule(name, strings.ReplaceAll(more, "%", name))
	}
	for _, c := range []struct {
		asked      string // names, with a "!" behind those that are over
		passed     string // whose metadata are there
		violations []any
		quota      bool // quotaModeEnabled
		over       bool // the request is
		all        bool // of Config.Quota: violations then, and no request is over
	}{
		{asked: "plain", passed: "plain"},
		{asked: "plain!", over: true},
		{asked: "quota plain", passed: "plain quota", quota: true},
		{asked: "quota! plain", passed: "plain", quota: true, violations: []any{0.0}},
		{asked: "plain quota! quota2", passed: "plain quota2", quota: true, violations: []any{1.0}},
		{asked: "quota! plain quota2!", passed: "plain", quota: true, violations: []any{0.0, 2.0}},
		{asked: "quota! quota2!", quota: true, violations: []any{0.0, 1.0}},
		{asked: "quota! plain!", quota: true, violations: []any{0.0}, over: true},
		{asked: "shadow!", passed: "shadow"},
		{asked: "both! quota!", passed: "both", quota: true, violations: []any{1.0}},
		{asked: "free plain", passed: "plain"},
		{asked: "instead quota!", passed: "instead"},
		{asked: "instead! quota", over: true},
		{asked: "nothing nobody"},
		{asked: "plain! shadow! quota", passed: "quota shadow", quota: true, violations: []any{0.0}, all: true},
		{asked: "plain! quota!", quota: true, violations: []any{0.0, 1.0}, all: true},
	} {
		t.Run(c.asked, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, envoyrls.Config{Metadata: true, Quota: c.all}, config)
			r := &rlspb.RateLimitRequest{Domain: "edge"}
			for name := range strings.FieldsSeq(c.asked) {
				key, over := strings.CutSuffix(name, "!")
				n := uint64(1)
				if over {
					n = 2
				}
				r.Descriptors = append(r.Descriptors, of(key+"=1", hits(n)))
			}
			res, err := s.ShouldRateLimit(t.Context(), r)
			require.NoError(t, err)
			require.Equal(t, c.over, res.GetOverallCode() == rlspb.RateLimitResponse_OVER_LIMIT)
			got := res.GetDynamicMetadata().AsMap()
			require.Equal(t, c.quota, got["quotaModeEnabled"])
			violations, _ := got["quotaModeViolations"].([]any)
			require.Equal(t, c.violations, violations)
			metadata, _ := got["metadata"].(map[string]any)
			passed, _ := metadata["passed"].(map[string]any)
			require.Equal(t, c.passed, strings.Join(slices.Sorted(maps.Keys(passed)), " "))
		})
	}
}

// The headers are those of the tightest limit, and of the last that refuses.
func TestHeaders(t *testing.T) {
	headers := func(c envoyrls.Headers, steps ...string) {
		t.Helper()
		s := newServer(t, envoyrls.Config{Headers: c}, basic)
		for i, want := range steps {
			res, err := s.ShouldRateLimit(t.Context(), request(of("tenant=1"), of("user=1"), of("free=1"), of("nobody=1")))
			require.NoError(t, err)
			text := ""
			for _, h := range res.GetResponseHeadersToAdd() {
				if h.GetKey() != "Retry-After" && h.GetKey() != "Reset" {
					text += h.GetKey() + "=" + h.GetValue() + " "
					continue
				}
				require.Regexp(t, "^[1-9][0-9]*$", h.GetValue())
				text += h.GetKey() + " "
			}
			require.Equal(t, want, text, "step %d", i+1)
		}
	}
	headers(envoyrls.Headers{Limit: "Limit", Remaining: "Remaining", Reset: "Reset"},
		"Limit=3 Remaining=2 Reset ", "Limit=3 Remaining=1 Reset ", "Limit=3 Remaining=0 Reset ", "Limit=3 Remaining=0 Reset Retry-After ")
	headers(envoyrls.Headers{Remaining: "R"}, "R=2 ", "R=1 ", "R=0 ", "R=0 Retry-After ")
	headers(envoyrls.Headers{}, "", "", "", "")
}
