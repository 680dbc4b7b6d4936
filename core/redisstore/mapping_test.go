package redisstore_test

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// A caller's function that panics when it is asked for the nodes of a Cluster that did not answer before keeps nobody
// away for longer than a failure does.
func TestPanicWhileNodesAreAskedFor(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	const (
		down int32 = iota
		panics
		up
	)
	var state atomic.Int32
	rdb := closing(t, redis.NewClusterClient(&redis.ClusterOptions{
		ContextTimeoutEnabled: true, MaxRetries: -1,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			switch state.Load() {
			case down:
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
			case panics:
				panic("ClusterSlots")
			}
			return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: server.Addr()}}}}, nil
		},
	}))
	s := newStore(t, rdb, redisstore.Options{Deadline: patient})
	take := func() (panicked bool, err error) {
		defer func() { panicked = recover() != nil }()
		_, err = s.Take(t.Context(), core.Take{Policy: core.MustParse("p: 1000000/1h"), Key: "k", Cost: 1})
		return panicked, err
	}
	require.Eventually(t, func() bool { _, err := take(); return classOf(err) == core.ClassBreaker }, patient, time.Millisecond)
	state.Store(panics)
	require.Eventually(t, func() bool { panicked, _ := take(); return panicked }, patient, time.Millisecond)
	state.Store(up)
	require.Eventually(t, func() bool { _, err := take(); return err == nil }, patient, time.Millisecond)
}
