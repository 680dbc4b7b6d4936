package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/core"
)

// links are a passenger's neighbours in its queue; then before is the one before it if that is in the same flight.
type links struct{ before, after *passenger }

// passenger is an entry whose caller waits while others fly with it. It leaves when its caller
// does: out of the queue as if it had never been there, and out of a flight without its answer,
// charged or not.
type passenger struct {
	entry
	entered time.Time
	seat    chan struct{} // a word to look about: it has landed, or its time may be over
	landed  landing
	late    *core.LateError // of one that has left a flight with a take
	timer   *time.Timer     // of a caller who has less time than the lane gives

	take    core.Take // of an entry that shares
	decided bool      // together with others
	res     core.Result

	// Of the lane, and locked by it.
	queue *queue
	links
	earlier, later *passenger // of those in all queues
	number         uint64     // in the order in which they came
	aboard         bool       // or sent away: it is in no queue any more
	merges         bool       // with the one before
	attentive      bool       // to its caller's context, or was told to be
	answers        uint64     // those that the lane had got before
	older          bool       // than one who came before it, so that it has its own eye on the time

	call, row int // of its flight
}

// landing says how a ride ends: with an answer, or before. What comes first counts.
type landing struct{ state atomic.Uint32 }

const (
	riding uint32 = iota
	arrived
	quit
)

// Begin is for a ride that is to come.
func (l *landing) Begin() { l.state.Store(riding) }

// Load reports whether there is an answer.
func (l *landing) Load() bool { return l.state.Load() == arrived }

// End reports whether the ride has ended as it says, which it then has for good.
func (l *landing) End(how uint32) bool { return l.state.CompareAndSwap(riding, how) }

// passengers are used again if they have come to the end of their flights: nobody else has hold
// of them then. A word that was meant for the one before does no harm.
var passengers = sync.Pool{New: func() any {
	p := &passenger{seat: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	p.timer.Stop()
	return p
}}

// leaves lets another one have the place of a passenger whom nobody else has hold of. The name of the key, in which
// there is nothing that may not be stored, is likely to be needed again.
func (p *passenger) leaves() { p.links, p.take = links{}, core.Take{}; p.forgets(); passengers.Put(p) }

// forgets clears what an entry has of a caller, and no more than that: to clear all costs a hundredth of a decision.
func (e *entry) forgets() { e.args, e.reply, e.err, e.program = nil, nil, nil, nil }

// nudge lets a passenger look about. One that is about to do so anyway need not be told again.
func (p *passenger) nudge() {
	select {
	case p.seat <- struct{}{}:
	default:
	}
}

// ride waits for the end of the flight, but not longer than patience, nor longer than queueing until it has left, both
// from when it has entered. If patience is all that the store allows, it is the lane that has an eye on the time,
// unless no request waits. One that finds that the process came too late looks about some times more, for an answer
// that has arrived meanwhile.
func (p *passenger) ride(ctx context.Context, l *lane, queueing, patience time.Duration, res *core.Result) ([]int64, error) {
	var alarm <-chan time.Time
	if patience < l.limit || l.behind || p.older {
		p.timer.Reset(queueing - time.Since(p.entered))
		alarm = p.timer.C
	}
	left, late := inTime, false
	for {
		meant, gone := true, false
		select {
		case <-p.seat:
			meant = alarm == nil // or it is told of nothing but the end
		case <-alarm:
		case <-ctx.Done():
			gone = true
		}
		if p.landed.Load() {
			return p.arrive(alarm != nil, res)
		}
		waited := time.Since(p.entered)
		if !gone && (!meant || waited < queueing) {
			continue
		}
		unsent, busy := l.leave(p)
		if !unsent && !gone {
			again := looking(patience) - waited
			if again <= 0 {
				again = lookEvery(patience)
				if !late && waited > patience+maxLook-again { // by more than a timer is late
					left, late = looks, true
				}
				left--
			}
			if waited < enough(patience) || left >= 0 && (late || waited < patience) {
				if alarm != nil {
					p.timer.Reset(again)
				}
				continue
			}
		}
		var err error = errLate
		switch {
		case errors.Is(ctx.Err(), context.Canceled):
			err = ctx.Err()
		case unsent && busy:
			err = errBusy
		case unsent && queueing < patience && starved(waited, patience):
			err = errPaused
		case unsent && l.tooMany(p.entered):
			err = errBusy
		case unsent:
			err = errNotSent
		case l.tooMany(p.entered):
			err = errOverdue
		}
		if unsent {
			return nil, err
		}
		if p.take.Cost > 0 {
			p.late = &core.LateError{Err: err}
			err = p.late
		}
		if !p.landed.End(quit) {
			return p.arrive(alarm != nil, res)
		}
		return nil, err
	}
}

// arrive ends a ride, on which it had its own eye on the time or not.
func (p *passenger) arrive(timed bool, res *core.Result) ([]int64, error) {
	if timed {
		p.timer.Stop()
	}
	if p.decided {
		*res = p.res
	}
	reply, err := p.reply, p.err
	p.leaves()
	if hook, ok := err.(*panicked); ok { //nolint:errorlint // it is never wrapped
		panic(hook.value)
	}
	return reply, err
}

// tell tells a passenger who has left the flight what has come of it. What was refused is remembered as if it had stayed:
// whoever leaves early each time would otherwise be asked for each time.
func (p *passenger) tell() {
	if p.late == nil { // it has taken nothing
		return
	}
	res, err, denials, cache := p.res, p.err, p.program.denials, p.program.cache
	if err == nil && !p.decided {
		var again bool
		if res, again, err = p.take.Policy.Spec().Explain(p.take, p.reply); again { // nothing ran
			err = errLeaps
		}
	}
	switch {
	case err != nil || res.Allowed():
		cache.Forget(denials, p.take.Key) // what was refused meanwhile may be from before
	case !p.decided: // else the flight has noted it
		cache.Keep(denials, &p.take, p.reply, &res, p.entered.Sub(started))
	}
	if err != nil {
		res = core.Result{}
	}
	p.late.Answer(res, err)
}

// leave takes a passenger out of the queue, and reports whether it was there, and if so, whether it waited in vain because
// of others: the server has answered some meanwhile, or so many waited that not all would have had a flight, of a server
// that answered a moment ago.
func (l *lane) leave(p *passenger) (unsent, busy bool) {
	gate := l.lock(p.policy)
	defer l.unlock(gate)
	if p.aboard {
		return false, false
	}
	l.remove(p)
	answered, many := l.answers > p.answers, l.waiting >= l.most*DefaultMaxKeys // if not so many, a connection may be dead
	if many {
		l.long.set(time.Now())
		if answered {
			l.excess.set(time.Now())
		}
	}
	return true, answered || l.long.after(p.entered) && l.heard.ago() < staleFor
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
	errOverdue = &core.StoreError{
		Class: core.ClassBusy, MaybeExecuted: true,
		Err: errors.New("redisstore: the decisions of this process take so much time that the answer to this one comes too late"),
	}
	errLate = &core.StoreError{Class: core.ClassTimeout, MaybeExecuted: true, Err: context.DeadlineExceeded}
)
