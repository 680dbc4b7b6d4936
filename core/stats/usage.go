package stats

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

// Scores is a part of what one process has counted, for a board that a fleet shares; see redisstore.Store.AddScores. A
// board lists the keys that count most, such as those that were refused most under a policy within a minute.
type Scores struct {
	// Board is the name of the board, as in "login:29012345": 1 to 200 letters, digits and "_.~:/=&%@-".
	Board string
	// Source is the name of the process, which has another one at each start: 1 to 64 of the same letters.
	Source string
	// Units has what to add for some keys. A unit that is added twice counts twice.
	Units map[string]int64
	// Missed is the largest number of units that any one key has counted in this process, for this board, and that were
	// not added: those of a key that was never in Units, and those of others that are uncertain. It replaces the Missed
	// that the process has sent before. With 7 of a key added so far, and a Missed of 2, the process has counted 7 to 9.
	Missed int64
}

// Score is the number of units that a fleet has counted for a key: a number from Low to High; see [Scores].
type Score struct {
	Key       string
	Low, High int64
}
