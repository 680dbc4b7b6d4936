package envoyrls_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	extpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/grpcmw/envoyrls"
)

func healthy(t *testing.T, s *envoyrls.Server) bool {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/healthcheck", nil))
	return w.Code == http.StatusOK
}

func TestHealth(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config                envoyrls.Config
		before, empty, filled bool
	}{
		"default":       {envoyrls.Config{}, false, true, true},
		"StartHealthy":  {envoyrls.Config{StartHealthy: true}, true, true, true},
		"NeedDomains":   {envoyrls.Config{NeedDomains: true}, false, false, true},
		"both of these": {envoyrls.Config{StartHealthy: true, NeedDomains: true}, false, false, true},
	} {
		s, err := envoyrls.New(memory(t), c.config)
		require.NoError(t, err)
		assert.Equal(t, c.before, healthy(t, s), "%s, before", name)
		require.Error(t, s.Load(filesOf("domain: 7: 8")...))
		assert.Equal(t, c.before, healthy(t, s), "%s, after a mistake", name)
		require.NoError(t, s.Load())
		assert.Equal(t, c.empty, healthy(t, s), "%s, empty", name)
		require.NoError(t, s.Load(filesOf(basic)...))
		assert.Equal(t, c.filled, healthy(t, s), "%s, filled", name)

		// What else it needs.
		s.SetHealthy("redis", false)
		s.SetHealthy("disk", false)
		assert.False(t, healthy(t, s))
		s.SetHealthy("redis", true)
		require.NoError(t, s.Load(filesOf(basic)...))
		assert.False(t, healthy(t, s), "the disk is still away")
		s.SetHealthy("disk", true)
		assert.True(t, healthy(t, s))

		// It never comes back from draining.
		s.Drain()
		require.NoError(t, s.Load(filesOf(basic)...))
		s.SetHealthy("disk", true)
		assert.False(t, healthy(t, s))
		require.NoError(t, s.Close())
	}
}

// takes counts what a store is asked.
type takes struct {
	core.Store

	n int
}

func (s *takes) Take(ctx context.Context, t core.Take) (core.Result, error) {
	s.n++
	return s.Store.Take(ctx, t)
}

// Limits by the second are counted in another store, whoever brings them.
func TestPerSecond(t *testing.T) {
	t.Parallel()
	main, second := &takes{Store: memory(t)}, &takes{Store: memory(t)}
	s := newServerOn(t, main, envoyrls.Config{PerSecond: second}, `
domain: edge
descriptors:
  - {key: second, rate_limit: {unit: second, requests_per_unit: 3}}
  - {key: seconds, rate_limit: {unit: second, unit_multiplier: 2, requests_per_unit: 3}}
  - {key: minute, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: bucket, rate_limit: {policy: 3/1s gcra}}
`)
	override := func(unit typepb.RateLimitUnit) func(*extpb.RateLimitDescriptor) {
		return func(d *extpb.RateLimitDescriptor) {
			d.Limit = &extpb.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 3, Unit: unit}
		}
	}
	for _, x := range []struct {
		descriptors  []*extpb.RateLimitDescriptor
		main, second int
	}{
		{[]*extpb.RateLimitDescriptor{of("second=1")}, 0, 1},
		{[]*extpb.RateLimitDescriptor{of("seconds=1")}, 1, 0},
		{[]*extpb.RateLimitDescriptor{of("minute=1")}, 1, 0},
		{[]*extpb.RateLimitDescriptor{of("bucket=1")}, 0, 1},
		{[]*extpb.RateLimitDescriptor{of("second=2"), of("minute=2")}, 1, 1},
		{[]*extpb.RateLimitDescriptor{of("minute=3", override(typepb.RateLimitUnit_SECOND))}, 0, 1},
		{[]*extpb.RateLimitDescriptor{of("second=3", override(typepb.RateLimitUnit_HOUR))}, 1, 0},
	} {
		main.n, second.n = 0, 0
		ask(t, s, request(x.descriptors...))
		assert.Equal(t, x.main, main.n, "%v", x.descriptors)
		assert.Equal(t, x.second, second.n, "%v", x.descriptors)
	}
}
