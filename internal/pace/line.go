package pace

import (
	"sync"
	"time"
)

const (
	firstUnderWay = 10 // requests of a key that are under way until it has an answer
	maxBuckets    = 16 // limits of one key
)

// line is all that is known of one key, and those who wait for their turn, first come, first served.
type line struct {
	mu       sync.Mutex
	pace     *Pace
	key      string
	head     *waiter
	tail     *waiter
	waiting  int
	underWay int
	sent     uint64  // the number of the last request
	last     instant // when it was sent
	silent   bool    // there was an answer, and it named no limit
	blocked  instant // until when the server has asked for silence
	probing  bool    // after which one request goes alone
	buckets  []bucket
	told     map[string]bool // fields that Observe knows of
	timer    *time.Timer
	wake     instant // when the timer ends, or 0
}

// waiter is one caller in the line.
type waiter struct {
	prev, next *waiter
	came       instant
	turn       chan struct{} // closed when the turn has come, or when it cannot come in time
	number     uint64
	sent       instant
	err        error
	in         bool // the line
}

// next returns the instant of the next turn; ok is false while that depends on answers.
func (l *line) next(now instant) (at instant, ok bool) {
	if l.blocked > 0 {
		if now < l.blocked {
			return l.blocked, true
		}
		return now, l.underWay == 0 // one request finds out
	}
	if !l.silent && len(l.buckets) == 0 {
		return now, l.underWay < firstUnderWay
	}
	at = now
	for i := range l.buckets {
		at = max(at, l.buckets[i].next(l.last, l.underWay, now))
	}
	return at, true
}

// take gives the turn to a request.
func (l *line) take(now instant) uint64 {
	l.sent++
	l.underWay++
	l.last = now
	return l.sent
}

// serve gives their turns to those whose time has come, and sets the timer for the next. l.mu is held.
func (l *line) serve() {
	now := l.pace.now()
	for l.head != nil {
		w := l.head
		late := w.came + l.pace.maxWait
		at, ok := l.next(now)
		switch {
		case ok && at <= now:
			w.number, w.sent = l.take(now), now
			l.leave(w)
			close(w.turn)
			continue
		case ok && at > late, now >= late:
			w.err = &WaitError{Key: l.key, Wait: at - now, Waiting: l.waiting}
			l.leave(w)
			close(w.turn)
			continue
		case !ok:
			at = late
		}
		l.arm(min(at, late), now)
		return
	}
}

// arm sets the timer.
func (l *line) arm(at, now instant) {
	if l.timer == nil {
		l.timer = time.AfterFunc(at-now, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.wake = 0
			l.serve()
		})
	} else if at != l.wake {
		l.timer.Reset(at - now)
	}
	l.wake = at
}

func (l *line) enter(w *waiter) {
	w.prev, w.in = l.tail, true
	if l.tail != nil {
		l.tail.next = w
	} else {
		l.head = w
	}
	l.tail = w
	l.waiting++
}

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
	w.prev, w.next, w.in = nil, nil, false
	l.waiting--
}

// answered takes up what an answer says.
func (l *line) answered(number uint64, sent instant, a Answer) {
	now := l.pace.now()
	l.underWay--
	if a.RetryAfter > 0 {
		l.blocked = max(l.blocked, now+a.RetryAfter)
	} else if l.blocked > 0 && now >= l.blocked {
		l.blocked = 0
	}
	for i := range l.buckets {
		l.buckets[i].skipped++
	}
	for _, q := range a.Quotas {
		if b := l.bucket(q); b != nil {
			b.skipped--
			b.learn(number, sent, now, q)
		}
	}
	l.silent = len(l.buckets) == 0
	l.serve()
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
