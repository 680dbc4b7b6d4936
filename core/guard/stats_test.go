package guard_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/keyfunc"
)

// Requests that wait are counted by the rule in which they wait, as long as they do, and by the Limiter.
func TestStatsOfQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecks(t, guard.Config{
			Rule: guard.Rule{Policy: "slow: 1/1s burst 1; wait 10s", Waiting: 50}, Store: newMemory(t),
			Rules:  []guard.Rule{{Policy: "plain: 100/1s"}},
			Routes: map[string]guard.Rule{"/login": {Policy: "login: 5/1m", After: func(guard.Final) int64 { return 1 }, Waiting: 7}},
		})
		queues := func(n int) []guard.QueueStats {
			return []guard.QueueStats{{Policy: "slow", Rule: "Rule", Requests: n, Places: 50}, {Policy: "login", Rule: `Routes["/login"]`, Places: 7}}
		}
		s := c.g.Stats()
		assert.Equal(t, queues(0), s.Queues)
		assert.Zero(t, s.Limiter.Waiting)
		for range 4 {
			c.join()
		}
		s = c.g.Stats()
		assert.Equal(t, queues(3), s.Queues)
		assert.Equal(t, 3, s.Limiter.Waiting)
		advance(2500 * ms)
		s = c.g.Stats()
		assert.Equal(t, queues(1), s.Queues)
		assert.Equal(t, []stats.Policy{{Name: "slow", Waiting: 1}}, s.Limiter.Policies)
		advance(time.Second)
		assert.Equal(t, queues(0), c.g.Stats().Queues)
	})
}

// More requests than there are places are not counted: they were refused.
func TestStatsOfFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecks(t, guard.Config{Rule: guard.Rule{Policy: "slow: 1/1s burst 1; wait 10s", Waiting: 2}, Store: newMemory(t)})
		for range 9 {
			c.join()
		}
		assert.Equal(t, []guard.QueueStats{{Policy: "slow", Rule: "Rule", Requests: 2, Places: 2}}, c.g.Stats().Queues)
	})
}

// A Break that several rules share is one entry. Its circuits are open until their time is over.
func TestStatsOfCircuits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, guard.Config{
			Rule:   guard.Rule{Policy: "user: 1/1h", OverLimit: guard.Break(guard.BreakOptions{Refusals: 1, Open: time.Minute})},
			Routes: map[string]guard.Rule{"/a": {Policy: "a: 1/1h", OverLimit: guard.Break(guard.BreakOptions{}), Instead: true}, "/b": {Policy: "b: 9/1h"}},
		})
		circuits := func(open int) []guard.CircuitStats {
			return []guard.CircuitStats{{Policies: []string{"b", "user"}, Open: open}, {Policies: []string{"a"}}}
		}
		assert.Equal(t, circuits(0), g.Stats().Circuits)
		for range 2 {
			passes(g, alice)
			passes(g, bob)
		}
		assert.Equal(t, circuits(2), g.Stats().Circuits)
		advance(time.Minute)
		assert.Equal(t, circuits(0), g.Stats().Circuits)
	})
}

// lagging is a Source that may lag.
type lagging struct {
	numbers
	since time.Time
	why   string
}

func (l *lagging) Lag() (time.Time, string) { return l.since, l.why }

// Stats has the revision in force, and whether that is the latest. What belongs to a Limiter is the same for all Guards
// that With has made.
func TestStatsOfNumbers(t *testing.T) {
	source := new(lagging)
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "api: 10/1h, 3 concurrent"}, Source: source})
	s := g.Stats()
	assert.Empty(t, s.Revision)
	assert.True(t, s.LagsSince.IsZero())
	source.Store(&guard.Set{Revision: "3.17", Policies: map[string]string{"api": "20/1h, 3 concurrent"}})
	source.since, source.why = time.Unix(7, 0), "no file"
	s = g.Stats()
	assert.Equal(t, "3.17", s.Revision)
	assert.Equal(t, time.Unix(7, 0), s.LagsSince)
	assert.Equal(t, "no file", s.Lag)

	other, further := g.With("other", "5 concurrent"), newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1/1h", Key: keyfunc.IP()}})
	v := other.Check(from(alice))
	defer v.Finish(guard.Final{})
	assert.Equal(t, 1, g.Stats().Limiter.Permits)
	assert.Equal(t, g.Stats().Limiter, other.Stats().Limiter)
	assert.True(t, g.SharesLimiter(other) && other.SharesLimiter(g))
	assert.False(t, g.SharesLimiter(further))
	assert.Zero(t, further.Stats().Limiter.Permits)
}
