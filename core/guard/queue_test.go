package guard_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

// waiting are the checks that have no answer yet.
func (c *checks) waiting() (n int) {
	for _, x := range c.each {
		if !x.done.Load() {
			n++
		}
	}
	return n
}

// Five hundred arrive at a queue of fifty: it never holds more, answers the rest within 10 ms, and when it is closed it
// sends away at once whoever still waits. The turns of those come back.
func TestQueueOfFifty(t *testing.T) {
	for _, policy := range []string{"100/1s burst 1; wait 10s", "100/1s leaky-bucket burst 500"} {
		synctest.Test(t, func(t *testing.T) {
			memory := newMemory(t)
			c := newChecks(t, guard.Config{Rule: guard.Rule{Policy: policy, Waiting: 50}, Store: memory})
			for range 500 {
				x := c.join()
				require.LessOrEqual(t, c.waiting(), 50)
				if x.done.Load() && !x.passed() {
					require.Less(t, x.at, 10*ms)
					require.Equal(t, 429, x.verdict.Status)
				}
			}
			assert.Equal(t, 50, c.waiting())
			advance(205 * ms)
			assert.Equal(t, 30, c.waiting(), "one leaves every 10 ms")

			require.NoError(t, c.g.Close())
			synctest.Wait()
			assert.Zero(t, c.waiting())
			passed, sent := 0, 0
			for _, x := range c.each {
				switch {
				case x.passed():
					passed++
				case x.verdict.Status == 503:
					sent++
					assert.Equal(t, 205*ms, x.at)
					require.ErrorIs(t, x.verdict.Err, enforce.ErrClosed)
				}
				x.verdict.Finish(guard.Final{Status: 200})
			}
			assert.Equal(t, 21, passed, policy)
			assert.Equal(t, 30, sent, policy)
			peek, err := memory.Take(t.Context(), core.Take{Policy: c.g.Policies()[0], Key: "ip=" + alice})
			require.NoError(t, err)
			assert.LessOrEqual(t, peek.ResetAfter, 10*ms, "nobody holds a turn: %s", policy)
		})
	}
}

// One key that fills all the places of a process does not cost another one its turns.
func TestQueueHonestBesideGreedy(t *testing.T) {
	for _, policy := range []string{"10/1s burst 1; wait 2s", "10/1s leaky-bucket burst 20"} {
		synctest.Test(t, func(t *testing.T) {
			g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: policy, Waiting: 10}})
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			for range 20 {
				go func() {
					r := from(bob)
					r.ctx = ctx
					for ctx.Err() == nil {
						g.Check(r)
						<-time.After(5 * ms)
					}
				}()
			}
			for i := range 50 {
				start := time.Now()
				v := g.Check(from(alice))
				require.Equal(t, guard.Pass, v.Action, "%s: turn %d", policy, i)
				require.Zero(t, time.Since(start), "%s: turn %d", policy, i)
				advance(100 * ms)
			}
			stop()
			advance(3 * time.Second)
		})
	}
}

// Where all share a queue, a rule before it holds each user to its own rate. What that refuses takes no turn, so that
// honest users get every one that is theirs, and no turn stays empty while somebody waits.
func TestQueueBehindUsers(t *testing.T) {
	for _, queue := range []string{"search: 10/1s burst 1; wait 3s", "search: 10/1s leaky-bucket burst 30"} {
		synctest.Test(t, func(t *testing.T) {
			g := newGuard(t, guard.Config{
				Rule:  guard.Rule{Policy: "user: 4/1s burst 1", Key: byHeader("uid", "User")},
				Rules: []guard.Rule{{Policy: queue, Key: keyfunc.Const("search"), Waiting: 50}},
			})
			const seconds = 10
			type tally struct{ asked, passed int }
			done := map[string]chan tally{}
			for user, every := range map[string]time.Duration{"greedy": 5 * ms, "ann": 333 * ms, "bob": 500 * ms} {
				result := make(chan tally, 1)
				done[user] = result
				go func() {
					var all tally
					answers := make(chan bool, 20_000)
					for end := time.Now().Add(seconds * time.Second); time.Now().Before(end); all.asked++ {
						go func() { answers <- g.Check(sent("User", user)).Action == guard.Pass }()
						<-time.After(every)
					}
					for range all.asked {
						if <-answers {
							all.passed++
						}
					}
					result <- all
				}()
			}
			for _, user := range []string{"ann", "bob"} {
				got := <-done[user]
				assert.Equal(t, got.asked, got.passed, "%s with %s", user, queue)
			}
			got := <-done["greedy"]
			assert.InDelta(t, 4*seconds, got.passed, 2, "its own rate, of %d, with %s", got.asked, queue)
		})
	}
}

// A request waits for its turn if the policy says so, in the order of arrival; beyond the wait, the places or the
// request's own deadline it is refused at once.
func TestQueueing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecks(t, guard.Config{Rule: guard.Rule{Policy: "10/1s burst 1; wait 10s", Waiting: 3}})
		for range 6 {
			c.join()
		}
		assert.True(t, c.each[0].passed())
		for _, x := range c.each[4:] {
			assert.Zero(t, x.at, "at once")
			assert.Equal(t, guard.Reply, x.verdict.Action)
		}
		assert.Equal(t, 429, c.each[4].verdict.Status)
		assert.Equal(t, 400*time.Millisecond, c.each[4].verdict.Result.RetryAfter, "behind those who wait")
		advance(time.Second)
		for i, at := range []time.Duration{0, 100 * ms, 200 * ms, 300 * ms} {
			assert.True(t, c.each[i].passed())
			assert.Equal(t, at, c.each[i].at)
		}
		late := c.join()
		assert.True(t, late.passed(), "the places are free again")
	})
}

// A queue of fifty serves five hundred at the policy's rate, and refuses the rest at once.
func TestQueueUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, policy := range []string{"100/1s burst 1; wait 10s", "100/1s leaky-bucket burst 500"} {
			c := newChecks(t, guard.Config{Rule: guard.Rule{Policy: policy, Waiting: 50}})
			for range 500 {
				c.join()
			}
			advance(time.Second)
			served, refused := 0, 0
			for _, x := range c.each {
				switch {
				case x.passed():
					assert.Equal(t, time.Duration(served)*10*ms, x.at, "%s: in order, at the rate", policy)
					served++
				default:
					assert.Zero(t, x.at, "%s: refused at once", policy)
					refused++
				}
			}
			assert.Equal(t, 51, served, policy)
			assert.Equal(t, 449, refused, policy)
		}
	})
}

// A turn that would come after the request's own deadline is refused at once, and nothing stays taken for it.
func TestQueueDeadline(t *testing.T) {
	for policy, back := range map[string]string{
		"1/1s burst 1; wait 10s":    "",
		"1/1s leaky-bucket burst 5": "default", // it gives out places before anybody knows how far ahead they are
	} {
		synctest.Test(t, func(t *testing.T) {
			store := newCounting(t)
			g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: policy}, Store: store})
			require.True(t, passes(g, alice))
			store.told()
			r := from(alice)
			ctx, cancel := context.WithTimeout(t.Context(), 500*ms)
			defer cancel()
			r.ctx = ctx
			start := time.Now()
			v := g.Check(r)
			assert.Zero(t, time.Since(start))
			assert.Equal(t, guard.Reply, v.Action)
			assert.Equal(t, 429, v.Status, policy)
			assert.LessOrEqual(t, v.Result.RetryAfter, time.Second)
			advance(handedOn)
			asked, refunded := store.told()
			assert.Equal(t, []string{"default", back}, []string{asked, refunded}, policy)
			advance(time.Second)
			start = time.Now()
			assert.True(t, passes(g, alice))
			assert.Zero(t, time.Since(start), "nothing was taken for the other: %s", policy)
		})
	}
}

// Permits are not held while a request waits: `2 concurrent, 10/1s leaky-bucket` runs two handlers at once.
func TestQueueHoldsNoPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecks(t, guard.Config{Rule: guard.Rule{Policy: "2 concurrent, 10/1s leaky-bucket burst 10"}})
		for range 4 {
			c.join()
		}
		advance(100 * ms)
		assert.True(t, c.each[0].passed())
		assert.True(t, c.each[1].passed(), "the two that wait hold none")
		c.each[0].verdict.Finish(guard.Final{})
		c.each[1].verdict.Finish(guard.Final{})
		advance(time.Second)
		assert.True(t, c.each[2].passed())
		assert.True(t, c.each[3].passed())
	})
}

// A permit that is written before a rule that waits is held while the request waits there; one that is written after it
// is not.
func TestQueueOfAnotherRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		few, drip := guard.Rule{Policy: "few: 1 concurrent"}, guard.Rule{Policy: "drip: 10/1s leaky-bucket burst 10"}
		for _, test := range []struct {
			rules []guard.Rule
			asked string        // for a request that waits, until it waits
			at    time.Duration // when one that comes meanwhile is refused by the permits
		}{
			{[]guard.Rule{few, drip}, "permit:few drip", 0},
			{[]guard.Rule{drip, few}, "drip", 200 * ms},
		} {
			store := newCounting(t)
			c := newChecks(t, guard.Config{Rule: test.rules[0], Rules: test.rules[1:], Store: store})
			c.join()
			c.each[0].verdict.Finish(guard.Final{})
			synctest.Wait()
			store.told()
			c.join()
			asked, _ := store.told()
			assert.Equal(t, test.asked, asked)
			c.join()
			advance(time.Second)
			assert.True(t, c.each[1].passed())
			assert.Equal(t, 100*ms, c.each[1].at)
			assert.Equal(t, "few", c.each[2].verdict.Policy)
			assert.Equal(t, test.at, c.each[2].at)
			c.each[1].verdict.Finish(guard.Final{})
		}
	})
}

// A store that panics takes no place of those who wait.
func TestQueueSurvivesPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newHalf(t)
		store.panics = true
		c := newChecks(t, guard.Config{Rule: guard.Rule{Policy: "10/1s burst 1; wait 10s", Waiting: 1}, Store: store})
		for range 3 {
			assert.Panics(t, func() { c.g.Check(from(alice)) })
		}
		store.panics = false
		c.join()
		c.join()
		advance(time.Second)
		assert.True(t, c.each[1].passed())
		assert.Equal(t, 100*ms, c.each[1].at)
	})
}
