package redisstore

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore/internal/fair"
	"github.com/weir-go/weir/core/redisstore/internal/hrtimer"
)

// lane is the way of entries of one kind to one server: the passengers that wait, the flights that are out, and a
// breaker. See wake.go for when flights leave and passengers wait, wake and give up.
//
// A decision goes from Store.Take, which makes an entry of it, to ask; from there in a flight of one to fly, or through
// the queue, next and run, where group makes as few calls of all passengers as it takes. fly and relay send each call as
// a command, and settle its entries with what came back. Flights of passengers have their own goroutines, so that no
// caller has to wait for the flight of others, or to answer for it.
type lane struct {
	*breaker
	node       *node
	deadline   time.Duration // the deadline of a caller
	background bool          // no request waits for what travels there
	traffic    *traffic      // its counts
	maxOut     int           // how many flights may be out at a time
	maxAside   int           // how many flights of one may be out beside them
	maxEntries int           // of a flight
	maxWeight  int64         // of a flight

	gates      fair.Gates[core.Policy] // to the lock, for callers
	mu         sync.Mutex
	queue      fair.Queue[core.Policy, *passenger] // Marked is the first that may not watch its caller's context yet
	newest     time.Time                           // when the latest of them entered
	out        int                                 // flights
	firsts     []core.Policy                       // of the first passenger of each of them
	asides     []core.Policy                       // of the flights beside those: see aside
	flights    []*flight                           // those that the timer is for
	inFlight   int                                 // entries of the flights that are out
	nextLeaves time.Time                           // when the next flight of many may leave: see stagger
	timer      *time.Timer
	timerAt    time.Time // when it fires, or zero

	idleTicks int       // how often in a row the timer had nothing to do
	calmUntil time.Time // until then it leaves to flights that come back what these do as well: see tick

	parked   atomic.Int64 // pilots that wait for a flight; raised only with l locked
	handover chan *flight // what they wait for: a send blocks for a moment at most, as each has its pilot

	smoothedTrip time.Duration    // the average round trip, by exponential smoothing
	shortest     [2]time.Duration // the shortest of this window of flights, and of the one before
	shortestTrip time.Duration    // of both, or 0 if nothing has been answered yet
	answers      uint64           // how many flights were answered
	answeredAt   moment           // the last of them
	overloaded   moment           // when the process last had more to do than it or the server can: see overloadedSince
	noRoomAt     moment           // when more than the flights have room for waited last
}

// maxWaiting is the number of passengers that may wait for one server, which takes them about 50 ms. They hold less than
// 10 MiB.
const maxWaiting = 8192

// lock locks the lane for a caller that comes through the gate of its policy.
func (l *lane) lock(gate *sync.Mutex) { gate.Lock(); l.mu.Lock() }

// unlock unlocks the lane, and then the gate.
func (l *lane) unlock(gate *sync.Mutex) { l.mu.Unlock(); gate.Unlock() }

// ask flies with an entry that a request waits for since now, and returns what came of it.
// If it is a take, t, and was decided together with others, there is no reply, but res.
func (l *lane) ask(ctx context.Context, now time.Time, e *entry, t *core.Take, res *core.Result) ([]int64, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if l.trouble.Load() != nil && l.shut() {
		return nil, refused(errOpen)
	}
	patience := l.deadline
	if at, ok := ctx.Deadline(); ok { // a quarter of the caller's own time is for the fail word to decide in
		patience = min(patience, at.Sub(now)/4*3)
	}
	p := passengers.Get().(*passenger).enter(e, t, now)
	gate := l.gates.Of(e.policy)
	l.lock(gate)
	if l.shortestTrip > l.node.store.grace && l.tooLate(time.Since(now)) {
		l.overloaded.set(time.Now())
		l.unlock(gate)
		p.release()
		return nil, refused(errPaused)
	}
	aside := patience == l.deadline && l.out >= l.maxOut && l.aside(e.policy)
	if aside || patience == l.deadline && l.out == 0 {
		policies := &l.asides
		if !aside {
			policies = &l.firsts
			l.out++
			l.inFlight++
		}
		*policies = append(*policies, e.policy)
		shortestTrip := l.shortestTrip
		l.unlock(gate)
		f := &flight{lane: l, own: p.entry, policy: e.policy, sent: now, shortestTrip: shortestTrip, entries: 1, aside: aside}
		f.own.owner = nil
		p.release()
		f.only[0].entry = &f.own
		f.calls = f.only[:]
		f.fly(ctx)
		return f.own.reply, f.own.err
	}
	if l.queue.Len() >= maxWaiting && !l.makeRoom(e.policy) {
		l.unlock(gate)
		p.release()
		return nil, refused(errFull)
	}
	watching := l.admit(p, patience)
	limit := l.queueLimit(patience)
	f := l.next(now)
	l.unlock(gate)
	if f != nil {
		l.launch(f)
	}
	return p.await(ctx, l, !watching, limit, patience, res)
}

// admit lets a passenger wait whose caller has that much patience, and reports whether it watches its caller's context
// from the beginning. l is locked.
func (l *lane) admit(p *passenger, patience time.Duration) (watching bool) {
	l.enqueue(p)
	watching = p.watching || p.outOfOrder || patience < l.deadline || l.background
	if p.watching = watching; !watching && l.queue.Marked == nil {
		l.queue.Marked = &p.place
	}
	return watching
}

// together lets the passengers of one caller wait, and so leave in one flight unless there are too many, or others wait.
// If mayFly is true and no flight is out, it flies with them itself. It returns how long they may wait for a flight. One
// for which there is no room is settled.
func (l *lane) together(ctx context.Context, now time.Time, patience time.Duration, ps []*passenger, mayFly bool) (limit time.Duration, err error) {
	if l.trouble.Load() != nil && l.shut() {
		return 0, refused(errOpen)
	}
	gate := l.gates.Of(ps[0].policy)
	l.lock(gate)
	if l.shortestTrip > l.node.store.grace && l.tooLate(time.Since(now)) {
		l.overloaded.set(time.Now())
		l.unlock(gate)
		return 0, refused(errPaused)
	}
	limit = l.queueLimit(patience)
	weight := int64(0)
	for _, p := range ps {
		weight += p.weight
	}
	if mayFly && patience == l.deadline && l.out == 0 && len(ps) <= l.maxEntries && weight <= l.maxWeight {
		f := &flight{lane: l, policy: ps[0].policy, sent: now, shortestTrip: l.shortestTrip, passengers: ps, entries: len(ps)}
		l.takeOff(f.policy, f.entries)
		l.unlock(gate)
		for _, p := range ps {
			p.watching, p.outOfOrder = true, true // should one be left, it has its own timer
		}
		f.group(l.node.maxKeys())
		if f.crowded {
			l.node.lookForProxy()
		}
		f.fly(ctx)
		return limit, nil
	}
	for _, p := range ps {
		if l.queue.Len() < maxWaiting || l.makeRoom(p.policy) {
			p.answerOnly = !l.admit(p, patience)
		} else {
			p.settle(nil, errFull)
		}
	}
	l.depart(now)
	l.unlock(gate)
	return limit, nil
}

// refused lets all others go first before a caller gets to know that nothing was asked for it. If it asks again at once,
// as a crowd may, those who are answered would wait for it to be interrupted, and so would the flight that finds out
// that the server is back.
func refused(err error) error {
	runtime.Gosched()
	return err
}

// aside reports whether a caller may leave at once in a flight beside those that the lane may have out, because these
// are of others: nobody of its policy waits, nor comes first in a flight that is out, nor has left like that. So a crowd
// that keeps all flights busy does not keep those waiting that are alone, and does not leave like that itself: a flight of
// one costs nearly as much as another. There are at most maxAside of these flights, so that these and maxOut fit the pool,
// if nothing else uses it. l is locked.
func (l *lane) aside(policy core.Policy) bool {
	return l.out >= l.maxOut && len(l.asides) < l.maxAside &&
		!l.queue.Has(policy) && !slices.Contains(l.firsts, policy) && !slices.Contains(l.asides, policy)
}

// takeOff counts a flight whose first passenger is of that policy. l is locked.
func (l *lane) takeOff(policy core.Policy, entries int) {
	l.out++
	l.inFlight += entries
	l.firsts = append(l.firsts, policy)
}

// board lets passengers wait for a flight, or opens one. It fails if too many wait: others, for those that come together
// come all the same if nobody does.
func (l *lane) board(now time.Time, ps ...*passenger) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.queue.Len(); n > 0 && n+len(ps) > maxWaiting {
		return false
	}
	for _, p := range ps {
		l.enqueue(p)
	}
	l.depart(now)
	return true
}

// enqueue lets p wait. l is locked.
func (l *lane) enqueue(p *passenger) {
	p.answers = l.answers
	if p.outOfOrder = l.newest.Sub(p.entered) > pollEvery(l.deadline); !p.outOfOrder {
		l.newest = p.entered
	}
	p.watching = l.smoothedTrip > maxWatchAfter/2
	if p.entered.Add(l.queueLimit(l.deadline)).Before(l.calmUntil) { // the process was paused, or has no processors
		l.calmUntil = time.Time{}
	}
	l.add(p)
}

// add puts p into the queue of its policy. It weighs nothing if the server decides for it and the one before as if they
// were one. l is locked.
func (l *lane) add(p *passenger) {
	before := l.queue.Last(p.policy)
	l.queue.Add(&p.place, p.policy, p.weight, before != nil && before.Value.alike(p))
}

// oldest returns the passenger that came first of all that wait, or nil. l is locked.
func (l *lane) oldest() *passenger {
	if first := l.queue.First(); first != nil {
		return first.Value
	}
	return nil
}

// makeRoom sends away a passenger of the policy of which most wait, and reports whether there was one to send away for
// the policy that is given. l is locked.
func (l *lane) makeRoom(policy core.Policy) bool {
	l.overloaded.set(time.Now())
	newest := l.queue.Displace(policy)
	if newest == nil {
		return false
	}
	newest.Value.settle(nil, errFull)
	return true
}

// leave takes a passenger out of the queue, and reports whether it was there, and if so, whether it waited in vain because
// of others: the server has answered some meanwhile, or so many waited that not all would have had a flight, of a server
// that answered a moment ago.
func (l *lane) leave(p *passenger) (unsent, busy bool) {
	gate := l.gates.Of(p.policy)
	l.lock(gate)
	defer l.unlock(gate)
	if !p.place.Queued() {
		return false, false
	}
	l.queue.Remove(&p.place)
	answered, many := l.answers > p.answers, l.queue.Len() >= l.maxOut*DefaultMaxKeys // if not so many, a connection may be dead
	if many {
		l.noRoomAt.set(time.Now())
		if answered {
			l.overloaded.set(time.Now())
		}
	}
	return true, answered || l.noRoomAt.after(p.entered) && l.answeredAt.ago() < staleFor
}

// depart lets flights leave as long as there is one that is to. l is locked.
func (l *lane) depart(now time.Time) {
	for f := l.next(now); f != nil; f = l.next(now) {
		l.launch(f)
	}
}

// next returns the flight that is to leave now, or nil. l is locked.
func (l *lane) next(now time.Time) *flight {
	if l.queue.Len() == 0 {
		return nil
	}
	defer l.setTimer(now)
	if !l.shouldDepart(now) {
		return nil
	}
	now = time.Now() // when its time begins, whatever its passengers have done before
	if l.dismiss(now); l.queue.Len() == 0 {
		return nil
	}
	f := &flight{lane: l, sent: now, shortestTrip: l.shortestTrip, passengers: l.queue.Fill(l.maxEntries, l.maxWeight, takeWeight)}
	f.policy, f.waited, f.entries = f.passengers[0].policy, now.Sub(f.passengers[0].entered), len(f.passengers)
	l.takeOff(f.policy, f.entries)
	l.flights, f.tracked = append(l.flights, f), true
	f.delay = l.stagger(f, now)
	return f
}

// dismiss sends away the passengers that will not wait as long as an answer takes, as after a pause of the process: they
// came first. l is locked.
func (l *lane) dismiss(now time.Time) {
	for p := l.oldest(); p != nil && !l.background && l.tooLate(now.Sub(p.entered)); p = l.oldest() {
		l.queue.Remove(&p.place)
		l.overloaded.set(now)
		p.settle(nil, errPaused)
	}
}

// tooLate reports whether it is too late to ask for a caller that has waited so long. l is locked.
func (l *lane) tooLate(waited time.Duration) bool {
	return tooLate(answerBy(l.deadline)-waited, l.shortestTrip, l.node.store.grace)
}

// launch lets a pilot fly: one that is parked, or else a new goroutine.
func (l *lane) launch(f *flight) {
	if l.unpark() {
		l.handover <- f
		return
	}
	go l.run(f)
}

// unpark claims a parked pilot, which is to be handed a flight then, and reports whether there was one.
func (l *lane) unpark() bool {
	for n := l.parked.Load(); n > 0; n = l.parked.Load() {
		if l.parked.CompareAndSwap(n, n-1) {
			return true
		}
	}
	return false
}

// run is a pilot: it flies for passengers, one flight after the other, as long as there are any. Then it parks while other
// flights are out, as a new goroutine would have to grow its stack again; the last one that is back ends those that are
// parked.
func (l *lane) run(f *flight) {
	for f != nil {
		f.group(l.node.maxKeys())
		if f.crowded {
			l.node.lookForProxy()
		}
		if f.delay > 0 {
			f.awaitDeparture()
		}
		if f = f.relay(); f == nil && l.park() {
			f = <-l.handover
		}
	}
}

// awaitDeparture waits for the delay of a flight. One that finds no timer leaves at once.
func (f *flight) awaitDeparture() {
	if hrtimer.Sleep(f.delay - time.Since(f.sent)) {
		f.begin(time.Now())
	}
}

// begin lets the time of a flight that has waited begin now, so that the delay is not taken for a part of the round trip.
// If the process was stopped meanwhile, the time of that stop counts, for failLate to see whether it is too late to ask.
func (f *flight) begin(now time.Time) {
	f.lane.mu.Lock() // as its timer reads when flights left
	defer f.lane.mu.Unlock()
	waited := min(now.Sub(f.sent), f.delay+time.Millisecond)
	f.sent, f.waited = f.sent.Add(waited), f.waited+waited
}

// park counts a pilot as parked, and reports whether it has: not if no flight is out, which could end it later.
func (l *lane) park() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out == 0 || int(l.parked.Load()) >= cap(l.handover) {
		return false
	}
	l.parked.Add(1)
	return true
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
		l.drop(f)
	}
	if f.landed {
		return nil
	}
	if answered {
		if l.answers%tripWindow == 0 {
			l.shortest = [2]time.Duration{took, l.shortest[0]}
		}
		l.shortest[0] = min(l.shortest[0], took)
		l.answeredAt.set(f.sent.Add(took))
		if l.answers++; l.answers == 1 {
			l.smoothedTrip, l.shortest[1] = took, took
		}
		l.smoothedTrip += (took - l.smoothedTrip) / 8
		// If the process was short of processors when the first answers came, all seem to take longer than half of a
		// caller's time, and nobody would ask any more, and find out that they do not.
		l.shortestTrip = min(l.shortest[0], l.shortest[1], answerBy(l.deadline)/2)
	}
	if stay && l.queue.Weight() < l.maxWeight/4 {
		return nil
	}
	f.landed = true
	policies := &l.asides
	if !f.aside {
		policies = &l.firsts
		l.out--
		l.inFlight -= f.entries
	}
	i := slices.Index(*policies, f.policy)
	if *policies = slices.Delete(*policies, i, i+1); f.aside {
		return nil
	}
	if l.queue.Len() > 0 {
		now := f.sent.Add(took)
		if next = l.next(now); next != nil {
			l.depart(now) // if there are so many
		}
	}
	if l.out == 0 {
		for n := l.parked.Swap(0); n > 0; n-- {
			l.handover <- nil
		}
	}
	return next
}

// track lets the timer be for the passengers whose calls are sent again.
func (l *lane) track(f *flight) {
	again := make([]*passenger, 0, f.entries) // those of the others may be on another flight
	for i := range f.calls {
		f.calls[i].each(func(p *passenger) { again = append(again, p) })
	}
	if len(again) == 0 {
		return
	}
	slices.SortFunc(again, func(a, b *passenger) int { return a.entered.Compare(b.entered) })
	l.mu.Lock()
	defer l.mu.Unlock()
	f.passengers = again
	l.flights, f.tracked = append(l.flights, f), true
	l.calmUntil = time.Time{} // these may be due before the timer fires
	l.setTimer(time.Now())
}

// untrack drops a flight whose passengers need the timer no more.
func (l *lane) untrack(f *flight) {
	if f.tracked {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.drop(f)
	}
}

// drop is untrack with l locked.
func (l *lane) drop(f *flight) {
	if f.tracked {
		i := slices.Index(l.flights, f)
		l.flights, f.tracked = slices.Delete(l.flights, i, i+1), false
	}
}

// follow sends a call by itself whose server has said that another one has its key: finding that one takes time.
func (l *lane) follow(c call) {
	f := &flight{lane: l, sent: time.Now(), calls: []call{c}, entries: 1, landed: true}
	l.track(f)
	f.relay()
}

// overloadedSince reports whether, since then, one of a crowd found no place, or no flight while others had one, or came
// too late to ask; and the server does answer. Then time passes because of what this process asks for, and not because
// the server is silent. It needs no lock: all of a crowd ask at the same time.
func (l *lane) overloadedSince(t time.Time) bool {
	return l.overloaded.after(t) && l.answeredAt.ago() < staleFor
}

// lacksProcessors reports whether a goroutine that can run waits long for a processor, as beside thousands of others,
// although the server answered a moment ago: then a flight may have been answered, or a connection made, and nobody has
// had the time to look. A server that is silent for longer is believed to be.
func (l *lane) lacksProcessors() bool {
	if l.answeredAt.ago() >= staleFor {
		return false
	}
	start := time.Now()
	runtime.Gosched()
	return time.Since(start) > grace(l.deadline)
}
