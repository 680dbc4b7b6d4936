package redisstore_test

import (
	"bufio"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"strconv"
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

// splitter is a proxy before several servers that sends each command to one of them, by its first key.
type splitter struct {
	net.Listener
	running sync.WaitGroup

	mu      sync.Mutex
	servers []string
	clients []net.Conn
}

// put closes all connections, and puts the proxy before these servers.
func (p *splitter) put(servers ...*redistest.Server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.clients {
		_ = c.Close()
	}
	p.clients, p.servers = nil, nil
	for _, s := range servers {
		p.servers = append(p.servers, s.Addr())
	}
}

func newSplitter(t *testing.T, servers ...*redistest.Server) *splitter {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &splitter{Listener: listener}
	p.put(servers...)
	p.running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			p.clients = append(p.clients, conn)
			servers := p.servers
			p.mu.Unlock()
			p.running.Go(func() { serve(conn, servers) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		p.running.Wait()
	})
	return p
}

func serve(client net.Conn, servers []string) {
	defer client.Close()
	var to []net.Conn
	var from []*bufio.Reader
	for _, addr := range servers {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		defer conn.Close()
		to, from = append(to, conn), append(from, bufio.NewReader(conn))
	}
	in := bufio.NewReader(client)
	for {
		raw, words, err := message(in)
		if err != nil {
			return
		}
		at := 0
		if strings.HasPrefix(strings.ToLower(words[0]), "eval") {
			h := fnv.New32()
			_, _ = io.WriteString(h, words[3])
			at = int(h.Sum32()) % len(to)
		}
		if _, err := io.WriteString(to[at], raw); err != nil {
			return
		}
		reply, _, err := message(from[at])
		if err != nil {
			return
		}
		if _, err := io.WriteString(client, reply); err != nil {
			return
		}
	}
}

// message reads one command or reply, and the words in it.
func message(in *bufio.Reader) (raw string, words []string, err error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", nil, err
	}
	n, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
	switch line[0] {
	case '$':
		if n < 0 {
			return line, []string{""}, nil
		}
		text := make([]byte, n+2)
		if _, err := io.ReadFull(in, text); err != nil {
			return "", nil, err
		}
		return line + string(text), []string{string(text[:n])}, nil
	case '*':
		raw = line
		for range n {
			part, more, err := message(in)
			if err != nil {
				return "", nil, err
			}
			raw, words = raw+part, append(words, more...)
		}
		return raw, words, nil
	}
	return line, []string{line}, nil
}

// Behind a proxy that routes by the first key each limit holds once, not once for each server: what many
// keys at once would do there is found out before.
func TestProxyThatSplits(t *testing.T) {
	t.Parallel()
	servers := []*redistest.Server{redistest.Single(t), redistest.Single(t)}
	o := unhurried(redisstore.ClientOptions(newSplitter(t, servers...).Addr().String()))
	o.Protocol = 2
	rdb := redis.NewUniversalClient(o)
	defer func() { assert.NoError(t, rdb.Close()) }()
	s := newStore(t, rdb, redisstore.Options{DenyCache: -1, Deadline: patient})
	policy := core.MustParse("split: 5/1h fixed-window")
	admitted := make([]int, 20)
	for range 8 {
		var all []*asker
		for i := range admitted {
			all = append(all, &asker{take: core.Take{Policy: policy, Key: fmt.Sprint(i), Cost: 1}})
		}
		fly(t, s, all, nothing) // the first of which sets off a try, beside it
		for i, r := range all {
			require.NoError(t, r.err)
			if r.res.Allowed() {
				admitted[i]++
			}
		}
	}
	for i, n := range admitted {
		assert.Equal(t, 5, n, "key %d", i)
	}
	assert.False(t, s.Together(), "the try has failed")
	for _, server := range servers {
		assert.Positive(t, server.CommandStats(t)["set"])
	}
}

// What a search for a proxy asks for is not reported as decisions.
func TestSearchIsNotObserved(t *testing.T) {
	t.Parallel()
	rdb := closing(t, redis.NewUniversalClient(unhurried(redisstore.ClientOptions(redistest.Single(t).Addr()))))
	var calls atomic.Int64
	s := newStore(t, rdb, redisstore.Options{Deadline: patient, Observe: func(f redisstore.Flight) { calls.Add(int64(f.Calls)) }})
	require.True(t, s.Together())
	assert.Zero(t, calls.Load())
	_, err := s.Take(t.Context(), core.Take{Policy: core.MustParse("p: 5/1h"), Key: "k", Cost: 1})
	require.NoError(t, err)
	assert.EqualValues(t, 1, calls.Load())
}

// A proxy that takes the place of a server is found by the first crowd that looks after the connections were made anew.
// As long as they last, nobody looks for one.
func TestProxyInThePlaceOfAServer(t *testing.T) {
	t.Parallel()
	servers := []*redistest.Server{redistest.Single(t), redistest.Single(t)}
	proxy := newSplitter(t, servers[0])
	o := unhurried(redisstore.ClientOptions(proxy.Addr().String()))
	o.Protocol = 2
	rdb := redis.NewUniversalClient(o)
	defer func() { assert.NoError(t, rdb.Close()) }()
	s := newStore(t, rdb, redisstore.Options{DenyCache: -1, Deadline: patient})
	crowd := func(policy string) (all []*asker) {
		all = askers(policy, 20)
		fly(t, s, all, nothing)
		require.Eventually(t, func() bool { return !s.Trying() }, patient, time.Millisecond)
		return all
	}
	for n := 0; n < 100 && !s.Joined(); n++ { // a search may fail on a busy machine
		s.Look()
		crowd("before: 5/1h fixed-window")
	}
	require.True(t, s.Joined())
	searched := func() int {
		keys, err := servers[0].Client(t).Keys(t.Context(), "weir:1:weir-try:*").Result()
		require.NoError(t, err)
		return len(keys)
	}
	before := searched()
	require.Positive(t, before)
	s.Look() // as when a second has passed
	crowd("before: 5/1h fixed-window")
	assert.Equal(t, before, searched(), "there was no need to")
	assert.True(t, s.Joined())

	proxy.put(servers...)
	for range 100 { // on connections that are gone
		_ = rdb.Ping(t.Context()).Err()
	}
	for n := 0; n < 100 && s.Joined(); n++ { // the first may find out that connections are gone
		s.Look()
		crowd("between: 5/1h fixed-window")
	}
	require.False(t, s.Joined())
	admitted := map[string]int{}
	for range 8 {
		for _, r := range crowd("after: 5/1h fixed-window") {
			require.NoError(t, r.err)
			if r.res.Allowed() {
				admitted[r.take.Key]++
			}
		}
	}
	for _, r := range askers("after: 5/1h fixed-window", 20) { // alone
		res, err := s.Take(t.Context(), r.take)
		require.NoError(t, err)
		assert.False(t, res.Allowed(), "key %s", r.take.Key)
		assert.Equal(t, 5, admitted[r.take.Key], "key %s", r.take.Key)
	}
}

// A server that is part of a cluster refuses scripts for many keys, having done nothing: they go apart
// from then on, and nobody notices.
func TestCrossSlot(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, "--cluster-enabled", "yes")
	admin := server.Client(t)
	require.NoError(t, admin.Do(t.Context(), "cluster", "addslotsrange", 0, 16383).Err())
	rdb := redis.NewUniversalClient(unhurried(redisstore.ClientOptions(server.Addr())))
	defer func() { assert.NoError(t, rdb.Close()) }()
	s := newStore(t, rdb, redisstore.Options{DenyCache: -1, Deadline: patient})
	policy := core.MustParse("cross: 5/1h fixed-window")
	require.Eventually(t, func() bool {
		_, err := s.Take(t.Context(), core.Take{Policy: policy, Key: "first", Cost: 1})
		return err == nil
	}, patient, 10e6, "the cluster is up")
	require.False(t, s.Together())
	s.Join() // as if it had become part of a cluster after the try
	all := askers("cross: 5/1h fixed-window", 20)
	for _, r := range all[:20] {
		all = append(all, &asker{take: r.take})
	}
	fly(t, s, all, nothing)
	for i, r := range all {
		require.NoError(t, r.err)
		assert.EqualValues(t, 4-i/20, r.res.Remaining)
	}
	fly(t, s, all, nothing)
	require.Eventually(t, func() bool { return !s.Trying() }, patient, time.Millisecond)
	server.ResetStats(t)
	fly(t, s, all, nothing)
	assert.EqualValues(t, 20, server.CommandStats(t)["evalsha"], "a command for each key")
	assert.False(t, s.Together())
}
