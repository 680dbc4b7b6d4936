package core

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/core/internal/algo"
)

// The bounds of policies, limits and permits.
const (
	MaxLimits = 4       // limits of one policy
	MaxRate   = 1 << 31 // the rate and the burst of a limit, in units; of a FixedWindow 1 << 32

	// The period of a limit.
	MinPeriod = time.Millisecond
	MaxPeriod = 366 * 24 * time.Hour

	// MaxPermitWeight is the largest Permit.Weight: all other callers of a server wait while a script counts the places.
	MaxPermitWeight = 1000
)

// The parts of a SlidingWindow: by default, and at most.
const (
	defaultBuckets = 10
	maxBuckets     = 60
)

// maxPermits is the most permits of a Concurrent limit. Beyond it the work of one
// decision could hold up a server.
const maxPermits = 10_000

// The lease of a permit: by default, at least, and at most.
const (
	defaultLease = 30 * time.Second
	minLease     = 100 * time.Millisecond
	maxLease     = 24 * time.Hour
)

// Algorithm is the way in which a limit counts. Most limits need none but GCRA; docs/algorithms.md
// in the repository helps to choose.
type Algorithm uint8

// The algorithms.
const (
	// GCRA, the zero Algorithm, is the generic cell rate algorithm: smooth, with one
	// instant of state. In any time d it admits at most burst + debt + d*rate/period
	// units. It is a leaky bucket used as a meter, and the same as a token bucket that
	// is refilled without steps (ITU-T I.371, 1993; in Redis since brandur's
	// redis-cell). It can borrow (Debt) and reserve ahead (PolicyOptions.Wait).
	GCRA Algorithm = iota
	// TokenBucket is refilled in steps: Rate tokens arrive together every Period,
	// counted from the first use after the bucket was full. For quotas that people
	// think of in ticks: "5 more every minute". In any time d it admits at most burst +
	// debt + (d/period + 1) * rate units. It can borrow and reserve ahead as GCRA can.
	TokenBucket
	// LeakyBucket is a queue that drips: what fits is let in, with a Delay until all
	// before it have left, so that departures are period/rate apart. Burst is the
	// length of the queue, the request that leaves included (Turner, 1986). For services
	// that must be protected from bursts.
	LeakyBucket
	// FixedWindow counts to Rate and starts over when the window ends: from the first
	// unit, from multiples of the period, or by the calendar (Align). For quotas that
	// people read, such as a thousand a day. Around the end of a window
	// up to twice the rate passes within one period.
	FixedWindow
	// SlidingWindow counts by parts of the window (Buckets), each of which counts in
	// full until all of it is older than Period: no period of that length ever has more
	// than Rate units. A unit comes back at most one part late.
	SlidingWindow
	// SlidingCounter estimates a sliding window by two counts, of this period and the
	// one before, weighted by how much of it is still in sight: small and good on real
	// traffic (large CDNs use it), but somebody who times it well gets nearly
	// twice the rate through within one period.
	SlidingCounter
	// SlidingLog remembers when each unit was taken: exact, for rates up to 1000, at
	// the price of a memory that grows with the rate.
	SlidingLog

	// Concurrent bounds how many requests are under way at once, not how often they come:
	// a request holds a permit while it runs. It has no rate and no period; Burst is the
	// number of permits. It does not count as the others do, and has a store of its own; see
	// [PermitStore].
	Concurrent Algorithm = 255
)

const concurrentWord = "concurrent"

// algorithmWords are the words of the table.
func algorithmWords() []string {
	words := make([]string, len(algo.Kinds))
	for a, k := range algo.Kinds {
		words[a] = k.Word
	}
	return words
}

// String returns the algorithm's word in the grammar of [Parse].
func (a Algorithm) String() string {
	if int(a) < len(algo.Kinds) {
		return algo.Kinds[a].Word
	}
	if a == Concurrent {
		return concurrentWord
	}
	return fmt.Sprintf("Algorithm(%d)", uint8(a))
}

// Limit is one bound: on how often, Rate units per Period, Burst at once; or, with
// Concurrent, on how many at the same time. It is data, without behaviour; a [Policy]
// holds what may be asked of a [Store].
type Limit struct {
	// Algorithm is the way to count. Zero is GCRA.
	Algorithm Algorithm
	// Rate is the number of units per Period that are admitted in the long run,
	// from 1 to MaxRate; of a SlidingLog to 1000, and of a FixedWindow to 1 << 32, so that it may be any uint32.
	// Concurrent has none. In 100/1m it is 100.
	Rate int64
	// Burst is the whole capacity: the number of units that are admitted at once from idle, from 1 to MaxRate. With 10/1s
	// burst 20, 20 requests pass at once, and then one each 100 ms. It may be above or below Rate. Zero means Rate.
	// Windows and logs have no burst but their rate. For Concurrent it is the number of permits, from 1 to 10000.
	Burst int64
	// Period is the time that Rate refers to, in whole microseconds, from
	// MinPeriod to MaxPeriod. A window that is aligned to the calendar has the period
	// of its unit, which is filled in if it is zero.
	Period time.Duration
	// Debt is the number of units that a caller that is not in debt may overdraw: the one that comes next waits for them.
	// With 10/1s debt 5, a request of 15 units passes, and for half a second none does. Of GCRA and TokenBucket; 0 to
	// MaxRate.
	Debt int64
	// Buckets is the number of parts of a SlidingWindow, from 1 to 60; a unit comes back at most one part late: with
	// 100/1m in 10 parts, at most 6 s late. Zero means 10.
	Buckets int
	// Align chooses the beginning of a FixedWindow: "" is the first unit that is taken,
	// "epoch" multiples of Period since 1970 in UTC, and a unit with a zone, such as
	// "day Europe/Berlin", the calendar. The units are minute, hour, day, week (from
	// Monday) and month; the zones are those of [time.LoadLocation].
	Align string
	// Lease is the time for which a permit of Concurrent lives unless its holder renews it: the permits of a crashed
	// process come back after it. From 100 ms to 24 h; zero means 30 s.
	Lease time.Duration
}

// PerSecond allows rate units per second. PerSecond(10) admits 10 at once, then one each 100 ms.
func PerSecond(rate int64) Limit { return Limit{Rate: rate, Period: time.Second} }

// PerMinute allows rate units per minute. PerMinute(60) admits 60 at once, then one each second.
func PerMinute(rate int64) Limit { return Limit{Rate: rate, Period: time.Minute} }

// PerHour allows rate units per hour. PerHour(60) admits 60 at once, then one each minute.
func PerHour(rate int64) Limit { return Limit{Rate: rate, Period: time.Hour} }

// String returns the limit as [Parse] reads it, such as "100/1m burst 20".
func (l Limit) String() string { return string(l.appendText(nil)) }

// prepare fills in what was left out and checks the rest: every mistake at once.
// Concurrent has no arithmetic of its own.
func (l Limit) prepare(o PolicyOptions) (full Limit, a algo.Algorithm, mistakes []error) {
	wrong := func(format string, args ...any) { mistakes = append(mistakes, fmt.Errorf(format, args...)) }
	if l.Algorithm == Concurrent {
		full, mistakes = l.preparePermits()
		return full, nil, mistakes
	}
	var kind algo.Kind
	if int(l.Algorithm) < len(algo.Kinds) {
		kind = algo.Kinds[l.Algorithm]
	} else {
		wrong("Algorithm is %d; give the constant for %s", l.Algorithm, oneOf(append(algorithmWords(), concurrentWord)))
	}
	if kind.Align && l.onCalendar() {
		l.Period = l.calendar(wrong)
	}
	most := max(MaxRate, kind.MaxRate)
	if l.Rate < 1 || l.Rate > most {
		wrong("Rate is %d; give 1 to %d units", l.Rate, most)
	}
	switch {
	case l.Burst < 0 || l.Burst > most:
		wrong("Burst is %d; give 1 to %d units, or leave it out for the rate", l.Burst, most)
	case l.Burst == 0:
		l.Burst = l.Rate
	case l.Burst != l.Rate && !kind.Burst:
		wrong("Burst is %d, but %q admits its rate and no more; leave the burst out", l.Burst, l.Algorithm)
	}
	switch {
	case l.Period < MinPeriod || l.Period > MaxPeriod:
		wrong("Period is %s; give %s to %s", periodText(l.Period), periodText(MinPeriod), periodText(MaxPeriod))
	case l.Period%time.Microsecond != 0:
		wrong("Period is %s; give whole microseconds", periodText(l.Period))
	}
	switch {
	case l.Debt < 0 || l.Debt > MaxRate:
		wrong("Debt is %d; give 0 to %d units", l.Debt, int64(MaxRate))
	case l.Debt > 0 && !kind.Debt:
		wrong("Debt is %d, but %q cannot lend; use %s", l.Debt, l.Algorithm, wordsWith(func(k algo.Kind) bool { return k.Debt }))
	}
	switch {
	case l.Buckets < 0 || l.Buckets > maxBuckets:
		wrong("Buckets is %d; give 1 to %d, or 0 for %d", l.Buckets, maxBuckets, defaultBuckets)
	case l.Buckets == 0 && kind.Buckets:
		l.Buckets = defaultBuckets
	case l.Buckets > 0 && !kind.Buckets:
		wrong("Buckets is %d, but %q has none; use %s", l.Buckets, l.Algorithm, wordsWith(func(k algo.Kind) bool { return k.Buckets }))
	}
	if l.Align != "" && !kind.Align {
		wrong("Align (aligned, calendar) is %.80q, but %q cannot be aligned; use %s", l.Align, l.Algorithm, wordsWith(func(k algo.Kind) bool { return k.Align }))
	}
	if l.Lease != 0 {
		wrong("Lease is %s, but only permits have one; use %q", periodText(l.Lease), concurrentWord)
	}
	if o.Wait > 0 && !kind.Wait {
		wrong("Wait is %s, but %q cannot reserve; use %s", periodText(o.Wait), l.Algorithm, wordsWith(func(k algo.Kind) bool { return k.Wait }))
	}
	if mistakes != nil {
		return l, nil, mistakes
	}
	a, err := kind.New(algo.Params{
		Rate: l.Rate, Burst: l.Burst, Period: l.Period.Microseconds(), Debt: l.Debt,
		Wait: o.Wait.Microseconds(), Buckets: int64(l.Buckets), Align: l.Align,
	})
	if err != nil {
		return l, nil, []error{err}
	}
	return l, a, nil
}

func (l Limit) onCalendar() bool { return l.Align != "" && l.Align != algo.AlignEpoch }

// calendar returns the period of a limit that is aligned to the calendar.
func (l Limit) calendar(wrong func(string, ...any)) time.Duration {
	period, err := algo.CalendarPeriod(l.Align)
	switch {
	case err != nil:
		wrong("%w", err)
		return max(l.Period, MinPeriod) // so that the period is not a second mistake
	case l.Period != 0 && l.Period.Microseconds() != period:
		wrong("Period is %s, but Align is %q; give %s, or 0", periodText(l.Period), l.Align,
			periodText(time.Duration(period)*time.Microsecond))
	}
	return time.Duration(period) * time.Microsecond
}

// preparePermits is prepare for Concurrent.
func (l Limit) preparePermits() (full Limit, mistakes []error) {
	wrong := func(format string, args ...any) { mistakes = append(mistakes, fmt.Errorf(format, args...)) }
	if l.Burst < 1 || l.Burst > maxPermits {
		wrong("Burst (permits) is %d; give 1 to %d", l.Burst, maxPermits)
	}
	if l.Rate != 0 || l.Period != 0 || l.Debt != 0 || l.Buckets != 0 || l.Align != "" {
		wrong("permits have only Burst and Lease; leave out Rate, Period, Debt, Buckets and Align")
	}
	if l.Lease == 0 {
		l.Lease = defaultLease
	}
	switch {
	case l.Lease < minLease || l.Lease > maxLease:
		wrong("Lease is %s; give %s to %s", periodText(l.Lease), periodText(minLease), periodText(maxLease))
	case l.Lease%time.Microsecond != 0:
		wrong("Lease is %s; give whole microseconds", periodText(l.Lease))
	}
	return l, mistakes
}

// wordsWith lists the algorithms that can do something, for an error.
func wordsWith(can func(algo.Kind) bool) string {
	var words []string
	for _, k := range algo.Kinds {
		if can(k) {
			words = append(words, k.Word)
		}
	}
	return oneOf(words)
}

// layout returns a text for the meaning of the words of a limit's state: the algorithm, and how many parts a window
// has.
func (l Limit) layout() string {
	kind := algo.Kinds[l.Algorithm]
	if kind.Buckets {
		return string(kind.Letter) + strconv.Itoa(l.Buckets)
	}
	return string(kind.Letter)
}

// form returns the layout and how a window is aligned, which limits that differ in nothing but numbers have in common.
func (l Limit) form() string {
	switch {
	case l.Align == algo.AlignEpoch:
		return l.layout() + "E"
	case l.Align != "":
		return l.layout() + "C"
	default:
		return l.layout()
	}
}

// shapes returns a text for the state of each of a policy's limits: its form, but no number that may change while the
// state is kept. No letter of an algorithm follows a letter. Limits that are alike differ by their periods, and
// where these are the same too, by all their numbers: if it were their order, one limit would go on with what another
// has counted as soon as a change of the numbers puts them in another order.
func shapes(limits []Limit, algorithms []algo.Algorithm) []string {
	out, periods := make([]string, len(limits)), make([]string, len(limits))
	same := map[string]int{}
	for i, l := range limits {
		out[i] = l.form() + algorithms[i].Apart()
		periods[i] = fmt.Sprintf("%s/%d", out[i], l.Period.Microseconds())
		same[out[i]]++
		same[periods[i]]++
	}
	for i, l := range limits {
		switch {
		case same[periods[i]] > 1:
			out[i] = fmt.Sprintf("%s-%d-%d-%d-%s", periods[i], l.Rate, l.Burst, l.Debt, strings.ReplaceAll(l.Align, " ", "-"))
		case same[out[i]] > 1:
			out[i] = periods[i]
		}
	}
	return out
}
