package redisstore

import (
	"cmp"
	"slices"

	"github.com/weir-go/weir/core"
)

// queues hold the passengers that wait for one server, in a queue for each policy, so that a crowd of one policy keeps
// nobody else waiting: a flight is filled from all queues in turn. A queue exists while somebody waits in it, so there
// are no more queues than passengers. The lane that has them locks them.
type queues struct {
	first, last *passenger // of all queues, in the order in which they came
	untold      *passenger // the first of them that may not be attentive yet; nil if all are
	waiting     int
	weight      int64  // of those who wait
	came        uint64 // how many came so far

	byPolicy map[core.Policy]*queue
	latest   *queue   // where the last one entered: nearly always there is only this one
	turn     *queue   // which is served first by the next flight
	empty    *queue   // one to use again, or nil
	served   []*queue // room for those of a flight
}

// queue holds the passengers of one policy that wait, in the order in which they came. The queues of a lane are a ring.
type queue struct {
	policy         core.Policy
	first, last    *passenger
	waiting        int
	taken          int64 // the weight of those in the flight that is being filled
	previous, next *queue
}

// add puts p at the end of the queue of its policy. If the server decides for it and the one before as if they were
// one, it weighs nothing.
func (qs *queues) add(p *passenger) {
	q := qs.of(p.policy)
	p.queue, p.before, p.after, p.merges = q, q.last, nil, false
	if q.last == nil {
		q.first = p
	} else {
		q.last.after = p
		if q.last.alike(p) {
			p.merges, p.weight = true, 0
		}
	}
	q.last = p
	q.waiting++

	if p.earlier, p.later = qs.last, nil; qs.last == nil {
		qs.first = p
	} else {
		qs.last.later = p
	}
	qs.last = p
	qs.waiting++
	qs.weight += p.weight
	qs.came++
	p.number = qs.came
}

// of returns the queue of a policy, and makes one if there is none.
func (qs *queues) of(policy core.Policy) *queue {
	if qs.latest != nil && qs.latest.policy == policy {
		return qs.latest
	}
	q := qs.byPolicy[policy]
	if q == nil {
		if q, qs.empty = qs.empty, nil; q == nil {
			q = new(queue)
		}
		q.policy = policy
		if qs.byPolicy == nil {
			qs.byPolicy = make(map[core.Policy]*queue)
		}
		qs.byPolicy[policy] = q
		if qs.turn == nil {
			q.previous, q.next, qs.turn = q, q, q
		} else { // its turn comes after that of all others
			q.previous, q.next = qs.turn.previous, qs.turn
			q.previous.next, q.next.previous = q, q
		}
	}
	qs.latest = q
	return q
}

// remove takes p out of its queue.
func (qs *queues) remove(p *passenger) {
	q := p.queue
	if p.before == nil {
		q.first = p.after
	} else {
		p.before.after = p.after
	}
	if p.after == nil {
		q.last = p.before
	} else {
		p.after.before = p.before
		if p.after.merges && !p.merges { // with p, and now the others with it
			p.after.merges, p.after.weight, p.weight = false, p.weight, 0
		}
	}
	p.before, p.after = nil, nil
	qs.unlink(p)
	qs.close(q)
}

// unlink takes p out of the list of all.
func (qs *queues) unlink(p *passenger) {
	if p.earlier == nil {
		qs.first = p.later
	} else {
		p.earlier.later = p.later
	}
	if p.later == nil {
		qs.last = p.earlier
	} else {
		p.later.earlier = p.earlier
	}
	if qs.untold == p {
		qs.untold = p.later
	}
	p.queue.waiting--
	p.queue, p.earlier, p.later = nil, nil, nil
	qs.waiting--
	qs.weight -= p.weight
}

// close gives a queue back in which nobody waits any more.
func (qs *queues) close(q *queue) {
	if q.first != nil {
		return
	}
	delete(qs.byPolicy, q.policy)
	if qs.latest == q {
		qs.latest = nil
	}
	if qs.turn == q {
		if qs.turn = q.next; qs.turn == q {
			qs.turn = nil
		}
	}
	q.previous.next, q.next.previous = q.next, q.previous
	*q = queue{}
	qs.empty = q
}

// fill takes passengers out of the queues, up to so many and as heavy, or a single one that is heavier, and returns
// them in the order in which they came. The queues take turns, by weight, and where one flight ends the next one goes
// on: with n queues each policy has an n-th of every flight, or all that it asks for if that is less. What one policy
// does not need of its part is for the others.
//
// Of those that merge with the one before, that one is aboard as well: see [passenger.before].
func (qs *queues) fill(full int, heavy int64) []*passenger {
	riders := make([]*passenger, 0, min(qs.waiting, full))
	weight := int64(0)
	fits := func(p *passenger) bool {
		return p != nil && len(riders) < full && (len(riders) == 0 || weight+p.weight <= heavy)
	}
	take := func(q *queue) {
		p := q.first
		q.first = p.after
		q.taken += p.weight
		weight += p.weight
		qs.unlink(p)
		p.aboard = true
		riders = append(riders, p)
	}
	served := qs.served[:0]
	for start := qs.turn; fits(qs.turn.first); { // a turn for each, until the flight is full
		q := qs.turn
		take(q)
		served = append(served, q)
		if qs.turn = q.next; qs.turn == start {
			break
		}
	}
	for part, left := int64(2*takeWeight), true; left; part += takeWeight { // then what is left, for those who have had one
		left = false
		for _, q := range served {
			if !fits(q.first) {
				continue
			}
			if left = true; q.taken < part || len(served) == 1 {
				take(q)
			}
		}
	}
	for _, q := range served {
		if q.taken = 0; q.first == nil {
			q.last = nil
			qs.close(q)
			continue
		}
		p := q.first
		if p.before = nil; p.merges { // with one that it does not travel with
			p.merges, p.weight = false, p.program.weight
			qs.weight += p.weight
		}
	}
	if len(served) > 1 {
		slices.SortFunc(riders, func(a, b *passenger) int { return cmp.Compare(a.number, b.number) })
	}
	clear(served)
	qs.served = served[:0]
	return riders
}

// displace takes out the newest passenger of the longest queue, for one of the policy to have its place. It returns
// nil if that one would be the newest of the longest queue itself.
func (qs *queues) displace(policy core.Policy) *passenger {
	own := 0
	if q := qs.byPolicy[policy]; q != nil {
		own = q.waiting
	}
	longest := qs.turn
	for q := qs.turn.next; q != qs.turn && 2*longest.waiting < qs.waiting; q = q.next {
		if q.waiting > longest.waiting {
			longest = q
		}
	}
	if longest.waiting <= own+1 {
		return nil
	}
	p := longest.last
	qs.remove(p)
	return p
}
