package stats

import "time"

// Store is a snapshot of a store on servers, for a page or for metrics. redisstore.Store.Stats returns one;
// another store may have such a method, too. The counts only grow while the store lives.
type Store struct {
	// Servers has the servers that were asked so far, sorted by Addr.
	Servers []Server
	// Deadline is the time within which a decision is answered or fails.
	Deadline time.Duration
	// Topology is the breaker of asking a Cluster, none of whose servers was found yet, which of them has a key.
	Topology Breaker
	// DenyHits is the number of requests that were refused from memory, without asking a server.
	DenyHits uint64
}

// Server is the part of [Store] about one server.
type Server struct {
	// Addr is the server's address as the client has it. "other" stands for all servers beyond the first 64.
	Addr string
	// Decisions is about the decisions that the server makes, and Behind about what no request waits for: permits that
	// are renewed or released, units that are given back, and boards that are written.
	Decisions, Behind Traffic
	// Asked is the time at which the latest flight left for it, or zero. A server that is not asked for a minute
	// while others are has
	// probably left its Cluster; its breakers count as closed.
	Asked time.Time
}

// Traffic is the part of [Server] about one kind of flights: those with decisions, or those behind them.
type Traffic struct {
	// Breaker keeps these flights away from the server while it does not answer.
	Breaker Breaker
	// Waiting is the number of calls that wait for a flight now, and Out that of the flights under way.
	Waiting, Out int
	// RoundTrip is the time that a flight takes, smoothed over some of the latest that were answered. It is 0 until the
	// first answer.
	RoundTrip time.Duration
	// Flights is the number of flights so far, Calls that of the calls in them, Merged that of the calls that were made
	// with an equal one, as in Flight.Merged, and Failures that of the flights that the server answered nothing of.
	Flights, Calls, Merged, Failures uint64
}

// Breaker is the state of a breaker.
type Breaker struct {
	// Open reports whether the server is asked twice a second only.
	Open bool
	// Since is the time at which the breaker opened or closed last, or zero if it has never opened.
	Since time.Time
	// Class is the class of the failure that has opened it, and "" if it is closed.
	Class string
}

// Flight describes a round trip of a remote store to a server, with one decision or many, to a program that observes
// them, as by redisstore.Options.Observe. Its numbers and times are fit for histograms.
type Flight struct {
	// Server is the server's address as the client has it.
	Server string
	// Calls is the number of decisions that it carried, or, with Behind, of other things. It is 1 for a decision that
	// travelled alone. A decision that a server of a Cluster sends on to another one, as while slots move, travels twice,
	// and counts in both flights if others went with it the first time.
	Calls int
	// Merged is the number of decisions that were made with an equal one of the same key, which came before. Of three
	// equal ones, Merged is 2.
	Merged int
	// Commands is the number of commands that they took.
	Commands int
	// Waited is the time that the first of them had waited before the flight left.
	Waited time.Duration
	// Took is the time that it was under way.
	Took time.Duration
	// Behind reports that no request waited for it: permits were renewed or released, units given back, or boards
	// written; see Scores.
	Behind bool
	// Err is a *core.StoreError if the server has answered nothing, or nil.
	Err error
}

// BreakerChange describes the opening or closing of a breaker of a remote store, as by redisstore.Options.ObserveBreaker.
// While a breaker is open, the server is asked by one flight at a time, about twice a second; the first that is answered
// closes it.
type BreakerChange struct {
	// Server is the server's address as the client has it.
	Server string
	// Behind reports that it is the breaker for what no request waits for.
	Behind bool
	// Open reports whether it is open now.
	Open bool
	// Class is the class of the failure that has opened it, and "" where it has closed.
	Class string
}
