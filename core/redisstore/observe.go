package redisstore

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/core/stats"
)

// Flight is the argument of Options.Observe: a round trip to a server, with one decision or many.
type Flight = stats.Flight

// BreakerChange is the argument of Options.ObserveBreaker: the breaker of a server has opened or closed.
type BreakerChange = stats.BreakerChange

// Stats is the result of [Store.Stats].
type Stats = stats.Store

// merged returns how many decisions are made with an equal one of the same key, which comes before.
func (f *flight) merged() (n int) {
	for i := range f.calls {
		if c := &f.calls[i]; c.shared != nil {
			for _, equal := range c.counts {
				n += equal - 1
			}
		}
	}
	return n
}

// describe returns what is known of a flight before it leaves.
func (f *flight) describe() *Flight {
	return &Flight{
		Server: f.lane.node.addr(), Calls: f.entries, Merged: f.merged(), Commands: len(f.calls), Waited: f.waited, Behind: f.lane.background,
	}
}

// observe is called when all have their answers.
func (f *flight) observe() {
	if f.observed.Took = time.Since(f.sent); !f.answered {
		f.observed.Err = f.failure
	}
	f.lane.node.store.observe(*f.observed)
}

// turned returns the function that a breaker of the node calls when it turns, or nil if nobody observes that.
func (n *node) turned(behind bool) func(open bool, err error) {
	observe := n.store.turns
	if observe == nil {
		return nil
	}
	t := BreakerChange{Server: n.addr(), Behind: behind}
	return func(open bool, err error) {
		t := t
		if t.Open = open; open {
			t.Class = classOf(err)
		}
		observe(t)
	}
}

// counts are those of a server since the Store was built, whatever nodes it has had.
type counts struct {
	addr              string
	decisions, behind traffic
}

// traffic counts flights of one kind.
type traffic struct{ flights, calls, merged, failures atomic.Uint64 }

// servers has the counts of each server by its address. Those beyond maxServers share one.
type servers struct {
	mu     sync.Mutex
	byAddr map[string]*counts
}

const (
	maxServers   = 64
	otherServers = "other"
)

// of returns the counts of a server.
func (s *servers) of(addr string) *counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.byAddr[addr]; c != nil {
		return c
	}
	if len(s.byAddr) >= maxServers {
		addr = otherServers
	}
	c := s.byAddr[addr]
	if c == nil {
		c = &counts{addr: addr}
		if s.byAddr == nil {
			s.byAddr = map[string]*counts{}
		}
		s.byAddr[addr] = c
	}
	return c
}

// goneAfter is the time after which a server that is not asked, while others are, is believed to be in use no more: its
// breaker would stay open for ever.
const goneAfter = time.Minute

// Stats returns what the Store knows of itself and of its servers, for a page or for metrics. It takes some microseconds
// for each server. For each flight and each change of a breaker, see Observe and ObserveBreaker in [Options].
func (s *Store) Stats() Stats {
	all := Stats{Deadline: s.deadline, DenyHits: s.denials.Hits()}
	if s.mapping != nil {
		all.Topology = s.mapping.state()
	}
	s.servers.mu.Lock()
	at := make(map[*counts]int, len(s.servers.byAddr))
	for _, c := range s.servers.byAddr {
		at[c] = len(all.Servers)
		all.Servers = append(all.Servers, stats.Server{
			Addr: c.addr, Decisions: c.decisions.stats(), Behind: c.behind.stats(),
		})
	}
	s.servers.mu.Unlock()
	var nodes []*node
	var latest time.Duration
	s.nodes.each(s.only, func(n *node) {
		if _, known := at[n.counts]; known { // else it came a moment ago
			nodes = append(nodes, n)
			latest = max(latest, n.asked.since())
		}
	})
	for _, n := range nodes {
		server, asked := &all.Servers[at[n.counts]], n.asked.since()
		if at := started.Add(asked); asked != 0 && at.After(server.Asked) {
			server.Asked = at
		}
		for k, l := range n.lanes {
			into := &server.Decisions
			if kind(k) != deciding {
				into = &server.Behind
			}
			l.addStats(into)
			if latest-asked < goneAfter {
				into.Breaker = worse(into.Breaker, l.state())
			}
		}
	}
	slices.SortFunc(all.Servers, func(a, b stats.Server) int { return cmp.Compare(a.Addr, b.Addr) })
	return all
}

// worse returns the state of the breaker that is open, or else of the one that was so last.
func worse(a, b stats.Breaker) stats.Breaker {
	if a.Open != b.Open && b.Open || a.Open == b.Open && b.Since.After(a.Since) {
		return b
	}
	return a
}

func (t *traffic) stats() stats.Traffic {
	return stats.Traffic{
		Flights: t.flights.Load(), Calls: t.calls.Load(), Merged: t.merged.Load(), Failures: t.failures.Load(),
	}
}

// addStats adds what waits and is out.
func (l *lane) addStats(into *stats.Traffic) {
	l.mu.Lock()
	defer l.mu.Unlock()
	into.Waiting += l.queue.Len()
	into.Out += l.out + len(l.asides)
	into.RoundTrip = max(into.RoundTrip, l.smoothedTrip)
}

// state returns the state of a breaker.
func (b *breaker) state() stats.Breaker {
	t := b.latest.Load()
	if t == nil {
		return stats.Breaker{}
	}
	s := stats.Breaker{Open: t.open, Since: t.at}
	if t.open {
		s.Class = classOf(t.err)
	}
	return s
}
