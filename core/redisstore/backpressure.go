package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/core"
)

// places are the connections of a client's pool. A caller that has none of them does not
// ask the client for a connection.
//
// A client that is asked by more callers than it has connections lets them wait as long as
// they like. Then some get a connection when hardly any time is left, their deadlines cut
// them off in the middle of a call, and the connection has to be closed, because its reply
// is still to come. Making another one takes several calls' time, which cuts off more of
// them: with 150 callers of 20 connections, and a server 5 ms away, one decision in 25 is
// answered. So a caller waits for half of its time at most, and has the other half for its
// call.
//
// The zero value has no bound: it is for the clients that have a pool for each of several
// servers, whose PoolTimeout does the same.
type places chan struct{}

// enter waits for a connection. It must be left afterwards, unless it fails.
func (p places) enter(ctx context.Context, d *deadline) error {
	if p == nil {
		return nil
	}
	select {
	case p <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(d.limit / 2)
	defer timer.Stop()
	select {
	case p <- struct{}{}:
		return nil
	case <-timer.C:
		return errBusy
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return errLeft
		}
		return errBusy
	}
}

func (p places) leave() {
	if p != nil {
		<-p
	}
}

var errBusy = &core.StoreError{
	Class: core.ClassBusy,
	Err:   errors.New("redisstore: all connections of this process are in use; give the client a larger PoolSize"),
}

// placesOf are those of a client of one server.
func placesOf(o *redis.Options) places {
	n := o.PoolSize
	if o.MaxActiveConns > 0 {
		n = min(n, o.MaxActiveConns)
	}
	return make(places, n)
}
