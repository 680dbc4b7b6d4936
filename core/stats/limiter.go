package stats

import "time"

// Limiter is a snapshot of an enforce.Limiter together with all those that its With and Variant made, for a page or for
// metrics, as its Stats returns it.
type Limiter struct {
	// Waiting is the number of callers that wait for their turn, and Permits that of the permits that this process holds.
	Waiting, Permits int
	// Policies divides both by policies, sorted by Name. A policy that has neither is not there.
	Policies []Policy
	// Lanes has the work that no caller waits for, always all five kinds in the same order. There is none while the store
	// is in the process.
	Lanes []Lane
	// Ledger counts the units that the in-process store has admitted while the store failed, and that the store has not
	// been charged for.
	Ledger Ledger
	// Outages has the servers that fail now and then, sorted by Server: it is empty while all is well. All Limiters on a
	// store, also those that know nothing of each other, report the same outages: those of equal Server and Since are one.
	Outages []Outage
}

// Policy is a part of [Limiter].
type Policy struct {
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
	// the permits that were lost; see enforce.ErrPermitLost.
	Lost uint64
	// Oldest is the age of the oldest that waits or is being sent, and 0 if there is none.
	Oldest time.Duration
}

// Ledger is the part of [Limiter] about units that are owed to the store. What a key owes is charged when it is asked for
// again. Units that have expired meanwhile weigh nothing, and may be counted here for a while.
type Ledger struct {
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
	// Class is the class of the latest failure, as in core.StoreError, but not core.ClassBreaker or core.ClassBusy, if there was
	// another: they say that the server was not asked, and not why.
	Class string
	// Since is the first failure, and Last the latest.
	Since, Last time.Time
	// Local, Open and Closed are the numbers of decisions that the fail words of policies have made so far, in place of
	// the server.
	Local, Open, Closed int64
}
