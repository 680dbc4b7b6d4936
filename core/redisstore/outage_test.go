package redisstore_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// During every kind of outage the deadline ends a decision, whatever the client would
// wait for, the store says what failed, and it comes back by itself.
func TestOutage(t *testing.T) {
	t.Parallel()
	outages := []struct {
		name    string
		begin   func(t *testing.T, server *redistest.Server, proxy *redistest.Proxy)
		end     func(t *testing.T, server *redistest.Server, proxy *redistest.Proxy)
		classes []string
	}{
		{
			name:  "killed",
			begin: func(_ *testing.T, s *redistest.Server, _ *redistest.Proxy) { s.Kill() },
			end:   func(t *testing.T, s *redistest.Server, _ *redistest.Proxy) { s.Restart(t) },
			// The pooled connections broke before the first refused dial.
			classes: []string{core.ClassDown, core.ClassLost, core.ClassBreaker},
		},
		{
			name:    "hung",
			begin:   func(t *testing.T, s *redistest.Server, _ *redistest.Proxy) { s.Pause(t) },
			end:     func(t *testing.T, s *redistest.Server, _ *redistest.Proxy) { s.Resume(t) },
			classes: []string{core.ClassTimeout, core.ClassBreaker},
		},
		{
			name:    "two minutes away",
			begin:   func(_ *testing.T, _ *redistest.Server, p *redistest.Proxy) { p.Latency(time.Minute) },
			end:     func(_ *testing.T, _ *redistest.Server, p *redistest.Proxy) { p.Pass() },
			classes: []string{core.ClassTimeout, core.ClassBreaker},
		},
		{
			name: "black hole",
			begin: func(_ *testing.T, _ *redistest.Server, p *redistest.Proxy) {
				p.Blackhole()
				p.Disconnect(redistest.EOF)
			},
			end:     func(_ *testing.T, _ *redistest.Server, p *redistest.Proxy) { p.Pass() },
			classes: []string{core.ClassTimeout, core.ClassLost, core.ClassBreaker},
		},
		{
			name:    "refused",
			begin:   func(_ *testing.T, _ *redistest.Server, p *redistest.Proxy) { p.Refuse(); p.Disconnect(redistest.RST) },
			end:     func(_ *testing.T, _ *redistest.Server, p *redistest.Proxy) { p.Pass() },
			classes: []string{core.ClassDown, core.ClassLost, core.ClassBreaker},
		},
	}
	for _, tuned := range []bool{true, false} {
		for _, outage := range outages {
			// Long enough for a server that answers, on a busy machine. What such a server does
			// not answer the client waits for much longer.
			deadline := brief
			name, classes := outage.name, outage.classes
			if slices.Contains(classes, core.ClassDown) {
				deadline = patient // it is not used up
			}
			if !tuned { // such a client goes on dialling
				deadline = brief
				name, classes = name+" with go-redis's own options", append(classes, core.ClassTimeout)
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				server := redistest.Single(t)
				proxy := redistest.NewProxy(t, server.Addr())
				o := tune(tuned, []string{proxy.Addr()}).Simple()
				o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = 2*patient, 2*patient, 2*patient, 2*patient
				rdb := redis.NewClient(o)
				defer func() { assert.NoError(t, rdb.Close()) }()
				p := core.MustParse("outage: 1000000/1h")
				take := core.Take{Policy: p, Key: "k", Cost: 1}
				_, err := newStore(t, rdb, redisstore.Options{Deadline: patient}).Take(t.Context(), take)
				require.NoError(t, err)
				s := newStore(t, rdb, redisstore.Options{Deadline: deadline})

				outage.begin(t, server, proxy)
				var wg sync.WaitGroup
				for range 8 {
					wg.Go(func() {
						for range 25 {
							start := time.Now()
							_, err := s.Take(t.Context(), take)
							var failed *core.StoreError
							if assert.ErrorAs(t, err, &failed) {
								assert.Contains(t, classes, failed.Class, "%v", err)
							}
							assert.Less(t, time.Since(start), patient, "%v", err)
						}
					})
				}
				wg.Wait()
				require.Eventually(t, func() bool {
					_, err := s.Take(t.Context(), take)
					var failed *core.StoreError
					return errors.As(err, &failed) && failed.Class == core.ClassBreaker && !failed.MaybeExecuted
				}, patient, 5*time.Millisecond, "the breaker opens")

				outage.end(t, server, proxy)
				require.Eventually(t, func() bool {
					_, err := s.Take(t.Context(), take)
					return err == nil
				}, patient, 5*time.Millisecond, "it comes back by itself")
			})
		}
	}
}

// A server that is down when a program starts costs nothing but the decisions.
func TestDownAtStart(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	nobody := listener.Addr().String()
	require.NoError(t, listener.Close())

	rdb := redis.NewUniversalClient(unhurried(redisstore.ClientOptions(nobody)))
	defer func() { assert.NoError(t, rdb.Close()) }()
	s := newStore(t, rdb, redisstore.Options{Deadline: patient})
	_, err = s.Take(t.Context(), core.Take{Policy: core.MustParse("1/1s"), Key: "k", Cost: 1})
	var failed *core.StoreError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, core.ClassDown, failed.Class)
	assert.False(t, failed.MaybeExecuted)
}

// The same of a cluster, of which not even a node is known: soon it is asked no more often than a server.
func TestClusterDownAtStart(t *testing.T) {
	t.Parallel()
	var nobody []string
	for range 2 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		nobody = append(nobody, listener.Addr().String())
		require.NoError(t, listener.Close())
	}
	rdb := closing(t, redis.NewUniversalClient(redisstore.ClientOptions(nobody...)))
	s := newStore(t, rdb, redisstore.Options{Deadline: patient})
	require.Eventually(t, func() bool {
		_, err := s.Take(t.Context(), core.Take{Policy: core.MustParse("1/1s"), Key: "k", Cost: 1})
		var failed *core.StoreError
		require.ErrorAs(t, err, &failed)
		assert.False(t, failed.MaybeExecuted)
		return failed.Class == core.ClassBreaker
	}, patient, time.Millisecond)
}

// Each policy's fail word decides during an outage, and a limit holds within the
// process: exactly, and for all limiters on one store together.
func TestFailWords(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	rdb := redis.NewUniversalClient(redisstore.ClientOptions(server.Addr()))
	defer func() { assert.NoError(t, rdb.Close()) }()
	s := newStore(t, rdb, redisstore.Options{})
	server.Kill()

	limiter := func(policy string) *enforce.Limiter {
		l, err := enforce.New(s, core.MustParse(policy), enforce.Options{})
		require.NoError(t, err)
		return l
	}
	local := []*enforce.Limiter{limiter("words: 5/1h"), limiter("words: 5/1h")}
	admitted := 0
	for i := range 20 {
		res, err := local[i%2].Allow(t.Context(), "k")
		require.NoError(t, err)
		assert.True(t, res.Local)
		if res.Allowed() {
			admitted++
		}
	}
	assert.Equal(t, 5, admitted)

	open := limiter("open: 5/1h; fail open")
	closed := limiter("closed: 5/1h; fail closed")
	for range 20 {
		res, err := open.Allow(t.Context(), "k")
		require.NoError(t, err)
		assert.True(t, res.Allowed())

		res, err = closed.Allow(t.Context(), "k")
		var failed *core.StoreError
		require.ErrorAs(t, err, &failed)
		assert.False(t, res.Allowed())
	}
}

// little is the context of a caller who always has so much time left, however long the
// machine has taken for what the caller has done meanwhile.
type little struct {
	context.Context //nolint:containedctx // it is a context itself
	left            time.Duration
}

func (l little) Deadline() (time.Time, bool) { return time.Now().Add(l.left), true }

// A caller who leaves gets the error of its context, which is no failure of the
// store and does not open the breaker.
func TestCallerLeaves(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	rdb := redis.NewUniversalClient(unhurried(redisstore.ClientOptions(server.Addr())))
	defer func() { assert.NoError(t, rdb.Close()) }()
	s := newStore(t, rdb, own())
	take := core.Take{Policy: core.MustParse("leaves: 1000/1h"), Key: "k", Cost: 1}
	_, err := s.Take(t.Context(), take)
	require.NoError(t, err)

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Take(gone, take)
	assert.Equal(t, context.Canceled, err)
	assert.EqualValues(t, 1, used(t, s, take.Policy, "k"), "nothing was charged")

	// One who has hardly any time left gets an answer all the same: the fail word's. It is not
	// held against the server.
	server.Pause(t)
	for range 10 {
		_, err = s.Take(little{t.Context(), 8 * time.Millisecond}, take)
		var failed *core.StoreError
		require.ErrorAs(t, err, &failed)
		// Busy, if the answer to the one before it has come so late that it was not sent itself.
		assert.Contains(t, []string{core.ClassTimeout, core.ClassBusy}, failed.Class)
	}
	server.Resume(t)
	_, err = s.Take(t.Context(), take)
	assert.NoError(t, err, "the breaker is closed")
}

// Callers with less time than the store's deadline find out about an outage too:
// the fail word decides for them, within their time, and the breaker opens.
func TestOutageForCallersWithLittleTime(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, sharedServer(t).Addr())
	rdb := redis.NewUniversalClient(redisstore.ClientOptions(proxy.Addr()))
	defer func() { assert.NoError(t, rdb.Close()) }()
	l, err := enforce.New(newStore(t, rdb, redisstore.Options{}), core.MustParse("hurry: 1000/1h; fail open"), enforce.Options{})
	require.NoError(t, err)
	proxy.Blackhole()
	for range 20 {
		res, err := l.Allow(little{t.Context(), 20 * time.Millisecond}, "k")
		require.NoError(t, err)
		assert.True(t, res.Allowed())
	}
}

// A network on which a connection takes longer to make than a decision may take is
// slow but works: connections are made beside the decisions.
func TestSlowNetwork(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, sharedServer(t).Addr())
	o := unhurried(redisstore.ClientOptions(proxy.Addr()))
	// A decision takes 200 ms there and a connection 600 at least, its handshake being what
	// makes the difference, but less than the second in which it is made beside the decisions.
	// What the machine adds must stay below 300 ms, for three decisions in a row.
	proxy.Latency(100 * time.Millisecond)
	rdb := redis.NewUniversalClient(o)
	defer func() { assert.NoError(t, rdb.Close()) }()
	s := newStore(t, rdb, redisstore.Options{Deadline: 500 * time.Millisecond})
	take := core.Take{Policy: core.MustParse("slow: 1000000/1h"), Key: "k", Cost: 1}
	require.Eventually(t, func() bool {
		for range 3 {
			if _, err := s.Take(t.Context(), take); err != nil {
				return false
			}
		}
		return true
	}, 2*patient, time.Millisecond)
}

// A cluster that has lost one of its shards goes on deciding for the keys of the
// others: no breaker opens but that of the dead one.
func TestLostShard(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, "--cluster-require-full-coverage", "no")
	rdb := cluster.Client(t, func(o *redis.ClusterOptions) {
		u := redisstore.ClientOptions().Cluster()
		o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = u.ContextTimeoutEnabled, u.MaxRetries, u.DialerRetries
	})
	var mu sync.Mutex
	var turns []redisstore.BreakerChange
	s := newStore(t, rdb, redisstore.Options{Deadline: patient, ObserveBreaker: func(turn redisstore.BreakerChange) {
		mu.Lock()
		defer mu.Unlock()
		turns = append(turns, turn)
	}})
	p := core.MustParse("shard: 1000000/1h")
	alive, lost, name := []string{}, []string{}, "weir:1:shard:"+p.Spec().Shape()+":"
	dead := cluster.NodeFor(t, name+"0")
	for i := range 90 {
		key := strconv.Itoa(i)
		_, err := s.Take(t.Context(), core.Take{Policy: p, Key: key, Cost: 1})
		require.NoError(t, err)
		if cluster.NodeFor(t, name+key) == dead {
			lost = append(lost, key)
		} else {
			alive = append(alive, key)
		}
	}
	dead.Kill()
	failures := 0
	for range 20 {
		for i, key := range alive {
			if _, err := s.Take(t.Context(), core.Take{Policy: p, Key: key, Cost: 1}); err != nil {
				failures++
				assert.NoError(t, err)
			}
			_, err := s.Take(t.Context(), core.Take{Policy: p, Key: lost[i%len(lost)], Cost: 1})
			var failed *core.StoreError
			require.ErrorAs(t, err, &failed)
		}
	}
	assert.Zero(t, failures, "of %d decisions on living shards", 20*len(alive))
	require.Eventually(t, func() bool {
		_, err := s.Take(t.Context(), core.Take{Policy: p, Key: lost[0], Cost: 1})
		var failed *core.StoreError
		return errors.As(err, &failed) && failed.Class == core.ClassBreaker
	}, patient, time.Millisecond)
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, turns, 1)
	assert.Equal(t, dead.Addr(), turns[0].Server)
	assert.True(t, turns[0].Open)
}

// While the breaker is open, a dead server is asked by one call in each half second, or a bit more often, whatever the
// load.
func TestOneProbe(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, sharedServer(t).Addr())
	rdb := redis.NewUniversalClient(redisstore.ClientOptions(proxy.Addr()))
	defer func() { assert.NoError(t, rdb.Close()) }()
	s := newStore(t, rdb, redisstore.Options{})
	take := core.Take{Policy: core.MustParse("probe: 1000000/1h"), Key: "k", Cost: 1}
	class := func() string {
		_, err := s.Take(t.Context(), take)
		var failed *core.StoreError
		if errors.As(err, &failed) {
			return failed.Class
		}
		return ""
	}
	proxy.Blackhole()
	require.Eventually(t, func() bool { return class() == core.ClassBreaker }, patient, time.Millisecond)
	opened := time.Now()

	const seconds = 2
	var probes, others atomic.Int64
	var wg sync.WaitGroup
	end := time.After(seconds * time.Second)
	stop := make(chan struct{})
	for range 8 {
		wg.Go(func() {
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return
				case <-tick.C:
				}
				switch class() {
				case core.ClassBreaker, core.ClassBusy: // not asked
					others.Add(1)
				default:
					probes.Add(1)
				}
			}
		})
	}
	<-end
	close(stop)
	wg.Wait()
	assert.LessOrEqual(t, probes.Load(), int64(time.Since(opened)/(time.Second*3/8))+1)
	assert.Greater(t, others.Load(), probes.Load())
}
