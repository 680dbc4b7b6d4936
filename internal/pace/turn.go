package pace

import "time"

// Turn is the right to send one request now. Call [Turn.Answered] or [Turn.Failed] when the request is over; only the
// first call counts.
type Turn struct {
	line       *line // nil if nothing is learnt from the answer
	number     uint64
	came, sent instant
	prev, next *Turn
	hangs      bool // it is under way for longer than patience
	over       bool
}

// Came returns when the request came, for [Pace.Wait] if it is sent again.
func (t *Turn) Came() time.Time {
	if t.line == nil {
		return time.Time{}
	}
	return t.line.pace.start.Add(t.came)
}

// Answered ends the turn with the answer of the server.
func (t *Turn) Answered(a Answer) {
	l := t.line
	if l == nil {
		return
	}
	var news []string
	l.mu.Lock()
	if l.turns.end(t) {
		l.learn(t, &a, l.pace.now())
		if l.pace.observe != nil {
			news = l.news(a.Mistakes)
		}
		l.serve()
	}
	l.mu.Unlock()
	for _, field := range news {
		l.pace.observe(l.key, field)
	}
}

// Failed ends the turn of a request that has no answer.
func (t *Turn) Failed() {
	l := t.line
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.turns.end(t) {
		l.lost(t)
		l.serve()
	}
}

// turns are those under way, in the order in which they were given.
type turns struct {
	first, last *Turn
	aging       *Turn  // the first that does not hang
	fresh       int    // that do not hang
	sent        uint64 // all that were given, which is the number of the last
}

// add adds a turn.
func (s *turns) add(l *line, came, now instant) *Turn {
	s.sent++
	t := &Turn{line: l, number: s.sent, came: came, sent: now, prev: s.last}
	if s.last != nil {
		s.last.next = t
	} else {
		s.first = t
	}
	s.last = t
	if s.aging == nil {
		s.aging = t
	}
	s.fresh++
	return t
}

// end takes out a turn. It reports false if that was done before.
func (s *turns) end(t *Turn) bool {
	if t.over {
		return false
	}
	t.over = true
	if t.prev != nil {
		t.prev.next = t.next
	} else {
		s.first = t.next
	}
	if t.next != nil {
		t.next.prev = t.prev
	} else {
		s.last = t.prev
	}
	if s.aging == t {
		s.aging = t.next
	}
	if !t.hangs {
		s.fresh--
	}
	return true
}

// count returns the number of turns under way that may be expected to have an answer soon. What hangs, such as a long
// upload, was counted by the server long ago.
func (s *turns) count(now instant) int {
	for s.aging != nil && s.aging.sent <= now-patience {
		s.aging.hangs = true
		s.aging = s.aging.next
		s.fresh--
	}
	return s.fresh
}

// oldest returns when the first turn was given that does not hang.
func (s *turns) oldest() instant { return s.aging.sent }
