package observe

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/observe/internal/worst"
)

// froms is the number of places where a request may be decided.
const froms = int(guard.FromClosed) + 1

// unstored reports that the store should have decided, and has failed.
func unstored(f guard.From) bool {
	return f == guard.FromFallback || f == guard.FromOpen || f == guard.FromClosed
}

// lines are the lines of all rules and tiers that were seen.
type lines struct {
	seed  maphash.Seed
	slots []atomic.Pointer[line] // a power of two, four times the lines or more, with open addressing
	other *line

	mu       sync.Mutex // of what follows, of policies, and of the places of lines
	all      []*line
	policies map[string]*policy
	timed    map[timed]*Series // histograms of decisions
	series   budget            // of decisions
	times    budget            // histograms of decisions
	queues   budget            // histograms of waits
	settles  budget
}

// budget is a number of series that may still be made.
type budget struct{ left int }

// take reports whether one more may be made.
func (b *budget) take() bool {
	if b.left <= 0 {
		return false
	}
	b.left--
	return true
}

// line counts the decisions of a rule for a tier.
type line struct {
	policy     *policy
	rule, tier string
	other      *line       // where decisions are counted for which it has no series; nil of that line itself
	spills     atomic.Bool // some are counted there
	// series has a counter for each outcome, what decided, and trial or not: nil until it is used. Where the series are
	// used up, that is one of the other line.
	series [int(core.Never+1) * froms * 2]atomic.Pointer[counts]
	pace   pace
	waited atomic.Uint64 // requests that have waited for their turn
}

// policy has what is counted for a policy as a whole, by whichever of its rules.
type policy struct {
	name    string
	settled atomic.Uint64
	queue   atomic.Pointer[counts]                   // nil before the first wait
	callers [ByUnits + 1]atomic.Pointer[worst.Table] // by what they count; nil before the first that counts
	timed   [froms]fate                              // of the histograms of its decisions, by what has decided
	units   fate                                     // of the series of its units settled
	series  budget                                   // of its decisions, so that no policy takes those of all others
}

// fate says whether a series that a policy needs has its name, or is counted as "other". That is decided when the
// series is first needed, and stays so.
type fate uint8

const (
	undecided fate = iota
	granted
	denied
)

// decide takes a series of the budget, if there is one left, the first time that it is called.
func (f *fate) decide(b *budget) {
	if *f == undecided {
		if *f = denied; b.take() {
			*f = granted
		}
	}
}

func (ls *lines) init(maxSeries int) {
	ls.seed = maphash.MakeSeed()
	ls.policies, ls.timed = map[string]*policy{}, map[timed]*Series{}
	ls.other = &line{policy: ls.policyOf(Other), rule: Other, tier: Other}
	ls.all = []*line{ls.other}
	// The series of "other" are taken from the budget as well: at most len(series) of decisions, and a histogram for
	// each that decides.
	ls.series.left = maxSeries/2 - len(ls.other.series)
	ls.times.left = max(maxSeries/4/(len(shortBounds)+3)-froms, 1)
	ls.queues.left = maxSeries/10/(len(longBounds)+3) - 1
	ls.settles.left = maxSeries/40 - 1
	ls.slots = make([]atomic.Pointer[line], 1<<bits.Len(uint(4*ls.series.left))) //nolint:gosec // it is positive
}

// of returns the line of an event. The rule remembers that of requests without a tier, which are nearly all; the owner of
// what it remembers is the Observer.
func (ls *lines) of(owner any, e *guard.Event) *line {
	if e.Tier != "" {
		return ls.lookUp(e)
	}
	memo := e.Memo()
	if l, ok := memo.Load(owner).(*line); ok {
		return l
	}
	l := ls.lookUp(e)
	memo.LoadOrStore(owner, l)
	return l
}

// lookUp finds or makes the line of an event.
func (ls *lines) lookUp(e *guard.Event) *line {
	hash := maphash.String(ls.seed, e.Policy) ^ bits.RotateLeft64(maphash.String(ls.seed, e.Rule), 1)
	if e.Tier != "" {
		hash ^= bits.RotateLeft64(maphash.String(ls.seed, e.Tier), 2)
	}
	for i := hash; ; i++ {
		l := ls.slots[i&uint64(len(ls.slots)-1)].Load()
		switch {
		case l == nil:
			return ls.add(e, hash)
		case l.rule == e.Rule && l.policy.name == e.Policy && l.tier == e.Tier:
			return l
		}
	}
}

// add makes a line, if there is room.
func (ls *lines) add(e *guard.Event, hash uint64) *line {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if !ls.hasRoom(e) {
		return ls.other
	}
	for i := hash; ; i++ {
		slot := &ls.slots[i&uint64(len(ls.slots)-1)]
		l := slot.Load()
		switch {
		case l == nil:
			// A tier may be in memory that the framework uses again.
			l = &line{policy: ls.policyOf(e.Policy), rule: e.Rule, tier: strings.Clone(e.Tier), other: ls.other}
			ls.all = append(ls.all, l)
			slot.Store(l)
			return l
		case l.rule == e.Rule && l.policy.name == e.Policy && l.tier == e.Tier:
			return l
		}
	}
}

// hasRoom reports whether an event may have a line.
func (ls *lines) hasRoom(e *guard.Event) bool {
	p := ls.policies[e.Policy]
	return ls.series.left > 0 && (p == nil || p.series.left > 0) && len(ls.all) < len(ls.slots)/4 &&
		isLabel(e.Policy) && isLabel(e.Rule) && isLabel(e.Tier) &&
		(e.Policy != Other || e.Rule != Other || e.Tier != Other) // which are those of the other line
}

// isLabel reports whether a text can be a label: a reader such as Prometheus refuses a whole scrape for one that is not
// UTF-8.
func isLabel(text string) bool { return len(text) <= 256 && utf8.ValidString(text) }

// label returns a text that can be a label: the one given, or else "other".
func label(text string) string {
	if isLabel(text) {
		return text
	}
	return Other
}

func (ls *lines) policyOf(name string) *policy {
	p := ls.policies[name]
	if p == nil {
		p = &policy{name: name, series: budget{max(ls.series.left/4, 16)}}
		ls.policies[name] = p
	}
	return p
}

// place is the place of a series in a line.
func place(o core.Outcome, f guard.From, shadow bool) int {
	i := int(min(o, core.Never))*froms + int(min(f, guard.FromClosed))
	if shadow {
		i += int(core.Never+1) * froms
	}
	return i
}

// own returns a counter of l, or nil if there is none, or if it is that of the other line.
func (l *line) own(i int) *counts {
	c := l.series[i].Load()
	if c != nil && l.other != nil && c == l.other.series[i].Load() {
		return nil
	}
	return c
}

// at returns the counter of a series.
func (l *line) at(ls *lines, o core.Outcome, f guard.From, shadow bool) *counts {
	i := place(o, f, shadow)
	if s := l.series[i].Load(); s != nil {
		return s
	}
	return ls.make(l, i)
}

// make makes a series, or takes that of the other line.
func (ls *lines) make(l *line, i int) *counts {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	s := l.series[i].Load()
	switch {
	case s != nil:
		return s
	case l == ls.other || l.policy.series.left > 0 && ls.series.take() && l.policy.series.take():
		s = newCounts()
		l.policy.timed[i%froms].decide(&ls.times)
		s.series = ls.seriesOf(l.policy, guard.From(i%froms)) //nolint:gosec // it is small
	default:
		if s = ls.other.series[i].Load(); s == nil {
			s = newCounts()
			s.series = ls.seriesOf(ls.other.policy, guard.From(i%froms)) //nolint:gosec // it is small
			ls.other.series[i].Store(s)
		}
		l.spills.Store(true)
	}
	l.series[i].Store(s)
	return s
}

// waits returns the histogram of the policy's waits.
func (p *policy) waits(ls *lines) *counts {
	if q := p.queue.Load(); q != nil {
		return q
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	other := ls.other.policy
	if p.queue.Load() == nil && (p == other || ls.queues.take()) {
		p.queue.Store(newQueue(p))
	}
	if p.queue.Load() == nil {
		if other.queue.Load() == nil {
			other.queue.Store(newQueue(other))
		}
		p.queue.Store(other.queue.Load())
	}
	return p.queue.Load()
}

func newQueue(p *policy) *counts {
	c := newCounts()
	c.series = &Series{Values: []string{p.name}}
	return c
}

// snapshot adds what the lines have counted to s.
func (ls *lines) snapshot(s *Snapshot, now time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	times := map[*Series]*Histogram{}
	rates := map[string]*Rates{}
	for _, l := range ls.all {
		used := false
		for i := range l.series {
			c := l.own(i)
			if c == nil {
				continue
			}
			used = true
			if times[c.series] == nil {
				times[c.series] = &Histogram{}
			}
			s.Decisions = append(s.Decisions, Decisions{
				Policy: l.policy.name, Rule: l.rule, Tier: l.tier,
				Outcome: core.Outcome(i / froms % int(core.Never+1)).String(), From: guard.From(i % froms).String(), //nolint:gosec // it is small
				Shadow: i >= len(l.series)/2, Count: c.addTo(times[c.series]),
			})
		}
		if used {
			r := rates[l.policy.name]
			if r == nil {
				r = &Rates{Policy: l.policy.name}
				rates[l.policy.name] = r
			}
			l.pace.rates(l, now, r)
		}
	}
	for of, h := range times {
		if h.Count == 0 {
			continue
		}
		h.Exemplars = of.exemplarsNow()
		s.Durations = append(s.Durations, Durations{of.Values[0], of.Values[1], *h})
	}
	for _, r := range rates {
		s.Rates = append(s.Rates, *r)
	}
	otherUnits := uint64(0)
	for _, p := range ls.policies {
		if q := p.queue.Load(); q != nil && (p == ls.other.policy || q != ls.other.policy.queue.Load()) {
			waits := QueueTimes{Policy: p.name}
			q.addTo(&waits.Histogram)
			s.Queues = append(s.Queues, waits)
		}
		if n := p.settled.Load(); n > 0 {
			if p.units.decide(&ls.settles); p.units == granted && p != ls.other.policy {
				s.Settled = append(s.Settled, Settled{p.name, n})
			} else {
				otherUnits += n
			}
		}
	}
	if otherUnits > 0 {
		s.Settled = append(s.Settled, Settled{Other, otherUnits})
	}
	slices.SortFunc(s.Decisions, func(a, b Decisions) int {
		return cmp.Or(
			cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Tier, b.Tier),
			cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.From, b.From), boolCompare(a.Shadow, b.Shadow),
		)
	})
	slices.SortFunc(s.Durations, func(a, b Durations) int {
		return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.From, b.From))
	})
	slices.SortFunc(s.Queues, func(a, b QueueTimes) int { return cmp.Compare(a.Policy, b.Policy) })
	slices.SortFunc(s.Settled, func(a, b Settled) int { return cmp.Compare(a.Policy, b.Policy) })
	slices.SortFunc(s.Rates, func(a, b Rates) int { return cmp.Compare(a.Policy, b.Policy) })
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}
