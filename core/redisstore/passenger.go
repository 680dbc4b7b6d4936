package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-go/weir/core"
)

// passenger is an entry whose caller waits while others fly with it. It leaves when its caller
// does: out of the queue as if it had never been there, and out of a flight without its answer,
// charged or not.
type passenger struct {
	entry
	entered time.Time
	seat    chan struct{} // what the entry's landed is
	timer   *time.Timer

	take    core.Take // of an entry that shares
	decided bool      // together with others
	res     core.Result

	// Of the lane, and locked by it.
	before, after *passenger
	aboard        bool
	answers       uint64 // those that the lane had got before
}

// passengers are used again if they have come to the end of their flights: nobody else has hold
// of them then.
var passengers = sync.Pool{New: func() any {
	p := &passenger{seat: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	p.timer.Stop()
	return p
}}

func newPassenger(e entry, t *core.Take, entered time.Time) *passenger {
	p := passengers.Get().(*passenger)
	e.landed = p.seat
	p.entry, p.entered, p.aboard, p.decided = e, entered, false, false
	if e.shares {
		p.take = *t
	}
	return p
}

// ride waits for the end of the flight, but not longer than patience, nor longer than queueing
// until it has left. If patience is all that the store allows, an answer that has arrived within it
// gets some grace to be read.
func (p *passenger) ride(ctx context.Context, l *lane, queueing, patience time.Duration, res *core.Result) ([]int64, error) {
	p.timer.Reset(queueing)
	times := [1 + looks]time.Duration{patience - queueing, grace, grace, grace, grace, grace}
	left := times[:]
	if patience < l.limit {
		left = left[:1]
	}
	for {
		gone := false
		select {
		case <-p.seat:
			return p.arrive(res)
		case <-p.timer.C:
		case <-ctx.Done():
			gone = true
		}
		unsent, busy := l.leave(p)
		switch {
		case !unsent && !gone && len(left) > 0:
			p.timer.Reset(left[0])
			left = left[1:]
			continue
		case errors.Is(ctx.Err(), context.Canceled):
			return nil, ctx.Err()
		case unsent && busy:
			return nil, errBusy
		case unsent:
			return nil, errNotSent
		}
		select {
		case <-p.seat:
			return p.arrive(res)
		default:
			return nil, errLate
		}
	}
}

// grace is after what time a passenger whose time is over looks again whether its flight is back, a few times: when
// a process was stopped, or had no processor, its timers fire before it reads what lies in its sockets.
const grace = time.Millisecond

// looks is how often it looks.
const looks = 5

// arrive ends a ride.
func (p *passenger) arrive(res *core.Result) ([]int64, error) {
	p.timer.Stop()
	if p.decided {
		*res = p.res
	}
	reply, err := p.reply, p.err
	p.entry, p.take, p.after = entry{}, core.Take{}, nil // what others keep, it must not
	passengers.Put(p)
	if hook, ok := err.(*panicked); ok { //nolint:errorlint // it is never wrapped
		panic(hook.value)
	}
	return reply, err
}

// leave takes a passenger out of the queue, and reports whether it was there, and if so, whether
// the server has answered others meanwhile.
func (l *lane) leave(p *passenger) (unsent, busy bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.aboard {
		return false, false
	}
	l.remove(p)
	return true, l.answers > p.answers
}

var (
	errBusy = &core.StoreError{
		Class: core.ClassBusy,
		Err:   errors.New("redisstore: the decisions of this process before this one take the server all of its time"),
	}
	errNotSent = &core.StoreError{
		Class: core.ClassTimeout,
		Err:   fmt.Errorf("redisstore: the server has not yet answered those before: %w", context.DeadlineExceeded),
	}
	errLate = &core.StoreError{Class: core.ClassTimeout, Executed: true, Err: context.DeadlineExceeded}
)
