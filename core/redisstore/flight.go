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

// flight is one or more calls that travel together: with one deadline, one question to a
// breaker and one word to it about how that went. It is the context of its commands.
type flight struct {
	deadline
	lane   *lane
	sent   time.Time
	trip   time.Duration // how long an answer takes at least, as far as is known
	riders []*passenger  // those who were aboard when it left, in the order in which they came
	calls  []call        // those that are not settled

	alive bool        // the server has answered something
	word  error       // the failure of the others
	probe func(error) // not nil if the breaker wants to know how it goes
	told  *Flight     // what is told of it; nil if nobody listens

	waited    time.Duration // the first of them
	entries   int
	landed    bool // its lane has room for another one
	tracked   bool // its lane has an eye on the time of those aboard
	aside     bool // it is not one of those that its lane may have out
	pipelined bool
	resent    bool // something of it was sent before
	attentive bool // those aboard watch their callers' contexts; its lane's
	crowded   bool // it has keys that share a script, or might do so
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
	if f.parent = parent; f.distant() && f.tooLate() || f.lane.trouble.Load() != nil && !f.allowed() {
		return
	}
	failed := f.send(f)
	if next := f.land(answered(failed), false); next != nil {
		go f.lane.run(next)
	}
	if f.collect(failed); !f.ended {
		f.resend()
	}
}

// relay is fly for those who wait, who get to see a panic. It returns the flight that is to leave now that this one has
// landed, for the same goroutine to fly.
func (f *flight) relay() (next *flight) {
	handed := false
	defer func() {
		if !handed {
			f.rescue(recover())
		}
	}()
	f.parent = context.Background() //nolint:forbidigo // it is of many requests
	if f.distant() && f.tooLate() || f.lane.trouble.Load() != nil && !f.allowed() {
		return nil
	}
	failed := f.send(f)
	// The next one does not wait for whom this one is told.
	if next = f.land(answered(failed), f.told == nil); next != nil { // and another goroutine gives out the answers
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
	// Those who ask again at once are in time for the next one, which costs the same for more of them. The first
	// time, it may be another processor that goes on with this, while those who were told are still in the queue
	// of the one before.
	runtime.Gosched()
	runtime.Gosched()
	next = f.land(false, false)
	if f.ended {
		return next
	}
	if next != nil { // it does not wait for what is sent again
		go f.lane.run(next)
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
// is time: a flight leaves at once, unless the process is stopped or has no processor at that moment.
func (f *flight) distant() bool { return f.trip > f.lane.node.store.lateness }

// tooLate lets all fail if it is too late to send anything, and reports whether it is.
func (f *flight) tooLate() bool {
	late := f.missed()
	if late {
		f.fail(errPaused)
	}
	return late
}

// missed reports whether it is too late to send anything.
func (f *flight) missed() bool {
	return missed(time.Until(f.sent.Add(enough(f.lane.limit))), f.trip, f.lane.node.store.lateness)
}

// allowed asks the breaker whether it may leave.
func (f *flight) allowed() bool {
	var shut error
	if f.probe, shut = f.lane.circuit.Allow(); shut != nil {
		f.fail(errOpen)
	}
	return shut == nil
}

// resend sends again what is to be, until there is no more.
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

// end is said last of each flight, whatever has come of it.
func (f *flight) end() {
	l := f.lane
	if !f.landed { // nothing was sent
		if next := f.land(false, false); next != nil {
			go l.run(next)
		}
	}
	if f.clock == nil {
		return
	}
	if stopped := f.timer.Stop(); stopped && f.ended && f.word == nil { // nobody waits for it any more
		clocks.Put(f.clock)
	}
	verdict := error(nil)
	switch {
	case !f.ended:
		verdict = errPanicked
	case !f.alive:
		verdict = f.word
	}
	if verdict != nil || f.probe != nil {
		l.report(f.probe, verdict)
	}
}

// prolong is a deadline for what is sent again after that of the flight: the rest of its callers' time, and if there is
// none because the process came too late, some time more.
func (f *flight) prolong() *deadline {
	now := time.Now()
	at := f.sent.Add(f.lane.limit - lookEvery(f.lane.limit))
	if !now.Before(at) {
		at = now.Add(f.lane.node.store.lateness)
	}
	more := &deadline{f.parent, at, clocks.Get().(*clock)}
	more.timer.Reset(at.Sub(now))
	return more
}

// send sends all calls, and returns what the client says of them together. The first time it starts the clock.
func (f *flight) send(ctx context.Context) (failed error) {
	n := f.lane.node
	if f.clock == nil {
		f.at, f.clock = f.sent.Add(enough(f.lane.limit)), clocks.Get().(*clock)
		f.timer.Reset(time.Until(f.at))
		if n.store.observe != nil {
			f.told = f.boarded()
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
			reply, err = c.outcome(failed)
		}
		if err != nil && many {
			err = torn(err, long)
		}
		switch {
		case err == nil && c.entry.rider == nil: // nobody is to be told
			f.alive, c.entry.reply = true, reply
		case err == nil && c.shared == nil:
			f.alive = true
			c.entry.settle(reply, nil)
		case err == nil:
			f.alive = true
			again = append(again, c.arrive(f, reply)...)
		case c.shared != nil && len(c.rows) > 1 && f.lane.node.parts(err):
			c.each(func(p *passenger) { again = append(again, call{entry: &p.entry}) })
		case (!late(err) || f.parent.Err() == nil && !f.missed()) && c.retry(err, &texts): // none that is too late
			rest = append(rest, *c)
		case f.lane.node.redirects(err) && f.pipelined:
			f.alive = true
			go f.lane.follow(*c)
		default:
			c.settle(nil, f.judge(c, err))
		}
	}
	if f.calls = append(rest, again...); len(f.calls) > 0 {
		return
	}
	if f.ended = true; !f.alive {
		f.lane.node.repair(f)
	}
	if f.told != nil {
		f.tell()
	}
}

// judge says what the failure of a call means, and keeps the worst of them for the breaker.
func (f *flight) judge(c *call, err error) error {
	verdict := classify(err)
	if late(err) || verdict.Class == core.ClassTimeout && f.lane.tooMany(f.sent) { // which says nothing about the server
		verdict.Class = core.ClassBusy
	}
	verdict.MaybeExecuted = verdict.MaybeExecuted || c.lost
	if f.word == nil || !silent(classOf(f.word)) {
		if f.word = verdict; verdict.Class == core.ClassTimeout && (starved(time.Since(f.sent), f.lane.limit) || f.lane.short()) {
			f.word = &core.StoreError{Class: core.ClassBusy, MaybeExecuted: verdict.MaybeExecuted, Err: verdict.Err} // nor does this
		}
	}
	return verdict
}

// fail settles everything that is left.
func (f *flight) fail(err error) {
	f.lane.untrack(f)
	for i := range f.calls {
		f.calls[i].settle(nil, err)
	}
	f.calls = nil
}

// maxUntorn is how much goes into a socket at once or not at all, and maxFraming is what
// the protocol adds to an argument.
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
	errOpen = &core.StoreError{Class: core.ClassBreaker, Err: errors.New("redisstore: the server failed just before; it is asked twice a second until it answers")}
	// errPanicked is the failure of a flight in which the program's own code has panicked.
	errPanicked = &core.StoreError{Class: core.ClassLost, MaybeExecuted: true, Err: errors.New("redisstore: a hook panicked")}
)

// panicked is what the callers get to see of a panic in a goroutine that is not theirs.
type panicked struct{ value any }

func (p *panicked) Error() string { return fmt.Sprintf("redisstore: a hook panicked: %v", p.value) }
