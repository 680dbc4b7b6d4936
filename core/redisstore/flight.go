package redisstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/core"
)

// flight is one or more calls that travel together: with one deadline, one question to the breaker and one report to it.
// It outlives the passengers that quit. What of it is sent again, and what never, is said at retry. It is the context of
// its commands.
type flight struct {
	deadline
	lane         *lane
	policy       core.Policy // of the first passenger
	sent         time.Time
	shortestTrip time.Duration // the lane's when it left
	passengers   []*passenger  // that were in it when it left, in the order in which they came
	calls        []call        // those that are not settled

	answered bool         // the server has answered something
	failure  error        // of the others
	left     []*passenger // that left with a take: answerLate reports to them
	probe    func(error)  // not nil if the breaker waits for its report
	observed *Flight      // nil if nobody observes flights

	delay     time.Duration // until it leaves, since it was filled: see stagger
	waited    time.Duration // the first of them
	entries   int
	landed    bool // its lane has room for another one
	tracked   bool // the lane's timer is for its passengers
	aside     bool // it is not one of those that its lane may have out
	pipelined bool
	resent    bool // something of it was sent before
	watching  bool // its passengers watch their callers' contexts; locked by the lane
	crowded   bool // it has keys that share a script, or might do so
	search    bool // it looks for a proxy
	ended     bool // all is settled, without a panic

	// Of a flight of one, which is one allocation.
	own  entry
	only [1]call
	room [8]any
}

// fly settles each of its entries. parent has the values for the client's hooks. A panic in
// one of these is the caller's to see.
func (f *flight) fly(parent context.Context) {
	defer f.end()
	if f.parent = parent; f.distant() && f.failLate() || f.lane.trouble.Load() != nil && !f.allowed() {
		return
	}
	failed := f.send(f)
	if next := f.land(heard(failed), false); next != nil {
		f.lane.launch(next)
	}
	if f.collect(failed); !f.ended {
		f.resend()
	}
}

// relay is fly for passengers, whose callers get to see a panic. It returns the flight that is to leave now that this one
// has landed, for the same goroutine to fly.
func (f *flight) relay() (next *flight) {
	handed := false
	defer func() {
		if !handed {
			f.rescue(recover())
		}
	}()
	f.parent = context.Background() //nolint:forbidigo // it serves many requests
	if f.distant() && f.failLate() || f.lane.trouble.Load() != nil && !f.allowed() {
		return nil
	}
	failed := f.send(f)
	// The next one does not wait for the observer of this one.
	if next = f.land(heard(failed), f.observed == nil); next != nil { // and another goroutine gives out the answers
		handed = true
		go func() {
			defer func() { f.rescue(recover()) }()
			if f.collect(failed); !f.ended {
				f.resend()
			}
		}()
		return next
	}
	f.collect(failed)
	// Callers that ask again at once are in time for the next one, which costs the same for more of them. The first
	// time, it may be another processor that goes on with this, while those that were woken are still in the queue
	// of the one before. With three times, 100 callers 1 ms away get 2 % more decisions than with two; more than that
	// makes no difference.
	for n := 0; n < 3 && f.ended && !f.landed; n++ { // else there is more to do, or no next one
		runtime.Gosched()
	}
	next = f.land(false, false)
	if f.ended && f.left == nil {
		return next
	}
	if next != nil { // it does not wait for what is sent again, nor for late answers
		f.lane.launch(next)
		next = nil // also if this one ends in a panic
	}
	f.resend()
	return next
}

// rescue ends a flight, which may have ended in a panic.
func (f *flight) rescue(panicking any) {
	switch {
	case panicking != nil:
		f.fail(&panicked{panicking})
	case !f.ended: // a hook has ended the goroutine
		f.fail(errPanicked)
	}
	f.end()
}

// distant reports whether the server is so far away that a flight may leave too late for its answer. Nearly always there
// is time: a flight leaves at once, or after a round trip at most (stagger), unless the process is stopped or has no
// processor at that moment.
func (f *flight) distant() bool { return f.shortestTrip > f.lane.node.store.grace }

// failLate lets all fail if it is too late to send anything, and reports whether it is.
func (f *flight) failLate() bool {
	late := f.tooLate()
	if late {
		f.fail(errPaused)
	}
	return late
}

// tooLate reports whether it is too late to send anything.
func (f *flight) tooLate() bool {
	return tooLate(time.Until(f.sent.Add(answerBy(f.lane.deadline))), f.shortestTrip, f.lane.node.store.grace)
}

// allowed asks the breaker whether it may leave.
func (f *flight) allowed() bool {
	var shut error
	if f.probe, shut = f.lane.circuit.Allow(); shut != nil {
		f.fail(errOpen)
	}
	return shut == nil
}

// resend sends once more what retry has chosen, and the calls of a script that was divided, until there are none. They have
// the rest of the flight's time, or, if the process came too late, that of prolong.
func (f *flight) resend() {
	l, ctx := f.lane, context.Context(f)
	for !f.ended {
		if ctx == f && !time.Now().Before(f.at) {
			more := f.prolong()
			defer more.timer.Stop()
			ctx = more //nolint:fatcontext // once
		}
		l.track(f)
		f.resent = true
		failed := f.send(ctx)
		l.untrack(f)
		f.collect(failed)
	}
}

// end is called last of each flight, whatever has come of it.
func (f *flight) end() {
	l := f.lane
	if f.tracked { // what was sent again has ended in a panic
		l.untrack(f)
	}
	if f.left != nil {
		defer f.answerLate()
	}
	if !f.landed { // nothing was sent
		if next := f.land(false, false); next != nil {
			l.launch(next)
		}
	}
	if f.clock == nil {
		return
	}
	if stopped := f.timer.Stop(); stopped && f.ended && f.failure == nil { // nobody waits for it any more
		clocks.Put(f.clock)
	}
	verdict := error(nil)
	switch {
	case !f.ended:
		verdict = errPanicked
	case !f.answered:
		verdict = f.failure
	}
	if verdict != nil || f.probe != nil {
		l.report(f.probe, verdict)
	}
}

// prolong returns a deadline for what is sent again after that of the flight: the rest of its callers' time, and if there is
// none because the process came too late, some time more.
func (f *flight) prolong() *deadline {
	now := time.Now()
	at := f.sent.Add(f.lane.deadline - pollEvery(f.lane.deadline))
	if !now.Before(at) {
		at = now.Add(f.lane.node.store.grace)
	}
	more := &deadline{f.parent, at, clocks.Get().(*clock)}
	more.timer.Reset(at.Sub(now))
	return more
}

// send sends all calls, and returns the client's error for all of them together. The first time it starts the clock.
func (f *flight) send(ctx context.Context) (failed error) {
	n := f.lane.node
	if f.clock == nil {
		f.at, f.clock = f.sent.Add(answerBy(f.lane.deadline)), clocks.Get().(*clock)
		f.timer.Reset(time.Until(f.at))
		if !f.search {
			n.asked.set(f.sent)
			f.lane.traffic.flights.Add(1)
			f.lane.traffic.calls.Add(uint64(f.entries))
			if f.entries > 1 {
				f.lane.traffic.merged.Add(uint64(f.merged()))
			}
			if n.store.observe != nil {
				f.observed = f.describe()
			}
		}
	}
	if len(f.calls) == 1 {
		room, c := f.room[:0:len(f.room)], &f.calls[0]
		if f.resent { // the client's hooks may have kept those of before
			room = nil
		}
		return n.store.rdb.Process(ctx, c.command(ctx, room, c.entry.key)) // clients follow redirections of single commands
	}
	f.pipelined = true
	cmds := make([]redis.Cmder, len(f.calls))
	keys := make([]string, len(f.calls)) // a pointer to one of them takes no memory
	words := 0
	for i := range f.calls {
		words += 4 + len(f.calls[i].entry.args)
	}
	room := make([]any, words)
	for i := range f.calls {
		c := &f.calls[i]
		n := 4 + len(c.entry.args)
		keys[i] = c.entry.key
		cmds[i] = c.command(ctx, room[:0:n], &keys[i])
		room = room[n:]
	}
	return n.pipeline(ctx, cmds)
}

// collect settles the calls that have come to an end, and leaves those that are to be sent again. If there are none,
// the flight has ended.
func (f *flight) collect(failed error) {
	var texts []*script
	rest, again := f.calls[:0], []call(nil) // the latter take part in no other's fate
	many := len(f.calls) > 1
	long := many && f.tearable()
	for i := range f.calls {
		c := &f.calls[i]
		reply, err := []int64(nil), failed
		if err == nil && c.ints != nil { // as nearly always
			reply, err = c.ints.Result()
		}
		if reply == nil {
			reply, err = c.result(failed)
		}
		if err != nil && many {
			err = torn(err, long)
		}
		switch { // answers first, then all that can be asked again, so that the rest has failed for good
		case err == nil && c.entry.owner == nil: // its caller flies itself
			f.answered, c.entry.reply = true, reply
		case err == nil && c.shared == nil:
			f.answered = true
			f.settle(c.entry, reply, nil)
		case err == nil:
			f.answered = true
			again = append(again, c.distribute(f, reply)...)
		case c.shared != nil && len(c.rows) > 1 && f.lane.node.refusesKeys(err):
			c.each(func(p *passenger) { again = append(again, call{entry: &p.entry}) })
		case (!lateWrite(err) || f.parent.Err() == nil && !f.tooLate()) && c.retry(err, &texts): // none that is too late
			rest = append(rest, *c)
		case f.lane.node.redirects(err) && f.pipelined:
			f.answered = true
			go f.lane.follow(*c)
		default:
			f.settleAll(c, nil, f.judge(c, err))
		}
	}
	if f.calls = append(rest, again...); len(f.calls) > 0 {
		return
	}
	if f.ended = true; !f.answered {
		f.lane.node.repair(f)
	}
	if !f.answered && !f.search {
		f.lane.traffic.failures.Add(1)
	}
	if f.observed != nil {
		f.observe()
	}
}

// judge returns what the failure of a call means, and keeps the worst of them for the breaker.
func (f *flight) judge(c *call, err error) error {
	verdict := classify(err)
	if lateWrite(err) || verdict.Class == core.ClassTimeout && f.lane.overloadedSince(f.sent) { // which says nothing about the server
		verdict.Class = core.ClassBusy
	}
	verdict.MaybeExecuted = verdict.MaybeExecuted || c.lost
	if f.failure == nil || !silent(classOf(f.failure)) {
		if f.failure = verdict; verdict.Class == core.ClassTimeout && (stopped(time.Since(f.sent), f.lane.deadline) || f.lane.lacksProcessors()) {
			f.failure = &core.StoreError{Class: core.ClassBusy, MaybeExecuted: verdict.MaybeExecuted, Err: verdict.Err} // nor does this
		}
	}
	return verdict
}

// settle gives an entry its reply or error. One whose caller has left with a take has them last: see answerLate.
func (f *flight) settle(e *entry, reply []int64, err error) {
	if e.settle(reply, err) && e.owner.lateErr != nil {
		f.left = append(f.left, e.owner)
	}
}

// settleAll gives all entries of a call that are not settled the same.
func (f *flight) settleAll(c *call, reply []int64, err error) {
	if c.shared == nil {
		f.settle(c.entry, reply, err)
		return
	}
	c.each(func(p *passenger) { f.settle(&p.entry, reply, err) })
}

// answerLate reports to the callers that have left what has become of their takes. They get to know it when all others
// have their answers and the lane has its next flight, which do not wait for the functions that are called here, and
// take no part in a panic of one.
func (f *flight) answerLate() {
	for _, p := range f.left {
		func() {
			defer func() { _ = recover() }() // it is nobody's who could see it: see core.LateError
			p.settleLate()
		}()
	}
}

// fail settles everything that is left.
func (f *flight) fail(err error) {
	f.lane.untrack(f)
	for i := range f.calls {
		f.settleAll(&f.calls[i], nil, err)
	}
	f.calls = nil
}

// maxUntorn is the number of bytes that go into a socket at once or not at all, and maxFraming the number that the
// protocol adds to an argument.
const (
	maxUntorn  = 16 << 10
	maxFraming = 16
)

// tearable reports whether the calls were so long that a part of them may have arrived if
// writing them failed.
func (f *flight) tearable() bool {
	bytes := 0
	for i := range f.calls {
		for _, arg := range f.calls[i].cmd.Args() {
			switch text := arg.(type) {
			case string:
				bytes += len(text)
			case *string:
				bytes += len(*text)
			}
			bytes += maxFraming
		}
	}
	return bytes > maxUntorn
}

var (
	errOpen = &core.StoreError{Class: core.ClassBreaker, Err: errors.New("redisstore: not sent, as the server failed a moment ago; it is asked twice a second until it answers")}
	// errPanicked is the failure of a flight in which the program's own code has panicked.
	errPanicked = &core.StoreError{Class: core.ClassLost, MaybeExecuted: true, Err: errors.New("redisstore: a hook panicked")}
)

// panicked carries a panic to callers in whose goroutine it did not happen.
type panicked struct{ value any }

func (p *panicked) Error() string { return fmt.Sprintf("redisstore: a hook panicked: %v", p.value) }
