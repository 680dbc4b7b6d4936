package guard_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/internal/remotetest"
)

const ms = time.Millisecond

// handedOn is the time after which a turn that a request has left, and that no other has taken, is back in the store.
const handedOn = 100 * ms

// checks are requests of one client to a Guard, in a bubble.
type checks struct {
	t     *testing.T
	g     *guard.Guard
	start time.Time
	each  []*check

	mu     sync.Mutex
	events []guard.Event
}

// check is one request under way.
type check struct {
	leave   context.CancelFunc
	verdict guard.Verdict
	at      time.Duration // -1 while it waits
	done    atomic.Bool   // for callers that ask while others wait
}

func newChecks(t *testing.T, config guard.Config) *checks {
	c := &checks{t: t, start: time.Now()}
	config.Observe = func(e guard.Event) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.events = append(c.events, brief(e))
	}
	c.g = newGuard(t, config)
	return c
}

// observed returns the calls of Observe since the last call.
func (c *checks) observed() []guard.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	events := c.events
	c.events = nil
	return events
}

func (c *checks) join() *check {
	r := from(alice)
	ctx, leave := context.WithCancel(c.t.Context())
	r.ctx = ctx
	out := &check{leave: leave, at: -1}
	go func() {
		out.verdict = c.g.Check(r)
		out.at = time.Since(c.start)
		out.done.Store(true)
	}()
	synctest.Wait()
	c.each = append(c.each, out)
	return out
}

func (c *check) passed() bool { return c.at >= 0 && c.verdict.Action == guard.Pass }

// A Guard holds requests back until they may leave the bucket.
func TestGuardSpacesDepartures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := func(outcomes ...core.Outcome) (events []guard.Event) {
			for _, o := range outcomes {
				events = append(events, guard.Event{Policy: "default", Outcome: o})
			}
			return events
		}
		c := newChecks(t, guard.Config{Rule: guard.Rule{Policy: "5/1s leaky-bucket burst 3"}})
		for range 4 {
			c.join()
		}
		over := c.each[3]
		assert.Equal(t, time.Duration(0), over.at, "who does not fit is not held back")
		assert.Equal(t, 429, over.verdict.Status)
		assert.Equal(t, told(core.Admitted, core.Refused), c.observed(), "Observe is called when the wait is over")
		advance(time.Second)
		for i, at := range []time.Duration{0, 200 * ms, 400 * ms} {
			assert.True(t, c.each[i].passed())
			assert.Equal(t, at, c.each[i].at)
			assert.Equal(t, at, c.each[i].verdict.Result.Delay)
			require.NoError(t, c.each[i].verdict.Err)
		}
		assert.Equal(t, told(core.Admitted, core.AtLimit), c.observed())
	})
}

// A client that leaves gives its place back, and nobody's turn changes.
func TestGuardClientLeavesQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var handled error
		c := newChecks(t, guard.Config{
			Rule: guard.Rule{
				Policy: "5/1s leaky-bucket burst 3",
				OverLimit: guard.HandlerFunc("mine", func(x *guard.Refusal) guard.Verdict {
					handled = x.Err
					return guard.Reject(guard.RejectOptions{}).Serve(x)
				}),
			},
			Log: slog.New(new(records)),
		})
		c.join()
		c.join()
		gone := c.join()
		advance(100 * ms)
		c.observed()
		gone.leave()
		synctest.Wait()
		assert.Equal(t, 100*ms, gone.at)
		assert.Equal(t, guard.Reply, gone.verdict.Action)
		assert.Equal(t, 503, gone.verdict.Status)
		require.ErrorIs(t, gone.verdict.Err, context.Canceled)
		require.ErrorIs(t, handled, context.Canceled)
		assert.Equal(t, []guard.Event{{Policy: "default", Outcome: core.Refused, Err: context.Canceled}}, c.observed())
		h := header{}
		gone.verdict.SetHeaders(h)
		assert.Empty(t, h["X-Ratelimit-Limit"])
		gone.verdict.Finish(guard.Final{Status: 503})

		last := c.join() // takes the place
		advance(time.Second)
		assert.Equal(t, 400*ms, last.at)
		assert.Equal(t, 200*ms, c.each[1].at)
	})
}

// Close sends away those that wait, at once, and gives back what it can; it may be called again.
func TestGuardCloseSendsAway(t *testing.T) {
	for _, where := range []string{"in the process", "remote"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := newMemory(t)
				store := remotetest.New(memory)
				config := guard.Config{Rule: guard.Rule{Policy: "5/1s leaky-bucket burst 3", Settle: countFailures}, Store: memory}
				if where == "remote" {
					config.Store = store
				}
				c := newChecks(t, config)
				for range 3 {
					c.join()
				}
				advance(50 * ms)
				var closing sync.WaitGroup
				for range 3 {
					closing.Go(func() { assert.NoError(t, c.g.Close()) })
				}
				closing.Wait()
				assert.Equal(t, 50*ms, time.Since(c.start), "promptly")
				synctest.Wait()
				for _, sent := range c.each[1:] {
					assert.Equal(t, 50*ms, sent.at)
					assert.Equal(t, guard.Reply, sent.verdict.Action)
					assert.Equal(t, 503, sent.verdict.Status)
					require.ErrorIs(t, sent.verdict.Err, enforce.ErrClosed)
					assert.False(t, sent.verdict.NeedsFinal(), "there is nothing to settle")
				}
				if where == "remote" {
					assert.Equal(t, []int64{1, 1}, store.Refunded(), "before Close returned")
				}
				held := func() time.Duration {
					peek, err := memory.Take(t.Context(), core.Take{Policy: c.g.Policies()[0], Key: "ip=" + alice})
					require.NoError(t, err)
					return peek.ResetAfter
				}
				before := held()
				assert.Equal(t, 150*ms, before, "only the first is still counted")
				late := c.join()
				assert.Equal(t, 50*ms, late.at, "there is no waiting any more")
				assert.Equal(t, 503, late.verdict.Status)
				require.ErrorIs(t, late.verdict.Err, enforce.ErrClosed)
				synctest.Wait() // for what a remote store is given back
				after := held()
				assert.Equal(t, before, after, "who does not wait is not charged")

				advance(time.Second)
				free := c.join()
				assert.True(t, free.passed(), "a Guard goes on deciding")
				require.NoError(t, c.g.Close())
			})
		})
	}
}

// All guards of a family are closed by one of them.
func TestGuardCloseIsForTheFamily(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecks(t, guard.Config{Rule: guard.Rule{Policy: "5/1s leaky-bucket"}})
		other := c.g.With("other", "1/1h")
		c.join()
		held := c.join()
		require.NoError(t, other.Close())
		synctest.Wait()
		assert.Equal(t, 503, held.verdict.Status)
	})
}

// A refund behind the caller's back does not hold the client up.
func TestGuardLeavesRemoteStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := remotetest.New(newMemory(t))
		store.Held = make(chan struct{})
		c := newChecks(t, guard.Config{Rule: guard.Rule{Policy: "5/1s leaky-bucket"}, Store: store})
		c.join()
		gone := c.join()
		gone.leave()
		synctest.Wait()
		assert.Equal(t, time.Duration(0), gone.at)
		close(store.Held)
		advance(handedOn)
		assert.Equal(t, []int64{1}, store.Refunded())
	})
}

// What is over does not wait: neither the store's failure nor a peek.
func TestGuardWaitsOnlyForTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := remotetest.New(newMemory(t))
		c := newChecks(t, guard.Config{Rule: guard.Rule{Policy: "5/1s leaky-bucket; fail open"}, Store: store, Log: slog.New(new(records))})
		store.Fail(down())
		for range 3 {
			assert.True(t, c.join().passed())
		}
		assert.Zero(t, time.Since(c.start))

		c = newChecks(t, guard.Config{Rule: guard.Rule{Policy: "5/1s leaky-bucket"}, Store: store, Log: slog.New(new(records))})
		for range 3 { // the local store has a queue, too
			c.join()
		}
		store.Fail(nil)
		c.each[2].leave()
		advance(time.Second)
		assert.Equal(t, 200*ms, c.each[1].at)
		assert.True(t, c.each[1].verdict.Result.Local)
		assert.Equal(t, 503, c.each[2].verdict.Status)
		assert.Empty(t, store.Refunded(), "a charge goes back to the store that has counted it")
	})
}
