package observe

import (
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/stats"
)

// Snapshot is all that an [Observer] knows at one instant. It is sorted, and belongs to the caller. What comes of policies,
// tiers and servers is bounded, but for Policies and Guards, which are as many as the program has.
type Snapshot struct {
	// At is the time of the snapshot, and Start the time at which the Observer began to count.
	At, Start time.Time
	// Decisions has the number of decisions of each rule, by tier, outcome, and what has decided.
	Decisions []Decisions
	// Durations has the time that decisions took.
	Durations []Durations
	// Queues has the time for which requests waited for their turn, of policies that let requests wait.
	Queues []QueueTimes
	// Settled has the units that requests have used in the end.
	Settled []Settled
	// Rates has the decisions a second of each policy, lately.
	Rates []Rates
	// Failures has the decisions that the store did not make. Each class is there for each server that is known, so that a
	// first failure can be seen as a difference.
	Failures []Failures
	// Flights has the round trips to each server.
	Flights []Flights
	// Breakers has the state of the breakers of each server: of the watched stores, and of others as far as they have
	// called ObserveBreaker.
	Breakers []Breaker
	// Stores has what the watched stores on servers tell of themselves, and Memories has those in the process, in the
	// order in which Watch was given them.
	Stores   []stats.Store
	Memories []Memory
	// Guards has what the watched guards tell of themselves, in the order in which Watch was given them, and Limiters what
	// their Limiters do: one for all guards that With and WithRule have made of each other.
	Guards   []guard.Stats
	Limiters []stats.Limiter
	// Policies has the policies of the watched guards, with the numbers in force.
	Policies []Policy
	// Sharing says whether the worst callers are shared with the fleet as they should be.
	Sharing Sharing
}

// Sharing is the state of what [Observer.Share] has begun: zero if the last addition to the boards has succeeded, if
// there was none yet, and without Share.
type Sharing struct {
	// FailsSince is the time of the first of the additions that have failed since then.
	FailsSince time.Time
	// Err is the text of the latest failure.
	Err string
}

// Policy is a policy in force.
type Policy struct {
	Name string
	// Limits is its text without the name, such as "100/1m; fail closed".
	Limits string
	// Permits reports that requests hold permits of it.
	Permits bool
}

// Decisions is a number of decisions. What is beyond Options.MaxSeries has "other" as its Policy, Rule and Tier.
type Decisions struct {
	Policy, Rule, Tier string
	// Outcome is "admitted", "at-limit", "refused" or "never".
	Outcome string
	// From names the part of weir that has decided, such as "store" or "deny-cache"; see guard.Event.
	From string
	// Shadow reports that the policy was on trial, so that nothing was refused.
	Shadow bool
	Count  uint64
}

// Allowed reports whether the decisions admitted.
func (d Decisions) Allowed() bool {
	return d.Outcome == core.Admitted.String() || d.Outcome == core.AtLimit.String()
}

// Durations is the time that the decisions of a policy took, by what has decided.
type Durations struct {
	Policy, From string
	Histogram    Histogram
}

// QueueTimes is the time for which requests of a policy waited for their turn.
type QueueTimes struct {
	Policy    string
	Histogram Histogram
}

// Settled is the number of units that requests of a policy have used in the end, of rules with Settle or After.
type Settled struct {
	Policy string
	Units  uint64
}

// Memory has the numbers of a [core.Memory].
type Memory struct {
	// Keys is the number of keys that are held, and MaxKeys the most that may be: those of [core.Memory.Len] and
	// [core.Memory.MaxKeys].
	Keys, MaxKeys int
	// Displaced is the number of keys that were forgotten to make room while they still counted for something, and
	// DisplacedAtLimit that of those which had nothing left: both are from [core.Memory.Displaced].
	Displaced, DisplacedAtLimit uint64
}

// memoryNow returns the numbers of m.
func memoryNow(m *core.Memory) Memory {
	s := Memory{Keys: m.Len(), MaxKeys: m.MaxKeys()}
	s.Displaced, s.DisplacedAtLimit = m.Displaced()
	return s
}

// Rate is a number of decisions a second.
type Rate struct {
	Allowed, Refused float64
	// Unstored is the part of them that was decided without the store, because it failed.
	Unstored float64
}

// Rates are the rates of a policy over the last 10 seconds, 5 minutes and hour, or since the policy was first seen if
// that is shorter ago.
type Rates struct {
	Policy                           string
	TenSeconds, FiveMinutes, OneHour Rate
}

// Failures is a number of decisions that the store did not make.
type Failures struct {
	// Class is the class of the [core.StoreError], such as "timeout".
	Class string
	// Server is the address of the server that failed, or "" if the store does not say.
	Server string
	Count  uint64
}

// Flights is the round trips to a server.
type Flights struct {
	Server string
	// Behind reports that no request waited for them.
	Behind bool
	// Histogram has the time that they took.
	Histogram Histogram
	// Calls is the number of calls that they carried, and Merged that of those made together with an equal one.
	Calls, Merged uint64
	// Failed is the number of round trips in which the server has answered nothing.
	Failed uint64
}

// Breaker is the state of the breaker of a server.
type Breaker struct {
	Server string
	// Behind reports that it is the one for what no request waits for.
	Behind bool
	Open   bool
	// Since is the time since which it is open or closed, and zero if it has never opened.
	Since time.Time
	// Class is the class of the failure that has opened it, and "" if it is closed.
	Class string
}

// Refusal is a request that was refused, or would have been if the policy were not on trial. It is for people: Key and
// Route are not for labels.
type Refusal struct {
	At                 time.Time
	Policy, Rule, Tier string
	Outcome, From      string
	Shadow             bool
	// Key is the key that was counted, or "" if the request had none.
	Key string
	// Route is the pattern of the request's route.
	Route string
	// RetryAfter is the wait that was announced.
	RetryAfter time.Duration
	// Err is the text of the error on the way to the decision, or "".
	Err string
}
