package redisstore

import "time"

// Flight is the argument of Options.Observe: something was asked of a server. Sizes and times are
// fit for histograms.
type Flight struct {
	// Calls is how many decisions it carried, or, with Behind, how many other things. One that
	// flew alone is 1.
	Calls int
	// Merged is how many of them were decided with an equal one of the same key, which came before.
	Merged int
	// Commands is how many commands they took.
	Commands int
	// Waited is how long the first of them had waited for the flight.
	Waited time.Duration
	// Took is how long it was under way.
	Took time.Duration
	// Behind reports that no request waited for it: permits were renewed or released, or units given
	// back.
	Behind bool
	// Err is a *core.StoreError if the server has answered nothing, or nil.
	Err error
}

// boarded is what is known of a flight before it leaves.
func (f *flight) boarded() *Flight {
	told := &Flight{Calls: f.entries, Commands: len(f.calls), Waited: f.waited, Behind: f.lane.behind}
	for i := range f.calls {
		if c := &f.calls[i]; c.shared != nil {
			for _, n := range c.counts {
				told.Merged += n - 1
			}
		}
	}
	return told
}

// tell is called when all have their answers.
func (f *flight) tell() {
	if f.told.Took = time.Since(f.sent); !f.alive {
		f.told.Err = f.word
	}
	f.lane.node.store.observe(*f.told)
}

// BreakerChange is the argument of Options.ObserveBreaker: the breaker of a server has opened or closed. While it is
// open, the server is asked by one flight at a time, about twice a second; the first that is answered closes it.
type BreakerChange struct {
	// Addr is the server's address as the client has it, or "" where that does not say which server it asks.
	Addr string
	// Behind reports that it is the breaker for what no request waits for.
	Behind bool
	// Open reports whether it is open now.
	Open bool
	// Class is the class of the failure that has opened it, and "" where it has closed.
	Class string
}

// turned is what a breaker of the node tells of its turns, or nil if nobody wants to know.
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
