package envoyrls_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/grpcmw/envoyrls"
	"github.com/weir-go/weir/internal/race"
	"github.com/weir-go/weir/internal/redistest"
)

const wide = `
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 4000000000}
  - key: tenant
    descriptors:
      - key: method
        rate_limit: {unit: hour, requests_per_unit: 4000000000}
  - key: few
    rate_limit: {unit: year, requests_per_unit: 1}
`

// redisStore returns a store on a server of Redis that ends with the test, with the deadline of weir rls.
func redisStore(t testing.TB, server *redistest.Server) *redisstore.Store {
	t.Helper()
	s, err := redisstore.New(server.Client(t), redisstore.Options{Deadline: 15 * time.Millisecond})
	require.NoError(t, err)
	return s
}

// BenchmarkShouldRateLimit measures the service without gRPC, for requests of several kinds.
func BenchmarkShouldRateLimit(b *testing.B) {
	for name, store := range map[string]func(testing.TB) core.Store{
		"memory": func(t testing.TB) core.Store { return memory(t) },
		"redis":  func(t testing.TB) core.Store { return redisStore(t, redistest.Single(t)) },
	} {
		b.Run(name, func(b *testing.B) {
			s := newServerOn(b, store(b), envoyrls.Config{}, wide)
			for name, of := range map[string]func(i int) *rlspb.RateLimitRequest{
				"one": func(i int) *rlspb.RateLimitRequest { return request(of(fmt.Sprint("user=", i))) },
				"two": func(i int) *rlspb.RateLimitRequest {
					return request(of(fmt.Sprint("user=", i)), of(fmt.Sprint("tenant=7,method=", i%10)))
				},
				"refused":  func(int) *rlspb.RateLimitRequest { return request(of("few=1")) },
				"override": func(int) *rlspb.RateLimitRequest { return request(limited(4e9, typepb.RateLimitUnit_HOUR, 0)) },
			} {
				requests := [1000]*rlspb.RateLimitRequest{}
				for i := range requests {
					requests[i] = of(i)
				}
				b.Run(name, func(b *testing.B) {
					b.ReportAllocs()
					for i := 0; b.Loop(); i++ {
						if _, err := s.ShouldRateLimit(context.Background(), requests[i%len(requests)]); err != nil {
							b.Fatal(err)
						}
					}
				})
				b.Run(name+"/50 callers", func(b *testing.B) {
					b.ReportAllocs()
					b.SetParallelism(25)
					b.RunParallel(func(pb *testing.PB) {
						for i := 0; pb.Next(); i++ {
							if _, err := s.ShouldRateLimit(context.Background(), requests[i%len(requests)]); err != nil {
								b.Error(err)
							}
						}
					})
				})
			}
		})
	}
}

// A request of one descriptor makes its response and, for a caller that may leave, a context.
func TestAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	s := newServer(t, envoyrls.Config{}, wide)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for most, r := range map[float64]*rlspb.RateLimitRequest{
		2: request(of("user=1")),
		6: request(of("user=1"), of("tenant=7,method=GET")),
	} {
		require.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
			if _, err := s.ShouldRateLimit(ctx, r); err != nil {
				t.Error(err)
			}
		}), most)
	}
}
