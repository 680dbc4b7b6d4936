package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/observe"
)

// The most that the page shows.
const (
	maxServers       = 100
	maxPolicies      = 200
	maxRules         = 200
	maxWorstPolicies = 10
	maxCallers       = 10
)

// gather makes the page of now.
func (h *handler) gather() *page {
	snap := h.observer.Snapshot()
	p := &page{
		Program: h.program, At: snap.At.Round(0), Start: snap.Start.Round(0),
		Causes: []cause{}, Servers: []server{}, Memory: []memory{}, Lanes: []lane{}, Policies: []policy{}, Guards: []rules{},
		Worst: []worst{}, Refusals: []refusal{},
	}
	p.addStores(&snap)
	p.addPolicies(&snap)
	h.addGuards(p, &snap)
	p.addSharing(&snap.Sharing)
	h.addRefusals(p)
	h.addWorst(p)
	p.diagnose()
	return p
}

// addStores adds the servers and in-process stores that are watched, and the servers of others as far as the Observer
// was called for them.
func (p *page) addStores(snap *observe.Snapshot) {
	at := map[string]int{}
	of := func(addr string) *server {
		i, known := at[addr]
		if !known {
			i = len(p.Servers)
			at[addr] = i
			p.Servers = append(p.Servers, server{Addr: clip(addr)})
		}
		return &p.Servers[i]
	}
	for i := range snap.Stores {
		s := &snap.Stores[i]
		p.Deadline = max(p.Deadline, inSeconds(s.Deadline))
		for j := range s.Servers {
			of(s.Servers[j].Addr).add(&s.Servers[j])
		}
		if b := &s.Topology; b.Open {
			p.Causes = append(p.Causes, cause{
				Kind: "store", Grave: true, Since: b.Since.Round(0), See: docs + "#which-fault-is-it",
				What: fmt.Sprintf("no server of the Cluster says which of them has a key (%s): %s", b.Class, inWords(b.Class)),
				More: []string{"meanwhile the fail word of each policy decides"},
			})
		}
	}
	for i := range snap.Breakers {
		b := &snap.Breakers[i]
		if _, watched := at[b.Server]; watched && len(snap.Stores) > 0 {
			continue
		}
		t := of(b.Server).traffic(b.Behind)
		t.BreakerOpen, t.BreakerSince, t.BreakerClass = b.Open, b.Since.Round(0), b.Class
	}
	for i := range snap.Flights {
		f := &snap.Flights[i]
		if t := of(f.Server).traffic(f.Behind); t.Flights == 0 { // else it is known from the store
			t.Flights, t.Calls, t.Merged, t.Failures = f.Histogram.Count, f.Calls, f.Merged, f.Failed
		}
	}
	for _, m := range snap.Memories {
		p.Memory = append(p.Memory, memory(m))
	}
	if more := len(p.Servers) - maxServers; more > 0 {
		p.Servers, p.Left.Servers = p.Servers[:maxServers], more
	}
}

// traffic returns the traffic of one kind.
func (s *server) traffic(behind bool) *traffic {
	if behind {
		return &s.Behind
	}
	return &s.Decisions
}

// add adds what a store knows of the server: several stores may use it.
func (s *server) add(from *stats.Server) {
	for _, t := range []struct {
		to   *traffic
		from *stats.Traffic
	}{{&s.Decisions, &from.Decisions}, {&s.Behind, &from.Behind}} {
		to, from := t.to, t.from
		if b := &from.Breaker; to.BreakerSince.IsZero() || b.Open && !to.BreakerOpen {
			to.BreakerOpen, to.BreakerClass = b.Open, b.Class
			if !b.Since.IsZero() {
				to.BreakerSince = b.Since.Round(0)
			}
		}
		to.Waiting += from.Waiting
		to.Out += from.Out
		to.RoundTrip = max(to.RoundTrip, inSeconds(from.RoundTrip))
		to.Flights += from.Flights
		to.Calls += from.Calls
		to.Merged += from.Merged
		to.Failures += from.Failures
	}
}

// addLimiter adds what the Limiter of a guard does behind the requests, and the outages that it knows of.
func (p *page) addLimiter(s *stats.Limiter) {
	p.Waiting += s.Waiting
	p.Permits += s.Permits
	for i := range s.Lanes {
		b := &s.Lanes[i]
		at := slices.IndexFunc(p.Lanes, func(l lane) bool { return l.Name == b.Name })
		if at < 0 {
			at = len(p.Lanes)
			p.Lanes = append(p.Lanes, lane{Name: b.Name})
		}
		l := &p.Lanes[at]
		l.Pending += b.Pending
		l.Out += b.Out
		l.Lost += b.Lost
		l.Oldest = max(l.Oldest, inSeconds(b.Oldest))
	}
	p.Owed.Keys += s.Ledger.Keys
	p.Owed.Units += s.Ledger.Units
	p.Owed.Lost += s.Ledger.Lost
	for i := range s.Policies {
		of := &s.Policies[i]
		at := slices.IndexFunc(p.Policies, func(q policy) bool { return q.Name == of.Name })
		if at < 0 && len(p.Policies) < maxPolicies {
			at = len(p.Policies)
			p.Policies = append(p.Policies, policy{Name: of.Name})
		}
		if at >= 0 {
			p.Policies[at].Waiting += of.Waiting
			p.Policies[at].Permits += of.Permits
		}
	}
	for i := range s.Outages {
		p.addOutage(&s.Outages[i])
	}
}

// addOutage adds an outage. All Limiters on a store report the same ones.
func (p *page) addOutage(o *stats.Outage) {
	at := slices.IndexFunc(p.Servers, func(s server) bool { return s.Addr == clip(o.Server) })
	if at < 0 {
		p.Servers = append(p.Servers, server{Addr: clip(o.Server)})
		at = len(p.Servers) - 1
	}
	s := &p.Servers[at]
	since := o.Since.Round(0)
	if since.Equal(s.Since) {
		return
	}
	if s.Since.IsZero() || since.Before(s.Since) {
		s.Since, s.Class = since, o.Class
	}
	if o.Last.After(s.Last) {
		s.Last = o.Last.Round(0)
	}
	s.Local += o.Local
	s.Open += o.Open
	s.Closed += o.Closed
}

// addGuards adds the guards that are watched.
func (h *handler) addGuards(p *page, snap *observe.Snapshot) {
	for i := range snap.Limiters {
		p.addLimiter(&snap.Limiters[i])
	}
	guards := h.observer.Guards() // which may have one more by now
	for i := range snap.Guards {
		s, g := &snap.Guards[i], guards[i]
		p.Guards = append(p.Guards, rules{
			Revision: clip(s.Revision), Lag: h.masker.reason(s.Lag), LagsSince: s.LagsSince.Round(0), Rules: p.rulesOf(g.Rules(nil), s.Circuits),
		})
	}
}

// rulesOf returns rules for the page. If they are too many for it, those come first whose policies refuse most.
func (p *page) rulesOf(all []guard.RuleInfo, circuits []guard.CircuitStats) []rule {
	room := maxRules
	for _, g := range p.Guards {
		room -= len(g.Rules)
	}
	infos := make([]*guard.RuleInfo, 0, maxRules)
	if more := len(all) - max(room, 0); more > 0 {
		p.Left.Rules += more
		refusing := map[string]bool{}
		for i := range p.Policies {
			refusing[p.Policies[i].Name] = true
		}
		for _, first := range []bool{true, false} {
			for i := range all {
				if len(infos) < room && refusing[all[i].Name] == first {
					infos = append(infos, &all[i])
				}
			}
		}
	} else {
		for i := range all {
			infos = append(infos, &all[i])
		}
	}
	rules := make([]rule, 0, len(infos))
	for _, info := range infos {
		r := rule{
			Route: clip(info.Route), Place: clip(info.Place), Policy: clip(info.Policy), Key: clip(info.Key), OverLimit: clip(info.OverLimit),
			Trial: info.Shadow, Tiers: len(info.Tiers), Keys: len(info.Keys),
		}
		for _, c := range circuits {
			if slices.Contains(c.Policies, info.Name) {
				r.Circuits = c.Open
			}
		}
		rules = append(rules, r)
	}
	return rules
}

// addPolicies adds what policies have decided, those first that refuse most.
func (p *page) addPolicies(snap *observe.Snapshot) {
	byName := map[string]*policy{}
	of := func(name string) *policy {
		if byName[name] == nil {
			byName[name] = &policy{Name: name}
		}
		return byName[name]
	}
	by, from := map[string]map[string]uint64{}, map[string]map[string]uint64{}
	for i := range snap.Decisions {
		d := &snap.Decisions[i]
		q := of(d.Policy)
		q.Sum += d.Count
		q.Trial = q.Trial || d.Shadow
		addTo(from, d.Policy, d.From, d.Count)
		if !d.Allowed() {
			q.RefusedSum += d.Count
			addTo(by, d.Policy, d.Rule, d.Count)
		}
	}
	for i := range snap.Rates {
		r := &snap.Rates[i]
		q := of(r.Policy)
		for _, c := range []struct {
			to *rate
			of func(observe.Rate) float64
		}{
			{&q.Allowed, func(r observe.Rate) float64 { return r.Allowed }},
			{&q.Refused, func(r observe.Rate) float64 { return r.Refused }},
			{&q.Unstored, func(r observe.Rate) float64 { return r.Unstored }},
		} {
			*c.to = rate{c.of(r.TenSeconds), c.of(r.FiveMinutes), c.of(r.OneHour)}
		}
	}
	for i := range snap.Durations {
		if d := &snap.Durations[i]; d.From == guard.FromStore.String() {
			of(d.Policy).P99 = inSeconds(d.Histogram.Quantile(0.99))
		}
	}
	for name, q := range byName {
		q.By, q.From = largest(by[name]), largest(from[name])
		p.Policies = append(p.Policies, *q)
	}
	slices.SortFunc(p.Policies, func(a, b policy) int {
		return cmp.Or(
			cmp.Compare(b.Refused.TenSeconds, a.Refused.TenSeconds), cmp.Compare(b.Refused.FiveMinutes, a.Refused.FiveMinutes),
			cmp.Compare(b.Refused.OneHour, a.Refused.OneHour), cmp.Compare(b.RefusedSum, a.RefusedSum), cmp.Compare(b.Sum, a.Sum),
			cmp.Compare(a.Name, b.Name),
		)
	})
	if more := len(p.Policies) - maxPolicies; more > 0 {
		p.Policies, p.Left.Policies = p.Policies[:maxPolicies], more
	}
}

func addTo(m map[string]map[string]uint64, name, part string, n uint64) {
	if m[name] == nil {
		m[name] = map[string]uint64{}
	}
	m[name][part] += n
}

// largest returns the largest parts of a number, at most ten, the largest first.
func largest(parts map[string]uint64) []share {
	all := make([]share, 0, len(parts))
	for name, n := range parts {
		if n > 0 {
			all = append(all, share{clip(name), n})
		}
	}
	slices.SortFunc(all, func(a, b share) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name)) })
	return all[:min(len(all), 10)]
}

// addSharing adds that the worst callers are not shared, which changes no decision.
func (p *page) addSharing(s *observe.Sharing) {
	if s.Err == "" {
		return
	}
	p.Causes = append(p.Causes, cause{
		Kind: "sharing", Since: s.FailsSince.Round(0), See: "docs/observe.md#the-worst-callers-of-a-fleet",
		What: "the worst callers of the fleet lack what this process has counted: " + clip(s.Err),
		More: []string{"what surely was not added is added later"},
	})
}

// addRefusals adds the last refusals.
func (h *handler) addRefusals(p *page) {
	for _, r := range h.observer.Refusals() {
		hash := ""
		if r.Key != "" {
			hash = h.masker.part(r.Key)
		}
		p.Refusals = append(p.Refusals, refusal{
			At: r.At.Round(0), Policy: r.Policy, Rule: clip(r.Rule), Route: clip(r.Route), Tier: clip(r.Tier), Key: h.masker.key(r.Key), Outcome: r.Outcome,
			From: r.From, Trial: r.Shadow, RetryAfter: inSeconds(max(r.RetryAfter, 0).Round(time.Microsecond)), hash: hash,
		})
	}
}

// addWorst adds the worst callers of the policies that refuse most.
func (h *handler) addWorst(p *page) {
	for i := range p.Policies[:min(len(p.Policies), maxWorstPolicies)] {
		name := p.Policies[i].Name
		if all := h.observer.Worst(name, maxCallers); len(all) > 0 {
			p.Worst = append(p.Worst, worst{Policy: name, Callers: h.callers(all)})
		}
	}
}
