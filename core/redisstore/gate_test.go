package redisstore_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// More callers than connections are served as fast as the connections can, and that some of
// them get none is not held against the server.
func TestBackPressure(t *testing.T) {
	t.Parallel()
	const connections, callers = 20, 150
	const deadline, distance = time.Second, 100 * time.Millisecond // twenty times the usual, for a busy machine
	proxy := redistest.NewProxy(t, redistest.Single(t).Addr())
	o := unhurried(redisstore.ClientOptions(proxy.Addr()))
	o.PoolSize, o.MinIdleConns = connections, connections
	rdb := redis.NewUniversalClient(o)
	defer func() { assert.NoError(t, rdb.Close()) }()
	s := newStore(t, rdb, redisstore.Options{Deadline: deadline})
	take := core.Take{Policy: core.MustParse("pressure: 1000000/1h"), Key: "k", Cost: 1}
	warm := newStore(t, rdb, redisstore.Options{Deadline: patient})
	for range connections {
		_, err := warm.Take(t.Context(), take)
		require.NoError(t, err)
	}
	proxy.Latency(distance / 2)

	serve := func(callers int) (served, busy, broken int64) {
		var counts [3]atomic.Int64
		var wg sync.WaitGroup
		stop := make(chan struct{})
		time.AfterFunc(2*time.Second, func() { close(stop) })
		for range callers {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					_, err := s.Take(t.Context(), take)
					failed, _ := errors.AsType[*core.StoreError](err)
					switch {
					case err == nil:
						counts[0].Add(1)
					case !assert.NotNil(t, failed, "%v", err):
						return
					case failed.Class == core.ClassBusy:
						assert.False(t, failed.Executed)
						counts[1].Add(1)
					case failed.Class == core.ClassBreaker:
						counts[2].Add(1)
						return
					}
				}
			})
		}
		wg.Wait()
		return counts[0].Load(), counts[1].Load(), counts[2].Load()
	}
	good := func() bool { // a machine that stands still for a deadline looks like a server that does
		require.Eventually(t, func() bool { _, err := s.Take(t.Context(), take); return err == nil }, patient, 10*time.Millisecond)
		alone, _, _ := serve(connections)
		crowded, busy, broken := serve(callers)
		t.Logf("%d connections serve %d callers %d times, and %d callers %d times; %d found no connection, %d an open breaker",
			connections, connections, alone, callers, crowded, busy, broken)
		return crowded > alone*3/4 && busy > 0 && broken == 0
	}
	for range 5 {
		if good() {
			return
		}
	}
	assert.Fail(t, "in none of five rounds are the callers served as fast as the connections could")
}

// Where a client has a pool for each of several servers, its PoolTimeout bounds the wait.
func TestFullPoolOfOneOfSeveral(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Single(t).Addr())
	u := redisstore.ClientOptions()
	rdb := redis.NewRing(&redis.RingOptions{
		Addrs: map[string]string{"a": proxy.Addr()}, PoolSize: 1,
		ContextTimeoutEnabled: u.ContextTimeoutEnabled, MaxRetries: u.MaxRetries, DialerRetries: u.DialerRetries,
		DialTimeout: patient, ReadTimeout: patient, WriteTimeout: patient, PoolTimeout: u.PoolTimeout,
	})
	defer func() { assert.NoError(t, rdb.Close()) }()
	s := newStore(t, rdb, redisstore.Options{Deadline: patient})
	take := core.Take{Policy: core.MustParse("pool: 1000000/1h"), Key: "k", Cost: 1}
	works := func() bool { _, err := s.Take(t.Context(), take); return err == nil } // beside the Ring's own checks
	require.Eventually(t, works, patient, time.Millisecond)
	proxy.Latency(10 * u.PoolTimeout)
	var served, busy atomic.Int64
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			_, err := s.Take(t.Context(), take)
			failed, _ := errors.AsType[*core.StoreError](err)
			switch {
			case err == nil:
				served.Add(1)
			case assert.NotNil(t, failed, "%v", err):
				assert.Equal(t, core.ClassBusy, failed.Class)
				assert.False(t, failed.Executed)
				busy.Add(1)
			}
		})
	}
	wg.Wait()
	assert.Positive(t, served.Load())
	assert.Positive(t, busy.Load())
	require.Eventually(t, works, patient, time.Millisecond, "the breaker is closed")
}
