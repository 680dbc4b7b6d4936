package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
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

// However few connections there are, a crowd that asks at once is served at once: it travels
// together.
func TestCrowdOnOneConnection(t *testing.T) {
	t.Parallel()
	const callers, distance = 150, 200 * time.Millisecond
	u := redisstore.ClientOptions()
	for name, client := range map[string]func(addr string) redis.UniversalClient{
		"single": func(addr string) redis.UniversalClient {
			o := unhurried(redisstore.ClientOptions(addr))
			o.PoolSize, o.MinIdleConns = 1, 1
			return redis.NewUniversalClient(o)
		},
		"ring": func(addr string) redis.UniversalClient {
			return redis.NewRing(&redis.RingOptions{
				Addrs: map[string]string{"a": addr}, PoolSize: 1, HeartbeatFrequency: time.Hour,
				ContextTimeoutEnabled: u.ContextTimeoutEnabled, MaxRetries: u.MaxRetries, DialerRetries: u.DialerRetries,
				DialTimeout: patient, ReadTimeout: patient, WriteTimeout: patient, PoolTimeout: patient,
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Single(t)
			proxy := redistest.NewProxy(t, server.Addr())
			rdb := closing(t, client(proxy.Addr()))
			s := newStore(t, rdb, redisstore.Options{DenyCache: -1, Deadline: patient})
			take := core.Take{Policy: core.MustParse("crowd: 1000000/1h fixed-window"), Key: "k", Cost: 1}
			works := func() bool { _, err := s.Take(t.Context(), take); return err == nil } // beside the Ring's own checks
			require.Eventually(t, works, patient, time.Millisecond)
			before := used(t, s, take.Policy, take.Key)
			server.ResetStats(t)
			proxy.Latency(distance / 2)
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					_, err := s.Take(t.Context(), take)
					assert.NoError(t, err)
				})
			}
			wg.Wait()
			proxy.Pass()
			assert.Less(t, server.CommandStats(t)["evalsha"], int64(callers/4), "not one after the other")
			assert.EqualValues(t, before+callers, used(t, s, take.Policy, take.Key))
		})
	}
}

// More callers than may wait are sent away at once, which is not held against the server; the others
// are served.
func TestTooManyWait(t *testing.T) { //nolint:paralleltest // it computes: what waits for a server beside it would wait for the processor
	rdb := closing(t, redis.NewUniversalClient(unhurried(redisstore.ClientOptions(redistest.Single(t).Addr()))))
	s := newStore(t, rdb, redisstore.Options{DenyCache: -1, Deadline: patient, Flights: 1})
	p := core.MustParse("many: 1000000/1h fixed-window")
	require.Zero(t, used(t, s, p, "k"))
	_, letGo := s.Ground() // until one is sent away
	var served, busy atomic.Int64
	var wg, flights sync.WaitGroup
	const callers = 8192 + 100 // of whom that many may wait
	for i := range callers {
		wg.Go(func() {
			_, err := s.Take(t.Context(), core.Take{Policy: p, Key: fmt.Sprint(i % 10), Cost: 1})
			var failed *core.StoreError
			errors.As(err, &failed)
			switch {
			case err == nil:
				served.Add(1)
			case assert.NotNil(t, failed, "%v", err):
				assert.Equal(t, core.ClassBusy, failed.Class, "%v", err)
				assert.False(t, failed.MaybeExecuted)
				if busy.Add(1) == 1 {
					flights.Go(letGo)
				}
			}
		})
	}
	wg.Wait()
	flights.Wait()
	assert.Positive(t, busy.Load())
	var charged int64
	for i := range 10 {
		charged += used(t, s, p, fmt.Sprint(i))
	}
	assert.Equal(t, served.Load(), charged)
}

// A client whose connections the program itself uses up keeps decisions waiting, and that is said of it: it is nothing
// that the server has done, and decisions are made again as soon as one is free.
func TestConnectionsOfOthers(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	o := unhurried(redisstore.ClientOptions(server.Addr()))
	o.PoolSize, o.MinIdleConns, o.PoolTimeout = 1, 0, 20*time.Millisecond
	rdb := closing(t, redis.NewUniversalClient(o))
	var flights atomic.Int64
	s := newStore(t, rdb, redisstore.Options{DenyCache: -1, Deadline: patient, Observe: func(f redisstore.Flight) {
		if f.Err != nil {
			flights.Add(1)
		}
	}})
	p := core.MustParse("others: 1000000/1h fixed-window")
	require.Zero(t, used(t, s, p, "k"), "there is a connection")
	admin := server.Client(t)
	over := make(chan struct{})
	go func() {
		defer close(over)
		assert.NoError(t, rdb.BLPop(t.Context(), 0, "jobs").Err())
	}()
	require.Eventually(t, func() bool { return strings.Contains(admin.Info(t.Context(), "clients").Val(), "blocked_clients:1\r") }, patient, time.Millisecond)

	var wg sync.WaitGroup
	enough := time.Now().Add(500 * time.Millisecond) // a breaker wants some failures in a row for a while
	for range 20 {
		wg.Go(func() {
			for time.Now().Before(enough) || flights.Load() < 20 {
				// It is one key, because the client has other connections for pipelines.
				_, err := s.Take(t.Context(), core.Take{Policy: p, Key: "k", Cost: 1})
				var failed *core.StoreError
				ok := errors.As(err, &failed)
				if !assert.True(t, ok, "%v", err) || !assert.Equal(t, core.ClassBusy, failed.Class, "%v", err) || !assert.False(t, failed.MaybeExecuted) {
					return
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, admin.LPush(t.Context(), "jobs", "one").Err())
	<-over
	_, err := s.Take(t.Context(), core.Take{Policy: p, Key: "k", Cost: 1})
	require.NoError(t, err)
	assert.EqualValues(t, 1, used(t, s, p, "k"), "nothing was asked meanwhile")
}

// However many callers of one policy wait, those of another one are in the next flight, each time.
func TestCrowdOfAnotherPolicy(t *testing.T) {
	t.Parallel()
	rdb := closing(t, redis.NewUniversalClient(unhurried(redisstore.ClientOptions(redistest.Single(t).Addr()))))
	s := newStore(t, rdb, redisstore.Options{DenyCache: -1, Deadline: patient, Flights: 1})
	crowd, lone := core.MustParse("crowd: 1000000/1h"), core.MustParse("lone: 1000000/1h")
	all := make([]*asker, 1001)
	for i := range all {
		all[i] = &asker{take: core.Take{Policy: crowd, Key: fmt.Sprint(i), Cost: 1}}
	}
	last := all[len(all)-1]
	last.take.Policy = lone
	for _, p := range []core.Policy{crowd, lone} { // for the scripts: what a server does not know is sent again, later
		require.Zero(t, used(t, s, p, "k"))
		fly(t, s, []*asker{{take: core.Take{Policy: p, Key: "k", Cost: 1}}}, nothing)
	}
	fly(t, s, all, nothing)
	require.NoError(t, last.err)
	before := 0
	for _, r := range all {
		require.NoError(t, r.err)
		if r.res.At < last.res.At {
			before++
		}
	}
	assert.Less(t, before, 64, "or more than one flight was before the one that came last")
}

// Where as many callers of one policy wait as may, those of another one find a place all the same: the newest of the
// crowd are sent away for them, which costs those nothing.
func TestPlaceInACrowd(t *testing.T) { //nolint:paralleltest // it computes: what waits for a server beside it would wait for the processor
	rdb := closing(t, redis.NewUniversalClient(unhurried(redisstore.ClientOptions(redistest.Single(t).Addr()))))
	s := newStore(t, rdb, redisstore.Options{DenyCache: -1, Deadline: patient, Flights: 1})
	const most, others = 8192, 100
	crowd, other := core.MustParse("crowd: 1000000/1h fixed-window"), core.MustParse("other: 1000000/1h fixed-window")
	require.Zero(t, used(t, s, crowd, "k"))
	waiting, letGo := s.Ground()
	var served, busy atomic.Int64
	var wg sync.WaitGroup
	for i := range most {
		wg.Go(func() {
			_, err := s.Take(t.Context(), core.Take{Policy: crowd, Key: fmt.Sprint(i % 10), Cost: 1})
			if err == nil {
				served.Add(1)
				return
			}
			assertBusy(t, err)
			busy.Add(1)
		})
	}
	require.Eventually(t, func() bool { return waiting() == most }, patient, time.Millisecond)
	for i := range others {
		wg.Go(func() {
			_, err := s.Take(t.Context(), core.Take{Policy: other, Key: "k", Cost: 1})
			assert.NoError(t, err)
		})
		require.Eventually(t, func() bool { return busy.Load() == int64(i+1) }, patient, 50*time.Microsecond)
		require.Equal(t, most, waiting())
	}
	_, err := s.Take(t.Context(), core.Take{Policy: crowd, Key: "k", Cost: 1})
	assertBusy(t, err)
	letGo()
	wg.Wait()
	assert.EqualValues(t, most-others, served.Load())
	var charged int64
	for i := range 10 {
		charged += used(t, s, crowd, fmt.Sprint(i))
	}
	assert.EqualValues(t, most-others, charged)
	assert.EqualValues(t, others, used(t, s, other, "k"))
}

// assertBusy fails unless a decision was sent away before anything was charged for it.
func assertBusy(t *testing.T, err error) {
	t.Helper()
	var failed *core.StoreError
	ok := errors.As(err, &failed)
	if assert.True(t, ok, "%v", err) {
		assert.Equal(t, core.ClassBusy, failed.Class, "%v", err)
		assert.False(t, failed.MaybeExecuted)
	}
}
