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
// The flights of those who wait have goroutines of their own, which end when nobody waits any
// more. So a flight may take as long as the store's deadline allows, counted from its sending,
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
	if l.shut() {
		return nil, errOpen
	}
	now := time.Now()
	patience := l.patience(ctx, now)
	if patience < l.limit || !l.alone() {
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
	defer func() { // also if a hook panics
		if next := l.land(f); next != nil {
			go l.run(next)
		}
	}()
	f.fly(ctx)
	return f.own.reply, f.own.err
}

// patience is how long a caller waits for everything. If its own time is shorter than the
// store's, three quarters of that are used; the rest is for the fail word to decide in.
func (l *lane) patience(ctx context.Context, now time.Time) time.Duration {
	if at, ok := ctx.Deadline(); ok {
		if left := at.Sub(now) / 4 * 3; left < l.limit {
			return left
		}
	}
	return l.limit
}

// alone opens a flight for one who has nobody to wait for.
func (l *lane) alone() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out > 0 && l.full > 1 || l.out >= l.most {
		return false
	}
	l.out++
	return true
}

// board lets passengers wait for a flight, or opens one. It fails if too many wait.
func (l *lane) board(now time.Time, ps ...*passenger) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting+len(ps) > maxWaiting {
		return false
	}
	for _, p := range ps {
		l.add(p)
	}
	for f := l.next(now); f != nil; f = l.next(now) {
		go l.run(f)
	}
	return true
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
	l.timed = false
	f := l.next(time.Now())
	l.mu.Unlock()
	l.run(f)
}

// land is the end of a flight. It returns the one that leaves in its place.
func (l *lane) land(f *flight) *flight {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if took := now.Sub(f.sent); f.alive {
		l.answers++
		if l.trip == 0 {
			l.trip = took
		}
		l.trip += (took - l.trip) / 8
	}
	if l.out--; l.first == nil {
		return nil
	}
	return l.next(now)
}

// run flies, and then with those who wait until no flight is to leave.
func (l *lane) run(f *flight) {
	for f != nil {
		f.group(l.node.keys())
		if f.crowded {
			l.node.tryJoint()
		}
		f.flyForOthers()
		f = l.land(f)
	}
}

// flyForOthers is fly for those who wait in their own goroutines, which get to see a panic.
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
	f := &flight{lane: l, sent: time.Now(), calls: []call{c}, entries: 1}
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
