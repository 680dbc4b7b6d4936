package core

import (
	"cmp"
	"slices"
	"sort"
)

// leases are the permits of one key that nobody has given back, those whose lease has
// ended included. It does what the scripts of package lua do with a sorted set.
type leases struct {
	ends  map[string]int64 // by id
	order []lease          // by when they end
	total int64            // places of all
}

// lease is a permit as it is kept.
type lease struct {
	end    int64 // in microseconds
	places int64
	id     string
}

// terms are what holds for a key when it is asked about.
type terms struct{ most, lease, now int64 }

// find returns where the lease of an id is, or -1.
func (l *leases) find(id string) int {
	end, ok := l.ends[id]
	if !ok {
		return -1
	}
	i := l.after(end - 1)
	for l.order[i].id != id {
		i++
	}
	return i
}

// after is the place of the first lease that ends later than at.
func (l *leases) after(at int64) int {
	return sort.Search(len(l.order), func(i int) bool { return l.order[i].end > at })
}

func (l *leases) remove(i int) {
	delete(l.ends, l.order[i].id)
	l.total -= l.order[i].places
	l.order = slices.Delete(l.order, i, i+1)
}

// hold stores a lease that begins now, so that none ends later, and forgets those that
// have ended.
func (l *leases) hold(id string, places int64, t terms) {
	ended := l.after(t.now)
	for _, x := range l.order[:ended] {
		delete(l.ends, x.id)
		l.total -= x.places
	}
	l.order = slices.Delete(l.order, 0, ended)
	if i := l.find(id); i >= 0 {
		l.remove(i)
	}
	if l.ends == nil {
		l.ends = map[string]int64{}
	}
	l.ends[id] = t.now + t.lease
	l.total += places
	l.order = append(l.order, lease{t.now + t.lease, places, id})
}

// heal brings leases that end too late to the latest end that there can be, and
// returns how many places are in use.
func (l *leases) heal(t terms) (used int64) {
	for i := len(l.order) - 1; i >= 0 && l.order[i].end > t.now+t.lease; i-- {
		l.order[i].end = t.now + t.lease
		l.ends[l.order[i].id] = t.now + t.lease
	}
	used = l.total
	for _, x := range l.order[:l.after(t.now)] {
		used -= x.places
	}
	return used
}

// held is how many places an id has.
func (l *leases) held(id string, now int64) int64 {
	if i := l.find(id); i >= 0 && l.order[i].end > now {
		return l.order[i].places
	}
	return 0
}

// acquire answers what the script acquire replies.
func (l *leases) acquire(id string, places int64, t terms) (reply [4]int64) {
	used := l.heal(t)
	held := l.held(id, t.now)
	others := used - held
	if places <= held || others <= t.most-places {
		l.hold(id, places, t)
		return [4]int64{t.now, others + places, 0, t.now + t.lease}
	}
	reply = [4]int64{t.now, -1 - used, 0, 0}
	if n := len(l.order); n > 0 {
		reply[3] = l.order[n-1].end
	}
	if places > t.most {
		return reply
	}
	need := others + places - t.most
	for _, x := range l.order[l.after(t.now):] {
		if x.id == id {
			continue
		}
		if need -= x.places; need <= 0 {
			reply[2] = x.end
			break
		}
	}
	return reply
}

// renew tells whether the permit is held again.
func (l *leases) renew(id string, places int64, t terms) bool {
	used := l.heal(t)
	held := l.held(id, t.now)
	if held == 0 && used > t.most-places {
		return false
	}
	l.hold(id, cmp.Or(held, places), t)
	return true
}

// release forgets an id.
func (l *leases) release(id string) {
	if i := l.find(id); i >= 0 {
		l.remove(i)
	}
}

// dead tells whether all leases have ended.
func (l *leases) dead(now int64) bool {
	return len(l.order) == 0 || l.order[len(l.order)-1].end <= now
}
