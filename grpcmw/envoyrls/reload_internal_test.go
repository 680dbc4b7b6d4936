package envoyrls

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"

	extpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/internal/race"
)

// What belongs to configurations of before is let go. WEIR_RELOADS=1000 makes the test as long as a year of them.
func TestReloadsLeaveTheHeapWhereItWas(t *testing.T) {
	reloads, rules := 40, 10_000
	if n, err := strconv.Atoi(os.Getenv("WEIR_RELOADS")); err == nil {
		reloads = n
	} else if testing.Short() || race.Enabled {
		reloads, rules = 20, 1000
	}
	units := []string{"minute", "hour", "day"}
	documents := make([][]domainConfig, len(units)) // some rules stay, others go, and others have other numbers
	for k := range documents {
		d := domainConfig{source: "a.yaml", domain: "edge"}
		for i := range rules {
			key := fmt.Sprint("rule", i)
			if i%10 == 0 {
				key = fmt.Sprint("rule", k, "of", i)
			}
			d.descriptors = append(d.descriptors, descriptorConfig{key: key, limit: &limitConfig{
				requests: 1 << 20, unit: units[(i%7+k)%len(units)],
			}})
		}
		documents[k] = []domainConfig{d}
	}
	memory, err := core.NewMemory(core.MemoryOptions{})
	require.NoError(t, err)
	s, err := New(memory, Config{})
	require.NoError(t, err)
	reload := func(n int) {
		require.NoError(t, s.replace(build(documents[n%len(documents)], false)))
		for i := range 100 {
			res, err := s.ShouldRateLimit(t.Context(), &rlspb.RateLimitRequest{Domain: "edge", Descriptors: []*extpb.RateLimitDescriptor{
				{Entries: []*extpb.RateLimitDescriptor_Entry{{Key: fmt.Sprint("rule", i), Value: "7"}}},
				{Entries: []*extpb.RateLimitDescriptor_Entry{{Key: fmt.Sprint("rule", n%len(documents), "of", 10*i), Value: "7"}}},
			}})
			require.NoError(t, err)
			require.Equal(t, rlspb.RateLimitResponse_OK, res.GetOverallCode())
			require.NotNil(t, res.GetStatuses()[1].GetCurrentLimit())
		}
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc) //nolint:gosec // it is below 2^63
	}
	for n := range 2 * len(documents) {
		reload(n)
	}
	before := heap()
	for n := range reloads {
		reload(n)
	}
	after := heap()
	t.Logf("%d reloads of %d rules: %d KiB before, %d KiB after", reloads, rules, before/1024, after/1024)
	assert.Less(t, after, before+before/20)
	require.NoError(t, s.Close())
	runtime.KeepAlive(documents)
}
