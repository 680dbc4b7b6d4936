// Package schedtest measures for how long a process was kept from running, so that a test of how long something takes
// need not blame it for a machine that is busy.
package schedtest

import (
	"sync"
	"sync/atomic"
	"time"
)

// Probe measures for how long the scheduler has kept the process from running. It takes the longer of two measures: by
// how much a timer of a millisecond is late, which says when all of the process stands still; and for how long, by the
// kernel's account, the thread waited for a processor that waited longest, on Linux. The second is needed because
// others may run, the probe's among them, while a thread waits that holds a lock, or has the work that an answer
// depends on.
type Probe struct {
	began time.Time
	late  atomic.Int64 // nanoseconds in all
	last  atomic.Int64 // when the timer was last seen, in nanoseconds since it began
	waits atomic.Int64 // nanoseconds in all

	mu      sync.Mutex
	sampled time.Time
	threads map[string]int64 // for how long each has waited in its life
}

const (
	tick = time.Millisecond
	// usual is the delay of a timer where nothing else runs.
	usual = 2 * time.Millisecond
	// sampleEvery is after what time the kernel is asked again.
	sampleEvery = 20 * time.Millisecond
)

// New returns a probe that measures while it runs.
func New() *Probe { return &Probe{began: time.Now()} }

// Run measures until over is closed.
func (p *Probe) Run(over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case <-time.After(tick):
		}
		now := time.Since(p.began)
		p.late.Add(overdue(int64(now) - p.last.Load()))
		p.last.Store(int64(now))
		p.sample(sampleEvery)
	}
}

// Sample asks the kernel now, unless it was asked just before.
func (p *Probe) Sample() { p.sample(tick) }

func (p *Probe) sample(every time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.sampled) < every {
		return
	}
	now, longest := waited(), int64(0)
	for thread, ns := range now {
		if before, known := p.threads[thread]; known {
			longest = max(longest, ns-before)
		}
	}
	p.threads = now
	p.waits.Add(longest)
	p.sampled = time.Now()
}

// Lost is the time that the process was kept from running, in nanoseconds, by each of the two measures.
type Lost struct{ Late, Waits int64 }

// Lost returns what was lost since the probe was made. The kernel's part of it is as of the latest sample.
func (p *Probe) Lost() Lost {
	return Lost{p.late.Load() + overdue(int64(time.Since(p.began))-p.last.Load()), p.waits.Load()}
}

// Since returns for how long the process was kept from running between two moments.
func (l Lost) Since(then Lost) time.Duration {
	return time.Duration(max(l.Late-then.Late, l.Waits-then.Waits))
}

func overdue(took int64) int64 {
	if took <= int64(tick+usual) {
		return 0
	}
	return took - int64(tick)
}
