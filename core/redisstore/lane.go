package redisstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weir-go/weir/core"
)

// lane is how things of one kind travel to one server: those that wait, the flights that are
// out, and a breaker.
//
// A flight is one round trip: a command, or a pipeline of several. A call that is asked for while
// no flight is out leaves at once, alone, in its caller's goroutine. One that is asked for while a
// flight is out becomes a passenger: it waits, and leaves with all others that have come meanwhile,
// when that flight is back. Another flight opens beside it if those who wait fill one, or if the
// first of them has waited for half of a round trip, as when the server is far away, or does not
// answer.
//
// So a decision goes from Store.Take, which makes an entry of it, to ask; from there in a flight of
// its own to fly, or through board, next and run, where group makes as few calls of all passengers
// as it takes. fly sends each call as a command, and settles its entries with what came back.
//
// The flights of those who wait have goroutines of their own. So a flight may take as long as the store's deadline allows, counted from its sending,
// while each of its passengers leaves when its own time is over; and no caller has to wait for a
// flight of others, or to answer for it.
type lane struct {
	*breaker
	node  *node
	limit time.Duration // of a flight
	most  int           // how many flights may be out at a time
	heavy int64         // the weight that fills a flight
	full  int           // the entries that do
	// behind is true if no request waits for what travels there.
	behind bool

	mu          sync.Mutex
	first, last *passenger // those who wait, in the order in which they came
	waiting     int
	weight      int64         // of those who wait
	out         int           // flights
	trip        time.Duration // a round trip, smoothed
	answers     uint64        // flights that were answered
	timer       *time.Timer   // opens a flight for those who have waited
	timed       bool          // it is running
}

// maxWaiting is how many may wait for one server, which takes them about 50 ms. They hold less
// than 10 MiB.
const maxWaiting = 8192

// ask flies with an entry that a request waits for, and returns what came of it.
// If it is a take, t, and was decided together with others, there is no reply, but res.
func (l *lane) ask(ctx context.Context, e entry, t *core.Take, res *core.Result) ([]int64, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if l.trouble.Load() != nil && l.shut() {
		return nil, errOpen
	}
	now, patience := time.Now(), l.limit
	if at, ok := ctx.Deadline(); ok { // a quarter of the caller's own time is for the fail word to decide in
		patience = min(patience, at.Sub(now)/4*3)
	}
	l.mu.Lock()
	alone := patience == l.limit && l.out < l.most && (l.out == 0 || l.full == 1)
	if alone {
		l.out++
	}
	l.mu.Unlock()
	if !alone {
		p := newPassenger(e, t, now)
		if !l.board(now, p) {
			return nil, errFull
		}
		// Half of the time is enough to wait in: the other half is for the flight.
		return p.ride(ctx, l, patience/2, patience, res)
	}
	f := &flight{lane: l, own: e, sent: now, entries: 1}
	f.only[0].entry = &f.own
	f.calls = f.only[:]
	f.fly(ctx)
	return f.own.reply, f.own.err
}

// board lets passengers wait for a flight, or opens one. It fails if too many wait: others, for those who
// come together come all the same if nobody does.
func (l *lane) board(now time.Time, ps ...*passenger) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting > 0 && l.waiting+len(ps) > maxWaiting {
		return false
	}
	for _, p := range ps {
		l.add(p)
	}
	l.depart(now)
	return true
}

// depart lets flights leave as long as there is one that is to. It is locked.
func (l *lane) depart(now time.Time) {
	for f := l.next(now); f != nil; f = l.next(now) {
		go l.run(f)
	}
}

// next is the flight that is to leave now, or nil. It is locked.
func (l *lane) next(now time.Time) *flight {
	if !l.ripe(now) {
		l.watch(now)
		return nil
	}
	l.out++
	f := &flight{lane: l, sent: now, waited: now.Sub(l.first.entered)}
	weight, tail := int64(0), (*passenger)(nil)
	for p := l.first; p != nil && f.entries < l.full && (f.entries == 0 || weight+p.weight <= l.heavy); p = l.first {
		weight += p.weight
		l.remove(p)
		p.aboard = true
		f.entries++
		if tail == nil {
			f.first = p
		} else {
			tail.after = p
		}
		tail = p
	}
	return f
}

// ripe reports whether a flight is to open for those who wait. It is locked.
func (l *lane) ripe(now time.Time) bool {
	switch {
	case l.first == nil || l.out >= l.most:
		return false
	case l.out == 0 || l.waiting >= l.full || l.weight >= l.heavy:
		return true
	}
	return now.Sub(l.first.entered) >= l.trip/2
}

// watch sees to it that the first of those who wait is not forgotten. It is locked.
func (l *lane) watch(now time.Time) {
	if l.timed || l.first == nil || l.out >= l.most {
		return
	}
	l.timed = true
	wait := max(l.trip/2-now.Sub(l.first.entered), 0)
	if l.timer == nil {
		l.timer = time.AfterFunc(wait, l.tick)
	} else {
		l.timer.Reset(wait)
	}
}

func (l *lane) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timed = false
	l.depart(time.Now())
}

// land makes room for the next flight, which leaves before the answers are given out: that takes
// its time too.
func (f *flight) land(answered bool) {
	if f.landed {
		return
	}
	f.landed = true
	now := time.Now()
	l := f.lane
	l.mu.Lock()
	defer l.mu.Unlock()
	if took := now.Sub(f.sent); answered {
		l.answers++
		if l.trip == 0 {
			l.trip = took
		}
		l.trip += (took - l.trip) / 8
	}
	if l.out--; l.first != nil {
		l.depart(now)
	}
}

// run flies for those who wait in their own goroutines.
func (l *lane) run(f *flight) {
	f.group(l.node.keys())
	if f.crowded {
		l.node.tryJoint()
	}
	f.flyForOthers()
}

// flyForOthers is fly, but that those who wait get to see a panic.
func (f *flight) flyForOthers() {
	defer func() {
		if value := recover(); value != nil {
			f.fail(&panicked{value})
		}
	}()
	f.fly(context.Background()) //nolint:forbidigo // it is of many requests
}

// follow sends a call by itself whose server has said that another one has its key: finding that
// one takes time.
func (l *lane) follow(c call) {
	f := &flight{lane: l, sent: time.Now(), calls: []call{c}, entries: 1, landed: true}
	f.flyForOthers()
}

// add is locked, and so is remove.
func (l *lane) add(p *passenger) {
	p.answers = l.answers
	p.before, p.after = l.last, nil
	if l.last == nil {
		l.first = p
	} else {
		l.last.after = p
		if l.last.alike(p) {
			p.weight = 0
		}
	}
	l.last = p
	l.waiting++
	l.weight += p.weight
}

func (l *lane) remove(p *passenger) {
	if p.before == nil {
		l.first = p.after
	} else {
		p.before.after = p.after
	}
	if p.after == nil {
		l.last = p.before
	} else {
		p.after.before = p.before
	}
	p.before, p.after = nil, nil
	l.waiting--
	l.weight -= p.weight
}

var errFull = &core.StoreError{
	Class: core.ClassBusy,
	Err:   errors.New("redisstore: too many decisions of this process wait for the server"),
}
