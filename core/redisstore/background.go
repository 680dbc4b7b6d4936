package redisstore

import (
	"context"
	"time"
)

// Weights are in half microseconds of the server's time, for which everybody else on it waits. A decision of one limit
// weighs what it takes among many; one of a log of a thousand entries takes a hundred microseconds and more. What no
// request waits for goes in larger flights: with a server 10 ms away, 20 000 a second come back.
const (
	takeWeight       = 16  // of which as many fill a flight as a script may have keys
	moreWeight       = 6   // of each further limit
	fullLogWeight    = 400 // of a log of fullLog entries
	fullLog          = 1000
	resetWeight      = 2
	decisionWeight   = DefaultMaxKeys * takeWeight
	backgroundWeight = 4 * maxPlaces
	flightEntries    = 256
)

// backgroundDeadline is the deadline of a flight in the background. Nobody waits for it, so it has the patience that a
// server in trouble needs; a second is short enough to try again several times within a lease.
const backgroundDeadline = time.Second

// askAll flies with entries that no request waits for, in as many flights as it takes: one after
// the other to each server, so that units come back in the order in which they are given. It returns the node that was
// asked for each entry, and names that in its error.
func (s *Store) askAll(ctx context.Context, k kind, entries []entry) []*node {
	now := time.Now()
	patience := s.backgroundDeadline
	if at, ok := ctx.Deadline(); ok {
		patience = min(patience, at.Sub(now))
	}
	nodes := make([]*node, len(entries)) // nil if there is none to ask
	lanes := make([]*lane, len(entries)) // nil for one that has failed
	waits := make([]*passenger, len(entries))
	byLane := make(map[*lane][]*passenger)
	for i := range entries {
		n, err := s.node(ctx, entries[i].key)
		if nodes[i] = n; err == nil && n.lanes[k].shut() {
			err = n.named(errOpen)
		}
		if err != nil {
			entries[i].err = err
			continue
		}
		l, p := n.lanes[k], passengers.Get().(*passenger).enter(&entries[i], nil, now)
		lanes[i], waits[i], byLane[l] = l, p, append(byLane[l], p)
	}
	full := map[*lane]bool{}
	for l, ps := range byLane {
		if !l.board(now, ps...) {
			full[l] = true
		}
	}
	for i, l := range lanes {
		switch {
		case l == nil:
		case full[l]: // nor may they be taken out of a queue in which they are not
			entries[i].err = nodes[i].named(errFull)
		default:
			reply, err := waits[i].wait(ctx, l, patience, patience, nil)
			entries[i].reply, entries[i].err = reply, nodes[i].named(err)
		}
	}
	return nodes
}
