package algo

import (
	"cmp"
	"maps"
	"slices"
	"sort"
	"strconv"
)

// Leases are the permits of one key that nobody has given back, those whose lease has
// ended included. The zero value has none. It does what the scripts of package lua do
// with a sorted set, and what they share is in permits.lua.
type Leases struct {
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

// Terms are the policy's numbers for the permits of a key at a decision.
type Terms struct {
	Most  int64 // places
	Lease int64 // how long a permit lives unless it is renewed, in microseconds
	Now   int64
}

// find returns where the lease of an id is, or -1.
func (l *Leases) find(id string) int {
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
func (l *Leases) after(at int64) int {
	return sort.Search(len(l.order), func(i int) bool { return l.order[i].end > at })
}

func (l *Leases) remove(i int) {
	delete(l.ends, l.order[i].id)
	l.total -= l.order[i].places
	l.order = slices.Delete(l.order, i, i+1)
}

// hold stores a lease that begins now, so that none ends later, and forgets those that
// have ended.
func (l *Leases) hold(id string, places int64, t Terms) {
	ended := l.after(t.Now)
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
	l.ends[id] = t.Now + t.Lease
	l.total += places
	l.order = append(l.order, lease{t.Now + t.Lease, places, id})
}

// heal brings leases that end too late to the latest end that there can be, and
// returns how many places are in use.
func (l *Leases) heal(t Terms) (used int64) {
	for i := len(l.order) - 1; i >= 0 && l.order[i].end > t.Now+t.Lease; i-- {
		l.order[i].end = t.Now + t.Lease
		l.ends[l.order[i].id] = t.Now + t.Lease
	}
	used = l.total
	for _, x := range l.order[:l.after(t.Now)] {
		used -= x.places
	}
	return used
}

// held returns the number of places of an id.
func (l *Leases) held(id string, now int64) int64 {
	if i := l.find(id); i >= 0 && l.order[i].end > now {
		return l.order[i].places
	}
	return 0
}

// Acquire takes places for an id, all or none, and answers what the script acquire replies.
func (l *Leases) Acquire(id string, places int64, t Terms) (reply [4]int64) {
	used := l.heal(t)
	held := l.held(id, t.Now)
	others := used - held
	if places <= held || others <= t.Most-places {
		l.hold(id, places, t)
		return [4]int64{t.Now, others + places, 0, t.Now + t.Lease}
	}
	reply = [4]int64{t.Now, -1 - used, 0, 0}
	if n := len(l.order); n > 0 {
		reply[3] = l.order[n-1].end
	}
	if places > t.Most {
		return reply
	}
	need := others + places - t.Most
	for _, x := range l.order[l.after(t.Now):] {
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

// Renew begins the lease of an id anew, as the script renew does. It reports whether the
// permit is held.
func (l *Leases) Renew(id string, places int64, t Terms) bool {
	used := l.heal(t)
	held := l.held(id, t.Now)
	if held == 0 && used > t.Most-places {
		return false
	}
	l.hold(id, cmp.Or(held, places), t)
	return true
}

// Release forgets an id.
func (l *Leases) Release(id string) {
	if i := l.find(id); i >= 0 {
		l.remove(i)
	}
}

// Empty reports whether there is nothing to keep, not even what has ended.
func (l *Leases) Empty() bool { return len(l.order) == 0 }

// Ended reports whether all leases have ended.
func (l *Leases) Ended(now int64) bool {
	return l.Empty() || l.order[len(l.order)-1].end <= now
}

// LeasesUntil returns the leases of permits of one place each, whose ids are not known: ends are their ends, the
// earliest first.
func LeasesUntil(ends []int64) *Leases {
	l := &Leases{ends: make(map[string]int64, len(ends)), total: int64(len(ends))}
	for i, end := range ends {
		id := strconv.Itoa(i)
		l.ends[id] = end
		l.order = append(l.order, lease{end, 1, id})
	}
	return l
}

// Ends returns when the leases end, the earliest first: one entry for each place.
func (l *Leases) Ends() (ends []int64) {
	for _, x := range l.order {
		for range x.places {
			ends = append(ends, x.end)
		}
	}
	return ends
}

// Clone returns a copy that may be changed.
func (l *Leases) Clone() *Leases {
	return &Leases{ends: maps.Clone(l.ends), order: slices.Clone(l.order), total: l.total}
}

// Held returns the number of places that are held at now, and when the first and the last of their leases end, if none
// may end later than latest.
func (l *Leases) Held(now, latest int64) (places, first, last int64) {
	for _, x := range l.order[l.after(now):] {
		if places == 0 {
			first = min(x.end, latest)
		}
		places, last = places+x.places, min(x.end, latest)
	}
	return places, first, last
}
