package redisstore

import (
	"context"
	"time"

	"github.com/weir-go/weir/core"
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

// refundWeight is the weight of a refund beside a permit of weight 1, and logWeight that of the refund of a log, which
// may have a thousand entries to go through.
const (
	refundWeight = 15
	logWeight    = 10 * refundWeight
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

// Refund implements [core.Store]. It needs one script for each refund, and one pipeline
// for up to 256 of them.
func (s *Store) Refund(ctx context.Context, refunds []core.Refund) error {
	programs := make([]*program, len(refunds))
	guesses := make([]int64, len(refunds))
	var due []int
	for i := range refunds {
		r := &refunds[i]
		if err := r.Validate(); err != nil {
			return err
		}
		p, err := s.programs.of(s.names, r.Policy)
		if err != nil {
			return err
		}
		if programs[i] = p; p.unit == nil {
			guesses[i] = s.guess(r.Now)
		}
		if r.Units > 0 {
			due = append(due, i)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	forget := func(all []int) {
		for _, i := range all {
			s.denials.GivesBack(programs[i].denials)
			s.denials.Forget(programs[i].denials, refunds[i].Key)
		}
	}
	forget(due)
	defer forget(due)
	errs := make([]error, len(refunds))
	for range 2 { // again for those in which nothing ran, by the server's clock
		entries := make([]entry, len(due))
		for k, i := range due {
			entries[k] = s.refund(programs[i], &refunds[i], guesses[i])
		}
		s.askAll(ctx, refunding, entries)
		var again []int
		for k, i := range due {
			e := &entries[k]
			errs[i] = e.err
			if e.err == nil && len(e.reply) == 1 { // the clock is in another calendar window
				errs[i], guesses[i] = errClock, e.reply[0]
				again = append(again, i)
			}
		}
		due = again
	}
	return batchError(errs)
}

func (s *Store) refund(p *program, r *core.Refund, guess int64) entry {
	weight := int64(refundWeight)
	if p.log {
		weight = logWeight
	}
	script := p.refund
	if r.Credit {
		script = p.credit
	}
	return entry{
		key:    s.names.Of(p.before, r.Key),
		script: script,
		args:   arguments(r.Policy.Spec().RefundArgs(*r, guess), r.Now),
		weight: weight,
	}
}

// batchError returns nil if all errors are nil.
func batchError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return &core.BatchError{Errs: errs}
		}
	}
	return nil
}
