package obey_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
)

// One client and any limit: every algorithm, 10 to 10 000 requests of a window, an answer that takes up to 2 s, clocks up
// to an hour apart.
func TestRandomLimits(t *testing.T) {
	algorithms := []string{
		"", "token-bucket", "fixed-window", "sliding-counter", "sliding-log", "sliding-window", "express", "express legacy", "httprate",
	}
	for range runs(15) {
		limit := int(math.Pow(10, 1+3*rand.Float64()))
		window := []time.Duration{10 * time.Second, 20 * time.Second, time.Minute}[rand.IntN(3)]
		algorithm := algorithms[rand.IntN(len(algorithms))]
		if algorithm == "sliding-log" {
			limit = min(limit, 1000)
		}
		style := guard.Headers{RateLimit: rand.IntN(2) == 0}
		server := weir(fmt.Sprintf("%d/%ds %s", limit, int(window.Seconds()), algorithm), style)
		switch algorithm {
		case "express", "express legacy":
			server = express(limit, window, algorithm == "express legacy")
		case "httprate":
			server = httprate(limit, window)
		}
		l := load{
			server: server, limit: limit, window: window, length: 5 * window, clients: 1,
			phase: time.Duration(rand.Int64N(int64(window))),
			wire: wire{
				rtt: time.Duration(rand.Int64N(int64(2 * time.Second))), skew: time.Duration(rand.IntN(7200)-3600) * time.Second, epoch: true,
			},
		}
		name := fmt.Sprintf("%d/%v %s, lists %v, %v away, skew %v", limit, window, algorithm, style.RateLimit, l.wire.rtt, l.wire.skew)
		var greedy, c *tally
		synctest.Test(t, func(t *testing.T) { greedy = l.run(t) })
		l.obey = true
		synctest.Test(t, func(t *testing.T) { c = l.run(t) })
		most := 20 * l.length.Seconds() / l.wire.rtt.Seconds() // that 20 workers can send
		t.Logf("%-80s 429s %4d of %5d, %5.1f %% of what it admits, %.1f %% of what 20 workers can send", name, c.late,
			c.served+c.refused, 100*float64(c.served)/float64(greedy.served), 100*float64(c.served)/most)
		require.LessOrEqual(t, c.late, max(8, (c.served+c.refused)*3/20), name)
		require.Greater(t, c.served, greedy.served/3, name)
	}
}
