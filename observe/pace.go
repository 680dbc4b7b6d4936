package observe

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/core"
)

// pace knows what a line had counted at instants of the last hour, so that its rates need no counters: the first
// decision of each second notes what was counted before it.
type pace struct {
	second atomic.Int64 // the last that was noted, counted from 1

	mu    sync.Mutex
	began int64 // the first that was noted
	rings [len(windows)]ring
}

// windows are the times over which rates are: steps of so many seconds each.
var windows = [...]struct{ step, steps int64 }{{1, 10}, {10, 30}, {60, 60}}

// ring has what was counted at the beginning of each of the last steps.
type ring struct {
	tallies []tally // one more than there are steps
	last    int64   // the number of the last step that was noted
}

// tally is what a line has counted.
type tally struct{ allowed, refused, unstored uint64 }

// tick notes what was counted, once a second.
func (p *pace) tick(l *line, now time.Duration) {
	if second := int64(now/time.Second) + 1; second != p.second.Load() {
		p.note(l, second)
	}
}

// note notes what l has counted before a second.
func (p *pace) note(l *line, second int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(l.tally(), second)
}

// advance is note. p is locked.
func (p *pace) advance(t tally, second int64) {
	if second <= p.second.Load() {
		return
	}
	if p.began == 0 {
		p.began = second
	}
	for i, w := range windows {
		r := &p.rings[i]
		at := second / w.step
		if r.tallies == nil {
			r.tallies, r.last = make([]tally, w.steps+1), at-1
		}
		for step := max(r.last+1, at-w.steps); step <= at; step++ { // nothing was counted since the last was noted
			r.tallies[step%int64(len(r.tallies))] = t
		}
		r.last = max(r.last, at)
	}
	p.second.Store(second)
}

// tally returns what l has counted.
func (l *line) tally() (t tally) {
	for i := range l.series {
		n := l.series[i].Load().total()
		if n == 0 {
			continue
		}
		if core.Outcome(i / int(froms) % int(core.Never+1)).Allowed() { //nolint:gosec // it is small
			t.allowed += n
		} else {
			t.refused += n
		}
		if from(i % int(froms)).unstored() { //nolint:gosec // it is small
			t.unstored += n
		}
	}
	return t
}

// rates adds the rates of l to r.
func (p *pace) rates(l *line, now time.Duration, r *Rates) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := l.tally()
	second := int64(now/time.Second) + 1
	p.advance(t, second)
	for i, to := range []*Rate{&r.TenSeconds, &r.FiveMinutes, &r.OneHour} {
		w := windows[i]
		from := max(second/w.step-w.steps, p.began/w.step) // the first step that counts
		then := p.rings[i].tallies[from%int64(len(p.rings[i].tallies))]
		since := max(from*w.step, p.began)
		over := max(now.Seconds()-float64(since-1), 1)
		to.Allowed += float64(t.allowed-then.allowed) / over
		to.Refused += float64(t.refused-then.refused) / over
		to.Unstored += float64(t.unstored-then.unstored) / over
	}
}
