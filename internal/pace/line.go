package pace

import (
	"sync"
	"time"
)

const (
	firstUnderWay = 10               // requests of a key that are under way until it has an answer
	patience      = 10 * time.Second // for which a request without an answer counts as under way
	maxBuckets    = 16               // limits of one key
	catchUp       = 50 * time.Millisecond
)

// line is all that is known of one key, and the callers that wait for their turn, first come, first served.
//
// One timer serves all of them. It ends when the first in the line may go, or has waited too long: as all wait equally
// long, the first is also the first to have waited too long.
type line struct {
	pace *Pace
	key  string

	mu      sync.Mutex
	head    *waiter
	tail    *waiter
	waiting int
	timer   *time.Timer
	wake    instant // when the timer ends, if it runs
	running bool

	turns turns
	last  instant // when the last request should have been sent, or was

	answered bool // by the server, at least once
	blocked  hold
	buckets  []bucket
	told     map[string]bool // fields that Observe knows of

	older, newer *line // in the table, by its lock
}

// waiter is a caller in the line.
type waiter struct {
	prev, next *waiter
	came       instant
	ready      chan struct{} // closed when it has a turn or an error
	turn       *Turn
	before     instant // the line's last, before the turn
	err        error
}

// next returns the instant of the next turn, which an answer may bring nearer, or at which it was due.
func (l *line) next(now instant) (at instant) {
	if at, held := l.blocked.next(now); held {
		return at
	}
	underWay := l.turns.count(now)
	if len(l.buckets) == 0 {
		if l.answered || underWay < firstUnderWay {
			return now
		}
		return l.turns.oldest() + patience
	}
	for i := range l.buckets {
		at = max(at, l.buckets[i].next(l.last, underWay, now))
	}
	return at
}

// spare reports whether a request that cannot wait any longer would be admitted now: to spread requests is a courtesy to
// others, for which none is to fail.
func (l *line) spare(now instant) bool {
	if l.blocked.until > 0 || len(l.buckets) == 0 {
		return false
	}
	underWay := l.turns.count(now)
	for i := range l.buckets {
		if !l.buckets[i].spare(underWay, now) {
			return false
		}
	}
	return true
}

// soonest returns the least time until the turn of a place in the line, as far as it is certain.
func (l *line) soonest(place int, now instant) time.Duration {
	if now < l.blocked.until {
		return l.blocked.until - now
	}
	var least time.Duration
	for i := range l.buckets {
		least = max(least, l.buckets[i].soonest(place, l.turns.count(now), now))
	}
	return least
}

// take gives a turn that was due at an instant to a caller.
func (l *line) take(due, came, now instant) *Turn {
	t := l.turns.add(l, came, now)
	l.blocked.sent(t.number, now)
	l.last = max(due, now-catchUp) // a timer that is late does not slow the pace
	return t
}

// enter puts a caller into the line, behind all that came before it.
func (l *line) enter(w *waiter) {
	after := l.tail
	for after != nil && after.came > w.came {
		after = after.prev
	}
	w.prev = after
	if after != nil {
		w.next, after.next = after.next, w
	} else {
		w.next, l.head = l.head, w
	}
	if w.next != nil {
		w.next.prev = w
	} else {
		l.tail = w
	}
	l.waiting++
}

// leave takes a caller out of the line.
func (l *line) leave(w *waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		l.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		l.tail = w.prev
	}
	l.waiting--
}

// serve gives turns to those whose time has come, ends the wait of those whose turn comes too late, and sets the timer.
// It is called when something has changed.
func (l *line) serve() {
	now := l.pace.now()
	for l.head != nil {
		w := l.head
		at, late := l.next(now), w.came+l.pace.maxWait
		switch {
		case at <= now, now >= late && l.spare(now):
			w.before = l.last
			w.turn = l.take(min(at, now), w.came, now)
		case now >= late || l.soonest(1, now) > late-now:
			w.err = l.tooLate(l.soonest(1, now))
		default:
			l.arm(min(at, late), now)
			return
		}
		l.leave(w)
		close(w.ready)
	}
}

// tooLate is the error of the first in the line, or of a caller that does not enter it. wait is the least time until its
// turn.
func (l *line) tooLate(wait time.Duration) *WaitError {
	return &WaitError{Key: l.key, Wait: wait, Waiting: l.waiting}
}

// arm sets the timer.
func (l *line) arm(at, now instant) {
	switch {
	case l.timer == nil:
		l.timer = time.AfterFunc(at-now, l.expire)
	case !l.running || at != l.wake:
		l.timer.Reset(at - now)
	}
	l.wake, l.running = at, true
}

// expire is called by the timer.
func (l *line) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = false
	l.serve()
}

// learn takes up the answer to a request.
func (l *line) learn(t *Turn, a *Answer, now instant) {
	l.answered = true
	l.blocked.answered(t.number, a.RetryAfter, now)
	for i := range l.buckets {
		l.buckets[i].skipped++
	}
	for _, q := range a.Quotas {
		if b := l.bucket(q); b != nil {
			b.skipped = max(b.skipped, 1) - 1
			b.learn(t.number, t.sent, now, a.Refused, q)
		}
	}
	kept := l.buckets[:0]
	for _, b := range l.buckets {
		if !b.over(now) {
			kept = append(kept, b)
		}
	}
	l.buckets = kept
}

// lost notes that a turn is over without an answer. The server has probably not counted it.
func (l *line) lost(t *Turn) {
	l.blocked.failed(t.number)
	for i := range l.buckets {
		l.buckets[i].skipped++
	}
}

// bucket returns the bucket of a quota, or nil if there are too many.
func (l *line) bucket(q Quota) *bucket {
	for i := range l.buckets {
		if b := &l.buckets[i]; b.name == q.Name && b.partition == q.Partition {
			return b
		}
	}
	if len(l.buckets) == maxBuckets {
		return nil
	}
	l.buckets = append(l.buckets, bucket{name: q.Name, partition: q.Partition})
	return &l.buckets[len(l.buckets)-1]
}

// news returns the fields of which Observe does not know yet that they cannot be read.
func (l *line) news(fields []string) (news []string) {
	for _, field := range fields {
		if !l.told[field] {
			if l.told == nil {
				l.told = map[string]bool{}
			}
			l.told[field] = true
			news = append(news, field)
		}
	}
	return news
}

// idle reports whether nobody waits and nothing is under way.
func (l *line) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting == 0 && l.turns.first == nil
}
