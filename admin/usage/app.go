package usage

import (
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/core/stats"
)

// Bounds of an app, besides its part of the budget.
const (
	maxTiers  = 32 // of a policy; further ones count together, as a tier of the name Others
	slack     = 40 * time.Second
	tierRound = 30 // minutes of a sum of a tier, of which there are two
)

// Others is the name of the tier in which tiers count for which there is no room.
const Others = "..."

// app has what the processes of an app have counted.
type app struct {
	budget int
	read   time.Time // the last reading that has succeeded; zero if there is none
	first  int64     // the minute of the first one
	minute int64     // of the last one, as all streams go by it
	fine   int64     // from this minute on it is kept by the minute
	kept   int64     // from this minute on it is kept

	policies  map[string]*policy
	processes map[string]*process
	rows      uint64   // that were given numbers
	gaps      []gap    // minutes in which nothing was read, the first one first
	ended     []ended  // by the hour, the first one first
	last      standing // as the last reading has found it
	trimmed   int64    // the minute in which the oldest was left out
}

// gap are minutes, without end.
type gap struct{ begin, end int64 }

// ended is the number of processes that were gone in an hour.
type ended struct{ hour, processes int64 }

// standing has numbers of the last reading.
type standing struct {
	processes  int // that tell their counts
	full       int // for which there was no room
	unreadable int // that announce what cannot be read
	omitted    int // policies that had no room in an announcement
	policies   int // policies for which there was no room
}

// process has the sums of a process at its last reading.
type process struct {
	time time.Duration // for which it had counted
	sums []byte        // of each row its number and the six counts, as varints
	seen bool          // in this reading
}

// policy has the counts of a policy.
type policy struct {
	stream
	before record // the last one, which may be empty
	minute int64  // of now
	now    stats.UsageCounts
	coming stats.UsageCounts // of the reading that is under way, and of those before it that have failed
	tiers  []tier
	seen   int64 // the minute of the last reading in which a process had it

	busiest, refused top
}

// tier has the sums of a tier, of the last half hour and of the one before.
type tier struct {
	name   string
	row    uint64 // its number
	since  int64
	counts [2]stats.UsageCounts
}

func newApp() *app { return &app{policies: map[string]*policy{}, processes: map[string]*process{}} }

// reading is one of an app.
type reading struct {
	*app
	at      time.Time
	now     int64 // the minute
	found   standing
	busiest map[*policy]*merge
	refused map[*policy]*merge
	room    int // bytes that policies and processes may still take; their counts have the other half of the budget
}

func (a *app) begin(at time.Time) *reading {
	for _, p := range a.processes {
		p.seen = false
	}
	return &reading{
		app: a, at: at, now: max(minuteOf(at), a.minute), busiest: map[*policy]*merge{}, refused: map[*policy]*merge{},
		room: a.budget/2 - a.fixed(),
	}
}

func minuteOf(t time.Time) int64 { return t.Unix() / 60 }

// process takes up what a process has counted.
func (r *reading) process(id string, u *stats.Usage, err error) {
	before := r.processes[id]
	switch {
	case err != nil || u == nil:
		r.found.unreadable++
		if before != nil { // it has not ended
			before.seen = true
		}
		return
	case before != nil && before.seen: // one that is read twice counts once
		return
	case before == nil && r.room < 0 && len(r.processes) > 0:
		r.found.full++
		return
	}
	r.found.processes++
	r.found.omitted += u.Omitted
	was := map[uint64]stats.UsageCounts{}
	if before != nil && u.For >= before.time {
		was = decodeSums(before.sums)
	}
	// The first reading of a process counts what it has counted since the last reading of the app.
	counts := before != nil || !r.read.IsZero() && u.For <= r.at.Sub(r.read)+slack
	sums := map[uint64]stats.UsageCounts{}
	var order []uint64
	for i := range u.Policies {
		p := r.policyOf(u.Policies[i].Policy)
		if p == nil {
			continue
		}
		p.seen = r.now
		r.keys(p, &u.Policies[i], u.KeysOmitted > 0)
		for j := range u.Policies[i].Tiers {
			t := &u.Policies[i].Tiers[j]
			row := r.tierOf(p, t.Tier).row
			sum, twice := sums[row]
			if !twice {
				order = append(order, row)
			}
			sum.Add(t.UsageCounts)
			sums[row] = sum
		}
		for j := range p.tiers {
			t := &p.tiers[j]
			sum, there := sums[t.row]
			if !there || !counts {
				continue
			}
			news := since(sum, was[t.row])
			p.coming.Add(news)
			t.add(r.now, news)
		}
	}
	if before == nil {
		before = &process{}
		r.processes[strings.Clone(id)] = before
		r.room -= processSize + len(id)
	}
	r.room += cap(before.sums)
	before.time, before.seen, before.sums = u.For, true, encodeSums(order, sums)
	r.room -= cap(before.sums)
}

// since returns what was counted since the sums were others: all, if they have begun again.
func since(now, before stats.UsageCounts) (news stats.UsageCounts) {
	of, was, to := fields(&now), fields(&before), fields(&news)
	for i := range of {
		if *of[i] < *was[i] {
			return now
		}
		*to[i] = *of[i] - *was[i]
	}
	return news
}

func encodeSums(order []uint64, sums map[uint64]stats.UsageCounts) []byte {
	var b []byte
	for _, row := range order {
		b = binary.AppendUvarint(b, row)
		c := sums[row]
		for _, n := range fields(&c) {
			b = binary.AppendUvarint(b, *n)
		}
	}
	return slices.Clip(slices.Clone(b))
}

func decodeSums(b []byte) map[uint64]stats.UsageCounts {
	sums := map[uint64]stats.UsageCounts{}
	next := func() uint64 {
		n, size := binary.Uvarint(b)
		b = b[size:]
		return n
	}
	for len(b) > 0 {
		row := next()
		var c stats.UsageCounts
		for _, to := range fields(&c) {
			*to = next()
		}
		sums[row] = c
	}
	return sums
}

// policyOf returns a policy, or nil if there is no room for it.
func (r *reading) policyOf(name string) *policy {
	if p := r.policies[name]; p != nil {
		return p
	}
	if r.room < policySize && len(r.policies) > 0 {
		r.found.policies++
		return nil
	}
	r.room -= policySize + len(name)
	p := &policy{}
	r.policies[strings.Clone(name)] = p
	return p
}

// tierOf returns a tier, that of the others if there is no room for it.
func (r *reading) tierOf(p *policy, name string) *tier {
	is := func(name string) func(tier) bool { return func(t tier) bool { return t.name == name } }
	at := slices.IndexFunc(p.tiers, is(name))
	full := len(p.tiers) >= maxTiers-1 || r.room < tierSize+len(name) && len(p.tiers) > 0
	if at < 0 && full {
		name = Others
		at = slices.IndexFunc(p.tiers, is(name))
	}
	if at < 0 {
		r.rows++
		r.room -= tierSize + len(name)
		at = len(p.tiers)
		p.tiers = append(p.tiers, tier{name: strings.Clone(name), row: r.rows, since: r.now})
	}
	return &p.tiers[at]
}

// add adds to a tier.
func (t *tier) add(minute int64, c stats.UsageCounts) {
	t.turn(minute)
	t.counts[0].Add(c)
}

// turn begins another sum, if it is time.
func (t *tier) turn(minute int64) {
	switch over := minute - t.since; {
	case over >= 2*tierRound:
		t.counts = [2]stats.UsageCounts{}
		t.since = minute
	case over >= tierRound:
		t.counts = [2]stats.UsageCounts{{}, t.counts[0]}
		t.since += tierRound
	}
}

// end shows what a reading has found.
func (r *reading) end() {
	minutes := int64(1) // of which it is
	if !r.read.IsZero() && r.now > r.minute {
		minutes = r.now - r.minute
	}
	if r.read.IsZero() {
		r.first, r.fine, r.kept = r.now, r.now, r.now
	}
	if minutes > 1 {
		r.gaps = append(r.gaps, gap{r.minute + 1, r.now})
	}
	for _, p := range r.policies {
		p.take(r.now-minutes+1, r.now, p.coming)
		p.coming = stats.UsageCounts{}
	}
	gone := int64(0)
	for id, p := range r.processes {
		if !p.seen {
			delete(r.processes, id)
			gone++
		}
	}
	r.noteEnded(gone)
	r.last, r.read, r.minute = r.found, r.at, r.now
	r.forget()
	r.showKeys()
}

// take adds counts to the minutes from first to last, to each the same. What would be of more than a day ago is left out.
func (p *policy) take(first, last int64, c stats.UsageCounts) {
	for m := first; m < last; m++ {
		var part stats.UsageCounts
		of := fields(&c)
		for i, to := range fields(&part) {
			*to = *of[i] / uint64(last-m+1) //nolint:gosec // it is positive
			*of[i] -= *to
		}
		if m > last-kept {
			p.count(m, part)
		}
	}
	p.count(last, c)
}

// count adds counts to a minute, which is that of now or a later one.
func (p *policy) count(minute int64, c stats.UsageCounts) {
	if minute != p.minute {
		p.before = record{minute: p.minute, UsageCounts: p.now}
		p.add(p.before)
		p.minute, p.now = minute, stats.UsageCounts{}
	}
	p.now.Add(c)
}

func (r *reading) noteEnded(n int64) {
	if n == 0 {
		return
	}
	hour := r.now / 60
	if len(r.ended) == 0 || r.ended[len(r.ended)-1].hour != hour {
		r.ended = append(r.ended, ended{hour: hour})
	}
	r.ended[len(r.ended)-1].processes += n
}

// forget leaves out what is older than a day, once an hour.
func (a *app) forget() {
	oldest := a.minute - kept
	a.fine, a.kept = max(a.fine, oldest), max(a.kept, oldest)
	if a.minute-a.trimmed < 60 {
		return
	}
	a.trimmed = a.minute
	a.gaps = slices.DeleteFunc(a.gaps, func(g gap) bool { return g.end <= oldest })
	a.ended = slices.DeleteFunc(a.ended, func(e ended) bool { return e.hour < oldest/60 })
	for name, p := range a.policies {
		p.rewrite(a.kept, a.fine)
		if len(p.data) == 0 && p.seen <= oldest {
			delete(a.policies, name)
		}
	}
}
