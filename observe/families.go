package observe

import (
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

// Families returns the Snapshot as metrics, in the order of [Metrics]. Metrics without points are there as well.
func (s *Snapshot) Families() []Family {
	all := []Family{}
	add := func(m Metric, points []Point) { all = append(all, Family{m, points}) }

	points := make([]Point, 0, len(s.Decisions))
	for _, d := range s.Decisions {
		points = append(points, Point{
			Values: []string{d.Policy, d.Rule, d.Tier, d.Outcome, d.From, strconv.FormatBool(d.Shadow)}, Value: float64(d.Count),
		})
	}
	add(decisions, points)
	points = nil
	for i := range s.Durations {
		d := &s.Durations[i]
		points = append(points, Point{Values: []string{d.Policy, d.From}, Histogram: &d.Histogram})
	}
	add(decisionDuration, points)
	points = nil
	for i := range s.Queues {
		q := &s.Queues[i]
		points = append(points, Point{Values: []string{q.Policy}, Histogram: &q.Histogram})
	}
	add(timeInQueue, points)
	add(queuedRequests, nil)
	add(activePermits, nil)
	points = nil
	for _, u := range s.Settled {
		points = append(points, Point{Values: []string{u.Policy}, Value: float64(u.Units)})
	}
	add(unitsSettled, points)
	points = nil
	for _, f := range s.Failures {
		points = append(points, Point{Values: []string{f.Class, f.Server}, Value: float64(f.Count)})
	}
	add(storeFailures, points)
	deadline := time.Duration(0)
	for _, store := range s.Stores {
		deadline = max(deadline, store.Deadline)
	}
	add(storeDeadline, one(deadline > 0, deadline.Seconds()))
	var durations, calls, merged []Point
	for i := range s.Flights {
		f := &s.Flights[i]
		values := []string{f.Server, strconv.FormatBool(f.Behind)}
		durations = append(durations, Point{Values: values, Histogram: &f.Histogram})
		calls = append(calls, Point{Values: values, Value: float64(f.Calls)})
		merged = append(merged, Point{Values: values, Value: float64(f.Merged)})
	}
	add(flightDuration, durations)
	add(flightCalls, calls)
	add(flightMerged, merged)
	points = nil
	for _, b := range s.Breakers {
		open := 0.0
		if b.Open {
			open = 1
		}
		points = append(points, Point{Values: []string{b.Server, strconv.FormatBool(b.Behind), b.Class}, Value: open})
	}
	add(breakerOpen, points)
	add(backgroundPending, nil)
	add(backgroundLost, nil)
	add(backgroundOldest, nil)
	var keys, displaced float64
	for _, m := range s.Memories {
		keys, displaced = keys+float64(m.Keys), displaced+float64(m.Displaced)
	}
	add(keysHeld, one(len(s.Memories) > 0, keys))
	add(keysDisplaced, one(len(s.Memories) > 0, displaced))
	add(policyInfo, nil)
	add(policySetInfo, nil)
	return all
}

// one returns the point of a metric without attributes, if there is one.
func one(has bool, value float64) []Point {
	if !has {
		return nil
	}
	return []Point{{Value: value}}
}
