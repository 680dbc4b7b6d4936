package main

import (
	"sync/atomic"
	"time"
)

// probe measures for how long the process was kept from running: a timer of a millisecond says so when it is late.
type probe struct {
	began time.Time
	lost  atomic.Int64 // nanoseconds in all
	last  atomic.Int64 // when it last ran, in nanoseconds since it began
}

const (
	tick = time.Millisecond
	// usual is by how much a timer is late where nothing else runs.
	usual = 2 * time.Millisecond
)

func (p *probe) run() {
	for {
		<-time.After(tick)
		now := int64(time.Since(p.began))
		p.lost.Add(overdue(now - p.last.Load()))
		p.last.Store(now)
	}
}

// stolen is for how long the process did not run, since it began.
func (p *probe) stolen() time.Duration {
	last := p.last.Load()
	return time.Duration(p.lost.Load() + overdue(int64(time.Since(p.began))-last))
}

func overdue(took int64) int64 {
	if took <= int64(tick+usual) {
		return 0
	}
	return took - int64(tick)
}
