// Package pace sends requests as fast as the limits of a server admit, as far as its answers tell them. It knows no
// protocol but the fields in which limits are stated, so that clients of any protocol can be built on it.
//
// A request goes through [Pace.Wait], which returns its [Turn], and ends with [Turn.Answered], for which [Read] reads the
// answer, or with [Turn.Failed]. The rule of the pace is in bucket.go.
package pace

import (
	"context"
	"fmt"
	"time"
)

// Options configures a Pace.
type Options struct {
	// MaxWait is the longest time that a request waits for its turn.
	MaxWait time.Duration
	// Waiting is the number of requests of a key that may wait.
	Waiting int
	// Observe is called once a key for each field that could not be read, with its name, or with "" for a key of which
	// nothing is learnt because too many others are in use. nil means nobody.
	Observe func(key, field string)
}

// Pace decides when requests are sent. It is safe for concurrent use.
type Pace struct {
	maxWait time.Duration
	waiting int
	observe func(key, field string)
	start   time.Time
	table   table
}

// New returns a Pace.
func New(o Options) *Pace {
	return &Pace{
		maxWait: min(max(o.MaxWait, 0), 365*maxWindow), waiting: o.Waiting, observe: o.Observe, start: time.Now(),
		table: table{lines: map[string]*line{}},
	}
}

func (p *Pace) now() instant { return time.Since(p.start) }

// WaitError is the error of a request that was not sent, because its turn would have come too late or too many requests
// of its key were waiting.
type WaitError struct {
	// Key is the key of the request.
	Key string
	// Wait is the time until the turn would have come at the earliest, or 0 if nobody knows.
	Wait time.Duration
	// Waiting is the number of requests of the key that were waiting.
	Waiting int

	cause error // context.DeadlineExceeded, or nil
}

// Error implements error.
func (e *WaitError) Error() string {
	text := "not sent, because the server's limit does not admit it in time"
	if e.Waiting > 0 {
		text += fmt.Sprintf(" (waiting requests: %d)", e.Waiting)
	}
	if e.Wait > 0 {
		text += fmt.Sprintf("; try again in %v", e.Wait.Round(time.Millisecond))
	}
	return text
}

// Unwrap returns [context.DeadlineExceeded] if the turn would have come after the deadline of the context.
func (e *WaitError) Unwrap() error { return e.cause }

// Timeout reports the same, as a [net.Error] does: an http.Client whose Timeout is too short returns an error with a
// Timeout, whether the request was sent or not.
func (e *WaitError) Timeout() bool { return e.cause != nil }

// Wait returns when it is the turn of a request. A request that was sent before and refused gives the time at which it
// came at first, and keeps its place; all others give the zero time. Wait fails with a [*WaitError], at once if it is
// certain that the turn comes too late, or with the error of the context.
func (p *Pace) Wait(ctx context.Context, key string, came time.Time) (*Turn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l := p.table.line(key, p)
	if l == nil {
		if p.observe != nil {
			p.observe(key, "")
		}
		return &Turn{}, nil
	}
	l.mu.Lock()
	now := p.now()
	since := now
	if !came.IsZero() {
		since = came.Sub(p.start)
	}
	if l.head == nil {
		if at := l.next(now); at <= now {
			t := l.take(at, since, now)
			l.mu.Unlock()
			return t, nil
		}
	}
	w := &waiter{came: since, ready: make(chan struct{})}
	if err := l.refuse(ctx, w, now); err != nil {
		l.mu.Unlock()
		return nil, err
	}
	l.enter(w)
	l.serve()
	l.mu.Unlock()
	select {
	case <-w.ready:
		if w.err != nil {
			return nil, w.err
		}
		return w.turn, nil
	case <-ctx.Done():
		l.abandon(w)
		return nil, ctx.Err()
	}
}

// refuse returns the error of a caller that need not enter the line.
func (l *line) refuse(ctx context.Context, w *waiter, now instant) error {
	wait := l.soonest(l.waiting+1, now)
	if l.waiting >= l.pace.waiting || wait > w.came+l.pace.maxWait-now {
		return l.tooLate(wait)
	}
	if end, ok := ctx.Deadline(); ok && wait > time.Until(end) {
		err := l.tooLate(wait)
		err.cause = context.DeadlineExceeded
		return err
	}
	return nil
}

// abandon takes a caller out of the line whose context has ended. If it has its turn already, that is for the next.
func (l *line) abandon(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-w.ready:
		if w.turn == nil || !l.turns.end(w.turn) {
			return
		}
		l.lost(w.turn)
		if l.turns.sent == w.turn.number {
			l.last = w.before
		}
	default:
		l.leave(w)
	}
	l.serve()
}
