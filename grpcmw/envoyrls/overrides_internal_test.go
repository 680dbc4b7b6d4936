package envoyrls

import (
	"sync"
	"testing"

	extpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-go/weir/core"
)

// overriding returns a request with a limit, of 1 to 2^30 requests.
func overriding(n uint32) *rlspb.RateLimitRequest {
	return &rlspb.RateLimitRequest{Domain: "edge", Descriptors: []*extpb.RateLimitDescriptor{{
		Entries: []*extpb.RateLimitDescriptor_Entry{{Key: "user", Value: "7"}},
		Limit: &extpb.RateLimitDescriptor_RateLimitOverride{
			RequestsPerUnit: n, Unit: typepb.RateLimitUnit(1 + n%7), UnitMultiplier: wrapperspb.UInt32(1),
		},
	}}}
}

// A caller that sends ever new overrides takes no room of those that are used again: 1024 are kept, and those that were not
// used lately give way.
func TestOverridesAreBounded(t *testing.T) {
	memory, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	s, err := New(memory, Config{})
	require.NoError(t, err)
	require.NoError(t, s.Load(File{Name: "a.yaml", Data: []byte("domain: edge")}))
	ask := func(n uint32) {
		res, err := s.ShouldRateLimit(t.Context(), overriding(n))
		assert.NoError(t, err)
		assert.Equal(t, n, res.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit())
	}
	const used = 500
	rules := map[uint32]*rule{}
	for range 2 {
		for n := range uint32(used) {
			ask(1_000_000 + n)
		}
	}
	for _, k := range s.overrides.ring {
		rules[k.requests] = k.rule
	}
	require.Len(t, rules, used)
	for i := range uint32(20_000) {
		ask(10_000_000 + i)
		if i%5 == 0 {
			ask(1_000_000 + i/5%used)
		}
	}
	require.Len(t, s.overrides.ring, maxOverrides)
	require.Len(t, s.overrides.byLimit, maxOverrides)
	stayed := 0
	for _, k := range s.overrides.ring {
		require.Same(t, k, s.overrides.byLimit[k.override])
		if rules[k.requests] == k.rule {
			stayed++
		}
	}
	require.Equal(t, used, stayed)

	var all sync.WaitGroup
	for caller := range uint32(4) {
		all.Go(func() {
			for i := range uint32(3000) { // some of which others send as well
				ask(20_000_000 + 1000*caller + i)
			}
		})
	}
	all.Wait()
	require.Len(t, s.overrides.ring, maxOverrides)
	require.Len(t, s.overrides.byLimit, maxOverrides)
	require.NoError(t, s.Close())
}

// BenchmarkNewOverride measures what a request costs whose override nobody has sent before.
func BenchmarkNewOverride(b *testing.B) {
	memory, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(b, err)
	s, err := New(memory, Config{})
	require.NoError(b, err)
	require.NoError(b, s.Load(File{Name: "a.yaml", Data: []byte("domain: edge")}))
	b.ReportAllocs()
	for n := uint32(1); b.Loop(); n++ {
		if _, err := s.ShouldRateLimit(b.Context(), overriding(n)); err != nil {
			b.Fatal(err)
		}
	}
}
