package redisstore_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/logtest"
	"github.com/weir-go/weir/internal/redistest"
)

// A thousand callers of a server that does not answer open its breaker once. The log says once that it failed, and once
// that it is back, and meanwhile one of them at a time asks, about twice a second.
func TestOutageIsToldOnce(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, sharedServer(t).Addr())
	rdb := closing(t, redis.NewUniversalClient(redisstore.ClientOptions(proxy.Addr())))
	var mu sync.Mutex
	var turns []redisstore.BreakerChange
	var since time.Time // the first of them
	probes := 0
	told := func() []redisstore.BreakerChange {
		mu.Lock()
		defer mu.Unlock()
		return append([]redisstore.BreakerChange(nil), turns...)
	}
	s := newStore(t, rdb, redisstore.Options{
		ObserveBreaker: func(turn redisstore.BreakerChange) {
			mu.Lock()
			defer mu.Unlock()
			if turns = append(turns, turn); len(turns) == 1 {
				since = time.Now()
			}
		},
		Observe: func(f redisstore.Flight) {
			mu.Lock()
			defer mu.Unlock()
			var failed *core.StoreError
			if len(turns) > 0 && errors.As(f.Err, &failed) && failed.Class == core.ClassTimeout { // busy says nothing
				probes++
			}
		},
	})
	log := new(logtest.Log)
	l, err := enforce.New(s, core.MustParse("told: 1000000/1h"), enforce.Options{Log: log.Logger()})
	require.NoError(t, err)

	proxy.Blackhole()
	var crowd sync.WaitGroup
	stop, quit := context.WithCancel(t.Context())
	defer quit()
	for range 1000 {
		crowd.Go(func() {
			for stop.Err() == nil {
				res, err := l.Allow(t.Context(), "k")
				assert.NoError(t, err)
				assert.True(t, res.Allowed())
				select {
				case <-stop.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		})
	}
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(turns) > 0 && time.Since(since) > 2*time.Second
	}, patient, time.Millisecond)
	quit()
	crowd.Wait()
	mu.Lock()
	// The flights that were out when the breaker opened have failed after it, and those that left in the place of some
	// that had just failed, and so has the try of many keys in one script.
	const oftenest = 375 * time.Millisecond // half a second but for the jitter
	assert.LessOrEqual(t, probes, int(time.Since(since)/oftenest)+1+2*redisstore.DefaultFlights+1)
	mu.Unlock()
	open := redisstore.BreakerChange{Server: proxy.Addr(), Open: true, Class: core.ClassTimeout}
	assert.Equal(t, []redisstore.BreakerChange{open}, told())
	assert.Len(t, log.With("class=timeout"), 1)
	assert.Empty(t, log.With("is back"))

	proxy.Pass()
	require.Eventually(t, func() bool {
		_, err := l.Allow(t.Context(), "k")
		return assert.NoError(t, err) && len(log.With("is back")) > 0
	}, patient, 1100*time.Millisecond) // one answer after a second without a failure is enough: more are too many for a busy machine
	assert.Equal(t, redisstore.BreakerChange{Server: proxy.Addr()}, told()[1])
}

// Each process of two decides by its half while the server is gone. When it is back, what they have admitted is charged
// to it once, with the next take of the key.
func TestHandBack(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, sharedServer(t).Addr())
	o := own()
	var fleet [2]*enforce.Limiter
	var store *redisstore.Store
	for i := range fleet {
		rdb := closing(t, redis.NewUniversalClient(unhurried(redisstore.ClientOptions(proxy.Addr()))))
		store = newStore(t, rdb, o)
		l, err := enforce.New(store, core.MustParse("handed: 10000/24h; fail local 1/2"), enforce.Options{Log: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		fleet[i] = l
	}
	take := func(l *enforce.Limiter, key string, n int64) (executed int64, why *core.StoreError) {
		var a enforce.Admission
		require.NoError(t, l.Begin(t.Context(), enforce.Ask{Key: key, Cost: n}, &a))
		require.True(t, a.Result.Allowed())
		if a.Err == nil {
			return n, nil
		}
		assert.True(t, a.Result.Local)
		require.ErrorAs(t, a.Err, &why)
		return 0, why
	}
	charged, exact := int64(0), false
	for range 5 { // a reply that is lost on a busy machine is not asked for again
		proxy.Reset()
		owed := int64(0)
		for _, l := range fleet {
			require.Eventually(t, func() bool {
				_, why := take(l, "another", 0)
				return why != nil && why.Class == core.ClassBreaker
			}, patient, time.Millisecond)
			for range 30 {
				if _, why := take(l, "k", 2); assert.NotNil(t, why) && !why.MaybeExecuted {
					owed += 2
				}
			}
		}
		assert.Positive(t, owed)
		proxy.Pass()
		for _, l := range fleet {
			require.Eventually(t, func() bool {
				_, why := take(l, "another", 0)
				return why == nil
			}, patient, time.Millisecond)
		}
		assert.Equal(t, charged, used(t, store, fleet[0].Policy(), "k"), "nothing happens by itself")
		unknown := int64(0)
		for _, l := range fleet {
			for range 2 {
				n, why := take(l, "k", 1)
				charged += n
				switch {
				case why == nil:
				case why.MaybeExecuted:
					unknown++
				default:
					owed++
				}
			}
		}
		now := int64(0)
		for until := time.Now().Add(2 * time.Second); time.Now().Before(until) && now < charged+owed; {
			now = used(t, store, fleet[0].Policy(), "k")
		}
		for _, l := range fleet {
			require.NoError(t, l.Close(), "nothing is under way")
		}
		now = used(t, store, fleet[0].Policy(), "k")
		require.LessOrEqual(t, now, charged+owed+unknown, "never twice")
		if exact = now == charged+owed && unknown == 0; exact {
			break
		}
		charged = now
	}
	assert.True(t, exact)
}
