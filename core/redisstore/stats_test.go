package redisstore_test

import (
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/internal/redistest"
)

// sums adds up what the observers of a store have seen, to be compared with its snapshot.
type sums struct {
	mu      sync.Mutex
	servers map[string]*stats.Server
}

func (s *sums) of(addr string, behind bool) *stats.Traffic {
	if s.servers == nil {
		s.servers = map[string]*stats.Server{}
	}
	if s.servers[addr] == nil {
		s.servers[addr] = &stats.Server{Addr: addr}
	}
	if behind {
		return &s.servers[addr].Behind
	}
	return &s.servers[addr].Decisions
}

func (s *sums) flight(f redisstore.Flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.of(f.Server, f.Behind)
	t.Flights++
	t.Calls += uint64(f.Calls)
	t.Merged += uint64(f.Merged)
	if f.Err != nil {
		t.Failures++
	}
}

func (s *sums) breaker(b redisstore.BreakerChange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.of(b.Server, b.Behind)
	t.Breaker.Open, t.Breaker.Class = b.Open, b.Class
}

// counts returns what of a snapshot does not depend on the moment.
func counts(s stats.Server) (all [8]uint64) {
	for i, t := range []stats.Traffic{s.Decisions, s.Behind} {
		all[4*i], all[4*i+1], all[4*i+2], all[4*i+3] = t.Flights, t.Calls, t.Merged, t.Failures
	}
	return all
}

// same demands that a snapshot has what the observers have seen.
func (s *sums) same(t require.TestingT, told redisstore.Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, server := range told.Servers {
		seen := s.servers[server.Addr]
		if seen == nil {
			seen = &stats.Server{}
		}
		assert.Equal(t, counts(*seen), counts(server), server.Addr)
		assert.Equal(t, seen.Decisions.Breaker.Open, server.Decisions.Breaker.Open, server.Addr)
		assert.Equal(t, seen.Decisions.Breaker.Class, server.Decisions.Breaker.Class, server.Addr)
	}
}

// What waits and is out, and the counts of flights, which are those that an observer adds up.
func TestStats(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	rdb := closing(t, redis.NewUniversalClient(unhurried(redisstore.ClientOptions(server.Addr()))))
	var seen sums
	s := newStore(t, rdb, redisstore.Options{Deadline: patient, Observe: seen.flight, DenyCache: -1})
	first := s.Stats()
	assert.Equal(t, redisstore.Stats{Deadline: patient, Servers: []stats.Server{{Addr: server.Addr()}}}, first)

	p := core.MustParse("stats: 1000000/1h")
	take := core.Take{Policy: p, Key: "k", Cost: 1}
	res, err := s.Take(t.Context(), take)
	require.NoError(t, err)
	before := time.Now()
	waiting, letGo := s.Ground()
	var callers sync.WaitGroup
	for range 5 {
		callers.Go(func() {
			_, err := s.Take(t.Context(), take)
			assert.NoError(t, err)
		})
	}
	require.Eventually(t, func() bool { return waiting() == 5 }, patient, time.Millisecond)
	now := s.Stats()
	require.Len(t, now.Servers, 1)
	one := now.Servers[0]
	assert.Equal(t, 5, one.Decisions.Waiting)
	assert.Positive(t, one.Decisions.Out)
	assert.Positive(t, one.Decisions.RoundTrip)
	assert.WithinDuration(t, before, one.Asked, time.Minute)
	assert.False(t, one.Asked.After(before))
	assert.Equal(t, [8]uint64{1, 1}, counts(one))
	letGo()
	callers.Wait()
	require.NoError(t, s.Refund(t.Context(), []core.Refund{{Policy: p, Key: "k", Receipt: res, Units: 1}}))
	require.EventuallyWithT(t, func(t *assert.CollectT) { seen.same(t, s.Stats()) }, patient, time.Millisecond)
	one = s.Stats().Servers[0]
	assert.EqualValues(t, 6, one.Decisions.Calls)
	assert.EqualValues(t, 4, one.Decisions.Merged, "five that were equal, in one flight")
	assert.EqualValues(t, 2, one.Decisions.Flights)
	assert.Equal(t, [3]uint64{1, 1, 0}, [3]uint64{one.Behind.Flights, one.Behind.Calls, one.Behind.Failures})
	assert.Zero(t, one.Decisions.Waiting)
}

// One shard of a Cluster dies and comes back, another one is slow: the snapshot shows which, why and since when, and all
// that it counts only grows.
func TestStatsOfShards(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, "--cluster-require-full-coverage", "no")
	slow := map[string]*redistest.Proxy{}
	for _, node := range cluster.Nodes {
		slow[node.Addr()] = redistest.NewProxy(t, node.Addr())
	}
	rdb := cluster.Client(t, func(o *redis.ClusterOptions) {
		u := unhurried(redisstore.ClientOptions()).Cluster()
		o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = u.ContextTimeoutEnabled, u.MaxRetries, u.DialerRetries
	})
	var seen sums
	s := newStore(t, rdb, redisstore.Options{Deadline: time.Second, Observe: seen.flight, ObserveBreaker: seen.breaker, DenyCache: -1})
	p := core.MustParse("shards: 1000000/1h")
	keys := map[string]string{} // a key of each server
	for i := 0; len(keys) < 3; i++ {
		key := strconv.Itoa(i)
		keys[cluster.NodeFor(t, "weir:1:shards:"+p.Spec().Shape()+":"+key).Addr()] = key
	}
	take := func(server *redistest.Server) error {
		_, err := s.Take(t.Context(), core.Take{Policy: p, Key: keys[server.Addr()], Cost: 1})
		return err
	}
	last := map[string][8]uint64{}
	stats := func() map[string]stats.Server {
		all := map[string]stats.Server{}
		for _, server := range s.Stats().Servers {
			all[server.Addr] = server
			for i, n := range counts(server) {
				assert.GreaterOrEqual(t, n, last[server.Addr][i], "it only grows")
			}
			last[server.Addr] = counts(server)
		}
		return all
	}
	for _, server := range cluster.Nodes {
		require.NoError(t, take(server))
	}
	require.Len(t, stats(), 3)
	dead := cluster.Nodes[1]
	begin := time.Now()
	dead.Kill()
	require.Eventually(t, func() bool {
		_ = take(dead)
		assert.NoError(t, take(cluster.Nodes[0]))
		return stats()[dead.Addr()].Decisions.Breaker.Open
	}, patient, 5*time.Millisecond)
	now := stats()
	require.Len(t, now, 3)
	opened := now[dead.Addr()].Decisions
	assert.Equal(t, core.ClassDown, opened.Breaker.Class)
	assert.True(t, opened.Breaker.Since.After(begin) && !opened.Breaker.Since.After(time.Now()))
	assert.GreaterOrEqual(t, opened.Failures, uint64(5))
	assert.False(t, now[cluster.Nodes[0].Addr()].Decisions.Breaker.Open)
	assert.Zero(t, now[cluster.Nodes[0].Addr()].Decisions.Failures)
	require.EventuallyWithT(t, func(t *assert.CollectT) { seen.same(t, s.Stats()) }, patient, time.Millisecond)

	// The nodes of a Cluster are made again now and then, and the counts stay.
	s.ForgetNodes()
	require.NoError(t, take(cluster.Nodes[0]))
	assert.Positive(t, stats()[dead.Addr()].Decisions.Failures)
	seen.breaker(redisstore.BreakerChange{Server: dead.Addr()}) // as it is forgotten

	require.Eventually(t, func() bool {
		_ = take(dead)
		return stats()[dead.Addr()].Decisions.Breaker.Open
	}, patient, 5*time.Millisecond)
	since := stats()[dead.Addr()].Decisions.Breaker.Since
	dead.Restart(t)
	require.Eventually(t, func() bool { return take(dead) == nil }, patient, 5*time.Millisecond)
	closed := stats()[dead.Addr()].Decisions.Breaker
	assert.False(t, closed.Open)
	assert.Empty(t, closed.Class)
	assert.True(t, closed.Since.After(since), "the time at which it has closed")
	require.EventuallyWithT(t, func(t *assert.CollectT) { seen.same(t, s.Stats()) }, patient, time.Millisecond)
}

// A slow server is slow in the snapshot, with what waits for it meanwhile.
func TestStatsOfASlowServer(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, sharedServer(t).Addr())
	rdb := closing(t, redis.NewUniversalClient(unhurried(redisstore.ClientOptions(proxy.Addr()))))
	o := own()
	o.Flights, o.DenyCache = 1, -1
	s := newStore(t, rdb, o)
	p := core.MustParse("slow: 1000000/1h")
	proxy.Latency(100 * time.Millisecond)
	var callers sync.WaitGroup
	for i := range 40 {
		callers.Go(func() {
			for range 3 {
				_, err := s.Take(t.Context(), core.Take{Policy: p, Key: fmt.Sprint("k", i), Cost: 1})
				assert.NoError(t, err)
			}
		})
	}
	out, waiting := 0, 0
	require.Eventually(t, func() bool {
		now := s.Stats().Servers[0].Decisions
		out, waiting = max(out, now.Out), max(waiting, now.Waiting)
		return now.Calls == 120 && now.Out == 0
	}, patient, time.Millisecond)
	callers.Wait()
	assert.Positive(t, out)
	assert.Positive(t, waiting)
	assert.GreaterOrEqual(t, s.Stats().Servers[0].Decisions.RoundTrip, 190*time.Millisecond)
}

// Of a Cluster that is not there, no server is known: the snapshot has why all the same.
func TestStatsOfNoCluster(t *testing.T) {
	t.Parallel()
	var nobody []string
	for range 2 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		nobody = append(nobody, listener.Addr().String())
		require.NoError(t, listener.Close())
	}
	s := newStore(t, closing(t, redis.NewUniversalClient(redisstore.ClientOptions(nobody...))), redisstore.Options{Deadline: patient})
	assert.Zero(t, s.Stats().Topology)
	require.Eventually(t, func() bool {
		_, err := s.Take(t.Context(), core.Take{Policy: core.MustParse("1/1s"), Key: "k", Cost: 1})
		require.Error(t, err)
		return s.Stats().Topology.Open
	}, patient, time.Millisecond)
	stats := s.Stats()
	assert.Equal(t, core.ClassDown, stats.Topology.Class)
	assert.Empty(t, stats.Servers)
}
