package redisstore

import "time"

// Flight is the argument of Options.Observe: a round trip to a server, with one decision or many. Its numbers and times
// are fit for histograms.
type Flight struct {
	// Calls is the number of decisions that it carried, or, with Behind, of other things. It is 1 for a decision that
	// travelled alone. A decision that a server of a Cluster sends on to another one, as while slots move, travels twice,
	// and counts in both flights if others went with it the first time.
	Calls int
	// Merged is the number of decisions that were made with an equal one of the same key, which came before. Of three
	// equal ones, Merged is 2.
	Merged int
	// Commands is the number of commands that they took.
	Commands int
	// Waited is the time that the first of them had waited for the flight.
	Waited time.Duration
	// Took is the time that it was under way.
	Took time.Duration
	// Behind reports that no request waited for it: permits were renewed or released, or units given
	// back.
	Behind bool
	// Err is a *core.StoreError if the server has answered nothing, or nil.
	Err error
}

// describe returns what is known of a flight before it leaves.
func (f *flight) describe() *Flight {
	observed := &Flight{Calls: f.entries, Commands: len(f.calls), Waited: f.waited, Behind: f.lane.background}
	for i := range f.calls {
		if c := &f.calls[i]; c.shared != nil {
			for _, n := range c.counts {
				observed.Merged += n - 1
			}
		}
	}
	return observed
}

// observe is called when all have their answers.
func (f *flight) observe() {
	if f.observed.Took = time.Since(f.sent); !f.answered {
		f.observed.Err = f.failure
	}
	f.lane.node.store.observe(*f.observed)
}

// BreakerChange is the argument of Options.ObserveBreaker: the breaker of a server has opened or closed. While it is
// open, the server is asked by one flight at a time, about twice a second; the first that is answered closes it.
type BreakerChange struct {
	// Addr is the server's address as the client has it.
	Addr string
	// Behind reports that it is the breaker for what no request waits for.
	Behind bool
	// Open reports whether it is open now.
	Open bool
	// Class is the class of the failure that has opened it, and "" where it has closed.
	Class string
}

// turned returns the function that a breaker of the node calls when it turns, or nil if nobody observes that.
func (n *node) turned(behind bool) func(open bool, err error) {
	observe := n.store.turns
	if observe == nil {
		return nil
	}
	t := BreakerChange{Addr: n.addr(), Behind: behind}
	return func(open bool, err error) {
		t := t
		if t.Open = open; open {
			t.Class = classOf(err)
		}
		observe(t)
	}
}

// Stats counts what a [Store] has answered without asking Redis, since it was built. For what it asks, see Observe in
// [Options].
type Stats struct {
	// DenyHits is the number of requests that were refused from memory, without asking Redis; see Options.DenyCache.
	DenyHits uint64
}

// Stats returns the counts of now, for a gauge or a debug page. It costs next to nothing.
func (s *Store) Stats() Stats {
	return Stats{DenyHits: s.denials.Hits()}
}
