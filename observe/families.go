package observe

import (
	"maps"
	"slices"
	"strconv"
	"time"
)

// Family is a metric with its points of one Snapshot.
type Family struct {
	Metric
	Points []Point
}

// Point is the measurement of one set of attributes.
type Point struct {
	// Values are the values of the metric's attributes, in their order.
	Values []string
	// Value is the number of a Counter or a Gauge.
	Value float64
	// Histogram has the durations of Histograms; it is nil of others.
	Histogram *Histogram
}

// The most points that a metric has of what policies and revisions there are. They and the shares of other metrics in
// lines.go come to less than Options.MaxSeries, if that is 500 or more; so does the sum of both for its default of 2000.
const (
	mostInfos     = 100
	mostGauges    = 50
	mostRevisions = 10
)

// Families returns the Snapshot as metrics, in the order of [Metrics]. Metrics without points are there as well.
func (s *Snapshot) Families() []Family {
	points := map[string][]Point{}
	add := func(m Metric, p Point) { points[m.Name] = append(points[m.Name], p) }
	s.addDecisions(add)
	s.addServers(add)
	s.addGuards(add)
	var all []Family
	for _, m := range Metrics() {
		all = append(all, Family{m, points[m.Name]})
	}
	return all
}

// addDecisions adds what was observed of requests.
func (s *Snapshot) addDecisions(add func(Metric, Point)) {
	for _, d := range s.Decisions {
		add(decisions, Point{
			Values: []string{d.Policy, d.Rule, d.Tier, d.Outcome, d.From, strconv.FormatBool(d.Shadow)}, Value: float64(d.Count),
		})
	}
	for i := range s.Durations {
		d := &s.Durations[i]
		add(decisionDuration, Point{Values: []string{d.Policy, d.From}, Histogram: &d.Histogram})
	}
	for i := range s.Queues {
		q := &s.Queues[i]
		add(timeInQueue, Point{Values: []string{q.Policy}, Histogram: &q.Histogram})
	}
	for _, u := range s.Settled {
		add(unitsSettled, Point{Values: []string{u.Policy}, Value: float64(u.Units)})
	}
	for _, f := range s.Failures {
		add(storeFailures, Point{Values: []string{f.Class, f.Server}, Value: float64(f.Count)})
	}
}

// addServers adds what is known of servers and of stores.
func (s *Snapshot) addServers(add func(Metric, Point)) {
	for i := range s.Flights {
		f := &s.Flights[i]
		values := []string{f.Server, strconv.FormatBool(f.Behind)}
		add(flightDuration, Point{Values: values, Histogram: &f.Histogram})
		add(flightCalls, Point{Values: values, Value: float64(f.Calls)})
		add(flightMerged, Point{Values: values, Value: float64(f.Merged)})
	}
	for _, b := range s.Breakers {
		open := 0.0
		if b.Open {
			open = 1
		}
		add(breakerOpen, Point{Values: []string{b.Server, strconv.FormatBool(b.Behind), b.Class}, Value: open})
	}
	deadline := time.Duration(0)
	for _, store := range s.Stores {
		deadline = max(deadline, store.Deadline)
	}
	if deadline > 0 {
		add(storeDeadline, Point{Value: deadline.Seconds()})
	}
	if len(s.Memories) > 0 {
		var keys, displaced float64
		for _, m := range s.Memories {
			keys, displaced = keys+float64(m.Keys), displaced+float64(m.Displaced)
		}
		add(keysHeld, Point{Value: keys})
		add(keysDisplaced, Point{Value: displaced})
	}
}

// addGuards adds what the watched guards tell of themselves.
func (s *Snapshot) addGuards(add func(Metric, Point)) {
	queued, permits := map[string]float64{}, map[string]float64{}
	infos := 0
	for i, p := range s.Policies {
		if p.Permits {
			permits[p.Name] = 0
		}
		if i > 0 && p.Name == s.Policies[i-1].Name && p.Limits == s.Policies[i-1].Limits {
			continue
		}
		if infos++; infos <= mostInfos {
			add(policyInfo, Point{Values: []string{p.Name, p.Limits}, Value: 1})
		}
	}
	if infos > mostInfos {
		add(policyInfo, Point{Values: []string{Other, Other}, Value: float64(infos - mostInfos)})
	}
	revisions := map[string]float64{}
	var since time.Time
	for _, g := range s.Guards {
		for _, q := range g.Queues {
			queued[q.Policy] += float64(q.Requests)
		}
		if g.Revision != "" {
			revisions[label(g.Revision)]++
		}
		if !g.LagsSince.IsZero() && (since.IsZero() || g.LagsSince.Before(since)) {
			since = g.LagsSince
		}
	}
	if len(revisions) > 0 {
		lag := 0.0
		if !since.IsZero() {
			lag = max(s.At.Sub(since).Seconds(), 0)
		}
		add(policySetLag, Point{Value: lag})
	}
	byName(add, policySetInfo, revisions, mostRevisions)
	type lane struct{ pending, lost, oldest float64 }
	lanes := map[string]lane{}
	for _, l := range s.Limiters {
		for _, p := range l.Policies {
			if p.Permits > 0 {
				permits[p.Name] += float64(p.Permits)
			}
		}
		for _, b := range l.Lanes {
			lanes[b.Name] = lane{
				lanes[b.Name].pending + float64(b.Pending+b.Out), lanes[b.Name].lost + float64(b.Lost),
				max(lanes[b.Name].oldest, b.Oldest.Seconds()),
			}
		}
	}
	byName(add, queuedRequests, queued, mostGauges)
	byName(add, activePermits, permits, mostGauges)
	for _, name := range slices.Sorted(maps.Keys(lanes)) {
		add(backgroundPending, Point{Values: []string{name}, Value: lanes[name].pending})
		add(backgroundLost, Point{Values: []string{name}, Value: lanes[name].lost})
		add(backgroundOldest, Point{Values: []string{name}, Value: lanes[name].oldest})
	}
}

// byName adds a point for each name, and one for all beyond the most.
func byName(add func(Metric, Point), m Metric, values map[string]float64, most int) {
	names := slices.Sorted(maps.Keys(values))
	more := 0.0
	for i, name := range names {
		if i < most && name != Other {
			add(m, Point{Values: []string{name}, Value: values[name]})
		} else {
			more += values[name]
		}
	}
	if len(names) > most || slices.Contains(names, Other) {
		add(m, Point{Values: []string{Other}, Value: more})
	}
}
