package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/weir-go/weir/core"
)

// The rules of leaving, waiting and waking. A flight is one round trip: a command, or a pipeline of several.
//
//	caller ── ask ──┬── flight of one, in the caller's goroutine ───────────────────────────────────> answer
//	                │   if it has the full deadline and no flight is out, or aside of those of others
//	                │
//	                └── passenger ──> queue ── next ──> flight of many ── land ──> settle ── wake ──> answer
//	                    all others    of its policy     in a goroutine
//
// next runs when a passenger comes (ask), when a flight is back (land), and when the lane's timer fires (tick). Then a
// flight leaves if shouldDepart: no flight is out; or those who wait fill one; or it pays to have one more under way; or
// the first of them has waited for maxQueueDelay. Flights of minStaggered passengers and more do not leave together
// (stagger). No passenger leads the others. A goroutine that is back with a flight of passengers flies the next one, or
// waits for one as long as flights of others are out (run); and if many wait for the next one, another goroutine gives out
// the answers (relay).
//
// The goroutine of its flight wakes a passenger when its answer is there (settle), at any time. All else is up to the
// timer of the lane. The picture has all of it: the deadline is 50 ms, the server is near and has just fallen silent, and
// the times are those since each call. A has found no flight out. B has found that of A. C has found maxOut of
// them out, and one of its policy first in a flight, or aside.
//
//	     0    1    2                     37.5      42                  47   48   50 ms
//	     ├────┼────┼──────────────────────┼────────┼───────────────────┼────┼────┤
//	A    ├──────────────── its flight, in its goroutine ───────────────┤ f
//
//	B    ├────┤ b                                  eeeeeeeeeeeeeeeeeeeeg
//	          ├──────────── its flight, in another goroutine ───────────────┤ h
//	               c
//
//	C    ├─────────────── queue ──────────┤ d
//
//	b  the timer: B has waited for maxQueueDelay, and so a flight leaves with it, now or in its turn (stagger). After a calm
//	   (tick), b and c may be up to grace later
//	c  the timer wakes B: from now on, it watches its caller's context, too. That is watchAfter after the flight has left,
//	   and for a passenger that is still in the queue, watchAfter after it came. It leaves when that context ends
//	d  the timer wakes C: it was in no flight within queueLimit, and leaves the queue with errNotSent, or errBusy if the
//	   server has answered others. Nothing was asked for it
//	e  the timer wakes B each pollEvery from pollAfter on: it polls, which is to look whether settle has left an answer
//	f  the deadline of A's flight (answerBy after its sending) ends its read. Nobody wakes A, which returns the failure;
//	   nor does it watch a context. First, land lets a flight leave for those in the queue
//	g  the timer wakes B for the last time (answerBy): it quits with errNoAnswer, for a take with a cost in a LateError
//	h  the deadline of B's flight ends its read, settle finds that B has quit, and settleLate reports the failure to the
//	   LateError. An answer between g and h would have been reported instead
//
// What A and B asked for was written, and so it is not sent again: the server may run it when it goes on. Their failures
// have MaybeExecuted, and that of C has not. See retry for what is sent again. When five flights in a row have ended like
// f and h, and 100 ms have passed since the first, the breaker opens: whoever comes fails with errOpen at once, and one
// flight asks twice a second (see breaker.go).
//
// A permit that comes too late stays taken until its lease ends, unless its caller releases it.
//
// All passengers with the full deadline pass those times in the order in which they came, so one timer of the lane wakes
// them. A passenger whose caller has less time, one that entered behind a later one, and one that no request waits for
// use their own timers, and watch their callers' contexts from the beginning.
//
// Why poll, if settle wakes? If the process was stopped or has no processor, all of these times may be over before it
// runs again, and its timers fire before it reads its sockets. A passenger that first looks after answerBy looks once
// more, and one that does so after the whole deadline some times (grace), for the answer that its flight is about to
// read. One that has polled before has seen that the process runs, and quits. Nothing is sent whose answer would come
// too late for that (tooLate).
const (
	// maxPoll is the longest time between two polls. A passenger in a flight polls from pollAfter until it quits, for itself
	// alone: woken by a timer, it looks whether settle has left an answer. In the queue nobody polls.
	maxPoll = time.Millisecond
	// pollsLate is the number of times that a passenger polls again if the process came too late, and pollsInTime if it
	// did not.
	pollsLate   = 5
	pollsInTime = 1
	// minWatchAfter and maxWatchAfter bound watchAfter.
	minWatchAfter = time.Millisecond
	maxWatchAfter = 4 * time.Millisecond
	// tripPerFlight is the time by which a round trip has to be longer for one more flight to pay, as measured 1 ms away.
	tripPerFlight = 140 * time.Microsecond
	// calmAfter is the number of times in a row that the timer has nothing to do when it is calm. Beside a flight that
	// does not come back, it lets a lone caller leave every other time.
	calmAfter = 3
	// manyWaiting is the number of passengers that keep both sides busy. With fewer, what a flight costs by itself is
	// more than another one gains.
	manyWaiting = 16
	// minStaggered is the number of passengers from which on it pays that a flight waits. For the flights of 10 callers
	// 1 ms away, which have 2 or 3, a third more of the process's time would be paid for 5 % more decisions.
	minStaggered = 8
	// minDelay is the shortest delay that stagger gives. To wake up from a shorter one would take longer than the delay.
	minDelay = 30 * time.Microsecond
)

// pollEvery returns the time between two polls of a passenger whose caller has limit in all.
func pollEvery(limit time.Duration) time.Duration { return min(maxPoll, limit/50) }

// answerBy returns how long a passenger may wait so that its caller has the answer within limit: timers are late by up
// to a millisecond on a machine that does nothing else, and a crowd takes some time to wake.
func answerBy(limit time.Duration) time.Duration { return limit - 3*pollEvery(limit) }

// pollAfter returns how long a passenger waits before it begins to poll.
func pollAfter(limit time.Duration) time.Duration {
	return answerBy(limit) - pollsLate*pollEvery(limit)
}

// grace returns how long a passenger polls if the process came too late, and so how long what is sent again may take.
func grace(limit time.Duration) time.Duration { return pollsLate * pollEvery(limit) }

// tooLate reports whether an answer that takes a round trip would come after its caller, which has so much time left,
// has stopped waiting: what is asked all the same would be charged for nothing. A caller whose time was over before
// the process came to ask goes on polling for the grace.
func tooLate(remaining, shortestTrip, grace time.Duration) bool {
	if remaining <= 0 {
		remaining = grace
	}
	return shortestTrip > remaining
}

// stopped reports whether something that should have taken no longer than limit took so much more that it says nothing
// about the server: the process was stopped, or has no processor.
func stopped(took, limit time.Duration) bool { return took > limit+limit/4 }

// watchAfter returns how long a passenger waits for its answer alone. Then it watches its caller's context too. To wait for
// one thing costs less than half of what it costs to wait for several, and nearly all have their answer within two round
// trips. Where these take longer than maxWatchAfter, passengers watch from the beginning. l is locked.
func (l *lane) watchAfter() time.Duration {
	return min(max(minWatchAfter, 2*l.smoothedTrip), maxWatchAfter)
}

// queueLimit returns how long a passenger with that much time may wait for a flight, so that the flight can be back in
// time: three quarters, because a server may stand still for a while and serve all when it goes on; but half where a
// flight takes that long always. l is locked.
func (l *lane) queueLimit(patience time.Duration) time.Duration {
	return max(patience/2, min(patience/4*3, answerBy(patience)-2*l.shortestTrip))
}

// tripWindow is the number of flights over which the shortest round trip is taken.
const tripWindow = 64

// maxQueueDelay returns how long a passenger may wait for company, although other flights are out.
func (l *lane) maxQueueDelay() time.Duration { return max(l.smoothedTrip/2, time.Millisecond) }

// shouldDepart reports whether a flight is to leave for those who wait. There are some, and l is locked.
func (l *lane) shouldDepart(now time.Time) bool {
	switch {
	case l.out >= l.maxOut:
		return false
	case l.out == 0 || l.queue.Len() >= l.maxEntries || l.queue.Weight() >= l.maxWeight:
		return true
	}
	if n := l.usefulFlights(); l.out < n && l.queue.Len()*n >= l.queue.Len()+l.inFlight {
		return true
	}
	return now.Sub(l.oldest().entered) >= l.maxQueueDelay()
}

// usefulFlights returns how many flights it pays to have out at a time: the further away the server is, the more of them
// share the way. Near it, fewer and larger flights cost both sides less; but of a crowd, one part is for the server to
// decide while the process gives the answers to another, and a third is on its way, so that neither side falls asleep:
// to be woken costs more than a flight.
func (l *lane) usefulFlights() int {
	n := 1 + int(l.shortestTrip/tripPerFlight)
	if l.queue.Len() >= manyWaiting {
		n = max(n, 3)
	}
	return min(l.maxOut, n)
}

// stagger returns how long a flight is to wait that is ready, so that flights do not reach the server together: it would
// answer all of them when it has done with the last, their callers would ask again together, and so on. They leave an
// eighth of a round trip apart, or tripPerFlight if that is less. A small flight does not wait, as a timer costs more than
// it would gain, nor one that leaves passengers behind, or is late: then there is no time to lose. If it would wait
// for longer than a round trip, more flights are out than fit into one, and it leaves at once, too. l is locked.
func (l *lane) stagger(f *flight, now time.Time) (delay time.Duration) {
	delay = max(0, l.nextLeaves.Sub(now))
	if f.entries < minStaggered || l.queue.Len() > 0 || delay > l.shortestTrip ||
		f.waited+delay+2*l.shortestTrip > answerBy(l.deadline) {
		return 0
	}
	l.nextLeaves = now.Add(delay + min(tripPerFlight, l.shortestTrip/8))
	if delay < minDelay {
		return 0
	}
	return delay
}

// setTimer sets the lane's timer to what is due next. While it is calm, a timer that fires by then stays as it is: whoever
// comes meanwhile has more time, or enqueue has ended the calm. l is locked.
func (l *lane) setTimer(now time.Time) {
	if !l.timerAt.IsZero() && (!l.timerAt.After(l.calmUntil) || l.timerAt.Before(now.Add(pollEvery(l.deadline)))) {
		return
	}
	at := l.nextDue()
	if at.IsZero() || !l.timerAt.IsZero() && !at.Before(l.timerAt) {
		return
	}
	now = time.Now() // the caller's may be old, and between two polls there is to be some time
	if soon := now.Add(pollEvery(l.deadline)); at.Before(soon) {
		if at = soon; !l.timerAt.IsZero() && !at.Before(l.timerAt) {
			return
		}
	}
	l.timerAt = at
	if l.timer == nil {
		l.timer = time.AfterFunc(at.Sub(now), l.tick)
	} else {
		l.timer.Reset(at.Sub(now))
	}
}

// nextDue returns when the timer is to fire next, or zero. Before calmUntil it leaves it to flights that come back to let
// others depart, and to their answers to come before passengers watch; whose time is over is never put off. l is locked.
func (l *lane) nextDue() (at time.Time) {
	before := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	first := l.oldest()
	if first != nil && l.out < l.maxOut {
		before(first.entered.Add(l.maxQueueDelay()))
	}
	if l.queue.Marked != nil {
		before(l.queue.Marked.Value.entered.Add(l.watchAfter()))
	}
	if !l.background {
		for _, f := range l.flights {
			if !f.watching {
				before(f.sent.Add(l.watchAfter()))
			}
		}
	}
	if !at.IsZero() && at.Before(l.calmUntil) {
		at = l.calmUntil
	}
	if l.background {
		return at
	}
	if first != nil {
		before(first.entered.Add(l.queueLimit(l.deadline)))
	}
	for _, f := range l.flights {
		before(f.passengers[0].entered.Add(pollAfter(l.deadline)))
	}
	return at
}

// tick lets flights leave for those who have waited long enough, and wakes passengers whose time may be over. When it has
// found none of them several times in a row, it is calm: flights come back, and those who wait leave with them before
// their time. Then the timer fires once in a grace, because it wakes a thread, which takes a processor from those at work
// for longer than a flight does.
func (l *lane) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	out, waiting := l.out, l.queue.Len()
	l.depart(now)
	due := l.out > out || l.queue.Len() < waiting // the latter were dismissed
	if !l.background {
		due = l.wakeDue(now) || due
	}
	l.idleTicks++
	if due {
		l.idleTicks = 0
	}
	if l.calmUntil = (time.Time{}); l.idleTicks >= calmAfter {
		l.calmUntil = now.Add(grace(l.deadline))
	}
	l.timerAt = time.Time{}
	l.setTimer(now)
}

// wakeDue wakes the passengers whose time may be over, and those that do not watch their callers' contexts yet. It
// reports whether there were any. l is locked.
func (l *lane) wakeDue(now time.Time) (woken bool) {
	wake := func(p *passenger) { woken = true; p.wake() }
	watch := func(p *passenger) {
		if !p.watching {
			p.watching = true
			wake(p)
		}
	}
	for m := &l.queue.Marked; *m != nil && now.Sub((*m).Value.entered) >= l.watchAfter(); *m = (*m).Next() {
		watch((*m).Value)
	}
	limit := l.queueLimit(l.deadline)
	for i := l.queue.First(); i != nil && now.Sub(i.Value.entered) >= limit; i = i.Next() {
		wake(i.Value)
	}
	for _, f := range l.flights {
		if !f.watching && now.Sub(f.sent) >= l.watchAfter() {
			f.watching = true
			for _, p := range f.passengers {
				watch(p)
			}
		}
		for _, p := range f.passengers {
			if now.Sub(p.entered) < pollAfter(l.deadline) {
				break
			}
			wake(p)
		}
	}
	return woken
}

// await is wait for a passenger that, if answerOnly is true, waits for its answer and nothing else until it is woken to do
// more.
func (p *passenger) await(
	ctx context.Context, l *lane, answerOnly bool, queueLimit, patience time.Duration, res *core.Result,
) ([]int64, error) {
	if answerOnly {
		if <-p.woken; p.outcome.answered() {
			return p.answer(false, res)
		}
		p.wake() // the signal may have been that its time is over
	}
	return p.wait(ctx, l, queueLimit, patience, res)
}

// wait waits for the answer of a passenger, and returns it. Without one, the passenger leaves the queue when it has waited
// for queueLimit, or quits its flight at answerBy(patience), having polled since pollAfter; in both cases earlier if the
// caller's context ends. Both times count from when it entered. If patience is all that the store allows, the timer of the
// lane wakes it, unless no request waits for it.
func (p *passenger) wait(ctx context.Context, l *lane, queueLimit, patience time.Duration, res *core.Result) ([]int64, error) {
	var timer <-chan time.Time
	if patience < l.deadline || l.background || p.outOfOrder {
		p.timer.Reset(queueLimit - time.Since(p.entered))
		timer = p.timer.C
	}
	polls, wasPaused := pollsInTime, false
	// An answer goes before everything else, also if its time is over; then a passenger that is still in the queue leaves
	// that, as nothing was asked for it; and only one in a flight polls on.
	for {
		due, quits := true, false
		select {
		case <-p.woken:
			due = timer == nil // else it is woken for its answer alone
		case <-timer:
		case <-ctx.Done():
			quits = true
		}
		if p.outcome.answered() {
			return p.answer(timer != nil, res)
		}
		waited := time.Since(p.entered)
		if !quits && (!due || waited < queueLimit) {
			continue
		}
		unsent, busy := l.leave(p)
		if !unsent && !quits {
			nextPoll := pollAfter(patience) - waited
			if nextPoll <= 0 {
				nextPoll = pollEvery(patience)
				if !wasPaused && waited > patience+maxPoll-nextPoll { // by more than a timer is late
					polls, wasPaused = pollsLate, true
				}
				polls--
			}
			if waited < answerBy(patience) || polls >= 0 && (wasPaused || waited < patience) {
				if timer != nil {
					p.timer.Reset(nextPoll)
				}
				continue
			}
		}
		var err error = errNoAnswer
		switch {
		case errors.Is(ctx.Err(), context.Canceled):
			err = ctx.Err()
		case unsent && busy:
			err = errBusy
		case unsent && queueLimit < patience && stopped(waited, patience):
			err = errPaused
		case unsent && l.overloadedSince(p.entered):
			err = errBusy
		case unsent:
			err = errNotSent
		case l.overloadedSince(p.entered):
			err = errOverdue
		}
		if unsent {
			return nil, err
		}
		return p.quit(timer != nil, res, err)
	}
}
