// Package later sends what no caller waits for, in batches and behind the calls that it comes from.
package later

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A batch may take Timeout. What failed is sent again after FirstPause, then after longer pauses, up to LastPause: 2 s
// after a short fault all has been sent.
const (
	Timeout    = time.Second
	FirstPause = 50 * time.Millisecond
	LastPause  = 400 * time.Millisecond
)

// Queue sends items in batches, one batch after the other, in the order in which they were added, but that what failed
// goes again after newer ones. A batch has all items that have come while the one before it was out, so a lone item leaves
// at once. A Queue has a goroutine only while
// there is something to send, and no Queue holds up another one. Its exported fields are set before the first Add.
//
// Let T be a pointer: the Queues of all pointers share their code.
type Queue[T any] struct {
	// Group counts the items of several queues together.
	Group *Group
	// Batch is the largest number of items in a batch.
	Batch int
	// Max bounds the items that wait: what is added while so many wait is given up at once. 0 means no bound.
	Max int
	// Send sends a batch, and returns the error of each item, or nil if it has sent them all. If it panics, all have
	// failed: there is no caller who could recover.
	Send func(ctx context.Context, batch []T) []error
	// Keep reports whether an item that failed is to be sent again. If Keep is nil, none is.
	Keep func(item T, err error) bool
	// GaveUp, if it is not nil, is called with the number of items that are given up, and the error of one of them. It
	// may block.
	GaveUp func(n int, err error)
	// Done, if it is not nil, is called for each item that was sent or given up.
	Done func(item T)

	mu       sync.Mutex
	waiting  []queued[T]
	failed   []queued[T] // sent again after the pause
	out      []queued[T] // the batch that is out
	sending  bool        // there is a goroutine that sends
	pausing  bool
	pause    time.Duration
	lost     uint64    // items that were given up
	reported uint64    // how many of them Unsent has returned
	begun    time.Time // when the first item came
}

// queued is an item of a Queue.
type queued[T any] struct {
	item  T
	added time.Duration // after the Queue has begun
}

// Add adds an item. It does not wait for anything but a GaveUp that blocks, of an item beyond Max.
func (q *Queue[T]) Add(item T) { q.AddAll([]T{item}) }

// AddAll adds items that may go together.
func (q *Queue[T]) AddAll(items []T) {
	q.mu.Lock()
	full := q.Max > 0 && len(q.waiting)+len(q.failed) >= q.Max
	if full {
		q.lost += uint64(len(items))
	} else {
		q.Group.add(len(items))
		added := q.age()
		q.waiting = slices.Grow(q.waiting, len(items))
		for _, item := range items {
			q.waiting = append(q.waiting, queued[T]{item, added})
		}
		q.start()
	}
	q.mu.Unlock()
	if full {
		q.end(items, len(items), fmt.Errorf("%d others wait for a store that does not answer", q.Max))
	}
}

// age returns how long ago the first item came. q is locked.
func (q *Queue[T]) age() time.Duration {
	if q.begun.IsZero() {
		q.begun = time.Now()
	}
	return time.Since(q.begun)
}

// start begins to send. q is locked.
func (q *Queue[T]) start() {
	if !q.sending && len(q.waiting) > 0 {
		q.sending = true
		go q.work()
	}
}

// work sends batches until there is nothing left to send.
func (q *Queue[T]) work() {
	for {
		q.mu.Lock()
		n := min(len(q.waiting), q.Batch)
		if n == 0 {
			q.sending = false
			q.mu.Unlock()
			return
		}
		q.out = q.waiting[:n:n]
		q.waiting = q.waiting[n:] // what is left is copied when it grows, and the rest freed
		batch := make([]T, n)
		for i := range batch {
			batch[i] = q.out[i].item
		}
		q.mu.Unlock()
		q.sent(batch, q.send(batch))
	}
}

func (q *Queue[T]) send(batch []T) (errs []error) {
	defer func() {
		if value := recover(); value != nil {
			errs = slices.Repeat([]error{fmt.Errorf("the store panicked: %v", value)}, len(batch))
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), Timeout) //nolint:forbidigo // it serves many requests
	defer cancel()
	return q.Send(ctx, batch)
}

// sent keeps what failed and is to be sent again, and ends the rest.
func (q *Queue[T]) sent(batch []T, errs []error) {
	givenUp, why := 0, error(nil)
	ended := batch[:0]
	q.mu.Lock()
	failed := false
	for i := range batch {
		if errs != nil && errs[i] != nil {
			failed = true
			if q.Keep != nil && q.Keep(batch[i], errs[i]) {
				q.failed = append(q.failed, q.out[i])
				continue
			}
			givenUp, why = givenUp+1, errs[i]
		}
		ended = append(ended, batch[i])
	}
	q.out = nil
	q.lost += uint64(givenUp)
	switch {
	case !failed:
		q.pause = 0
	case len(q.failed) > 0 && !q.pausing: // one pause for all batches that fail meanwhile
		q.pausing, q.pause = true, min(max(FirstPause, q.pause*2), LastPause)
		time.AfterFunc(q.pause, q.again)
	}
	q.mu.Unlock()
	q.end(ended, givenUp, why)
	q.Group.done(len(ended))
}

// end reports what is given up, and that nothing more becomes of these items. q is not locked: a GaveUp that blocks
// holds up nobody but this queue.
func (q *Queue[T]) end(items []T, givenUp int, why error) {
	if givenUp > 0 && q.GaveUp != nil {
		q.GaveUp(givenUp, why)
	}
	if q.Done == nil {
		return
	}
	for _, item := range items {
		q.Done(item)
	}
}

// again sends what has failed once more.
func (q *Queue[T]) again() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting, q.failed, q.pausing = append(q.waiting, q.failed...), nil, false
	q.start()
}

// Left returns how many items wait or are out.
func (q *Queue[T]) Left() int {
	s := q.Stats()
	return s.Pending + s.Out
}

// Unsent returns how many items are left, and how many were given up since the last Unsent.
func (q *Queue[T]) Unsent() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	lost := int(q.lost - q.reported)
	q.reported = q.lost
	return len(q.waiting) + len(q.failed) + len(q.out) + lost
}

// Stats are the numbers of a Queue.
type Stats struct {
	Pending int           // items that wait, those that have failed included
	Out     int           // items of the batch that is out
	Lost    uint64        // items that were given up so far
	Oldest  time.Duration // since when the oldest of them waits or is out; 0 if there is none
}

// Stats returns the numbers of now. It looks at all items, of which there are many only while the store hangs.
func (q *Queue[T]) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := Stats{Pending: len(q.waiting) + len(q.failed), Out: len(q.out), Lost: q.lost}
	if s.Pending+s.Out == 0 {
		return s
	}
	now := q.age()
	for _, list := range [][]queued[T]{q.waiting, q.failed, q.out} {
		for i := range list {
			s.Oldest = max(s.Oldest, now-list[i].added)
		}
	}
	return s
}
