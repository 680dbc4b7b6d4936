package observe

import (
	"slices"

	"github.com/weir-go/weir/core/guard"
)

// Labels returns the values of a metric's attributes under which a Snapshot has the durations that o has counted with
// these: the same, or "other" in the place of a policy or of a server without a histogram of its own. The metric is its
// Name, and the values are in the order of its Attributes. Labels is for libraries whose histograms are filled as events
// come, such as OpenTelemetry. The answer for a duration that was counted before does not change.
func (o *Observer) Labels(metric string, values ...string) []string {
	values, own := slices.Clone(values), true
	switch metric {
	case decisionDuration.Name:
		own = o.lines.hasTimes(values[0], values[1])
	case timeInQueue.Name:
		own = o.lines.hasQueue(values[0])
	case flightDuration.Name:
		own = o.flights.knows(path{values[0], values[1] == "true"})
	}
	if !own {
		values[0] = Other
	}
	return values
}

// hasTimes reports whether a policy has a histogram of its decisions that were made there.
func (ls *lines) hasTimes(name, from string) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	p := ls.policies[name]
	for i := range froms {
		if p != nil && guard.From(i).String() == from { //nolint:gosec // it is small
			return p.timed[i] == granted
		}
	}
	return false
}

// hasQueue reports whether a policy has a histogram of its waits.
func (ls *lines) hasQueue(name string) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	p := ls.policies[name]
	if p == nil {
		return false
	}
	q := p.queue.Load()
	return q != nil && q != ls.other.policy.queue.Load()
}

// knows reports whether round trips of a path are counted by themselves.
func (f *flights) knows(p path) bool {
	m := f.trips.now.Load()
	return m != nil && (*m)[p] != nil
}
