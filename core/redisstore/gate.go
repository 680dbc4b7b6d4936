package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/core"
)

// gate is what a flight passes before it departs, and when it is over: the breaker, and the
// places, which are the connections of a client's pool. A flight that has none of them does
// not ask the client for a connection.
//
// A client that is asked by more callers than it has connections lets them wait as long as
// they like. Then some get a connection when hardly any time is left, their deadlines cut
// them off in the middle of a call, and the connection has to be closed, because its reply
// is still to come. Making another one takes several calls' time, which cuts off more of
// them: with 150 callers of 20 connections, and a server 5 ms away, one decision in 25 is
// answered. So a caller waits for half of its time at most, and has the other half for its
// call.
type gate struct {
	*breaker
	// places are nil, and have no bound, for what no request waits for, and for the clients
	// that have a pool for each of several servers, whose PoolTimeout does the same.
	places chan struct{}
	limit  time.Duration // of a flight
}

// enter starts a flight's clock and waits for a place. The flight must leave afterwards,
// unless enter fails.
func (g *gate) enter(ctx context.Context, f *flight) (err error) {
	if g == nil {
		return errZero
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if g.trouble.Load() != nil {
		if f.probe, err = g.circuit.Allow(); err != nil {
			return errOpen
		}
	}
	f.begin(ctx, g.limit, f.background)
	if g.places == nil {
		return nil
	}
	select {
	case g.places <- struct{}{}:
		return nil
	default:
		return g.queue(ctx, f)
	}
}

// queue waits for a place while all of them are taken.
func (g *gate) queue(ctx context.Context, f *flight) (err error) {
	timer := time.NewTimer(f.limit / 2)
	defer timer.Stop()
	select {
	case g.places <- struct{}{}:
		return nil
	case <-timer.C:
		err = errBusy
	case <-ctx.Done():
		if err = errBusy; errors.Is(ctx.Err(), context.Canceled) {
			err = errLeft
		}
	}
	f.stop(true)
	g.report(f.probe, err)
	if errors.Is(err, errLeft) {
		return ctx.Err()
	}
	return err
}

// leave makes room for another flight, and tells the breaker how this one went.
func (g *gate) leave(f *flight, verdict error) {
	if g.places != nil {
		<-g.places
	}
	if verdict != nil || f.probe != nil {
		g.report(f.probe, verdict)
	}
}

var (
	errZero = errors.New("redisstore: a zero Store; build one with New")
	errOpen = &core.StoreError{Class: core.ClassBreaker, Err: errors.New("redisstore: the server failed just before; it is asked once a second until it answers")}
	errBusy = &core.StoreError{
		Class: core.ClassBusy,
		Err:   errors.New("redisstore: all connections of this process are in use; give the client a larger PoolSize"),
	}
)

// placesOf are those of a client of one server.
func placesOf(o *redis.Options) chan struct{} {
	n := o.PoolSize
	if o.MaxActiveConns > 0 {
		n = min(n, o.MaxActiveConns)
	}
	return make(chan struct{}, n)
}
