package redissource

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/logtest"
	"github.com/weir-go/weir/internal/redistest"
)

// TestRingIsDown: where no server of a Ring is up, to subscribe panics in go-redis; a program does not notice, and obeys
// when one is back.
func TestRingIsDown(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	ring := redis.NewRing(&redis.RingOptions{
		Addrs: map[string]string{"a": server.Addr()}, ContextTimeoutEnabled: true, HeartbeatFrequency: 10 * time.Millisecond,
	})
	t.Cleanup(func() { _ = ring.Close() })
	server.Kill()
	log := new(logtest.Log)
	s := followed(t, ring, "pay", Options{Log: log.Logger()}, quick())
	require.Eventually(t, func() bool { return len(log.With("all ring shards are down")) > 3 }, patience, time.Millisecond)
	server.Restart(t)
	publish(t, server.Client(t), document("pay", 1, 1, "1/1m"))
	awaitText(t, s, "1/1m")
}

// TestFailover: after the master is gone, changes that are written to the new one are heard of there.
func TestFailover(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	rdb := sentinel.Client(t)
	s := followed(t, rdb, "pay", Options{}, quick())
	publish(t, rdb, document("pay", 1, 1, "1/1m"))
	awaitText(t, s, "1/1m")
	sentinel.Failover(t)
	n := int64(1)
	for begin := time.Now(); ; { // the client takes a moment to find the new master
		n++
		text := fmt.Sprint(n, "/1m")
		d := document("pay", 1, n, text)
		if err := rdb.HSet(t.Context(), Key("pay"), fields(t, d)...).Err(); err == nil {
			awaitText(t, s, text)
			break
		}
		require.Less(t, time.Since(begin), patience)
	}
	rare := quick()
	rare.read = never
	again := followed(t, rdb, "pay", Options{}, rare)
	awaitText(t, again, fmt.Sprint(n, "/1m"))
	awaitSubscription(t, sentinel.Master().Client(t), "pay")
	publish(t, rdb, document("pay", 1, n+1, "99/1m"))
	awaitText(t, again, "99/1m")
	awaitText(t, s, "99/1m")
}

// TestCloseEndsAll: whatever Redis does, Close returns, and nothing runs on.
func TestCloseEndsAll(t *testing.T) { //nolint:paralleltest // it looks at all goroutines
	server := redistest.Single(t)
	rdb := redis.NewUniversalClient(redisstore.ClientOptions(server.Addr()))
	t.Cleanup(func() { _ = rdb.Close() })
	for n, tc := range []struct {
		name    string
		disturb func()
	}{
		{"all is well", func() {}},
		{"Redis stands still", func() { server.Pause(t) }},
		{"it stands still from the start", func() {}},
		{"it is gone", func() { server.Resume(t); server.Kill() }},
	} {
		p := quick()
		p.deadline = 200 * time.Millisecond
		s := followed(t, rdb, "pay", Options{}, p)
		if n < 2 {
			awaitSubscription(t, rdb, "pay")
		}
		tc.disturb()
		require.NoError(t, s.Close(), tc.name)
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		for stack := range strings.SplitSeq(string(stacks), "\n\n") {
			if strings.Contains(stack, "(*Source).") {
				assert.Fail(t, tc.name, stack)
			}
		}
	}
}
