package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
)

// ringOf returns a store of a Ring, and nodes of it with these addresses, none of which exists.
func ringOf(t *testing.T, addrs ...string) (*Store, []*node) {
	t.Helper()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = ring.Close() })
	s, err := New(ring, Options{})
	require.NoError(t, err)
	nodes := make([]*node, len(addrs))
	for i, addr := range addrs {
		direct := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = direct.Close() })
		nodes[i] = newNode(s, direct)
		s.nodes.byClient.Store(direct, nodes[i])
	}
	return s, nodes
}

// open opens a breaker.
func (b *breaker) open() {
	b.trouble.Store(new(trouble))
	b.trouble.Load().lastSuccess.Store(-int64(time.Hour))
	for range openAfter {
		b.report(nil, &core.StoreError{Class: core.ClassTimeout})
	}
}

// A server that nobody asks any more, while others are asked, has left: its breaker would be open for ever.
func TestStatsOfAServerThatHasLeft(t *testing.T) {
	t.Parallel()
	s, nodes := ringOf(t, "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:2")
	left, stays, again := nodes[0], nodes[1], nodes[2]
	for _, n := range nodes {
		n.lanes[deciding].open()
		n.asked.set(started.Add(time.Hour))
	}
	open := func() (all []bool) {
		for _, server := range s.Stats().Servers {
			all = append(all, server.Decisions.Breaker.Open)
		}
		return all
	}
	assert.Equal(t, []bool{true, true}, open())
	stays.asked.set(started.Add(time.Hour + goneAfter - 1))
	assert.Equal(t, []bool{true, true}, open())
	stays.asked.set(started.Add(time.Hour + goneAfter))
	assert.Equal(t, []bool{false, true}, open())
	assert.Equal(t, started.Add(time.Hour+goneAfter), s.Stats().Servers[1].Asked)
	assert.Equal(t, core.ClassTimeout, s.Stats().Servers[1].Decisions.Breaker.Class)
	left.asked.set(started.Add(2 * time.Hour))
	assert.Equal(t, []bool{true, false}, open())
	again.lanes[releasing].open()
	again.asked.set(started.Add(2 * time.Hour))
	assert.True(t, s.Stats().Servers[1].Behind.Breaker.Open)
}

// However many servers there have been, a snapshot has 64 of them, and one that stands for all others. Nothing is lost.
func TestStatsOfManyServers(t *testing.T) {
	t.Parallel()
	addrs := make([]string, maxServers+20)
	for i := range addrs {
		addrs[i] = fmt.Sprintf("127.0.0.1:%d", 1+i)
	}
	s, nodes := ringOf(t, addrs...)
	for _, n := range nodes {
		n.counts.decisions.flights.Add(1)
	}
	nodes[maxServers+3].lanes[deciding].open()
	stats := s.Stats()
	require.Len(t, stats.Servers, maxServers+1)
	other, all := stats.Servers[maxServers], uint64(0)
	assert.Equal(t, "other", other.Addr)
	for _, server := range stats.Servers {
		all += server.Decisions.Flights
		assert.Equal(t, server.Addr == "other", server.Decisions.Breaker.Open)
	}
	assert.EqualValues(t, len(nodes), all)
	assert.EqualValues(t, 20, other.Decisions.Flights)
	assert.Same(t, nodes[3].counts, s.servers.of(addrs[3]))
}
