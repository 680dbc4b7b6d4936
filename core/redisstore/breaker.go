package redisstore

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/weir-go/weir/core"
)

// A breaker opens at a failure that is at least the openAfter-th in a row and comes more than openUnlessSuccessWithin after
// the first of them. The failures may be any time apart, as no window forgets them: only a success does. So a proxy
// that has lost one server of several opens none, as long as the others are asked. classify says which failures count.
//
// An open breaker lets one flight through every probeEvery, or up to probeJitter earlier, and closes when that is answered.
// Each breaker chooses its jitter, so that those of a fleet, which open together, do not ask together. For staleFor after
// a success, or after the first failure, a broken connection says nothing.
const (
	openAfter               = 5
	openUnlessSuccessWithin = 100 * time.Millisecond
	probeEvery              = time.Second / 2
	probeJitter             = time.Second / 8
	staleFor                = time.Second
)

// breaker keeps flights away from a server that does not answer within their deadline.
// While all goes well it is not even asked: its lock would be everybody's.
type breaker struct {
	circuit *gobreaker.TwoStepCircuitBreaker[struct{}]
	trouble atomic.Pointer[trouble] // nil while no flight has failed
	turned  atomic.Pointer[turn]    // one that observe was not called for yet
	latest  atomic.Pointer[turn]    // nil if it has never opened
	observe func(open bool, err error)
}

// turn is the opening or closing of a breaker.
type turn struct {
	at   time.Time
	open bool
	err  error // that has opened it
}

// trouble begins with the first flight that fails, and ends with the next that succeeds. lastSuccess is its beginning, or
// the last time after that at which the server has shown that it lives, by an answer or by an error that does not count.
type trouble struct{ lastSuccess atomic.Int64 }

func newTrouble() *trouble {
	t := &trouble{}
	t.succeeded()
	return t
}

func (t *trouble) succeeded() { t.lastSuccess.Store(int64(time.Since(started))) }

// sinceSuccess returns how long ago the last success is, or, if none came since, the first failure.
func (t *trouble) sinceSuccess() time.Duration {
	if t == nil {
		return 0
	}
	return time.Since(started) - time.Duration(t.lastSuccess.Load())
}

// newBreaker builds a breaker that counts failures of a server that stays silent (silent), and of one that does not let the
// user in (keptOut). Two failures do not count either way: that of a process that has too few connections, and for staleFor
// that of a broken connection, since every pooled one breaks when a server restarts. observe, if there is one, is called
// once each time that the breaker opens and closes, by the goroutine whose flight was the reason.
func newBreaker(observe func(open bool, err error)) *breaker {
	b := &breaker{observe: observe}
	var latest error // that counted; locked by the circuit
	b.circuit = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:        "weir",
		MaxRequests: 1,
		Timeout:     probeEvery - rand.N(probeJitter),
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return c.ConsecutiveFailures >= openAfter && b.trouble.Load().sinceSuccess() > openUnlessSuccessWithin
		},
		IsSuccessful: func(err error) bool {
			latest = err
			ok := !silent(classOf(err)) && !keptOut(err)
			if t := b.trouble.Load(); ok && t != nil {
				t.succeeded()
			}
			return ok
		},
		IsExcluded: func(err error) bool {
			class := classOf(err)
			stale := class == core.ClassLost && b.trouble.Load().sinceSuccess() < staleFor
			return stale || class == core.ClassBusy
		},
		OnStateChange: func(_ string, from, to gobreaker.State) { // which is locked
			t := &turn{at: time.Now()}
			switch {
			case to == gobreaker.StateClosed:
			case from == gobreaker.StateClosed:
				t.open, t.err = true, latest
			default: // it is asked, or was so in vain
				return
			}
			b.turned.Store(t)
			b.latest.Store(t)
		},
	})
	return b
}

// shut reports whether flights are kept away, as they may be if there is trouble. They are so while the one that is let
// through is out, too: otherwise all callers that come meanwhile would wait for a flight that cannot leave.
func (b *breaker) shut() bool {
	switch b.circuit.State() {
	case gobreaker.StateOpen:
		return true
	case gobreaker.StateHalfOpen:
		c := b.circuit.Counts()
		return c.Requests > c.TotalExclusions
	default:
		return false
	}
}

// report notes how a flight went. probe is nil if the circuit was not asked for it: then only a failure that says
// something about the server counts.
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
	// It may be the turn of another flight, which comes here a moment later.
	if turned := b.turned.Swap(nil); turned != nil && b.observe != nil {
		b.observe(turned.open, turned.err)
	}
	if err == nil && b.circuit.State() == gobreaker.StateClosed {
		b.trouble.Store(nil)
	}
}
