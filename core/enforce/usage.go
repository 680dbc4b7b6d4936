package enforce

import "time"

// Usage has what a process has counted of its policies since it began to count. observe.Observer returns one, and a
// redissource.Source with Options.Usage announces it, so that the page of the fleet shows what is admitted and refused
// without looking at any count in Redis.
type Usage struct {
	// For is the time for which the process has counted, in whole seconds. It is a duration, so that clocks that differ do
	// not matter.
	For time.Duration
	// Policies are sorted by their names.
	Policies []PolicyUsage
	// Omitted is the number of policies, and KeysOmitted that of keys, which found no place in an announcement.
	Omitted, KeysOmitted int
}

// PolicyUsage is the Usage of a policy.
type PolicyUsage struct {
	Policy string
	// Tiers are sorted by their names. "" is the tier of requests without one.
	Tiers []TierUsage
	// Busiest are the keys that use most units, and Refused those that are refused most often, the most first. They are
	// empty unless they were asked for: a key may name a person.
	Busiest, Refused TopKeys
}

// TierUsage is the Usage of a tier of a policy.
type TierUsage struct {
	Tier string
	UsageCounts
}

// UsageCounts are numbers of requests. Each request is one of Admitted, Refused and Trial.
type UsageCounts struct {
	// Admitted passed. Refused did not. Trial would have been refused, and passed because the policy is on trial.
	Admitted, Refused, Trial uint64
	// Failed are those of them for which the store has failed, and Local those that the in-process store has decided then.
	Failed, Local uint64
	// Waited are those that have waited for their turn.
	Waited uint64
}

// Add adds other to c.
func (c *UsageCounts) Add(other UsageCounts) {
	c.Admitted += other.Admitted
	c.Refused += other.Refused
	c.Trial += other.Trial
	c.Failed += other.Failed
	c.Local += other.Local
	c.Waited += other.Waited
}

// TopKeys are the keys of a policy that were counted most.
type TopKeys struct {
	// For is the time for which they were counted, in whole seconds: ten to twenty minutes, or less at first.
	For  time.Duration
	Keys []KeyCount
}

// KeyCount is a key, and the bounds of what it was counted: between Count - Error and Count.
type KeyCount struct {
	Key          string
	Count, Error uint64
}
