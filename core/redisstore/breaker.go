package redisstore

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/weir-go/weir/core"
)

// A breaker opens after tripAfter failures in a row if nothing has succeeded for
// tripAlone, and lets one flight through every probeEvery. So it never opens for a
// cluster that has lost one shard of several, as long as the others are asked.
const (
	tripAfter  = 5
	tripAlone  = 100 * time.Millisecond
	probeEvery = time.Second
	staleFor   = time.Second
)

// breaker keeps flights away from a server that does not answer within their deadline.
// While all goes well it is not even asked: its lock would be everybody's.
type breaker struct {
	circuit *gobreaker.TwoStepCircuitBreaker[struct{}]
	trouble atomic.Pointer[trouble] // nil while no flight has failed
}

// trouble is the time since flights have begun to fail.
type trouble struct{ lastSuccess atomic.Int64 }

func newTrouble() *trouble {
	t := &trouble{}
	t.succeeded()
	return t
}

// started makes times monotonic: a clock that steps back must not keep the breaker
// from opening.
var started = time.Now()

func (t *trouble) succeeded() { t.lastSuccess.Store(int64(time.Since(started))) }

// alone is how long ago the last success is.
func (t *trouble) alone() time.Duration {
	if t == nil {
		return 0
	}
	return time.Since(started) - time.Duration(t.lastSuccess.Load())
}

// newBreaker builds a breaker that counts what is silent. What does not count either way: a
// process that has too few connections, and for staleFor a broken connection, since every
// pooled one breaks when a server restarts.
func newBreaker() *breaker {
	b := &breaker{}
	b.circuit = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:        "weir",
		MaxRequests: 1,
		Timeout:     probeEvery,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return c.ConsecutiveFailures >= tripAfter && b.trouble.Load().alone() > tripAlone
		},
		IsSuccessful: func(err error) bool {
			ok := !silent(classOf(err))
			if t := b.trouble.Load(); ok && t != nil {
				t.succeeded()
			}
			return ok
		},
		IsExcluded: func(err error) bool {
			class := classOf(err)
			stale := class == core.ClassLost && b.trouble.Load().alone() < staleFor
			return stale || class == core.ClassBusy
		},
	})
	return b
}

// shut reports whether flights are kept away, as they may be if there is trouble.
func (b *breaker) shut() bool { return b.circuit.State() == gobreaker.StateOpen }

// report notes how a flight went. probe is nil if the circuit was not asked for it: then it
// is only told of a failure that says something about the server.
func (b *breaker) report(probe func(error), err error) {
	if probe == nil {
		if classOf(err) == core.ClassBusy || errors.Is(err, errPanicked) {
			return
		}
		b.trouble.CompareAndSwap(nil, newTrouble())
		var open error
		if probe, open = b.circuit.Allow(); open != nil {
			return // others have found out before
		}
	}
	probe(err)
	if err == nil && b.circuit.State() == gobreaker.StateClosed {
		b.trouble.Store(nil)
	}
}
