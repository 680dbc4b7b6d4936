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
	servers []string
	running sync.WaitGroup
}

func newSplitter(t *testing.T, servers ...*redistest.Server) *splitter {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &splitter{Listener: listener}
	for _, s := range servers {
		p.servers = append(p.servers, s.Addr())
	}
	p.running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			p.running.Go(func() { p.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		p.running.Wait()
	})
	return p
}

func (p *splitter) serve(client net.Conn) {
	defer client.Close()
	var to []net.Conn
	var from []*bufio.Reader
	for _, addr := range p.servers {
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
		var all []*rider
		for i := range admitted {
			all = append(all, &rider{take: core.Take{Policy: policy, Key: fmt.Sprint(i), Cost: 1}})
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
	all := riders("cross: 5/1h fixed-window", 20)
	for _, r := range all[:20] {
		all = append(all, &rider{take: r.take})
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
