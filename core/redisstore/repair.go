package redisstore

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/core"
)

// repair does what a failed flight cannot do for the next ones.
func (n *node) repair(f *flight) {
	class := classOf(f.failure)
	if class != core.ClassTimeout && class != core.ClassDown {
		return
	}
	// A cluster's client looks for the new master of a dead one only after
	// commands that it sends again, which ours must not be.
	if cluster, ok := n.store.rdb.(*redis.ClusterClient); ok {
		cluster.ReloadState(f)
	}
	if class == core.ClassTimeout && n.warming.CompareAndSwap(false, true) {
		go func() {
			defer n.warming.Store(false)
			n.warm(f.pipelined)
		}()
	}
}

// warmUp is the time in which a connection may be made beside the decisions.
const warmUp = time.Second

// warm asks something on each connection that nobody uses: what has happened to one may have happened to all, as where
// a firewall has forgotten them, and the client has no other way to find out than decisions that fail, two a second
// once the breaker is open. A connection that does not answer within the time of a decision is of no use to any, and so
// is not waited for any longer. Then warm makes a new connection, because the handshake may take longer than a decision
// may: every decision would begin one, and none would finish it. Pipelines may have
// connections of their own.
func (n *node) warm(pipelined bool) {
	one, many := n.idle()
	var pings sync.WaitGroup
	for i := range one + many {
		pings.Go(func() { n.ping(i >= one, n.store.deadline) })
	}
	pings.Wait()
	n.ping(pipelined, warmUp)
}

// ping sends a PING on some connection.
func (n *node) ping(pipelined bool, limit time.Duration) {
	defer func() { _ = recover() }()                                // of a hook: the next decision's caller will see it
	ctx, cancel := context.WithTimeout(context.Background(), limit) //nolint:forbidigo // it serves many requests
	defer cancel()
	if !pipelined {
		_ = n.direct.Ping(ctx).Err() // it is the connection that counts
		return
	}
	pipe := n.direct.Pipeline()
	pipe.Ping(ctx)
	_, _ = pipe.Exec(ctx)
}

// idle returns how many connections nobody uses: for single commands, and for pipelines.
func (n *node) idle() (one, many int) {
	stats := n.direct.PoolStats()
	one = int(stats.IdleConns)
	if stats.PipelineStats != nil {
		many = int(stats.PipelineStats.IdleConns)
	}
	return one, many
}
