package main

import (
	"sync"
	"sync/atomic"
	"time"
)

// probe measures for how long the scheduler has kept the process from running. It takes the longer of two measures: by
// how much a timer of a millisecond is late, which says when all of the process stands still; and for how long, by the
// kernel's account, the thread waited for a processor that waited longest. While one thread waits that holds a lock,
// others run, the probe's perhaps among them, and nobody gets on.
type probe struct {
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
	// usual is by how much a timer is late where nothing else runs.
	usual = 2 * time.Millisecond
	// sampleEvery is after what time the kernel is asked again.
	sampleEvery = 20 * time.Millisecond
)

func (p *probe) run() {
	for {
		<-time.After(tick)
		now := time.Since(p.began)
		p.late.Add(overdue(int64(now) - p.last.Load()))
		p.last.Store(int64(now))
		p.sample(sampleEvery)
	}
}

// sample asks the kernel, unless it was asked just before.
func (p *probe) sample(every time.Duration) {
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

// lost is for how long the process was kept from running.
type lost struct{ late, waits int64 }

// lost is that since the process began.
func (p *probe) lost() lost {
	return lost{p.late.Load() + overdue(int64(time.Since(p.began))-p.last.Load()), p.waits.Load()}
}

// since is for how long the process was kept from running between two moments.
func (l lost) since(then lost) time.Duration {
	return time.Duration(max(l.late-then.late, l.waits-then.waits))
}

func overdue(took int64) int64 {
	if took <= int64(tick+usual) {
		return 0
	}
	return took - int64(tick)
}
