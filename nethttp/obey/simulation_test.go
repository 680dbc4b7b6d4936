package obey_test

import (
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/core/guard"
)

var (
	lists  = guard.Headers{RateLimit: true}
	legacy = guard.Headers{}
)

func TestServers(t *testing.T) {
	for _, row := range []struct {
		name    string
		server  func() http.Handler
		window  time.Duration
		clients int
		late    float64 // at most, in percent
		use     float64 // at least, in percent
	}{
		{"weir gcra RateLimit", weir("100/10s", lists), 10, 1, 0, 98},
		{"weir token-bucket RateLimit", weir("100/10s token-bucket", lists), 10, 1, 0, 98},
		{"weir fixed-window RateLimit", weir("100/10s fixed-window", lists), 10, 1, 0, 98},
		{"express draft-8", express(100, 10*time.Second, false), 10, 1, 0, 98},
		{"weir gcra X-RateLimit", weir("100/10s", legacy), 10, 1, 0, 98},
		{"weir sliding-counter RateLimit", weir("100/10s sliding-counter", lists), 10, 1, 0, 95},
		{"weir sliding-log RateLimit", weir("100/10s sliding-log", lists), 10, 1, 0, 95},
		{"weir sliding-window RateLimit", weir("100/10s sliding-window", lists), 10, 1, 0, 95},
		{"express legacy 60 s", express(100, time.Minute, true), 60, 1, 0, 97},
		{"express legacy 10 s", express(100, 10*time.Second, true), 10, 1, 0, 85},
		{"httprate", httprate(100, 10*time.Second), 10, 1, 0.5, 90},
		{"weir gcra RateLimit, 4", weir("100/10s", lists), 10, 4, 0.5, 98},
		{"weir token-bucket RateLimit, 4", weir("100/10s token-bucket", lists), 10, 4, 0.5, 98},
		{"weir fixed-window RateLimit, 4", weir("100/10s fixed-window", lists), 10, 4, 0.5, 98},
		{"express draft-8, 4", express(100, 10*time.Second, false), 10, 4, 0.5, 98},
		{"weir gcra X-RateLimit, 4", weir("100/10s", legacy), 10, 4, 2, 85},
		{"weir sliding-counter RateLimit, 4", weir("100/10s sliding-counter", lists), 10, 4, 2, 85},
		{"weir sliding-log RateLimit, 4", weir("100/10s sliding-log", lists), 10, 4, 2, 85},
		{"weir sliding-window RateLimit, 4", weir("100/10s sliding-window", lists), 10, 4, 2, 85},
		{"express legacy 60 s, 4", express(100, time.Minute, true), 60, 4, 2, 85},
		{"httprate, 4", httprate(100, 10*time.Second), 10, 4, 2, 85},
		{"weir token-bucket X-RateLimit", weir("100/10s token-bucket", legacy), 10, 1, 2, 80},
		{"weir fixed-window X-RateLimit", weir("100/10s fixed-window", legacy), 10, 1, 2, 80},
		{"weir sliding-counter X-RateLimit", weir("100/10s sliding-counter", legacy), 10, 1, 2, 80},
		{"weir sliding-log X-RateLimit", weir("100/10s sliding-log", legacy), 10, 1, 2, 80},
		{"weir sliding-window X-RateLimit", weir("100/10s sliding-window", legacy), 10, 1, 2, 80},
	} {
		t.Run(row.name, func(t *testing.T) {
			var greedy, c *tally
			l := load{
				server: row.server, limit: 100, window: row.window * time.Second, length: max(60, 6*row.window) * time.Second,
				clients: row.clients, wire: wire{rtt: 4 * time.Millisecond, epoch: true},
			}
			if strings.Contains(row.name, "sliding-window") {
				l.length = 66 * time.Second
			}
			if row.window == 60 {
				l.length = 3 * time.Minute
			}
			if ms, _ := strconv.Atoi(os.Getenv("RTT")); ms > 0 {
				l.wire.rtt = time.Duration(ms) * time.Millisecond
			}
			runs, _ := strconv.Atoi(os.Getenv("RUNS"))
			var late, worst, use, least float64
			least = 1000
			for range max(runs, 1) {
				l.obey = false
				synctest.Test(t, func(t *testing.T) { greedy = l.run(t) })
				l.obey = true
				synctest.Test(t, func(t *testing.T) { c = l.run(t) })
				a, b := 100*float64(c.late)/float64(c.served+c.refused), 100*float64(c.served)/float64(greedy.served)
				late, worst, use, least = late+a, max(worst, a), use+b, min(least, b)
			}
			c.trace(t)
			n := float64(max(runs, 1))
			t.Logf("%-36s late 429 %5.2f max %5.2f  use %6.2f min %6.2f unsent %d %v",
				row.name, late/n, worst, use/n, least, c.failed, c.each[:row.clients])
		})
	}
}
