// Package inwords says in words what a policy admits, and what becomes of what was counted when it changes: for the
// commands and pages of this repository.
package inwords

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/core"
)

// Policy has the bounds of a policy for one key, and what a key costs.
type Policy struct {
	// Text is the text of the policy, with all that it says.
	Text string `json:"policy"`
	// AtOnce is the units that a key which was idle gets at once.
	AtOnce int64 `json:"atOnce"`
	// Within is the most units in any time that is as long as the period of one of the limits.
	Within []Within `json:"within"`
	// Concurrent is the number of permits, 0 if there are none.
	Concurrent int64 `json:"concurrent,omitempty"`
	// Bytes is the result of StateBytes, or 0 if nobody has asked for it.
	Bytes int      `json:"bytes,omitempty"`
	Notes []string `json:"notes,omitempty"`
}

// Within is a bound for any time of a length.
type Within struct {
	Time string `json:"time"` // such as "1m"
	Most int64  `json:"most"`
}

// Of works out what p admits, in some microseconds.
func Of(p core.Policy) Policy {
	x := Policy{Text: p.String(), AtOnce: math.MaxInt64, Within: []Within{}}
	var rates []core.Limit
	for _, l := range p.Limits() {
		x.AtOnce = min(x.AtOnce, atOnce(l))
		if l.Algorithm == core.Concurrent {
			n, lease, _ := p.Concurrent()
			x.Concurrent = n
			x.Notes = append(x.Notes, fmt.Sprintf("the permits of a process that has crashed come back after %s", periodText(lease)))
			continue
		}
		rates = append(rates, l)
		if l.Algorithm == core.LeakyBucket {
			x.Notes = append(x.Notes, fmt.Sprintf("what %v lets in leaves one by one, %s apart", l, interval(l)))
		}
	}
	for _, d := range periods(rates) {
		most := int64(math.MaxInt64)
		for _, l := range rates {
			most = min(most, bound(l, d))
		}
		x.Within = append(x.Within, Within{periodText(d), most})
	}
	o := p.Options()
	if o.Shadow {
		x.Notes = append(x.Notes, "it is on trial: it counts, and refuses nobody")
	}
	if o.Wait > 0 {
		x.Notes = append(x.Notes, fmt.Sprintf("what is over the limit waits for its turn, up to %s", periodText(o.Wait)))
		if len(rates) > 1 {
			x.Notes = append(x.Notes, "after a wait more may start together than the shorter periods say, since all limits are charged at once")
		}
	}
	x.Notes = append(x.Notes, map[core.Failure]string{
		core.FailLocal:  "while the store fails, each process counts for itself",
		core.FailOpen:   "while the store fails, all is admitted",
		core.FailClosed: "while the store fails, all is refused",
	}[o.Fail])
	return x
}

// atOnce returns the units that a limit admits to a key that was idle.
func atOnce(l core.Limit) int64 { return l.Burst + l.Debt }

// bound returns the most units that a limit admits in any time shorter than d by a moment, however well somebody times
// them: of a leaky bucket those that leave it. TestBounds compares it with what a search for the worst finds.
func bound(l core.Limit, d time.Duration) int64 {
	periods := ceil(int64(d), int64(l.Period))
	switch l.Algorithm {
	case core.GCRA: // a full bucket, and each unit that comes back before the end
		return l.Burst + l.Debt + backBefore(l, d)
	case core.LeakyBucket: // the first leaves at once
		return 1 + backBefore(l, d)
	case core.TokenBucket: // all but one, which began the period; then each refill, as far as there is room for it
		return l.Burst + l.Debt - 1 + times(periods, min(l.Rate, l.Burst+l.Debt))
	case core.SlidingWindow, core.SlidingLog:
		return times(periods, l.Rate)
	case core.FixedWindow:
		if l.Align == "" { // all but the one that began the first window
			return times(periods+1, l.Rate) - 1
		}
		return times(windows(l, d)+1, l.Rate)
	default: // SlidingCounter: as two windows, the second of which sees at least one unit of the first
		return times(periods+1, l.Rate) - 1
	}
}

// windows returns how many windows of the calendar fit into d at most: days may have an hour less, and months three
// days.
func windows(l core.Limit, d time.Duration) int64 {
	shortest := l.Period
	switch {
	case d <= l.Period: // of its own period there are at most two
		return 1
	case l.Period > 7*24*time.Hour && strings.Contains(l.Align, " "):
		shortest = 28*24*time.Hour - time.Hour
	case l.Period >= 24*time.Hour && strings.Contains(l.Align, " "):
		shortest = l.Period - time.Hour
	}
	return ceil(int64(d), int64(shortest))
}

// backBefore returns the units that come back one by one within less than d, at rate/period.
func backBefore(l core.Limit, d time.Duration) int64 {
	// ceil(d*rate/period) - 1, in microseconds: d is at most a year, and rate at most 1<<32.
	hi, lo := bits.Mul64(uint64(d/time.Microsecond), uint64(l.Rate))
	if hi >= uint64(l.Period/time.Microsecond) {
		return countless
	}
	units, rest := bits.Div64(hi, lo, uint64(l.Period/time.Microsecond))
	if rest == 0 {
		units--
	}
	return int64(min(units, countless))
}

// countless stands for more units than can be counted, such as those of 2147483648/1ms in a year.
const countless = math.MaxInt64 / 4

// times returns a*b, or countless.
func times(a, b int64) int64 {
	if hi, lo := bits.Mul64(uint64(a), uint64(b)); hi == 0 && lo < countless {
		return int64(lo)
	}
	return countless
}

func ceil(a, b int64) int64 { return (a + b - 1) / b }

// periods returns the periods of the limits, the shortest first, each once.
func periods(limits []core.Limit) []time.Duration {
	var all []time.Duration
	for _, l := range limits {
		all = append(all, l.Period)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// interval returns the time between two units that leave a leaky bucket.
func interval(l core.Limit) string {
	return (l.Period / time.Duration(l.Rate)).Round(time.Microsecond).String()
}

// periodText returns a period as the grammar has it.
func periodText(d time.Duration) string {
	_, period, _ := strings.Cut(core.Limit{Rate: 1, Period: d}.String(), "/")
	return period
}

// StateBytes returns the length of the largest state of a key that p leads to, as the scripts store it: after one large
// take, and after many small ones, spread over the period of each limit. It takes 20 ms for a log of 1000 units.
func StateBytes(p core.Policy) (most int) {
	spec := p.Spec()
	if spec.Shape() == "" {
		return 0 // permits alone
	}
	const now, takes = 1_767_225_600_000_000, 1200 // more than there are units in any log
	once := func(state []byte, cost, at int64) []byte {
		_, next, _ := spec.Step(state, core.Take{Policy: p, Key: "k", Cost: cost, AtMost: true, Now: at})
		if next == nil {
			return state
		}
		most = max(most, len(next))
		return next
	}
	once(nil, core.MaxRate, now)
	for _, d := range periods(p.Limits()) {
		var state []byte
		for i := range int64(takes) {
			state = once(state, 1, now+i*d.Microseconds()/takes)
		}
	}
	return most
}

// Rows returns the bounds as rows of a table for people, such as "at once" and "20 units".
func (x Policy) Rows() [][2]string {
	rows := [][2]string{{"at once", units(x.AtOnce)}}
	if x.Concurrent > 0 {
		rows = append(rows, [2]string{"under way", fmt.Sprintf("%d at most", x.Concurrent)})
	}
	for _, w := range x.Within {
		rows = append(rows, [2]string{"in any " + w.Time, units(w.Most) + " at most"})
	}
	if x.Bytes > 0 {
		rows = append(rows, [2]string{"a key", fmt.Sprintf("%d bytes of state in Redis, besides its name", x.Bytes)})
	}
	return rows
}

func units(n int64) string {
	if n >= countless {
		return "countless units"
	}
	if n == 1 {
		return "1 unit"
	}
	return fmt.Sprintf("%d units", n)
}
