package observe

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/observe/internal/worst"
)

// WorstBy is the number by which callers are the worst.
type WorstBy uint8

// The numbers by which callers are the worst.
const (
	// ByRefusals, the zero WorstBy, counts requests that a policy has refused, or would have if it were not on trial.
	ByRefusals WorstBy = iota
	// ByUnits counts the units that were taken. Each decision that takes some costs about 30ns more.
	ByUnits
)

// Caller is a key of a policy, and the bounds of what it was counted: between Count - Error and Count.
type Caller struct {
	Policy string
	// Key is the key that was counted, cut after 200 bytes. It is for people, and not for labels.
	Key          string
	Count, Error uint64
	// Since is the time since which it was counted: ten to twenty minutes ago, or less if the policy had no refusal
	// before.
	Since time.Time
}

// Of each of the first policies, the table of callers takes about 250 KB, or 500 KB after ten minutes, and the keys
// besides. All others share one, so that a Source with any number of policies takes no more than 25 MB.
const (
	worstPolicies = 32
	worstCounters = 4096
	worstPeriod   = 10 * time.Minute
)

// callers finds the worst callers.
type callers struct {
	by     WorstBy
	mu     sync.Mutex // of a change of tables
	tables atomic.Pointer[[]callersOf]
	shared atomic.Pointer[worst.Table] // of all other policies, whose keys begin with the policy and a zero byte
}

// callersOf is the table of a policy.
type callersOf struct {
	policy string
	*worst.Table
}

// count counts the key of an event, if it is one to count.
func (c *callers) count(e *guard.Event, p *policy) {
	weight := uint64(1)
	switch {
	case c.by == ByUnits:
		if e.Result.Taken <= 0 {
			return
		}
		weight = uint64(e.Result.Taken)
	case e.Outcome.Allowed() || e.From == guard.FromNone || e.From == guard.FromClosed:
		return
	}
	var room [256]byte
	key := room[:0]
	t := p.callers[c.by].Load()
	if t == nil {
		t = c.of(p, e)
	}
	shared := t == c.shared.Load()
	if shared {
		key = append(append(key, e.Policy...), 0)
	}
	before := len(key)
	if key = e.AppendKey(key); len(key) > before {
		t.Add(sinceEpoch(e), key, weight)
	}
}

// sinceEpoch is the time of an event.
func sinceEpoch(e *guard.Event) time.Duration { return time.Duration(e.At) * time.Microsecond }

// of returns the table of a policy, which it makes at the first refusal.
func (c *callers) of(p *policy, e *guard.Event) *worst.Table {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := p.callers[c.by].Load(); t != nil {
		return t
	}
	var all []callersOf
	if now := c.tables.Load(); now != nil {
		all = *now
	}
	newTable := func() *worst.Table {
		return worst.New(worst.Options{Counters: worstCounters, Period: worstPeriod}, sinceEpoch(e))
	}
	t := c.shared.Load()
	if p.name == e.Policy && len(all) < worstPolicies {
		t = newTable()
		all = append(slices.Clone(all), callersOf{p.name, t})
		c.tables.Store(&all)
	} else if t == nil {
		t = newTable()
		c.shared.Store(t)
	}
	p.callers[c.by].Store(t)
	return t
}

// Worst returns the n callers of a policy that were counted most lately, the worst first, or of all policies if policy is
// "". A caller that was seen once is not among them, nor one without a key.
//
// A table holds 4096 keys of a policy at a time, whatever keys clients make up. A key with well more than its part of all
// that was counted, which is one in 4096, is found nearly always: it shares a bucket of eight with others, and a bucket
// may have more than its part. The bounds hold in any case.
func (o *Observer) Worst(policy string, n int) []Caller {
	return o.callers.worst(policy, n, time.Duration(time.Now().UnixMicro())*time.Microsecond)
}

func (c *callers) worst(policy string, n int, now time.Duration) (all []Caller) {
	add := func(policy string, keys []worst.Key, since time.Duration) {
		for _, k := range keys {
			all = append(all, Caller{policy, k.Key, k.Count, k.Error, time.UnixMicro(since.Microseconds())})
		}
	}
	n = max(n, 0)
	if tables := c.tables.Load(); tables != nil {
		for _, t := range *tables {
			if policy == "" || policy == t.policy {
				keys, since := t.Top(now, n)
				add(t.policy, keys, since)
			}
		}
	}
	if t := c.shared.Load(); t != nil {
		keys, since := t.Top(now, worstCounters)
		for _, k := range keys {
			of, key := sharedKey(k.Key)
			if k.Key = key; policy == "" || policy == of {
				add(of, []worst.Key{k}, since)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Caller) int {
		return cmp.Or(cmp.Compare(b.Count-b.Error, a.Count-a.Error), cmp.Compare(b.Count, a.Count))
	})
	return all[:min(n, len(all))]
}

// sharedKey returns the policy and the key of a key of the shared table.
func sharedKey(text string) (policy, key string) {
	policy, key, _ = strings.Cut(text, "\x00")
	return policy, key
}
