package envoyrls_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir/core/follow"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/grpcmw/envoyrls"
	"github.com/weir-go/weir/internal/redistest"
)

const failing = `
domain: edge
descriptors:
  - key: local
    rate_limit: {unit: year, requests_per_unit: 2}
  - key: open
    rate_limit: {policy: 2/365d fixed-window aligned; fail open}
  - key: shut
    rate_limit: {policy: 2/1h; fail closed}
  - key: tried
    shadow_mode: true
    rate_limit: {policy: 2/1h; fail closed}
`

// While the store fails, the fail word of each policy decides.
func TestStoreFails(t *testing.T) {
	server := redistest.Single(t)
	s := newServerOn(t, redisStore(t, server), envoyrls.Config{}, failing)
	server.Kill()
	require.Equal(t, "OK: OK 1/2", ask(t, s, request(of("local=1"))))
	require.Equal(t, "OK: OK 0/2, OK 2/2, OK 2/2", ask(t, s, request(of("local=1"), of("open=1"), of("tried=1"))))
	require.Equal(t, "OVER_LIMIT: OVER_LIMIT 0/2, OK 2/2", ask(t, s, request(of("local=1"), of("open=1"))))
	require.Equal(t, "OK: OK 2/2", ask(t, s, request(of("open=1"))))
	require.Equal(t, "OK: OK 2/2", ask(t, s, request(of("tried=1"))))
	require.Equal(t, "OK: OK 1/2, OK 2/2", ask(t, s, request(of("local=1", negative), of("open=1", negative))))
	for _, r := range []*rlspb.RateLimitRequest{
		request(of("shut=1")), request(of("local=2"), of("shut=1")), request(of("shut=1", negative)), request(of("shut=1", hits(0))),
	} {
		_, err := s.ShouldRateLimit(t.Context(), r)
		require.Equal(t, status.New(codes.Unavailable, "the store of the limits does not answer, and a policy fails closed").String(), status.Convert(err).String())
	}
	settle(t, s)
	require.Equal(t, "OK: OK 1/2", ask(t, s, request(of("local=2"))))
	code, _ := get(t, s.Handler(), "POST", "/json", `{"domain":"edge","descriptors":[{"entries":[{"key":"shut","value":"1"}]}]}`)
	require.Equal(t, 500, code)
	_, others := metrics(t, s)
	require.Contains(t, others, `ratelimit_service_should_rate_limit_error{err_type="redis_error"} 5`)
	require.Error(t, s.Reset(t.Context(), "edge", of("local=1")), "it is not known whether it was forgotten")
}

// A caller that has left is not answered, and not charged.
func TestCallerHasLeft(t *testing.T) {
	s := newServer(t, envoyrls.Config{}, basic)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.ShouldRateLimit(ctx, request(of("user=1")))
	require.Equal(t, codes.Canceled, status.Code(err))
	ctx, cancel = context.WithTimeout(t.Context(), -1)
	defer cancel()
	_, err = s.ShouldRateLimit(ctx, request(of("user=1", negative)))
	require.Equal(t, codes.DeadlineExceeded, status.Code(err))
	require.Equal(t, "OK: OK 2/3", ask(t, s, request(of("user=1"))))
}

// A request is one flight. What is remembered of an override is not good for other numbers.
func TestFlights(t *testing.T) {
	var flights atomic.Int64
	store, err := redisstore.New(redistest.Single(t).Client(t), redisstore.Options{Deadline: 5 * time.Second, Observe: func(f redisstore.Flight) {
		if !f.Behind {
			flights.Add(1)
		}
	}})
	require.NoError(t, err)
	s := newServerOn(t, store, envoyrls.Config{}, basic)
	flown := func(r *rlspb.RateLimitRequest) string {
		before := flights.Load()
		return fmt.Sprint(ask(t, s, r), ", flights: ", flights.Load()-before)
	}
	year := typepb.RateLimitUnit_YEAR
	require.Equal(t, "OK: OK 2/3, OK 4/5, OK 0/1, flights: 1", flown(request(of("user=1"), of("tenant=1"), limited(1, year, 0))))
	require.Equal(t, "OVER_LIMIT: OVER_LIMIT 0/1, flights: 1", flown(request(limited(1, year, 0))))
	require.Eventually(t, func() bool { // a refusal is good for a second
		return flown(request(limited(1, year, 0))) == "OVER_LIMIT: OVER_LIMIT 0/1, flights: 0"
	}, time.Minute, time.Millisecond)
	require.Equal(t, "OK: OK 1/3, flights: 1", flown(request(limited(3, year, 0))), "other numbers ask")
	require.Equal(t, "OVER_LIMIT: OVER_LIMIT 0/1, flights: 1", flown(request(limited(1, year, 0))), "and end what was known")
	require.Equal(t, "OVER_LIMIT: OVER_LIMIT 0/1, OK 4/5, flights: 1", flown(request(limited(1, year, 0), of("tenant=1"))), "the other one is looked at")
	require.Equal(t, "OVER_LIMIT: OVER_LIMIT 0/0, OK 4/5, flights: 1", flown(request(of("closed=1"), of("tenant=1"))))
	require.Equal(t, "OVER_LIMIT: OVER_LIMIT 0/0, flights: 0", flown(request(of("closed=1"))))
	require.Equal(t, "OK: OK 4294967295, OK 0, flights: 0", flown(request(of("free=1"), of("nobody=1"))))
}

// The policies of a fleet change the numbers of rules while they run.
func TestSource(t *testing.T) {
	source := new(atomic.Pointer[follow.Set])
	s := newServer(t, envoyrls.Config{Source: source, ChargeAll: true, Headers: envoyrls.Headers{Remaining: "Remaining"}}, `
domain: edge
descriptors:
  - key: user
    rate_limit: {policy: "users: 2/366d fixed-window aligned"}
`)
	require.Equal(t, "OK: OK 1/2", ask(t, s, request(of("user=1"))))
	source.Store(&follow.Set{
		Policies: map[string]string{"users": "5/365d fixed-window aligned"},
		Keys:     map[string]map[string]string{"users": {"7": follow.Unlimited, "8": follow.Blocked}},
	})
	res, err := s.ShouldRateLimit(t.Context(), request(of("user=1")))
	require.NoError(t, err)
	require.Equal(t, "OK: OK 3/5", line(res))
	require.Equal(t, rlspb.RateLimitResponse_RateLimit_YEAR, res.GetStatuses()[0].GetCurrentLimit().GetUnit())
	year := int64(365 * 24 * 3600)
	require.InDelta(t, year-time.Now().Unix()%year, res.GetStatuses()[0].GetDurationUntilReset().AsDuration().Seconds(), 60)
	require.Equal(t, "OK: OK 4294967295", ask(t, s, request(of("user=7"))))
	res, err = s.ShouldRateLimit(t.Context(), request(of("user=8")))
	require.NoError(t, err)
	require.Equal(t, "OVER_LIMIT: OVER_LIMIT 0/2", line(res))
	headers := res.GetResponseHeadersToAdd()
	require.NotEmpty(t, headers)
	require.Equal(t, "Retry-After=60", headers[len(headers)-1].GetKey()+"="+headers[len(headers)-1].GetValue())
	source.Store(&follow.Set{Policies: map[string]string{"users": "1/365d fixed-window aligned; shadow"}})
	require.Equal(t, "OK: OK 0/1", ask(t, s, request(of("user=1"))))
	rules, _ := metrics(t, s)
	require.Contains(t, rules, `shadow_mode{domain="edge",key1="user"} 1`)
	_, text := get(t, s.Handler(), "GET", "/rlconfig", "")
	require.Equal(t, "edge.user: unit=DAY requests_per_unit=2, shadow_mode: true, quota_mode: false, unit_multiplier: 366, policy: users: 1/365d fixed-window aligned; shadow\n", text)
	source.Store(nil)
	require.Equal(t, "OVER_LIMIT: OVER_LIMIT 0/2", ask(t, s, request(of("user=1"))))
}

// Limits are kept while the configuration is loaded again and again: no request sees a part of both, and what was
// counted stays.
func TestReloadKeepsCounts(t *testing.T) {
	config := func(n int) string {
		return fmt.Sprintf(`
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: %d}
  - key: tenant
    rate_limit: {unit: year, requests_per_unit: %d}
  - key: version
    value: v%d
    rate_limit: {unlimited: true}
`, 100_000+n, 100_000+n, n)
	}
	s := newServer(t, envoyrls.Config{}, config(0))
	stop := make(chan struct{})
	var asked atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				res, err := s.ShouldRateLimit(context.Background(), request(of("user=1"), of("tenant=1")))
				if !assert.NoError(t, err) || !assert.Equal(t, rlspb.RateLimitResponse_OK, res.GetOverallCode()) {
					return
				}
				user, tenant := res.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit(), res.GetStatuses()[1].GetCurrentLimit().GetRequestsPerUnit()
				if !assert.Equal(t, user, tenant, "of two configurations") {
					return
				}
				asked.Add(1)
			}
		})
	}
	loads := 0
	for asked.Load() < 20_000 || loads < 200 {
		loads++
		require.NoError(t, s.Load(filesOf(config(loads))...))
		require.Error(t, s.Load(filesOf(config(loads), "domain: other\ndescriptors: 7")...))
	}
	close(stop)
	all.Wait()
	want := fmt.Sprintf("OK: OK %d/%d", 100_000+int64(loads)-asked.Load()-1, 100_000+loads)
	require.Equal(t, want, ask(t, s, request(of("user=1"))))
	require.Equal(t, "OK: OK 4294967295, OK 0", ask(t, s, request(of(fmt.Sprint("version=v", loads)), of("version=v0"))))
}
