package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/core"
)

// repair does what a failed flight cannot do for the next ones.
func (s *Store) repair(ctx context.Context, err error) {
	class := classOf(err)
	if class != core.ClassTimeout && class != core.ClassDown {
		return
	}
	// A cluster's client looks for the new master of a dead one only after
	// commands that it sends again, which ours must not be.
	if cluster, ok := s.rdb.(*redis.ClusterClient); ok {
		cluster.ReloadState(ctx)
	}
	// A new connection's handshake may take longer than a decision may. Then every
	// decision would begin one and none would finish it.
	if class == core.ClassTimeout && s.warming.CompareAndSwap(false, true) {
		go func() {
			defer s.warming.Store(false)
			defer func() { _ = recover() }() // of a hook: the next decision's caller will see it
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), warmUp)
			defer cancel()
			_ = s.rdb.Ping(ctx).Err() // it is the connection that counts
		}()
	}
}

// warmUp is how long a connection may take to be made beside the decisions.
const warmUp = time.Second
