package envoyrls_test

import (
	"fmt"
	"strings"
	"testing"

	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/grpcmw/envoyrls"
)

// metrics returns the lines of the counters of rules that are not 0, without the part of the name that they have in common.
func metrics(t testing.TB, s *envoyrls.Server) (rules, others []string) {
	t.Helper()
	code, text := get(t, s.Handler(), "GET", "/metrics", "")
	require.Equal(t, 200, code)
	for l := range strings.Lines(text) {
		l = strings.TrimSpace(l)
		if strings.HasPrefix(l, "#") || strings.HasSuffix(l, " 0") {
			continue
		}
		if rule, ok := strings.CutPrefix(l, "ratelimit_service_rate_limit_"); ok && strings.Contains(rule, "{") {
			rules = append(rules, rule)
		} else {
			others = append(others, l)
		}
	}
	return rules, others
}

const counted = `
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 10}
    descriptors:
      - key: method
        value: GET
        descriptors:
          - key: path
            rate_limit: {unit: year, requests_per_unit: 10}
  - key: tried
    shadow_mode: true
    rate_limit: {unit: year, requests_per_unit: 5}
  - key: each
    detailed_metric: true
    rate_limit: {unit: year, requests_per_unit: 10}
  - key: closed
    rate_limit: {unit: year, requests_per_unit: 0}
`

// The counters are those of envoyproxy/ratelimit, under the names of its dashboards.
func TestCounters(t *testing.T) {
	for _, chargeAll := range []bool{false, true} {
		s := newServer(t, envoyrls.Config{ChargeAll: chargeAll}, counted)
		for _, r := range []*rlspb.RateLimitRequest{
			cost(7, of("user=1")), // 1 to 7
			cost(2, of("user=1")), // 8 and 9, of which the latter is near
			cost(1, of("user=1")), // 10
			cost(3, of("user=1")), // over
			cost(1, of("user=2,method=GET,path=/")),
			cost(3, of("tried=1")),
			cost(4, of("tried=1")), // 2 fit, of which the latter is near
			cost(1, of(`each=a"b\`)),
			cost(1, of("each=10.0.0.1:8080")),
			cost(1, of("each=line\nbreak")),
			cost(2, of("closed=1")),
			request(limited(1, typepb.RateLimitUnit_YEAR, 0)),
			request(of("user=1", hits(0)), of("user=3", hits(2), negative)), // count nothing
			request(of("nobody=1")),
		} {
			ask(t, s, r)
		}
		ask(t, s, &rlspb.RateLimitRequest{Domain: "elsewhere", Descriptors: request(of("user=1")).Descriptors})
		_, err := s.ShouldRateLimit(t.Context(), request())
		require.Error(t, err)
		require.Error(t, s.Load(filesOf("domain: [")...))

		rules, others := metrics(t, s)
		if !chargeAll { // the cost of 4 was not charged, but the hits are those that would have been
			require.Contains(t, rules, `shadow_mode{domain="edge",key1="tried"} 2`)
		}
		require.Equal(t, []string{
			`total_hits{domain="edge",key1="closed"} 2`,
			`total_hits{domain="edge",key1="each_10_0_0_1_8080"} 1`,
			`total_hits{domain="edge",key1="each_a\"b\\"} 1`,
			`total_hits{domain="edge",key1="each_line\nbreak"} 1`,
			`total_hits{domain="edge",key1="tried"} 7`,
			`total_hits{domain="edge",key1="user"} 13`,
			`total_hits{domain="edge",key1="user",key2="method_GET"} 1`,
			`total_hits{domain="edge",key1="user_1"} 1`,
			`over_limit{domain="edge",key1="closed"} 2`,
			`over_limit{domain="edge",key1="tried"} 2`,
			`over_limit{domain="edge",key1="user"} 3`,
			`near_limit{domain="edge",key1="tried"} 1`,
			`near_limit{domain="edge",key1="user"} 2`,
			`near_limit{domain="edge",key1="user_1"} 1`,
			`within_limit{domain="edge",key1="each_10_0_0_1_8080"} 1`,
			`within_limit{domain="edge",key1="each_a\"b\\"} 1`,
			`within_limit{domain="edge",key1="each_line\nbreak"} 1`,
			`within_limit{domain="edge",key1="tried"} 3`,
			`within_limit{domain="edge",key1="user"} 10`,
			`within_limit{domain="edge",key1="user",key2="method_GET"} 1`,
			`within_limit{domain="edge",key1="user_1"} 1`,
			`shadow_mode{domain="edge",key1="tried"} 2`,
		}, rules)
		require.Equal(t, []string{
			`ratelimit_service_rate_limit_domain_not_found 1`,
			`ratelimit_service_total_requests{grpc_method="ShouldRateLimit"} 16`,
			`ratelimit_service_should_rate_limit_error{err_type="service_error"} 1`,
			`ratelimit_service_config_load_success 1`,
			`ratelimit_service_config_load_error 1`,
		}, others)
	}
}

// There are at most 10 000 series, whatever values requests have, and a configuration that is loaded again makes room.
func TestSeriesAreBounded(t *testing.T) {
	s := newServer(t, envoyrls.Config{}, counted)
	series := func() (n int) {
		_, text := get(t, s.Handler(), "GET", "/metrics", "")
		for l := range strings.Lines(text) {
			if strings.HasPrefix(l, "ratelimit_service_rate_limit_") && strings.Contains(l, "{") {
				n++
			}
		}
		return n
	}
	for i := range 5000 {
		ask(t, s, request(of(fmt.Sprint("each=", i))))
	}
	require.Equal(t, 10_000, series())
	rules, _ := metrics(t, s)
	require.Contains(t, rules, `total_hits{domain="other",key1="other"} 3001`)
	ask(t, s, request(of("user=1")))
	rules, _ = metrics(t, s)
	require.NotContains(t, rules, `total_hits{domain="edge",key1="user"} 1`, "there is no room")

	require.NoError(t, s.Load(filesOf(counted)...)) // all have counted since the last time
	require.Equal(t, 10_000, series())
	ask(t, s, request(of("each=7")))
	require.NoError(t, s.Load(filesOf(counted)...))
	ask(t, s, request(of("user=1")))
	rules, _ = metrics(t, s)
	require.Contains(t, rules, `total_hits{domain="edge",key1="each_7"} 2`)
	require.Contains(t, rules, `total_hits{domain="edge",key1="user"} 1`)
	require.Contains(t, rules, `total_hits{domain="other",key1="other"} 3002`)
	require.Less(t, series(), 100)
}
