package redisstore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
)

// Callers that join a queue five times as fast as it moves, and leave after 8 ms, cost one that waits no turn: in their
// process, and in another one. Where Redis is 5 ms away, they have left before they have their turns.
func TestAbandonedPlaces(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes seven seconds, most of which it waits")
	}
	for _, away := range []time.Duration{0, 5 * time.Millisecond} {
		for _, process := range []string{"the same", "another"} {
			t.Run(away.String()+" away in "+process+" process", func(t *testing.T) {
				t.Parallel()
				f := newFar(t)
				const policy = "search: 50/1s; wait 2s"
				theirs := newLimiter(t, f.patientStore(t), policy)
				own := theirs
				if process == "another" {
					own = newLimiter(t, f.patientStore(t), policy)
				}
				_, err := own.Peek(t.Context(), "k")
				require.NoError(t, err)
				f.proxy.Latency(away)

				var all sync.WaitGroup
				stop := make(chan struct{})
				all.Go(func() {
					tick := time.NewTicker(4 * time.Millisecond)
					defer tick.Stop()
					for {
						select {
						case <-stop:
							return
						case <-tick.C:
						}
						all.Go(func() {
							ctx, leave := context.WithCancel(t.Context())
							defer leave()
							defer time.AfterFunc(8*time.Millisecond, leave).Stop()
							_ = theirs.Wait(ctx, "k", 1)
						})
					}
				})
				<-time.After(2 * time.Second)

				type answer struct {
					err  error
					took time.Duration
				}
				answers := make(chan answer, 100)
				for range 100 {
					all.Go(func() {
						start := time.Now()
						err := own.Wait(t.Context(), "k", 1)
						answers <- answer{err, time.Since(start)}
					})
					<-time.After(50 * time.Millisecond)
				}
				refused, longest := 0, time.Duration(0)
				for range 100 {
					a := <-answers
					if longest = max(longest, a.took); a.err != nil {
						over := errors.As(a.err, new(*enforce.OverLimitError))
						require.True(t, over, "%v", a.err)
						refused++
					}
				}
				close(stop)
				all.Wait()
				t.Logf("refused %d of 100, which waited %v at most", refused, longest)
				assert.LessOrEqual(t, refused, 2)
			})
		}
	}
}

// When many that have waited leave together, the next has the first of their turns, and Redis has all of them back a
// while later.
func TestNewcomerAfterManyLeft(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	store := f.patientStore(t)
	l := newLimiter(t, store, "search: 10/1s burst 1; wait 1h")
	f.proxy.Latency(2 * time.Millisecond)
	const many = 3000 // of which the last would have its turn after five minutes
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var gone sync.WaitGroup
	for range many {
		gone.Go(func() { _ = l.Wait(ctx, "k", 1) })
	}
	require.Eventually(t, func() bool { return queued(t, store, l.Policy()) > many*90*time.Millisecond }, patient, 5*time.Millisecond)
	leave() // some before they know their turns
	gone.Wait()
	start := time.Now()
	require.NoError(t, l.Wait(t.Context(), "k", 1))
	t.Logf("served after %v", time.Since(start))
	assert.Less(t, time.Since(start), many*50*time.Millisecond)
	require.Eventually(t, func() bool { return queued(t, store, l.Policy()) < time.Second }, patient, 5*time.Millisecond)
	t.Logf("all is back after %v", time.Since(start))
	require.NoError(t, l.Close())
}

// queued returns the length of a policy's queue of "k".
func queued(t *testing.T, s core.Store, p core.Policy) time.Duration {
	t.Helper()
	res, err := s.Take(t.Context(), core.Take{Policy: p, Key: "k"})
	require.NoError(t, err)
	return res.ResetAfter
}
