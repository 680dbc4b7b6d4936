package observe

import (
	"cmp"
	"slices"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/stats"
	"github.com/weir-go/weir/observe/internal/worst"
)

// usageKeys is the number of keys of each list of a Usage.
const usageKeys = 50

// Usage returns what o has counted of each policy, by tiers, for redissource.Options.Usage: then the page of the fleet
// shows it. What has no series of its own because of Options.MaxSeries is left out. The keys that use most and those that
// are refused most are there with Options.UsageKeys.
//
//	fleet, err := redissource.New(rdb, "pay", redissource.Options{Usage: o.Usage})
func (o *Observer) Usage() stats.Usage {
	now := time.Now()
	u := stats.Usage{For: now.Sub(o.start).Truncate(time.Second), Policies: o.lines.usage()}
	if o.usage == nil {
		return u
	}
	busiest, refused := o.callers.top(now), o.usage.top(now)
	if o.callers.by == ByRefusals {
		busiest, refused = refused, busiest
	}
	for i := range u.Policies {
		p := &u.Policies[i]
		p.Busiest, p.Refused = busiest[p.Policy], refused[p.Policy]
	}
	return u
}

// usage returns what the lines have counted.
func (ls *lines) usage() []stats.PolicyUsage {
	type of struct{ policy, tier string }
	counts := map[of]*stats.UsageCounts{}
	ls.mu.Lock()
	for _, l := range ls.all {
		if l == ls.other {
			continue
		}
		c := counts[of{l.policy.name, l.tier}]
		if c == nil {
			c = &stats.UsageCounts{}
			counts[of{l.policy.name, l.tier}] = c
		}
		c.Waited += l.waited.Load()
		for i := range l.series {
			n := l.own(i).total()
			if n == 0 {
				continue
			}
			allowed := core.Outcome(i / froms % int(core.Never+1)).Allowed() //nolint:gosec // it is small
			switch trial := i >= len(l.series)/2; {
			case allowed:
				c.Admitted += n
			case trial:
				c.Trial += n
			default:
				c.Refused += n
			}
			from := guard.From(i % froms) //nolint:gosec // it is small
			if unstored(from) {
				c.Failed += n
			}
			if from == guard.FromFallback {
				c.Local += n
			}
		}
	}
	ls.mu.Unlock()
	byPolicy := map[string]*stats.PolicyUsage{}
	for at, c := range counts {
		p := byPolicy[at.policy]
		if p == nil {
			p = &stats.PolicyUsage{Policy: at.policy}
			byPolicy[at.policy] = p
		}
		p.Tiers = append(p.Tiers, stats.TierUsage{Tier: at.tier, UsageCounts: *c})
	}
	all := make([]stats.PolicyUsage, 0, len(byPolicy))
	for _, p := range byPolicy {
		slices.SortFunc(p.Tiers, func(a, b stats.TierUsage) int { return cmp.Compare(a.Tier, b.Tier) })
		all = append(all, *p)
	}
	slices.SortFunc(all, func(a, b stats.PolicyUsage) int { return cmp.Compare(a.Policy, b.Policy) })
	return all
}

// top returns the keys of each policy that were counted most.
func (c *callers) top(now time.Time) map[string]stats.TopKeys {
	byPolicy := map[string]stats.TopKeys{}
	at := time.Duration(now.UnixMicro()) * time.Microsecond
	add := func(policy string, k worst.Key, since time.Duration) {
		t := byPolicy[policy]
		if len(t.Keys) == usageKeys {
			return
		}
		t.For = max(at-since, 0).Truncate(time.Second)
		t.Keys = append(t.Keys, stats.KeyCount{Key: k.Key, Count: k.Count, Error: k.Error})
		byPolicy[policy] = t
	}
	if tables := c.tables.Load(); tables != nil {
		for _, t := range *tables {
			keys, since := t.Top(at, usageKeys)
			for _, k := range keys {
				add(t.policy, k, since)
			}
		}
	}
	if t := c.shared.Load(); t != nil {
		keys, since := t.Top(at, worstCounters)
		for _, k := range keys {
			policy, key := sharedKey(k.Key)
			k.Key = key
			add(policy, k, since)
		}
	}
	return byPolicy
}
