package redisstore

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/weir-go/weir/core"
)

// A breaker opens after tripAfter failures in a row if nothing has succeeded for
// tripAlone, and lets one call through every probeEvery. So it never opens for a
// cluster that has lost one shard of several, as long as the others are asked.
const (
	tripAfter  = 5
	tripAlone  = 100 * time.Millisecond
	probeEvery = time.Second
	staleFor   = time.Second
)

// trouble is the time since a store's calls have begun to fail.
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

// newBreaker builds a breaker that counts what keeps a request waiting. A server
// that answers with an error is alive. What does not count either way: a caller who
// left or was in a hurry, and for staleFor a broken connection, since every pooled
// one breaks when a server restarts.
func (s *Store) newBreaker() *gobreaker.CircuitBreaker[[]int64] {
	return gobreaker.NewCircuitBreaker[[]int64](gobreaker.Settings{
		Name:        "weir",
		MaxRequests: 1,
		Timeout:     probeEvery,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return c.ConsecutiveFailures >= tripAfter && s.trouble.Load().alone() > tripAlone
		},
		IsSuccessful: func(err error) bool {
			class := classOf(err)
			ok := class != core.ClassTimeout && class != core.ClassDown && class != core.ClassLost
			if t := s.trouble.Load(); ok && t != nil {
				t.succeeded()
			}
			return ok
		},
		IsExcluded: func(err error) bool {
			var h hurried
			stale := classOf(err) == core.ClassLost && s.trouble.Load().alone() < staleFor
			return errors.Is(err, errLeft) || errors.As(err, &h) || stale
		},
	})
}

// hurried is the failure of a call that had hardly any time.
type hurried struct{ error }

func (h hurried) Unwrap() error { return h.error }
