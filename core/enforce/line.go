package enforce

import (
	"cmp"
	"container/list"
	"slices"
	"time"

	"github.com/weir-go/weir/core"
)

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

	counted   int       // the turns that are free, as waiters counts them
	idle      time.Time // when it is time to give back of those, or zero
	givesBack bool      // some are on their way to the queue of refunds
	least     int       // the fewest that there have been in the last idleTurn: so many were of use to nobody
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
	if !l.idle.IsZero() && l.idle.Before(at) {
		at = l.idle
	}
	return at
}
