package obey_test

import (
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/race"
)

// runs is the number of times that a test repeats what is random in it. WEIR_OBEY_RUNS sets another.
func runs(n int) int {
	if set, err := strconv.Atoi(os.Getenv("WEIR_OBEY_RUNS")); err == nil {
		return set
	}
	if race.Enabled {
		return (n + 2) / 3
	}
	return n
}

// Twenty workers that would send five times 100 requests per 10 s, for 60 s, beside the same workers without a Transport,
// which shows what the server admits; with 4 clients, each of them has 20 workers. The command in bench/obey measures the
// same over the network.
func TestServers(t *testing.T) {
	lists, plain := guard.Headers{RateLimit: true}, guard.Headers{}
	const s = time.Second
	tests := []struct {
		name    string
		server  func() http.Handler
		window  time.Duration
		length  time.Duration
		clients int
		refused float64 // of all requests but the first ten, at most, in percent
		use     float64 // of what the server admits, at least, in percent
	}{
		{"gcra", weir("100/10s", lists), 10 * s, 60 * s, 1, 0, 98},
		{"token-bucket", weir("100/10s token-bucket", lists), 10 * s, 60 * s, 1, 0, 98},
		{"fixed-window", weir("100/10s fixed-window", lists), 10 * s, 60 * s, 1, 0, 98},
		{"express draft 8", express(100, 10*s, false), 10 * s, 60 * s, 1, 0, 98},
		{"gcra with X-RateLimit", weir("100/10s", plain), 10 * s, 60 * s, 1, 0, 98},
		{"sliding-counter", weir("100/10s sliding-counter", lists), 10 * s, 60 * s, 1, 0, 95},
		{"sliding-log", weir("100/10s sliding-log", lists), 10 * s, 60 * s, 1, 0, 95},
		// 100 come back each 11 s, so that a burst as the 60 s end would count for a sixth of the whole.
		{"sliding-window", weir("100/10s sliding-window", lists), 10 * s, 66 * s, 1, 0, 95},
		{"express legacy", express(100, 60*s, true), 60 * s, 180 * s, 1, 0, 97},
		{"httprate", httprate(100, 10*s), 10 * s, 60 * s, 1, 0.5, 90},

		{"gcra, 4 clients", weir("100/10s", lists), 10 * s, 60 * s, 4, 0.5, 98},
		{"token-bucket, 4 clients", weir("100/10s token-bucket", lists), 10 * s, 60 * s, 4, 0.5, 98},
		{"fixed-window, 4 clients", weir("100/10s fixed-window", lists), 10 * s, 60 * s, 4, 0.5, 98},
		{"express draft 8, 4 clients", express(100, 10*s, false), 10 * s, 60 * s, 4, 0.5, 98},
		{"sliding-counter, 4 clients", weir("100/10s sliding-counter", lists), 10 * s, 60 * s, 4, 2, 85},
		{"sliding-log, 4 clients", weir("100/10s sliding-log", lists), 10 * s, 60 * s, 4, 2, 85},
		{"sliding-window, 4 clients", weir("100/10s sliding-window", lists), 10 * s, 66 * s, 4, 2, 85},
		{"httprate, 4 clients", httprate(100, 10*s), 10 * s, 60 * s, 4, 2, 85},

		// No bars were set for these.
		{"gcra with X-RateLimit, 4 clients", weir("100/10s", plain), 10 * s, 60 * s, 4, 1, 95},
		{"token-bucket with X-RateLimit", weir("100/10s token-bucket", plain), 10 * s, 60 * s, 1, 0, 88},
		{"fixed-window with X-RateLimit", weir("100/10s fixed-window", plain), 10 * s, 60 * s, 1, 0, 88},
		{"express legacy 10 s", express(100, 10*s, true), 10 * s, 60 * s, 1, 0, 88},
		{"express legacy, 4 clients", express(100, 60*s, true), 60 * s, 180 * s, 4, 0.5, 95},
		{"sliding-counter with X-RateLimit", weir("100/10s sliding-counter", plain), 10 * s, 60 * s, 1, 1, 80},
		{"sliding-log with X-RateLimit", weir("100/10s sliding-log", plain), 10 * s, 60 * s, 1, 1, 90},
		{"sliding-window with X-RateLimit", weir("100/10s sliding-window", plain), 10 * s, 66 * s, 1, 1, 90},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := load{
				server: tt.server, limit: 100, window: tt.window, length: tt.length, clients: tt.clients,
				wire: wire{rtt: 4 * time.Millisecond, epoch: true},
			}
			n := runs(1)
			if tt.clients > 1 {
				n = runs(4) // whose mean counts: 4 clients at random refuse one request more or less
			}
			var refused, use float64
			var last [8]int
			for range n {
				var greedy, c *tally
				if l.obey = false; tt.length != 66*s {
					l.phase = time.Duration(rand.Int64N(int64(10 * s)))
				}
				synctest.Test(t, func(t *testing.T) { greedy = l.run(t) })
				l.obey = true
				synctest.Test(t, func(t *testing.T) { c = l.run(t) })
				refused += 100 * float64(c.late) / float64(c.served+c.refused) / float64(n)
				use += 100 * float64(c.served) / float64(greedy.served) / float64(n)
				last = c.each
			}
			t.Logf("%.2f %% refused, %.2f %% of what the server admits, of each client %v", refused, use, last[:tt.clients])
			if tt.clients > 1 { // what is random is not to fail a build; the mean of more runs keeps to the bars
				tt.refused, tt.use = tt.refused+1, tt.use-5 // a refusal of httprate is for a sixth of the time
			}
			require.LessOrEqual(t, refused, tt.refused)
			require.GreaterOrEqual(t, use, tt.use)
		})
	}
}
