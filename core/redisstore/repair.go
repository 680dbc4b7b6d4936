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
	class := classOf(f.word)
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

// warmUp is how long a connection may take to be made beside the decisions, or to answer.
const warmUp = time.Second

// warm makes a connection, as a new one's handshake may take longer than a decision may: then every decision would
// begin one and none would finish it. And it asks something on each connection that nobody uses: what has happened to
// one may have happened to all, as where a firewall has forgotten them, and the client has no other way to find out
// than decisions that fail, one a second once the breaker is open. Pipelines have connections of their own.
func (n *node) warm(pipelined bool) {
	ctx, cancel := context.WithTimeout(context.Background(), warmUp) //nolint:forbidigo // it is for many requests
	defer cancel()
	one, many := n.idle()
	if pipelined {
		many = max(many, 1)
	} else {
		one = max(one, 1)
	}
	client := n.store.rdb
	if n.direct != nil {
		client = n.direct
	}
	var pings sync.WaitGroup
	ping := func(do func()) {
		pings.Go(func() {
			defer func() { _ = recover() }() // of a hook: the next decision's caller will see it
			do()
		})
	}
	for range one {
		ping(func() { _ = client.Ping(ctx).Err() }) // it is the connection that counts
	}
	for range many {
		ping(func() {
			pipe := client.Pipeline()
			pipe.Ping(ctx)
			_, _ = pipe.Exec(ctx)
		})
	}
	pings.Wait()
}

// idle is how many connections nobody uses: for single commands, and for pipelines.
func (n *node) idle() (one, many int) {
	if n.direct == nil {
		return 0, 0
	}
	stats := n.direct.PoolStats()
	one = int(stats.IdleConns)
	if stats.PipelineStats != nil {
		many = int(stats.PipelineStats.IdleConns)
	}
	return one, many
}
