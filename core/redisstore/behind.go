package redisstore

import (
	"context"
	"time"
)

// What a flight may weigh, in half microseconds of the server's time, for which everybody else
// on it waits, and how many entries it may have. A decision of one limit weighs what it takes
// among many; one of a log of a thousand entries takes a hundred microseconds and more. What no
// request waits for goes in larger flights: with a server 10 ms away, 20 000 a second come back.
const (
	takeWeight     = 16  // of which as many fill a flight as a script may have keys
	moreWeight     = 6   // of each further limit
	fullLogWeight  = 400 // of a log of fullLog entries
	fullLog        = 1000
	resetWeight    = 2
	decisionWeight = DefaultMaxKeys * takeWeight
	maxWeight      = 4 * maxPlaces
	maxFlight      = 256
)

// backgroundDeadline is how long a flight in the background may take. Nobody waits for
// it, so it has the patience that a server in trouble needs; a second is short enough to
// try again several times within a lease.
const backgroundDeadline = time.Second

// askAll flies with entries that no request waits for, in as many flights as it takes: one after
// the other to each server, so that units come back in the order in which they are given.
func (s *Store) askAll(ctx context.Context, k kind, entries []entry) {
	now := time.Now()
	patience := s.behind
	if at, ok := ctx.Deadline(); ok {
		patience = min(patience, at.Sub(now))
	}
	type seat struct {
		*lane
		*passenger
	}
	seats := make([]seat, len(entries))
	lanes := make(map[*lane][]*passenger)
	for i := range entries {
		n, err := s.node(ctx, entries[i].key)
		if err == nil && n.lanes[k].shut() {
			err = errOpen
		}
		if err != nil {
			entries[i].err = err
			continue
		}
		l, p := n.lanes[k], passengers.Get().(*passenger).enter(&entries[i], nil, now)
		seats[i], lanes[l] = seat{l, p}, append(lanes[l], p)
	}
	full := map[*lane]bool{}
	for l, ps := range lanes {
		if !l.board(now, ps...) {
			full[l] = true
		}
	}
	for i, at := range seats {
		switch {
		case at.passenger == nil:
		case full[at.lane]: // nor may they be taken out of a queue in which they are not
			entries[i].err = errFull
		default:
			entries[i].reply, entries[i].err = at.ride(ctx, at.lane, patience, patience, nil)
		}
	}
}
