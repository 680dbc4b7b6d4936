package enforce

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/internal/later"
)

// Stats is a snapshot of a [Limiter] together with all those that its With and Variant made, for a page or for metrics;
// see [Limiter.Stats].
type Stats struct {
	// Waiting is the number of callers that wait for their turn, and Permits that of the permits that this process holds.
	Waiting, Permits int
	// Policies divides both by policies, sorted by Name. A policy that has neither is not there.
	Policies []PolicyStats
	// Lanes has the work that no caller waits for, always all five kinds in the same order. There is none while the store
	// is in the process.
	Lanes []Lane
	// Ledger counts the units that the in-process store has admitted while the store failed, and that the store has not
	// been charged for.
	Ledger LedgerStats
	// Outages has the servers that fail now and then, sorted by Server: it is empty while all is well. All Limiters on a
	// store, also those that know nothing of each other, report the same outages: those of equal Server and Since are one.
	Outages []Outage
}

// PolicyStats is a part of [Stats].
type PolicyStats struct {
	Name             string
	Waiting, Permits int
}

// Lane is one kind of work that no caller waits for. Each has a queue, so that none can hold up another.
type Lane struct {
	// Name is fit to be a label: "renewals" of permits that are held; "releases" of permits; "refunds" of units; "charges"
	// of units after the request, as by guard.Rule.After; or "hand-backs", the charges of what the in-process store has
	// admitted during an outage.
	Name string
	// Pending is the number of permits, refunds or charges that wait to be sent, also of those that have failed and are
	// sent again, and Out that of those that are being sent.
	Pending, Out int
	// Lost is the number of those that were given up since the Limiter was made, and only grows: a permit or units that
	// count until they expire by themselves, or a charge that was not made, or may not have been. Of "renewals" it is
	// the permits that were lost; see ErrPermitLost.
	Lost uint64
	// Oldest is the age of the oldest that waits or is being sent, and 0 if there is none.
	Oldest time.Duration
}

// LedgerStats is the part of [Stats] about units that are owed to the store. What a key owes is charged when it is asked for
// again. Units that have expired meanwhile weigh nothing, and may be counted here for a while.
type LedgerStats struct {
	// Keys is the number of keys that owe something, and Units what they owe.
	Keys  int
	Units int64
	// Lost is the number of decisions so far whose units were not noted, because too many keys owed something. It only
	// grows.
	Lost uint64
}

// Outage is the time in which a server fails now and then; see docs/when-redis-fails.md in the repository.
type Outage struct {
	// Server is its address, or "" if the store does not say.
	Server string
	// Class is the class of the latest failure, as in core.StoreError, but not ClassBreaker or ClassBusy, if there was
	// another: they say that the server was not asked, and not why.
	Class string
	// Since is the first failure, and Last the latest.
	Since, Last time.Time
	// Local, Open and Closed are the numbers of decisions that the fail words of policies have made so far, in place of
	// the server.
	Local, Open, Closed int64
}

// Stats returns a snapshot. It takes some microseconds, and holds up nobody.
func (l *Limiter) Stats() Stats {
	e := l.engine
	byName := map[string]*PolicyStats{}
	of := func(name string) *PolicyStats {
		if byName[name] == nil {
			byName[name] = &PolicyStats{Name: name}
		}
		return byName[name]
	}
	var s Stats
	e.waiters.mu.Lock()
	for name, n := range e.waiters.callers {
		of(name).Waiting = n
		s.Waiting += n
	}
	e.waiters.mu.Unlock()
	e.holder.mu.Lock()
	for name, n := range e.holder.count {
		of(name).Permits = n
		s.Permits += n
	}
	permitsLost := e.holder.lost
	e.holder.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		s.Policies = append(s.Policies, *byName[name])
	}
	s.Lanes = e.background.lanes(permitsLost)
	owed := e.ledger.Stats()
	s.Ledger = LedgerStats{Keys: owed.Keys, Units: owed.Units, Lost: owed.Lost}
	s.Outages = e.health.snapshot()
	return s
}

// lanes returns the state of all queues. A permit that was not renewed is lost to its holder, and not to the queue.
func (b *background) lanes(permitsLost uint64) []Lane {
	lane := func(name string, s later.Stats) Lane { return Lane{name, s.Pending, s.Out, s.Lost, s.Oldest} }
	all := []Lane{
		lane("renewals", b.renewals.Stats()),
		lane("releases", b.releases.Stats()),
		lane("refunds", b.refunds.Stats()),
		lane("charges", b.charges.Stats()),
		lane("hand-backs", b.handBacks.Stats()),
	}
	all[0].Lost = permitsLost
	return all
}

func (h *health) snapshot() (all []Outage) {
	if !h.failing.Load() {
		return nil
	}
	h.mu.Lock()
	for server, o := range h.outages {
		all = append(all, Outage{
			Server: server, Class: o.class, Since: o.since, Last: o.last,
			Local: o.decided[core.FailLocal], Open: o.decided[core.FailOpen], Closed: o.decided[core.FailClosed],
		})
	}
	h.mu.Unlock()
	slices.SortFunc(all, func(a, b Outage) int { return cmp.Compare(a.Server, b.Server) })
	return all
}

// tally counts something for policies, by their names. What is zero takes no room.
type tally map[string]int

func (t tally) add(p core.Policy, n int) {
	name := p.Name()
	if n += t[name]; n == 0 {
		delete(t, name)
	} else {
		t[name] = n
	}
}

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
