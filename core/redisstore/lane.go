package redisstore

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/core"
)

// lane is how things of one kind travel to one server: those that wait, the flights that are out, and a breaker.
//
// A flight is one round trip: a command, or a pipeline of several. A call that is asked for while no flight is out
// leaves at once, alone, in its caller's goroutine. One that is asked for while a flight is out becomes a
// passenger: it waits, and leaves with all others that have come meanwhile, when that flight is back. Another
// flight opens beside it if those who wait fill one; if the server is so far away that several flights can share
// the way, or so many wait that each side can be kept busy, for an equal part of those who are about; and if the
// first of those who wait has waited for half of a round trip, as when the server does not answer. Those of each policy
// wait in a queue of their own, and a flight is filled from all queues in turn: see queues.
//
// So a decision goes from Store.Take, which makes an entry of it, to ask; from there in a flight of its own to fly, or
// through add, next and run, where group makes as few calls of all passengers as it takes. fly and relay send each call
// as a command, and settle its entries with what came back.
//
// The flights of those who wait have goroutines of their own. So a flight may take as long as the store's deadline
// allows, counted from its sending, while each of its passengers leaves when its own time is over; and no caller
// has to wait for a flight of others, or to answer for it. The time of those who have as much of it as the store
// allows passes in the order in which they came, so that one timer is enough for all of them. It also tells them
// when to look whether their callers leave.
type lane struct {
	*breaker
	node  *node
	limit time.Duration // of a flight
	most  int           // how many flights may be out at a time
	spare int           // how many lone ones may be out beside them
	heavy int64         // the weight that fills a flight
	full  int           // the entries that do
	// behind is true if no request waits for what travels there.
	behind bool

	gates   gates // to the lock, for callers
	mu      sync.Mutex
	queues                   // of those who wait
	newest  time.Time        // when the latest of them has entered
	out     int              // flights
	extra   []core.Policy    // of the lone flights beside those: see aside
	flights []*flight        // those of them that have passengers
	aboard  int              // entries of the flights
	trip    time.Duration    // a round trip, smoothed
	nearest [2]time.Duration // the shortest of late, and of those before
	answers uint64           // flights that were answered
	heard   moment           // of the last of them
	excess  moment           // when the process last had more to do than it or the server can: see tooMany
	long    moment           // when so many waited last that the flights had no room for all
	timer   *time.Timer      // for those whose time passes
	alarm   time.Time        // when it goes off, or zero
}

// maxWaiting is how many may wait for one server, which takes them about 50 ms. They hold less
// than 10 MiB.
const maxWaiting = 8192

// enter makes p, which may have been another one before, the passenger of an entry. If that is of a take, its key has
// no name yet. The name of before, which may be of another store, is nearly always the one that is needed again.
func (p *passenger) enter(e *entry, t *core.Take, entered time.Time) *passenger {
	last := p.key
	p.entry, p.entered, p.aboard, p.decided, p.late = *e, entered, false, false, nil
	p.rider = p
	p.landed.Begin()
	if p.key == "" && t != nil {
		if p.program.names.Same(last, p.program.before, t.Key) {
			p.key = last
		} else {
			p.key = p.program.name(t.Key)
		}
	}
	if t != nil {
		p.take = *t
		// The text of the key may be a part of a request, and so must not be kept when its caller has left. Nearly
		// always the name ends with the same text.
		if before, ok := strings.CutSuffix(p.key, t.Key); ok {
			p.take.Key = p.key[len(before):]
		} else {
			p.take.Key = strings.Clone(t.Key)
		}
	}
	return p
}

// ask flies with an entry that a request waits for since now, and returns what came of it.
// If it is a take, t, and was decided together with others, there is no reply, but res.
func (l *lane) ask(ctx context.Context, now time.Time, e *entry, t *core.Take, res *core.Result) ([]int64, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if l.trouble.Load() != nil && l.shut() {
		return nil, refused(errOpen)
	}
	patience := l.limit
	if at, ok := ctx.Deadline(); ok { // a quarter of the caller's own time is for the fail word to decide in
		patience = min(patience, at.Sub(now)/4*3)
	}
	p := passengers.Get().(*passenger).enter(e, t, now) // if it flies alone, too, for the name of its key
	gate := l.lock(e.policy)
	if l.distance() > l.node.store.lateness && l.late(time.Since(now)) {
		l.excess.set(time.Now())
		l.unlock(gate)
		p.leaves()
		return nil, refused(errPaused)
	}
	aside := patience == l.limit && l.out >= l.most && l.aside(e.policy)
	if aside || patience == l.limit && l.out == 0 {
		if aside {
			l.extra = append(l.extra, e.policy)
		} else {
			l.out++
			l.aboard++
		}
		trip := l.distance()
		l.unlock(gate)
		f := &flight{lane: l, own: p.entry, sent: now, trip: trip, entries: 1, aside: aside}
		f.own.rider = nil
		p.leaves()
		f.only[0].entry = &f.own
		f.calls = f.only[:]
		f.fly(ctx)
		return f.own.reply, f.own.err
	}
	if l.waiting >= maxWaiting && !l.makeRoom(e.policy, now) {
		l.unlock(gate)
		p.leaves()
		return nil, refused(errFull)
	}
	l.enqueue(p)
	attentive := p.attentive || p.older || patience < l.limit || l.behind
	if p.attentive = attentive; !attentive && l.untold == nil {
		l.untold = p
	}
	queueing := l.queueing(patience)
	f := l.next(now)
	l.unlock(gate)
	l.start(f)
	if !attentive {
		if <-p.seat; p.landed.Load() {
			return p.arrive(false, res)
		}
		p.nudge() // the word may have been that its time is over
	}
	return p.ride(ctx, l, queueing, patience, res)
}

// refused lets all others go first before a caller gets to know that nothing was asked for it. If it asks again at once,
// as a crowd may, those who are answered would wait for it to be interrupted, and so would the flight that finds out
// that the server is back.
func refused(err error) error {
	runtime.Gosched()
	return err
}

// queueing is how long one who has that much time may wait for a flight, so that the flight can be back in time: three
// quarters, because a server may stand still for a while and serve all when it goes on; but half where a flight takes
// that long always. l is locked.
func (l *lane) queueing(patience time.Duration) time.Duration {
	return max(patience/2, min(patience/4*3, enough(patience)-2*l.distance()))
}

// aside reports whether a caller may leave at once in a flight beside those that the lane may have out, because these
// are of others: nobody of its policy waits, nor has left like that. So a crowd that keeps all flights busy does not
// keep those waiting who are alone. There are at most as many of these flights, and connections for all. It is locked.
func (l *lane) aside(policy core.Policy) bool {
	return l.out >= l.most && len(l.extra) < l.spare && l.byPolicy[policy] == nil && !slices.Contains(l.extra, policy)
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
		l.enqueue(p)
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
	if l.first == nil {
		return nil
	}
	defer l.watch(now)
	if !l.ripe(now) {
		return nil
	}
	now = time.Now() // when its time begins, whatever its passengers have done before
	if l.dismiss(now); l.first == nil {
		return nil
	}
	f := &flight{lane: l, sent: now, trip: l.distance(), riders: l.fill(l.full, l.heavy)}
	f.waited, f.entries = now.Sub(f.riders[0].entered), len(f.riders)
	l.out++
	l.aboard += f.entries
	l.flights, f.tracked = append(l.flights, f), true
	return f
}

// dismiss sends those away who will not wait as long as an answer takes, as after a pause of the process: they came
// first. It is locked.
func (l *lane) dismiss(now time.Time) {
	for p := l.first; p != nil && !l.behind && l.late(now.Sub(p.entered)); p = l.first {
		l.remove(p)
		l.excess.set(now)
		p.aboard = true // so that it is not taken out again
		p.settle(nil, errPaused)
	}
}

// late reports whether it is too late to ask for a caller that has waited so long: see missed. It is locked.
func (l *lane) late(waited time.Duration) bool {
	return missed(enough(l.limit)-waited, l.distance(), l.node.store.lateness)
}

// distance is the shortest round trip of late, or 0 if nothing has been answered yet; but not more than half of the time
// that a caller has. If the process was short of processors when the first answers came, all seem to take longer than
// that, and nobody would ask any more, and find out that they do not. It is locked.
func (l *lane) distance() time.Duration { return min(l.nearest[0], l.nearest[1], enough(l.limit)/2) }

// ripe reports whether a flight is to open for those who wait, who are some. It is locked.
func (l *lane) ripe(now time.Time) bool {
	switch {
	case l.out >= l.most:
		return false
	case l.out == 0 || l.waiting >= l.full || l.weight >= l.heavy:
		return true
	}
	if n := l.useful(); l.out < n && l.waiting*n >= l.waiting+l.aboard {
		return true
	}
	return now.Sub(l.first.entered) >= l.haste()
}

// useful is how many flights it pays to have out at a time: the further away the server is, the more of them share
// the way. Near it, fewer and larger flights cost both sides less; but of a crowd, one part is for the server to
// decide while the process gives the answers to another, and a third is on its way, so that neither of them falls
// asleep: to be woken costs more than a flight.
func (l *lane) useful() int {
	n := 1 + int(l.distance()/far)
	if l.waiting >= crowd {
		n = max(n, 3)
	}
	return min(l.most, n)
}

// crowd is how many wait who keep both sides busy: with fewer, what a flight costs by itself is more than that gains.
const crowd = 16

// haste is how long one waits for others before a flight leaves for it, although others are out.
func (l *lane) haste() time.Duration { return max(l.trip/2, time.Millisecond) }

// far is how far away a server is to which another flight pays. A flight costs the two of them about 50 us.
const far = 250 * time.Microsecond

// glance is after what time the lane tells a passenger to look whether its caller leaves. To wait for one thing
// alone costs less than half of what it costs to wait for several, and nearly all have their answer by then; but
// not where the round trip itself takes that long, and so they look from the beginning there.
const glance = time.Millisecond

// watch sees to it that nobody whose time passes is forgotten. It is locked.
func (l *lane) watch(now time.Time) {
	if !l.alarm.IsZero() && l.alarm.Before(now.Add(lookEvery(l.limit))) {
		return
	}
	at := time.Time{}
	before := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if l.first != nil {
		if l.out < l.most {
			before(l.first.entered.Add(l.haste()))
		}
		if !l.behind {
			before(l.first.entered.Add(l.queueing(l.limit)))
		}
	}
	if l.untold != nil {
		before(l.untold.entered.Add(glance))
	}
	if !l.behind {
		for _, f := range l.flights {
			before(f.riders[0].entered.Add(looking(l.limit)))
			if !f.attentive {
				before(f.sent.Add(glance))
			}
		}
	}
	if at.IsZero() || !l.alarm.IsZero() && !at.Before(l.alarm) {
		return
	}
	now = time.Now() // that of who came may be old, and those who look about are to do so at some distance
	if soon := now.Add(lookEvery(l.limit)); at.Before(soon) {
		if at = soon; !l.alarm.IsZero() && !at.Before(l.alarm) {
			return
		}
	}
	l.alarm = at
	if l.timer == nil {
		l.timer = time.AfterFunc(at.Sub(now), l.tick)
	} else {
		l.timer.Reset(at.Sub(now))
	}
}

// tick opens a flight for those who have waited, and lets those look about whose time may be over.
func (l *lane) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.depart(now)
	if !l.behind {
		l.tell(now)
	}
	l.alarm = time.Time{}
	l.watch(now)
}

// tell lets those look about whose time may be over, and those who have not yet looked whether their callers leave. It
// is locked.
func (l *lane) tell(now time.Time) {
	for ; l.untold != nil && now.Sub(l.untold.entered) >= glance; l.untold = l.untold.later {
		if !l.untold.attentive {
			l.untold.attentive = true
			l.untold.nudge()
		}
	}
	queueing := l.queueing(l.limit)
	for p := l.first; p != nil && now.Sub(p.entered) >= queueing; p = p.later {
		p.nudge()
	}
	for _, f := range l.flights {
		if !f.attentive && now.Sub(f.sent) >= glance {
			f.attentive = true
			for _, p := range f.riders {
				if !p.attentive {
					p.attentive = true
					p.nudge()
				}
			}
		}
		for _, p := range f.riders {
			if now.Sub(p.entered) < looking(l.limit) {
				break
			}
			p.nudge()
		}
	}
}

// start lets a flight leave, if there is one.
func (l *lane) start(f *flight) {
	if f != nil {
		go l.run(f)
	}
}

// run flies for those who wait in their own goroutines, as long as there are any.
func (l *lane) run(f *flight) {
	for f != nil {
		f.group(l.node.keys())
		if f.crowded {
			l.node.tryJoint()
		}
		f = f.relay()
	}
}

// land notes that a flight is back, and whether the server has answered just now. It keeps its place until its answers
// are given out, if it may stay and those who wait give the server little to do: more may come. Else it returns the
// flight that is to leave now, if there is one.
func (f *flight) land(answered, stay bool) (next *flight) {
	took := time.Since(f.sent)
	l := f.lane
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.tracked {
		l.forget(f)
	}
	if f.landed {
		return nil
	}
	if answered {
		if l.answers%window == 0 {
			l.nearest = [2]time.Duration{took, l.nearest[0]}
		}
		l.nearest[0] = min(l.nearest[0], took)
		l.heard.set(f.sent.Add(took))
		if l.answers++; l.answers == 1 {
			l.trip, l.nearest[1] = took, took
		}
		l.trip += (took - l.trip) / 8
	}
	if stay && l.weight < l.heavy/4 {
		return nil
	}
	f.landed = true
	if f.aside {
		i := slices.Index(l.extra, f.own.policy)
		l.extra = slices.Delete(l.extra, i, i+1)
		return nil
	}
	l.out--
	l.aboard -= f.entries
	if l.first == nil {
		return nil
	}
	now := f.sent.Add(took)
	if next = l.next(now); next != nil {
		l.depart(now) // if there are so many
	}
	return next
}

// window is of how many flights the nearest are.
const window = 64

// track has an eye on the time of those whose calls are sent again.
func (l *lane) track(f *flight) {
	riders := make([]*passenger, 0, f.entries) // those of the others may be on another flight
	for i := range f.calls {
		f.calls[i].each(func(p *passenger) { riders = append(riders, p) })
	}
	if len(riders) == 0 {
		return
	}
	slices.SortFunc(riders, func(a, b *passenger) int { return a.entered.Compare(b.entered) })
	l.mu.Lock()
	defer l.mu.Unlock()
	f.riders = riders
	l.flights, f.tracked = append(l.flights, f), true
	l.watch(time.Now())
}

// untrack is for a flight whose passengers need no eye on their time any more.
func (l *lane) untrack(f *flight) {
	if f.tracked {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.forget(f)
	}
}

// forget is untrack. It is locked.
func (l *lane) forget(f *flight) {
	if f.tracked {
		i := slices.Index(l.flights, f)
		l.flights, f.tracked = slices.Delete(l.flights, i, i+1), false
	}
}

// follow sends a call by itself whose server has said that another one has its key: finding that
// one takes time.
func (l *lane) follow(c call) {
	f := &flight{lane: l, sent: time.Now(), calls: []call{c}, entries: 1, landed: true}
	l.track(f)
	f.relay()
}

// enqueue lets p wait. It is locked.
func (l *lane) enqueue(p *passenger) {
	p.answers = l.answers
	if p.older = l.newest.Sub(p.entered) > lookEvery(l.limit); !p.older {
		l.newest = p.entered
	}
	p.attentive = l.trip >= glance/2
	l.add(p)
}

// makeRoom sends away a passenger of the policy of which most wait, and reports whether there was one to send away for
// the policy that is given. It is locked.
func (l *lane) makeRoom(policy core.Policy, now time.Time) bool {
	l.excess.set(now)
	p := l.displace(policy)
	if p == nil {
		return false
	}
	p.aboard = true // so that it is not taken out again
	p.settle(nil, errFull)
	return true
}

// tooMany reports whether, since then, one of a crowd found no place, or no flight while others had one, or came too
// late to ask; and the server does answer. Then time passes because of what this process asks for, and not because the
// server is silent. It needs no lock: all of a crowd ask at the same time.
func (l *lane) tooMany(since time.Time) bool {
	return l.excess.after(since) && l.heard.ago() < staleFor
}

// short reports whether the process is short of processors, as beside thousands of goroutines that all can run, although
// the server was heard a moment ago: then a flight may have been answered, or a connection made, and nobody has had the
// time to look. A server that is silent for longer is believed to be.
func (l *lane) short() bool {
	return l.heard.ago() < staleFor && lap() > lateness(l.limit)
}

var errFull = &core.StoreError{
	Class: core.ClassBusy,
	Err:   errors.New("redisstore: too many decisions of this process wait for the server"),
}

// errPaused is the failure of what was not asked because its caller would not have waited for the answer: the process
// was stopped, or had no processor.
var errPaused = &core.StoreError{
	Class: core.ClassBusy,
	Err:   errors.New("redisstore: this process came too late to ask the server: it was stopped, or is short of processors"),
}
