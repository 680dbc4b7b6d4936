package usage

import (
	"slices"
	"time"

	"github.com/weir-go/weir/core/stats"
)

// Point has the counts of a minute, or of ten where there was no room for the single minutes.
type Point struct {
	At      time.Time
	Minutes int // 1 or 10
	stats.UsageCounts
}

// Series has the counts of a policy.
type Series struct {
	// Points are those of which there is something, the first one first. The last one may be of the minute that has begun.
	Points []Point
	// Tiers has the sums of the tiers, since half an hour to an hour ago.
	Tiers      map[string]stats.UsageCounts
	TiersSince time.Time
	Missed     Missed
}

// Missed has numbers of the things that a Series cannot know.
type Missed struct {
	// Read is the time of the last reading, zero if there was none.
	Read time.Time
	// Since is the time from which on there is anything, and Fine that from which on it is there by the minute.
	Since, Fine time.Time
	// Minutes is the number of minutes without a reading: their counts are spread over them evenly.
	Minutes int
	// Processes is the number of those that tell what they count.
	Processes int
	// Ended is the number of processes that are gone, of which the last seconds are missing.
	Ended int
	// Full and Policies are the numbers of processes and of policies for which there was no room.
	Full, Policies int
	// Unreadable is the number of processes that announce what cannot be read, and Omitted that of policies that had no
	// room in an announcement.
	Unreadable, Omitted int
}

func timeOf(minute int64) time.Time { return time.Unix(minute*60, 0).UTC() }

// Policy returns what was counted of a policy of an app since a time.
func (h *History) Policy(app, name string, since time.Time) Series {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.apps[app]
	if a == nil {
		return Series{}
	}
	from := a.from(since)
	s := Series{Missed: a.missed(from, h.o.Now())}
	p := a.policies[name]
	if p == nil {
		return s
	}
	s.Points = p.points(from)
	for i := range p.tiers {
		t := &p.tiers[i]
		t.turn(a.minute)
		if s.Tiers == nil {
			s.Tiers = map[string]stats.UsageCounts{}
		}
		sum := t.counts[0]
		sum.Add(t.counts[1])
		s.Tiers[t.name] = sum
		if begin := timeOf(max(t.since-tierRound, a.first)); s.TiersSince.IsZero() || begin.Before(s.TiersSince) {
			s.TiersSince = begin
		}
	}
	return s
}

// App returns the points of each policy of an app since a time.
func (h *History) App(app string, since time.Time) (map[string][]Point, Missed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.apps[app]
	if a == nil {
		return nil, Missed{}
	}
	from := a.from(since)
	all := map[string][]Point{}
	for name, p := range a.policies {
		if points := p.points(from); len(points) > 0 {
			all[name] = points
		}
	}
	return all, a.missed(from, h.o.Now())
}

// Minute returns the sums of all policies of an app in the last whole minute.
func (h *History) Minute(app string) (sum stats.UsageCounts) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.apps[app]
	if a == nil {
		return sum
	}
	last := minuteOf(h.o.Now()) - 1
	for _, p := range a.policies {
		switch {
		case p.minute == last:
			sum.Add(p.now)
		case p.before.minute == last:
			sum.Add(p.before.UsageCounts)
		}
	}
	return sum
}

// Busiest returns the keys of a policy that use most units, the first one first, and for how long they were counted:
// those of the last reading, and none unless services tell keys.
func (h *History) Busiest(app, name string) (keys []Key, counted time.Duration) {
	return h.keys(app, name, func(p *policy) *top { return &p.busiest })
}

// Refused is Busiest for those that were refused most often.
func (h *History) Refused(app, name string) (keys []Key, counted time.Duration) {
	return h.keys(app, name, func(p *policy) *top { return &p.refused })
}

func (h *History) keys(app, name string, of func(*policy) *top) ([]Key, time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a := h.apps[app]; a != nil && a.policies[name] != nil {
		t := of(a.policies[name])
		return slices.Clone(t.keys), t.counted
	}
	return nil, 0
}

// from returns the first minute to show.
func (a *app) from(since time.Time) int64 { return max(minuteOf(since), a.kept, a.minute-kept+1) }

// points returns the records from a minute on.
func (p *policy) points(from int64) (points []Point) {
	add := func(r record) {
		if r.end() <= from {
			return
		}
		minutes := 1
		if r.coarse {
			minutes = coarseStep
		}
		points = append(points, Point{timeOf(r.minute), minutes, r.UsageCounts})
	}
	p.all(add)
	if p.now != (stats.UsageCounts{}) {
		add(record{minute: p.minute, UsageCounts: p.now})
	}
	return points
}

// missed returns what is not known from a minute on.
func (a *app) missed(from int64, now time.Time) Missed {
	m := Missed{
		Read: a.read, Processes: a.last.processes, Full: a.last.full, Policies: a.last.policies,
		Unreadable: a.last.unreadable, Omitted: a.last.omitted,
	}
	if a.read.IsZero() {
		return m
	}
	m.Since, m.Fine = timeOf(max(a.kept, a.first, a.minute-kept+1)), timeOf(a.fine)
	gaps := append(slices.Clip(a.gaps), gap{a.minute + 1, minuteOf(now)})
	for _, g := range gaps {
		m.Minutes += int(max(g.end-max(g.begin, from), 0))
	}
	for _, e := range a.ended {
		if (e.hour+1)*60 > from {
			m.Ended += int(e.processes)
		}
	}
	return m
}
