package redisstore

import (
	"context"
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
	// A new connection's handshake may take longer than a decision may. Then every
	// decision would begin one and none would finish it. Pipelines have connections of their own.
	if class == core.ClassTimeout && n.warming.CompareAndSwap(false, true) {
		client := n.store.rdb
		if n.direct != nil {
			client = n.direct
		}
		go func() {
			defer n.warming.Store(false)
			defer func() { _ = recover() }()                                 // of a hook: the next decision's caller will see it
			ctx, cancel := context.WithTimeout(context.Background(), warmUp) //nolint:forbidigo // it is for many requests
			defer cancel()
			if !f.pipelined {
				_ = client.Ping(ctx).Err() // it is the connection that counts
				return
			}
			pipe := client.Pipeline()
			pipe.Ping(ctx)
			_, _ = pipe.Exec(ctx)
		}()
	}
}

// warmUp is how long a connection may take to be made beside the decisions.
const warmUp = time.Second
