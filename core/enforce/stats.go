package enforce

import (
	"cmp"
	"maps"
	"slices"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/internal/later"
	"github.com/weir-go/weir/core/stats"
)

// Stats returns a snapshot. It takes some microseconds, and holds up nobody.
func (l *Limiter) Stats() stats.Limiter {
	e := l.engine
	byName := map[string]*stats.Policy{}
	of := func(name string) *stats.Policy {
		if byName[name] == nil {
			byName[name] = &stats.Policy{Name: name}
		}
		return byName[name]
	}
	var s stats.Limiter
	e.waiters.mu.Lock()
	for name, n := range e.waiters.callers {
		of(name).Waiting = n
		s.Waiting += n
	}
	e.waiters.mu.Unlock()
	e.holder.mu.Lock()
	for name, n := range e.holder.count {
		of(name).Permits = n
		s.Permits += n
	}
	permitsLost := e.holder.lost
	e.holder.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		s.Policies = append(s.Policies, *byName[name])
	}
	s.Lanes = e.background.lanes(permitsLost)
	owed := e.ledger.Stats()
	s.Ledger = stats.Ledger{Keys: owed.Keys, Units: owed.Units, Lost: owed.Lost}
	s.Outages = e.health.snapshot()
	return s
}

// lanes returns the state of all queues. A permit that was not renewed is lost to its holder, and not to the queue.
func (b *background) lanes(permitsLost uint64) []stats.Lane {
	lane := func(name string, s later.Stats) stats.Lane {
		return stats.Lane{Name: name, Pending: s.Pending, Out: s.Out, Lost: s.Lost, Oldest: s.Oldest}
	}
	all := []stats.Lane{
		lane("renewals", b.renewals.Stats()),
		lane("releases", b.releases.Stats()),
		lane("refunds", b.refunds.Stats()),
		lane("charges", b.charges.Stats()),
		lane("hand-backs", b.handBacks.Stats()),
	}
	all[0].Lost = permitsLost
	return all
}

func (h *health) snapshot() (all []stats.Outage) {
	if !h.failing.Load() {
		return nil
	}
	h.mu.Lock()
	for server, o := range h.outages {
		all = append(all, stats.Outage{
			Server: server, Class: o.class, Since: o.since, Last: o.last,
			Local: o.decided[core.FailLocal], Open: o.decided[core.FailOpen], Closed: o.decided[core.FailClosed],
		})
	}
	h.mu.Unlock()
	slices.SortFunc(all, func(a, b stats.Outage) int { return cmp.Compare(a.Server, b.Server) })
	return all
}

// tally counts something for policies, by their names. What is zero takes no room.
type tally map[string]int

func (t tally) add(p core.Policy, n int) {
	name := p.Name()
	if n += t[name]; n == 0 {
		delete(t, name)
	} else {
		t[name] = n
	}
}
