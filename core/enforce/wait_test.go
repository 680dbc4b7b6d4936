package enforce_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/internal/remotetest"
	"github.com/weir-go/weir/core/storetest"
)

// queue is the callers that wait at a limiter, in a bubble.
type queue struct {
	t     *testing.T
	l     *enforce.Limiter
	start time.Time
	done  []*waiting
}

// waiting is one call of Wait.
type waiting struct {
	leave context.CancelFunc
	// What came of it, and when since the start; -1 while it waits.
	err error
	at  time.Duration
}

func newQueue(t *testing.T, s core.Store, policy string) *queue {
	return &queue{t: t, l: newLimiter(t, s, policy), start: time.Now()}
}

// join lets one more come, and stand in the queue before it returns.
func (q *queue) join(n int64) *waiting {
	ctx, leave := context.WithCancel(q.t.Context())
	w := &waiting{leave: leave, at: -1}
	go func() {
		w.err = q.l.Wait(ctx, "k", n)
		w.at = time.Since(q.start)
	}()
	synctest.Wait()
	q.done = append(q.done, w)
	return w
}

// served demands when each was served, in the order in which they came.
func (q *queue) served(at ...time.Duration) {
	q.t.Helper()
	for i, w := range q.done {
		require.NoError(q.t, w.err, "number %d", i)
		assert.Equal(q.t, at[i], w.at, "number %d", i)
	}
	assert.Len(q.t, q.done, len(at))
}

const ms = time.Millisecond

// handedOn is the time after which a turn that a caller has left, and that nobody else has taken, is back in the store.
const handedOn = 100 * ms

// Callers that wait are served in the order of arrival, and at the rate.
func TestWaitInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, nil, "10/1s burst 2; wait 10s")
		for range 4 {
			q.join(1)
		}
		advance(50 * ms)
		q.join(2) // as heavy as two
		q.join(1)
		advance(10 * time.Second)
		q.served(0, 0, 100*ms, 200*ms, 400*ms, 500*ms)
	})
}

// The burst is there again after a while, and a waiting caller has no part in it.
func TestWaitAfterIdling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, nil, "10/1s burst 2; wait 10s")
		for range 3 {
			q.join(1)
		}
		advance(time.Second)
		for range 3 {
			q.join(1)
		}
		advance(time.Second)
		q.served(0, 0, 100*ms, time.Second, time.Second, 1100*ms)
	})
}

// A token bucket gives what comes with its next refill to those who wait.
func TestWaitForTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, nil, "2/1s token-bucket; wait 10s")
		for range 6 {
			q.join(1)
		}
		advance(10 * time.Second)
		q.served(0, 0, time.Second, time.Second, 2*time.Second, 2*time.Second)
	})
}

// Departures of a leaky bucket are spaced, and its burst is the number of requests that may be in it.
func TestWaitInLeakyBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, nil, "5/1s leaky-bucket burst 3")
		for range 3 {
			q.join(1)
		}
		over := &enforce.OverLimitError{}
		require.ErrorAs(t, q.l.Wait(t.Context(), "k", 1), &over)
		assert.Equal(t, core.Refused, over.Result.Outcome)
		assert.Equal(t, 200*ms, over.Result.RetryAfter)
		assert.Equal(t, "enforce: default: over the limit; try again in 200ms", over.Error())
		advance(over.Result.RetryAfter)
		q.join(1)
		advance(time.Second)
		q.served(0, 200*ms, 400*ms, 600*ms)
	})
}

// Callers of one process hold their turns in common: whoever stood behind one that gives up moves up, and the last turn
// is that of the next who comes.
func TestWaitGivesUp(t *testing.T) {
	for _, policy := range []string{"10/1s burst 1; wait 10s", "10/1s leaky-bucket burst 10"} {
		t.Run(policy, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(t, nil, policy)
				q.join(1)
				q.join(1)
				middle := q.join(1)
				q.join(1)
				last := q.join(1)
				advance(50 * ms)
				middle.leave()
				synctest.Wait()
				require.ErrorIs(t, middle.err, context.Canceled)
				assert.Equal(t, 50*ms, middle.at, "at once")
				last.leave()
				synctest.Wait()
				require.ErrorIs(t, last.err, context.Canceled)
				q.join(1)
				advance(time.Second)
				q.done = append(q.done[:2], q.done[3], q.done[5])
				q.served(0, 100*ms, 200*ms, 300*ms)
				require.NoError(t, q.l.Wait(t.Context(), "k", 1))
				assert.Equal(t, 1050*ms, time.Since(q.start))
			})
		})
	}
}

// One that gave up as the last, with a weight, gives all of it back.
func TestWaitGivesAllBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, nil, "5/1s burst 5; wait 10s")
		q.join(5)
		q.join(5).leave()
		advance(handedOn)
		res, err := q.l.Reserve(t.Context(), "k", 1, time.Second)
		require.NoError(t, err)
		assert.Equal(t, 200*ms-handedOn, res.Delay)
	})
}

// A deadline that is too short is known at once, and costs nothing.
func TestWaitDeadline(t *testing.T) {
	const in = 100 * ms                                  // until the next has its turn
	for policy, again := range map[string]time.Duration{ // until the same call would be early enough
		"10/1s burst 1; wait 10s":       ms,
		"1/100ms token-bucket; wait 5s": ms,
		"10/1s leaky-bucket":            in,
	} {
		t.Run(policy, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(t, nil, policy)
				q.join(1)
				short, cancel := context.WithTimeout(t.Context(), 99*ms)
				defer cancel()
				before, err := q.l.Peek(t.Context(), "k")
				require.NoError(t, err)
				over := &enforce.OverLimitError{}
				require.ErrorAs(t, q.l.Wait(short, "k", 1), &over)
				assert.Equal(t, core.Refused, over.Result.Outcome)
				assert.Equal(t, again, over.Result.RetryAfter)
				assert.Zero(t, time.Since(q.start), "at once")
				advance(handedOn)
				after, err := q.l.Peek(t.Context(), "k")
				require.NoError(t, err)
				assert.Equal(t, before.ResetAfter-handedOn, after.ResetAfter, "nothing is charged in the end")

				long, cancel := context.WithTimeout(t.Context(), 101*ms)
				defer cancel()
				require.NoError(t, q.l.Wait(long, "k", 1))
				assert.Equal(t, in, time.Since(q.start))

				<-short.Done()
				require.ErrorIs(t, q.l.Wait(short, "k", 1), context.DeadlineExceeded, "one that is over is no limit")
			})
		})
	}
}

// The policy's wait word bounds the queue; without it nobody waits but in a leaky bucket.
func TestWaitWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, nil, "10/1s burst 1; wait 200ms")
		for range 3 {
			q.join(1)
		}
		over := &enforce.OverLimitError{}
		require.ErrorAs(t, q.l.Wait(t.Context(), "k", 1), &over)
		assert.Equal(t, 100*ms, over.Result.RetryAfter, "then the queue has a place again")
		advance(over.Result.RetryAfter)
		q.join(1)
		advance(time.Second)
		q.served(0, 100*ms, 200*ms, 300*ms)

		q = newQueue(t, nil, "10/1s burst 1")
		q.join(1)
		require.ErrorAs(t, q.l.Wait(t.Context(), "k", 1), &over)
		assert.Equal(t, 100*ms, over.Result.RetryAfter)
		q.served(0)
	})
}

func TestWaitNever(t *testing.T) {
	for _, policy := range []string{"10/1s burst 3; wait 10s", "10/1s leaky-bucket burst 3", "3/1s", "1/1s token-bucket burst 2 debt 1; wait 10s"} {
		l := newLimiter(t, nil, policy)
		over := &enforce.OverLimitError{}
		require.ErrorAs(t, l.Wait(t.Context(), "k", 4), &over, policy)
		assert.Equal(t, core.Never, over.Result.Outcome)
		assert.Zero(t, over.Result.RetryAfter)
		assert.Equal(t, "enforce: default: 4 units asked for, at most 3 at once; waiting cannot help", over.Error())
	}
}

func TestWaitMistakes(t *testing.T) {
	l := newLimiter(t, nil, "1/1s; wait 1s")
	require.ErrorContains(t, l.Wait(t.Context(), "", 1), "the key is empty")
	require.ErrorContains(t, l.Wait(t.Context(), "k", -1), "a cost of -1 units")
	require.NoError(t, l.Wait(t.Context(), "k", 1))
	require.NoError(t, l.Wait(t.Context(), "k", 0), "nothing is to be had at once")
	gone, leave := context.WithCancel(t.Context())
	leave()
	require.ErrorIs(t, l.Wait(gone, "k", 1), context.Canceled)
}

// Of several limits, the one with the longest queue says when.
func TestWaitForAllLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, nil, "10/1s burst 1, 3/1m; wait 1h")
		for range 5 {
			q.join(1)
		}
		advance(time.Hour)
		q.served(0, 100*ms, 200*ms, 20*time.Second, 40*time.Second)
	})
}

// The store fails before, while and after somebody waits.
func TestWaitFailWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for policy, last := range map[string]time.Duration{
			"10/1s burst 1; wait 10s":            200 * ms, // the local store has a queue, too
			"10/1s burst 1; wait 10s; fail open": 0,
		} {
			store := remotetest.New(newMemory(t, 0))
			store.Fail(down())
			q := newQueue(t, store, policy)
			for range 3 {
				q.join(1)
			}
			advance(time.Second)
			q.served(0, last/2, last)
		}
		store := remotetest.New(newMemory(t, 0))
		store.Fail(down())
		failed := &core.StoreError{}
		require.ErrorAs(t, newLimiter(t, store, "10/1s; wait 10s; fail closed").Wait(t.Context(), "k", 1), &failed)

		// A reservation is not lost with the store that wrote it, and a caller that gives up
		// then learns of that alone.
		for _, policy := range []string{"10/1s burst 1; wait 10s", "10/1s burst 1; wait 10s; fail open", "10/1s burst 1; wait 10s; fail closed"} {
			store := remotetest.New(newMemory(t, 0))
			q := newQueue(t, store, policy)
			q.join(1)
			q.join(1)
			w := q.join(1)
			store.Fail(down())
			w.leave()
			advance(time.Second)
			require.ErrorIs(t, w.err, context.Canceled)
			require.False(t, errors.As(w.err, &failed), "%v", w.err)
			q.done = q.done[:2]
			q.served(0, 100*ms)
			assert.Empty(t, store.Refunded())
		}
		store = remotetest.New(newMemory(t, 0))
		q := newQueue(t, store, "10/1s burst 1; wait 10s")
		q.join(1)
		q.join(1).leave()
		advance(handedOn)
		assert.Equal(t, []int64{1}, store.Refunded(), "by its own deadline, not by that of the caller who left")
	})
}

func TestReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		l := newLimiter(t, nil, "10/1s burst 2; wait 1s")
		reserve := func(n int64, ahead time.Duration) core.Result {
			res, err := l.Reserve(ctx, "k", n, ahead)
			require.NoError(t, err)
			return res
		}
		now := reserve(2, time.Second)
		assert.Zero(t, now.Delay, "what is there is not waited for")
		assert.Equal(t, core.AtLimit, now.Outcome)
		refused := reserve(1, 0)
		assert.Equal(t, core.Refused, refused.Outcome, "0 is now or not at all")
		assert.Equal(t, 100*ms, refused.RetryAfter)
		assert.Equal(t, core.Refused, reserve(1, 99*ms).Outcome)
		assert.Equal(t, ms, reserve(1, 99*ms).RetryAfter, "the same call is admitted then")
		first := reserve(1, 100*ms)
		assert.Equal(t, 100*ms, first.Delay)
		assert.Equal(t, int64(1), first.Taken)
		assert.Equal(t, 100*ms, first.Each(0).Delay)
		second := reserve(2, time.Hour)
		assert.Equal(t, 300*ms, second.Delay)
		assert.Equal(t, core.Never, reserve(3, time.Hour).Outcome, "more than the burst")
		for range 7 {
			assert.True(t, reserve(1, time.Hour).Allowed())
		}
		full := reserve(1, time.Hour)
		assert.Equal(t, core.Refused, full.Outcome, "no further ahead than the policy's wait")
		assert.Equal(t, 100*ms, full.RetryAfter)
		assert.Zero(t, full.Delay)

		_, err := l.Reserve(ctx, "k", 1, -1)
		require.EqualError(t, err, "core: Take.Wait is -1ns; give the time to wait at most, or 0")
		res, err := newLimiter(t, nil, "1/1s").Reserve(ctx, "k", 1, time.Hour)
		require.NoError(t, err)
		assert.True(t, res.Allowed(), "without the wait word it is AllowN")
	})
}

// Only what nobody has queued behind comes back before its turn.
func TestReserveRefund(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		l := newLimiter(t, nil, "10/1s burst 1; wait 10s")
		reserve := func() core.Result {
			res, err := l.Reserve(ctx, "k", 1, time.Hour)
			require.NoError(t, err)
			return res
		}
		reserve()
		first, second := reserve(), reserve()
		assert.Equal(t, [2]time.Duration{100 * ms, 200 * ms}, [2]time.Duration{first.Delay, second.Delay})
		require.NoError(t, l.Refund(ctx, "k", first, 1))
		assert.Equal(t, 300*ms, reserve().Delay, "somebody stands behind the first")
		require.NoError(t, l.Refund(ctx, "k", second, 1), "and behind the second")
		last := reserve()
		assert.Equal(t, 400*ms, last.Delay)
		require.NoError(t, l.Refund(ctx, "k", last, 1))
		again := reserve()
		assert.Equal(t, 400*ms, again.Delay)
		require.Error(t, l.Refund(ctx, "k", again, 2), "more than it took")
	})
}

func TestUpTo(t *testing.T) {
	ctx := t.Context()
	l := newLimiter(t, nil, "10/1h, 7/1d")
	upTo := func(n int64) core.Result {
		res, err := l.UpTo(ctx, "k", n)
		require.NoError(t, err)
		return res
	}
	res := upTo(3)
	assert.Equal(t, int64(3), res.Taken)
	assert.Equal(t, int64(4), res.Remaining)
	assert.Equal(t, core.Admitted, res.Outcome)
	peek := upTo(0)
	assert.True(t, peek.Allowed())
	assert.Zero(t, peek.Taken)
	some := upTo(100)
	assert.Equal(t, int64(4), some.Taken, "the least of all limits")
	assert.Equal(t, core.AtLimit, some.Outcome)
	assert.Equal(t, int64(3), some.Each(0).Remaining)
	none := upTo(100)
	assert.Equal(t, core.Refused, none.Outcome)
	assert.Zero(t, none.Taken)
	assert.Positive(t, none.RetryAfter)
	assert.LessOrEqual(t, none.RetryAfter, day/7, "until there is one, not a hundred")
	require.Error(t, l.Refund(ctx, "k", some, 5))
	require.Error(t, l.Refund(ctx, "k", none, 1))
	require.NoError(t, l.Refund(ctx, "k", some, 2))
	assert.Equal(t, int64(2), upTo(100).Taken)

	for policy, retry := range map[string]time.Duration{"2/1s debt 3": 500 * ms, "2/1s token-bucket debt 3": time.Second} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, nil, policy)
			res, err := l.UpTo(t.Context(), "k", 9)
			require.NoError(t, err)
			assert.Equal(t, int64(2), res.Taken, "debt is for who must have all")
			res, err = l.UpTo(t.Context(), "k", 9)
			require.NoError(t, err)
			assert.Equal(t, core.Refused, res.Outcome)
			assert.Equal(t, retry, res.RetryAfter)
			advance(retry)
			res, err = l.UpTo(t.Context(), "k", 9)
			require.NoError(t, err)
			assert.Positive(t, res.Taken)
		})
	}

	_, err := l.UpTo(ctx, "k", -1)
	require.ErrorContains(t, err, "a cost of -1 units")
	take := core.Take{Policy: core.MustParse("1/1s; wait 1s"), Key: "k", Cost: 1, AtMost: true, Wait: 1}
	require.ErrorContains(t, take.Validate(), "Take.AtMost and Wait at once")
}

// Every algorithm gives what it has, and says when there is more.
func TestUpToOfEveryAlgorithm(t *testing.T) {
	for _, a := range storetest.Algorithms() {
		word := a.String()
		m, p := newMemory(t, 0), core.MustParse("5/10s "+word)
		take := func(at, n int64) core.Result {
			res, err := m.Take(t.Context(), core.Take{Policy: p, Key: "k", Cost: n, AtMost: true, Now: epoch + at})
			require.NoError(t, err)
			return res
		}
		assert.Equal(t, int64(2), take(0, 2).Taken, word)
		assert.Equal(t, int64(3), take(0, 9).Taken, word)
		refused := take(0, 9)
		require.Equal(t, core.Refused, refused.Outcome, word)
		at := refused.RetryAfter.Microseconds()
		assert.False(t, take(at-1, 9).Allowed(), word)
		assert.Positive(t, take(at, 9).Taken, word)
	}
}

// After a Wait that failed, nothing is left to give back: a caller that does so all the same, as by a defer, gives back
// nothing of others.
func TestNothingRemainsAfterWait(t *testing.T) {
	for _, c := range []struct {
		end  time.Duration // of the caller's context
		soon bool          // it is known before
	}{{time.Second, true}, {time.Minute, false}} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, nil, "1/10s burst 5; wait 1h")
			_, err := l.Reserve(t.Context(), "k", 5, 0)
			require.NoError(t, err)
			var a enforce.Admission
			require.NoError(t, l.Begin(t.Context(), enforce.Ask{Key: "k", Cost: 1, Wait: time.Hour}, &a))
			require.Equal(t, 10*time.Second, a.Result.Delay)
			ctx, cancel := context.WithCancel(t.Context())
			if c.soon {
				ctx, cancel = context.WithTimeout(t.Context(), c.end)
			}
			defer cancel()
			time.AfterFunc(c.end/60, cancel)
			require.Error(t, a.Wait(ctx))
			assert.Zero(t, a.Result.Taken)
			<-time.After(100 * time.Millisecond) // until the turn has gone back
			a.GiveBack(1)
			res, err := l.Reserve(t.Context(), "k", 1, time.Hour)
			require.NoError(t, err)
			assert.Greater(t, res.Delay, 8*time.Second, "the five of the others are still taken")
		})
	}
}
