package redisstore

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore/internal/fair"
)

// passenger is an entry whose caller waits while others fly with it. It leaves when its caller does: out of the queue as
// if it had never been there, and out of a flight without its answer, charged or not.
type passenger struct {
	entry
	entered    time.Time
	woken      chan struct{} // receives a signal when there is an answer, or its time may be over
	outcome    outcome
	lateErr    *core.LateError // returned to a caller that left a flight with a take; reports later what became of that
	answerOnly bool            // of one of many: it waits for its answer alone at first, see await
	timer      *time.Timer     // used if the lane's does not do for it

	take    core.Take // of an entry that may share
	decided bool      // together with others, so that there is no reply, but res
	res     core.Result

	// The lane's, and locked by it.
	place      fair.Item[core.Policy, *passenger] // in the queue
	watching   bool                               // it watches its caller's context, or was woken to do so
	outOfOrder bool                               // it entered behind a later one, and so uses its own timer
	answers    uint64                             // how many flights had been answered when it came

	call, row int        // of its flight
	nextOfKey *passenger // of the same row

	// The name of the key of the caller before, if lastProgram is not nil, and of what it is the name: see enter.
	last        string
	lastKey     string
	lastProgram *program
}

// outcome is the state of a passenger's wait. An answer or quitting ends it, whichever comes first.
type outcome struct{ state atomic.Uint32 }

const (
	waiting uint32 = iota
	hasAnswer
	hasQuit
)

// begin prepares for a wait.
func (o *outcome) begin() { o.state.Store(waiting) }

// answered reports whether there is an answer, which may come until the passenger quits.
func (o *outcome) answered() bool { return o.state.Load() == hasAnswer }

// end reports whether the wait has ended as given, which is then for good.
func (o *outcome) end(as uint32) bool { return o.state.CompareAndSwap(waiting, as) }

// passengers are used again when their flights have ended: nobody else has hold of them then. A signal that was meant
// for the one before does no harm.
var passengers = sync.Pool{New: func() any {
	p := &passenger{woken: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	p.place.Value = p
	p.timer.Stop()
	return p
}}

// release puts a passenger of which nobody else has hold back into the pool.
func (p *passenger) release() { p.nextOfKey, p.take = nil, core.Take{}; p.forget(); passengers.Put(p) }

// forget drops references to the caller's data, and no more than that: to clear all costs a hundredth of a decision.
func (e *entry) forget() { e.args, e.reply, e.err, e.program = nil, nil, nil, nil }

// wake lets a passenger look what has changed. One signal is enough for all that has changed before it looks.
func (p *passenger) wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// answer returns the answer that has come. timed is true if the passenger's own timer runs.
func (p *passenger) answer(timed bool, res *core.Result) ([]int64, error) {
	if timed {
		p.timer.Stop()
	}
	if p.decided {
		*res = p.res
	}
	reply, err := p.reply, p.err
	p.release()
	if hook, ok := err.(*panicked); ok { //nolint:errorlint // it is never wrapped
		panic(hook.value)
	}
	return reply, err
}

// quit leaves a flight with an error, unless the answer comes at this moment.
func (p *passenger) quit(timed bool, res *core.Result, err error) ([]int64, error) {
	if p.take.Cost > 0 {
		p.lateErr = &core.LateError{Err: err}
		err = p.lateErr
	}
	if !p.outcome.end(hasQuit) {
		return p.answer(timed, res)
	}
	return nil, err
}

// settleLate reports to a caller that has left the flight with a take what has become of that. What was refused is
// remembered as if it had stayed: a caller that leaves early each time would otherwise be asked for each time.
func (p *passenger) settleLate() {
	res, err, denials, cache := p.res, p.err, p.program.denials, p.program.cache
	if err == nil && !p.decided {
		var again bool
		if res, again, err = p.take.Policy.Spec().Explain(p.take, p.reply); again { // nothing ran
			err = errClock
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
	p.lateErr.Answer(res, err)
}
