package enforce

import (
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
	free   atomic.Int64 // turns that nobody waits for: while there are none, nobody looks for one

	mu     sync.Mutex
	closed bool
	lines  map[lineKey]*line
	wg     sync.WaitGroup // of the callers
}

// lineKey names a line: turns of one lineKey can be exchanged for each other.
type lineKey struct {
	policy core.Policy
	key    string
	units  int64
	origin origin // of the units
}

func newWaiters(e *engine) *waiters { return &waiters{engine: e, lines: map[lineKey]*line{}} }

func lineKeyOf(r *core.Refund) lineKey {
	return lineKey{r.Policy, r.Key, r.Receipt.Taken, originOf(&r.Receipt)}
}

// wait waits for the first turn of the line that no earlier caller waits for, and returns the receipt of it. The turn
// that the caller has taken, at the time given, joins the line. If the wait ends before, the last turn of the line is
// free.
func (w *waiters) wait(ctx context.Context, took *core.Refund, at time.Time) (core.Result, error) {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		w.engine.giveBack(took)
		return core.Result{}, ErrClosed
	}
	l, x := w.line(lineKeyOf(took)), &waiter{ready: make(chan struct{})}
	l.add(&turn{at, took.Receipt}, x)
	w.wg.Add(1)
	w.changed(l, time.Now())
	w.mu.Unlock()
	defer w.wg.Done()

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

// put leaves a turn to the next caller.
func (w *waiters) put(took *core.Refund, at time.Time) {
	w.mu.Lock()
	if w.closed {
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
		l.idle = time.Time{}
	case l.idle.IsZero():
		l.idle, l.least = now.Add(idleTurn), free
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

// tick lets those go on whose turn has come, and gives back what nobody has taken for a while. No more goes back while
// that is on its way to the queue of refunds: a turn that overtook a later one would not be taken back.
func (w *waiters) tick(l *line) {
	w.mu.Lock()
	var back []core.Refund
	if now := time.Now(); w.lines[l.key] == l {
		l.alarm = time.Time{}
		l.pass(now)
		switch {
		case l.idle.IsZero() || now.Before(l.idle):
		case l.givesBack:
			l.idle = now.Add(idleTurn)
		default:
			back = l.drop(min(l.least, l.free(), max(fewTurns, min(l.free()/2, batchSize))))
			l.idle, l.givesBack = time.Time{}, len(back) > 0
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

// close ends all waits, and gives all turns back, the last first.
func (w *waiters) close() {
	w.mu.Lock()
	w.closed = true
	var back []core.Refund
	for _, l := range w.lines {
		l.end()
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
