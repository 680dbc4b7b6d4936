package observe

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
)

// pace knows what a line had counted at instants of the last hour, so that its rates need no counters: the first
// decision of each second notes what was counted before it.
type pace struct {
	second atomic.Int64 // the last that was noted, since the epoch

	mu    sync.Mutex
	began int64 // the first that was noted
	rings [len(windows)]ring
}

// windows are the times over which rates are: steps of so many seconds each.
var windows = [...]struct{ step, steps int64 }{{1, 10}, {10, 30}, {60, 60}}

// mostLate is the number of seconds by which decisions may be late, because the process was stopped meanwhile. What is
// later than that comes of a clock that somebody has set.
const mostLate = 60

// ring has what was counted at the beginning of each of the last steps.
type ring struct {
	tallies []tally // one more than there are steps
	last    int64   // the number of the last step that was noted
}

// tally is the sums of what a line has counted.
type tally struct{ allowed, refused, unstored uint64 }

// tick notes what was counted, once a second. now is in microseconds since the epoch.
func (p *pace) tick(l *line, now int64) {
	if second := max(now, 0) / 1e6; second != p.second.Load() {
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
	switch last := p.second.Load(); {
	case last == 0 || second < last-mostLate: // the first, or somebody has set the clock
		p.began, p.rings = second, [len(windows)]ring{}
	case second <= last:
		return
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

// tally returns what l has counted, without what the other line has.
func (l *line) tally() (t tally) {
	for i := range l.series {
		n := l.own(i).total()
		if n == 0 {
			continue
		}
		if core.Outcome(i / froms % int(core.Never+1)).Allowed() { //nolint:gosec // it is small
			t.allowed += n
		} else {
			t.refused += n
		}
		if unstored(guard.From(i % froms)) { //nolint:gosec // it is small
			t.unstored += n
		}
	}
	return t
}

// rates adds the rates of l to r.
func (p *pace) rates(l *line, now time.Time, r *Rates) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := l.tally()
	second := now.Unix()
	p.advance(t, second)
	second = p.second.Load()
	for i, to := range []*Rate{&r.TenSeconds, &r.FiveMinutes, &r.OneHour} {
		w := windows[i]
		from := max(second/w.step-w.steps, p.began/w.step) // the first step that counts
		then := p.rings[i].tallies[from%int64(len(p.rings[i].tallies))]
		since := max(from*w.step, p.began)
		over := max(float64(now.UnixMicro()-since*1e6)/1e6, 1)
		to.Allowed += float64(t.allowed-then.allowed) / over
		to.Refused += float64(t.refused-then.refused) / over
		to.Unstored += float64(t.unstored-then.unstored) / over
	}
}
