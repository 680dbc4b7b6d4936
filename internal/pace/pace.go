// Package pace sends requests as fast as a server's limits admit, as far as its answers tell them.
package pace

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Options configures a Pace.
type Options struct {
	// MaxWait is the longest time that a request waits for its turn.
	MaxWait time.Duration
	// Waiting is the number of requests of a key that may wait.
	Waiting int
	// Observe is called once a key for each field that could not be read. nil means nobody.
	Observe func(key, field string)
}

// Pace decides when requests are sent. It is safe for concurrent use.
type Pace struct {
	maxWait time.Duration
	waiting int
	observe func(key, field string)
	start   time.Time

	mu    sync.Mutex
	lines map[string]*line
}

// New returns a Pace.
func New(o Options) *Pace {
	return &Pace{
		maxWait: o.MaxWait, waiting: o.Waiting, observe: o.Observe, start: time.Now(),
		lines: map[string]*line{},
	}
}

func (p *Pace) now() instant { return time.Since(p.start) }

// WaitError is the error of a request that was not sent, because its turn would have come too late.
type WaitError struct {
	// Key is the key of the request.
	Key string
	// Wait is the time until the turn as far as it is known, or 0 if it depends on answers that have not come.
	Wait time.Duration
	// Waiting is the number of requests of the key that were waiting.
	Waiting int
}

// Error implements error.
func (e *WaitError) Error() string {
	return fmt.Sprintf("the server's limit leaves no turn in time; %d requests wait, the next turn is in %v", e.Waiting, e.Wait)
}

// Turn is the right to send one request now. Call Answered or Failed once.
type Turn struct {
	line   *line
	number uint64
	sent   instant
}

// Wait waits for the turn of a request.
func (p *Pace) Wait(ctx context.Context, key string) (Turn, error) {
	if err := ctx.Err(); err != nil {
		return Turn{}, err
	}
	l := p.line(key)
	l.mu.Lock()
	now := p.now()
	if l.head == nil {
		if at, ok := l.next(now); ok && at <= now {
			n := l.take(now)
			l.mu.Unlock()
			return Turn{l, n, now}, nil
		}
	}
	if l.waiting >= p.waiting {
		defer l.mu.Unlock()
		return Turn{}, &WaitError{Key: key, Waiting: l.waiting}
	}
	w := &waiter{came: now, turn: make(chan struct{})}
	l.enter(w)
	l.serve()
	l.mu.Unlock()
	select {
	case <-w.turn:
		return Turn{l, w.number, w.sent}, w.err
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case w.in:
		first := l.head == w
		l.leave(w)
		if first {
			l.serve()
		}
	case w.err == nil: // the turn came at the same time
		l.underWay--
		l.serve()
	}
	return Turn{}, ctx.Err()
}

// Answered ends a turn with the answer of the server.
func (t Turn) Answered(a Answer) {
	l := t.line
	var news []string
	l.mu.Lock()
	for _, field := range a.Mistakes {
		if l.pace.observe != nil && !l.told[field] {
			if l.told == nil {
				l.told = map[string]bool{}
			}
			l.told[field] = true
			news = append(news, field)
		}
	}
	l.answered(t.number, t.sent, a)
	l.mu.Unlock()
	for _, field := range news {
		l.pace.observe(l.key, field)
	}
}

// Failed ends a turn that had no answer.
func (t Turn) Failed() {
	l := t.line
	l.mu.Lock()
	defer l.mu.Unlock()
	l.underWay--
	l.serve()
}

func (p *Pace) line(key string) *line {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lines[key]
	if l == nil {
		l = &line{pace: p, key: key}
		p.lines[key] = l
	}
	return l
}
