package enforce

import (
	"cmp"
	"container/list"
	"context"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/core"
)

// waiters has the callers that wait for their turn, in a line for each policy, key and number of units. A store gives
// a reservation back only if nobody has queued behind it, so the turns of a line are held in common: a caller that
// leaves frees the last of them, whatever its place was, and the next caller takes that without asking the store.
//
// It holds as many turns as there are callers that wait, and those of callers that have left a moment ago.
type waiters struct {
	engine *engine
	askers *askers      // nil if no policy lets callers wait: see expect
	free   atomic.Int64 // turns that nobody waits for: while there are none, nobody looks for one

	mu      sync.Mutex
	closed  bool // nobody waits any more
	emptied bool // and the turns have been given back
	lines   map[lineKey]*line
	callers tally
	wg      sync.WaitGroup // of the callers
}

// lineKey names a line: turns of one lineKey can be exchanged for each other.
type lineKey struct {
	policy core.Policy
	key    string
	units  int64
	origin origin // of the units
}

func newWaiters(e *engine) *waiters {
	return &waiters{engine: e, lines: map[lineKey]*line{}, callers: tally{}}
}

// expect is called before there is a Limiter that lets callers wait.
func (w *waiters) expect() {
	w.mu.Lock()
	if w.askers == nil {
		w.askers = newAskers()
	}
	w.mu.Unlock()
}

func lineKeyOf(r *core.Refund) lineKey {
	return lineKey{r.Policy, r.Key, r.Receipt.Taken, originOf(&r.Receipt)}
}

// wait waits for the first turn of the line that no earlier caller waits for, and returns the receipt of it. The turn
// that the caller has taken, at the time given, joins the line, and so the caller asks no more. If the wait ends before,
// the last turn of the line is free.
func (w *waiters) wait(ctx context.Context, took *core.Refund, at time.Time, asks *asker) (core.Result, error) {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		w.put(took, at, asks)
		return core.Result{}, ErrClosed
	}
	l, x := w.line(lineKeyOf(took)), &waiter{ready: make(chan struct{})}
	l.add(&turn{at, took.Receipt}, x)
	asks.done()
	w.wg.Add(1)
	w.callers.add(took.Policy, 1)
	w.changed(l, time.Now())
	w.mu.Unlock()
	defer w.left(took.Policy)

	select {
	case <-x.ready:
	case <-ctx.Done():
		w.mu.Lock()
		if x.place != nil {
			l.remove(x)
			w.changed(l, time.Now())
			w.mu.Unlock()
			return core.Result{}, ctx.Err()
		}
		w.mu.Unlock()
	}
	if x.turn == nil {
		return core.Result{}, ErrClosed
	}
	return x.turn.took, nil
}

// left notes that a caller waits no more.
func (w *waiters) left(p core.Policy) {
	w.mu.Lock()
	w.callers.add(p, -1)
	w.mu.Unlock()
	w.wg.Done()
}

// put leaves the turn of a caller, which asks no more, to the next one.
func (w *waiters) put(took *core.Refund, at time.Time, asks *asker) {
	defer asks.done()
	w.mu.Lock()
	if w.emptied {
		w.mu.Unlock()
		w.engine.giveBack(took)
		return
	}
	l := w.line(lineKeyOf(took))
	l.add(&turn{at, took.Receipt}, nil)
	w.changed(l, time.Now())
	w.mu.Unlock()
}

// claim takes a turn that is free, if there is one that comes in time, for a caller that would otherwise ask the store.
func (w *waiters) claim(p core.Policy, ask *Ask) (t *turn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l, now := w.lines[lineKey{p, ask.Key, ask.Cost, inStore}], time.Now()
	if l == nil {
		return nil
	}
	l.pass(now)
	if first := l.waiting.Len(); l.free() > 0 && (p.Options().Wait == 0 || l.turns[first].at.Sub(now) <= ask.Wait) {
		t = l.turns[first]
		l.turns = slices.Delete(l.turns, first, first+1)
	}
	w.changed(l, now)
	return t
}

// forget drops the turns of a key that nobody waits for, because the key is reset.
func (w *waiters) forget(p core.Policy, key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, l := range w.lines {
		if k.key == key && k.policy.Name() == p.Name() {
			l.drop(l.free())
			w.changed(l, time.Now())
		}
	}
}

// count returns how many callers wait in a line.
func (w *waiters) count(k lineKey) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.lines[k]; l != nil {
		return l.waiting.Len()
	}
	return 0
}

// line returns the line of a key. w is locked.
func (w *waiters) line(k lineKey) *line {
	l := w.lines[k]
	if l == nil {
		k.key = strings.Clone(k.key) // it may be a part of a request
		l = &line{key: k}
		w.lines[k] = l
	}
	return l
}

// changed is called when a line has changed: it sets the timer for what is next in it. w is locked.
func (w *waiters) changed(l *line, now time.Time) {
	l.pass(now)
	free := l.free()
	w.free.Add(int64(free - l.counted))
	l.counted, l.least = free, min(l.least, free)
	switch {
	case free == 0:
		l.giveBackAt = time.Time{}
	case l.giveBackAt.IsZero():
		l.since, l.giveBackAt, l.least = now, now.Add(idleTurn), free
	}
	next := l.next()
	switch {
	case len(l.turns) == 0:
		delete(w.lines, l.key)
		if l.timer != nil {
			l.timer.Stop()
		}
	case l.timer == nil:
		l.alarm, l.timer = next, time.AfterFunc(next.Sub(now), func() { w.tick(l) })
	case l.alarm.IsZero() || next.Before(l.alarm): // one that is early does no harm
		l.alarm = next
		l.timer.Reset(next.Sub(now))
	}
}

// tick lets those go on whose turn has come, and gives back what nobody has taken for a while: when nobody asks any more
// who may have a later turn, because the caller began before there was a free one. No more goes back while that is on
// its way to the queue of refunds: a turn that overtook a later one would not be taken back.
func (w *waiters) tick(l *line) {
	w.mu.Lock()
	var back []core.Refund
	if now := time.Now(); w.lines[l.key] == l && !w.closed {
		l.alarm = time.Time{}
		l.pass(now)
		switch {
		case l.giveBackAt.IsZero() || now.Before(l.giveBackAt):
		case l.givesBack:
			l.giveBackAt = now.Add(idleTurn)
		case w.askers.any(w.askers.of(l.key.key), l.since, now):
			l.giveBackAt = now.Add(idleTurn / 5)
		default:
			back = l.drop(min(l.least, l.free(), max(fewTurns, min(l.free()/2, batchSize))))
			l.giveBackAt, l.givesBack = time.Time{}, len(back) > 0
		}
		w.changed(l, now)
	}
	w.mu.Unlock()
	if len(back) == 0 {
		return
	}
	for i := range back {
		w.engine.giveBack(&back[i])
	}
	w.mu.Lock()
	l.givesBack = false
	w.mu.Unlock()
}

// close ends all waits, and gives all turns back, the last first: when nobody asks any more, or after idleTurn.
func (w *waiters) close() {
	w.mu.Lock()
	w.closed = true
	for _, l := range w.lines {
		l.end()
	}
	askers := w.askers
	w.mu.Unlock()
	for began := time.Now(); askers != nil && time.Since(began) < idleTurn && askers.any(askers.counts, began, time.Now()); {
		<-time.After(time.Millisecond)
	}
	w.mu.Lock()
	w.emptied = true
	var back []core.Refund
	for _, l := range w.lines {
		back = append(back, l.drop(len(l.turns))...)
		w.changed(l, time.Now())
	}
	w.mu.Unlock()
	sort.SliceStable(back, func(i, j int) bool { // lines of one key have turns in between
		return back[i].Policy.CompareTurns(&back[j].Receipt, &back[i].Receipt) < 0
	})
	for i := range back {
		w.engine.giveBack(&back[i])
	}
	w.wg.Wait()
}

// A turn that has been free for idleTurn goes back to the store, or for twice as long at most: it is found out once in
// idleTurn. So another process may find a queue longer by what was left in this one within that time. It is as long as
// a store may take to answer: a caller that asked before there was a free turn has a later one, and the store takes
// only the last back. Of more than fewTurns one half goes at a time, batchSize at most: a caller that comes meanwhile
// takes one of those that are left, instead of queueing behind what is on its way back, which could not be given back
// then.
const (
	idleTurn = 50 * time.Millisecond
	fewTurns = 16
)

// line has the callers that wait for turns which can be exchanged for each other, and the turns. There are no fewer
// turns than callers: the first caller waits for the first turn, and those beyond are free. All its methods take the
// same time whatever its length, except that a turn which arrives out of order is moved to its place. It is locked by
// waiters.
type line struct {
	key     lineKey
	turns   []*turn   // in the order of the store
	waiting list.List // of *waiter

	timer *time.Timer
	alarm time.Time // when it goes off, or zero

	counted    int       // the turns that are free, as waiters counts them
	since      time.Time // since when there have been some
	giveBackAt time.Time // when some of those are given back, or zero
	givesBack  bool      // some are on their way to the queue of refunds
	least      int       // the fewest that there have been in the last idleTurn: so many were of use to nobody
}

// turn is a place in the queue of a store.
type turn struct {
	at   time.Time
	took core.Result // the receipt
}

// waiter is a caller that waits.
type waiter struct {
	place *list.Element // in the line; nil when the wait is over
	turn  *turn         // the one that has come; nil if the Limiter was closed
	ready chan struct{} // closed when the wait is over, unless the caller has left
}

func (l *line) free() int { return len(l.turns) - l.waiting.Len() }

// add adds a turn, and the caller that has taken it, if there is one: before those who have later turns.
func (l *line) add(t *turn, x *waiter) {
	at, _ := slices.BinarySearchFunc(l.turns, t, func(other, t *turn) int {
		return cmp.Or(l.key.policy.CompareTurns(&other.took, &t.took), -1) // the last of equal ones
	})
	l.turns = slices.Insert(l.turns, at, t)
	if x == nil {
		return
	}
	x.place = l.waiting.PushBack(x)
	for i := l.waiting.Len() - 1; i > at; i-- {
		l.waiting.MoveBefore(x.place, x.place.Prev())
	}
}

// remove lets x leave. If its turn has not come, that frees the last turn that was waited for.
func (l *line) remove(x *waiter) {
	l.waiting.Remove(x.place)
	x.place = nil
}

// removeFirst lets the caller leave that has waited for the first turn, and returns it, or nil if nobody waits.
func (l *line) removeFirst() *waiter {
	first := l.waiting.Front()
	if first == nil {
		return nil
	}
	x := first.Value.(*waiter) //nolint:forcetypeassert // there is nothing else in the list
	l.remove(x)
	return x
}

// pass lets those go on whose turn has come. A turn that comes while it is free is over: to use it later would be to
// use it beside those that come then.
func (l *line) pass(now time.Time) {
	for len(l.turns) > 0 && !l.turns[0].at.After(now) {
		if x := l.removeFirst(); x != nil {
			x.turn = l.turns[0]
			close(x.ready)
		}
		l.turns[0] = nil
		l.turns = l.turns[1:]
	}
}

// end ends the waits of all callers.
func (l *line) end() {
	for x := l.removeFirst(); x != nil; x = l.removeFirst() {
		close(x.ready)
	}
}

// drop removes the last n turns, which are free, and returns them, the last first.
func (l *line) drop(n int) (back []core.Refund) {
	for range n {
		last := len(l.turns) - 1
		t := l.turns[last]
		back = append(back, core.Refund{Policy: l.key.policy, Key: l.key.key, Receipt: t.took, Units: t.took.Taken})
		l.turns[last] = nil
		l.turns = l.turns[:last]
	}
	return back
}

// next returns when there is something to do: a turn comes, or it is time to give back.
func (l *line) next() (at time.Time) {
	if len(l.turns) > 0 {
		at = l.turns[0].at
	}
	if !l.giveBackAt.IsZero() && l.giveBackAt.Before(at) {
		at = l.giveBackAt
	}
	return at
}
