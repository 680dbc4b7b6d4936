package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/core"
)

// flight is one or more calls that travel together: with one deadline, one question to a
// breaker and one word to it about how that went. It is the context of its commands.
type flight struct {
	deadline
	lane  *lane
	sent  time.Time
	first *passenger // the chain of those who are not yet in a call
	calls []call     // those that are not settled

	alive bool        // the server has answered something
	word  error       // the failure of the others
	probe func(error) // not nil if the breaker wants to know how it goes

	entries   int
	waited    time.Duration // the first of them
	rounds    int           // how often something was sent
	landed    bool          // its lane has room for another one
	pipelined bool
	crowded   bool // it has keys that share a script, or might do so

	// Of a flight of one, which is one allocation.
	own  entry
	only [1]call
	room [12]any
}

// fly settles each of its entries. parent has the values for the client's hooks. A panic in
// one of these is the caller's to see.
func (f *flight) fly(parent context.Context) {
	l := f.lane
	defer f.land(false) // if nothing was sent
	if l.trouble.Load() != nil {
		var shut error
		if f.probe, shut = l.circuit.Allow(); shut != nil {
			f.fail(errOpen)
			return
		}
	}
	f.deadline = deadline{parent, f.sent.Add(l.limit), clocks.Get().(*clock)}
	f.timer.Reset(l.limit)
	verdict := error(errPanicked) // unless it comes to an end
	defer func() {
		if stopped := f.timer.Stop(); stopped && verdict == nil && f.word == nil { // nobody waits for it any more
			clocks.Put(f.clock)
		}
		if verdict != nil || f.probe != nil {
			l.report(f.probe, verdict)
		}
	}()
	var told Flight
	if l.node.store.observe != nil {
		told = f.boarded()
	}
	for ; len(f.calls) > 0; f.rounds++ {
		failed := f.send()
		f.land(failed == nil || serverSays(failed) != "")
		f.collect(failed)
	}
	if verdict = nil; !f.alive {
		verdict = f.word
		l.node.repair(f)
	}
	if told.Calls > 0 {
		f.tell(told)
	}
}

// send sends all calls, and returns what the client says of them together.
func (f *flight) send() (failed error) {
	n := f.lane.node
	if len(f.calls) == 1 && n.bounded() {
		room := f.room[:0:len(f.room)]
		if f.rounds > 0 { // the client's hooks may have kept those of before
			room = nil
		}
		return n.store.rdb.Process(f, f.calls[0].command(f, room)) // clients follow redirections of single commands
	}
	f.pipelined = len(f.calls) > 1
	cmds := make([]redis.Cmder, len(f.calls))
	for i := range f.calls {
		cmds[i] = f.calls[i].command(f, nil)
	}
	if n.bounded() {
		return n.pipeline(f, cmds)
	}
	return n.abandon(f, cmds)
}

// collect settles the calls that have come to an end, and leaves those that are to be sent again.
func (f *flight) collect(failed error) {
	var texts []*script
	rest, again := f.calls[:0], []call(nil) // the latter take part in no other's fate
	long := len(f.calls) > 1 && f.tearable()
	for i := range f.calls {
		c := &f.calls[i]
		reply, err := []int64(nil), errAbandoned
		if failed != errAbandoned { //nolint:errorlint // it is never wrapped
			reply, err = c.outcome(failed)
		}
		if err != nil && long {
			err = torn(err)
		}
		switch {
		case err == nil && c.shared == nil:
			f.alive = true
			c.entry.settle(reply, nil)
		case err == nil:
			f.alive = true
			again = append(again, c.arrive(f, reply)...)
		case c.shared != nil && len(c.heads) > 1 && f.lane.node.parts(err):
			c.each(func(p *passenger) { again = append(again, call{entry: &p.entry}) })
		case c.retry(err, &texts):
			rest = append(rest, *c)
		case f.lane.node.redirects(err) && f.pipelined:
			f.alive = true
			go f.lane.follow(*c)
		default:
			c.settle(nil, f.judge(c, err))
		}
	}
	rest = append(rest, again...)
	f.calls = rest
}

// judge says what the failure of a call means, and keeps the worst of them for the breaker.
func (f *flight) judge(c *call, err error) error {
	verdict := classify(err)
	verdict.Executed = verdict.Executed || c.lost
	if f.word == nil || !silent(classOf(f.word)) {
		f.word = verdict
	}
	return verdict
}

// fail settles everything that is left.
func (f *flight) fail(err error) {
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
			text, _ := arg.(string)
			bytes += len(text) + maxFraming
		}
	}
	return bytes > maxUntorn
}

var (
	errOpen = &core.StoreError{Class: core.ClassBreaker, Err: errors.New("redisstore: the server failed just before; it is asked once a second until it answers")}
	// errPanicked is the failure of a flight in which the program's own code has panicked.
	errPanicked = &core.StoreError{Class: core.ClassLost, Executed: true, Err: errors.New("redisstore: a hook panicked")}
)

// errAbandoned is the failure of calls that may still be under way: nobody may look at them.
var errAbandoned = fmt.Errorf("redisstore: the client goes on: %w", context.DeadlineExceeded)

// panicked is what the callers get to see of a panic in a goroutine that is not theirs.
type panicked struct{ value any }

func (p *panicked) Error() string { return fmt.Sprintf("redisstore: a hook panicked: %v", p.value) }
