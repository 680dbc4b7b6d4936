package adaptertest

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/keyfunc"
)

// Benchmark measures what an adapter adds to a request. Run serves GET /items/{id},
// behind g or, if it is nil, bare, and asks for /items/1 while b.Loop says so. The
// handler answers 204. Run returns the status of the last answer.
func Benchmark(b *testing.B, run func(b *testing.B, g *core.Guard) int) {
	b.Helper()
	const plenty, none = "default: 1000000000/1s", "default: 1/24h"
	for _, c := range []struct {
		name, policy string
		status       int
		config       core.Config
	}{
		{"bare", "", http.StatusNoContent, core.Config{}},
		{"address", plenty, http.StatusNoContent, core.Config{Key: keyfunc.IP()}},
		{"address and route", plenty, http.StatusNoContent, core.Config{Key: keyfunc.Join(keyfunc.IP(), keyfunc.Route())}},
		{"settled", plenty, http.StatusNoContent, core.Config{Key: keyfunc.IP(), Settle: all}},
		{"refused", none, http.StatusTooManyRequests, core.Config{Key: keyfunc.IP(), Cost: cost(2)}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var g *core.Guard
			if c.policy != "" {
				var err error
				c.config.Policy = core.MustParse(c.policy)
				g, err = core.NewGuard(c.config)
				require.NoError(b, err)
			}
			b.ReportAllocs()
			require.Equal(b, c.status, run(b, g))
		})
	}
}
