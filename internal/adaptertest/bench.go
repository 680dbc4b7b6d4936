package adaptertest

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/race"
	"github.com/weir-go/weir/keyfunc"
)

// Client is an address that benchmarks ask from, also as text.
type Client struct {
	Addr *net.TCPAddr
	Text string
}

// clients take turns: one alone would always find its count at hand.
var clients = func() (out [1024]Client) {
	for i := range out {
		addr := &net.TCPAddr{IP: net.IPv4(10, 0, byte(i>>8), byte(i)), Port: 1234}
		out[i] = Client{addr, addr.String()}
	}
	return out
}()

// Loop serves GET /items/{id}, which answers 204, behind g or, if it is nil, bare. It calls loop with a function that
// asks for /items/1 from a client and returns the answer's status.
type Loop func(tb testing.TB, g *guard.Guard, loop func(ask func(Client) int))

// Policies by which everybody is admitted, and all but the first are refused.
const plenty, one = "default: 1000000000/1s", "default: 1/24h"

// Benchmark measures what an adapter adds to a request.
func Benchmark(b *testing.B, run Loop) {
	b.Helper()
	for _, c := range []struct {
		name, policy string
		status       int
		config       guard.Config
	}{
		{"bare", "", http.StatusNoContent, guard.Config{}},
		{"address", plenty, http.StatusNoContent, guard.Config{Rule: guard.Rule{Key: keyfunc.IP()}}},
		{"address and route", plenty, http.StatusNoContent, guard.Config{Rule: guard.Rule{Key: keyfunc.Join(keyfunc.IP(), keyfunc.Route())}}},
		{"settled", plenty, http.StatusNoContent, guard.Config{Rule: guard.Rule{Key: keyfunc.IP(), Settle: all}}},
		{"refused", one, http.StatusTooManyRequests, guard.Config{Rule: guard.Rule{Key: keyfunc.IP()}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var g *guard.Guard
			if c.policy != "" {
				var err error
				c.config.Policy = c.policy
				g, err = guard.New(c.config)
				require.NoError(b, err)
			}
			b.ReportAllocs()
			status := 0
			run(b, g, func(ask func(Client) int) {
				for _, client := range clients {
					ask(client) // so that a client that may ask once has done so
				}
				for i := 0; b.Loop(); i++ {
					status = ask(clients[i%len(clients)])
				}
			})
			require.Equal(b, c.status, status)
		})
	}
}

// TestAllocations checks how many allocations an adapter adds to an allowed request that is counted by address, and how
// many a refused one takes.
func TestAllocations(t *testing.T, run Loop, allowed, refused float64) {
	t.Helper()
	if race.Enabled {
		t.Skip("the race detector drops what is pooled")
	}
	measure := func(g *guard.Guard) (allocations float64) {
		run(t, g, func(ask func(Client) int) {
			for _, client := range clients {
				ask(client)
			}
			i := 0
			allocations = testing.AllocsPerRun(len(clients), func() {
				ask(clients[i%len(clients)])
				i++
			})
		})
		return allocations
	}
	bare := measure(nil)
	assert.LessOrEqual(t, measure(newGuard(t, plenty, guard.Config{}))-bare, allowed, "allowed")
	assert.LessOrEqual(t, measure(newGuard(t, one, guard.Config{})), refused, "refused")
}

// LoopHTTP is a Loop for what serves an http.Handler.
func LoopHTTP(serve func(g *guard.Guard) http.Handler) Loop {
	return func(_ testing.TB, g *guard.Guard, loop func(func(Client) int)) {
		h, w := serve(g), &discard{header: http.Header{}}
		r := httptest.NewRequest(http.MethodGet, "/items/1", nil)
		loop(func(client Client) int {
			r.RemoteAddr = client.Text
			clear(w.header)
			h.ServeHTTP(w, r)
			return w.status
		})
	}
}

// discard is the cheapest http.ResponseWriter.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(status int)      { d.status = status }
