package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/core"
)

// algorithms are the rows of every picture: limits that differ in how they count and in
// nothing else. These are the words of the grammar after rate and period.
var algorithms = []string{
	"gcra",
	"gcra debt", // of half the rate
	"token-bucket",
	leaky,
	"fixed-window",
	"fixed-window aligned",
	"sliding-window",
	"sliding-counter",
	"sliding-log",
}

// leaky is the one whose departures are drawn as well.
const leaky = "leaky-bucket"

// words are those of an algorithm, in full.
func (p pattern) words(algorithm string) string {
	if strings.HasSuffix(algorithm, " debt") {
		return fmt.Sprint(algorithm, " ", p.rate/2)
	}
	return algorithm
}

// limit returns the pattern's policy with an algorithm.
func (p pattern) limit(algorithm string) (core.Policy, error) {
	return core.Parse(fmt.Sprintf("%d/%v %s", p.rate, p.period, p.words(algorithm)))
}

// pattern is one picture: how requests arrive at a limit.
type pattern struct {
	name  string // of the file
	title string
	note  string // what is drawn, in one line

	rate   int64
	period time.Duration
	offset time.Duration // of the first instant, from a multiple of every period
	span   time.Duration
	tick   time.Duration // between the labels of the time axis

	columns []column
	top     float64 // of the vertical axis, requests in one bin
	ticks   []float64
	numbers bool                                          // each bin is labelled with what was admitted
	lines   bool                                          // a line at the rate
	sum     func(p pattern, c column, all []event) string // of a row, in words
}

// column is a variant of the pattern, drawn beside the others.
type column struct {
	title    string
	arrivals []arrival
	// again returns the wait of a client before it tries again. If it is nil, clients leave.
	again func(core.Result) time.Duration
	// eyes chooses the requests that are drawn as admitted and refused; those of the others
	// are a line. If it is nil, all are drawn.
	eyes func(arrival) bool
}

// arrival is one request.
type arrival struct {
	at  time.Duration
	who string
	key string
}

const anybody = "anybody"

// evenly is a stream of rate requests per second in [from, to).
func evenly(rate int, from, to time.Duration, who, key string) (all []arrival) {
	for i := 0; ; i++ {
		at := from + (time.Duration(i) * time.Second / time.Duration(rate)).Truncate(time.Microsecond)
		if at >= to {
			return all
		}
		all = append(all, arrival{at, who, key})
	}
}

// atOnce is n requests at one instant.
func atOnce(n int, at time.Duration) []arrival {
	return slices.Repeat([]arrival{{at, anybody, anybody}}, n)
}

// together merges streams by time.
func together(streams ...[]arrival) []arrival {
	all := slices.Concat(streams...)
	slices.SortStableFunc(all, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	return all
}

// neighbours are a greedy client and a polite one, by their keys.
func neighbours(greedy, polite string) []arrival {
	return together(evenly(23, 0, 40*second, "greedy", greedy), evenly(7, 0, 40*second, "polite", polite))
}

func polite(a arrival) bool { return a.who == "polite" }

// header returns the wait of a client that obeys the header Retry-After, which has whole
// seconds.
func header(r core.Result) time.Duration {
	return max(time.Second, (r.RetryAfter + time.Second - 1).Truncate(time.Second))
}

const (
	second    = time.Second
	burstOver = 5 * second             // in the pattern of that name
	hasty     = 250 * time.Millisecond // between the tries of an impatient client
)

var patterns = []pattern{
	{
		name: "edge", title: "Two bursts around the end of a window",
		note: "1000 per 3 s. In each second 10, 10, 980, 900, 100 and no requests come, all at its beginning. The numbers are those admitted.",
		rate: 1000, period: 3 * second, span: 6 * second, tick: second,
		columns: []column{{arrivals: together(
			atOnce(10, 0), atOnce(10, second), atOnce(980, 2*second), atOnce(900, 3*second), atOnce(100, 4*second),
		)}},
		top: 1350, ticks: []float64{0, 500, 1000}, numbers: true,
		sum: admittedAndWorst,
	},
	{
		name: "steady", title: "A steady stream, half again as fast as the limit",
		note: "100 per 10 s. 15 requests come each second.",
		rate: 100, period: 10 * second, offset: 4 * second, span: 60 * second, tick: 10 * second,
		columns: []column{{arrivals: evenly(15, 0, 60*second, anybody, anybody)}},
		top:     20, ticks: []float64{0, 10, 20}, lines: true,
		sum: admittedAndWorst,
	},
	{
		name: "burst", title: "A burst out of the blue, then little",
		note: "100 per 10 s. Nothing for 2 s, then 60 requests each second for 3 s, then 8 each second, which is less than the limit.",
		rate: 100, period: 10 * second, offset: 4 * second, span: 30 * second, tick: 5 * second,
		columns: []column{{arrivals: together(
			evenly(60, 2*second, burstOver, anybody, anybody),
			evenly(8, burstOver, 30*second, anybody, anybody),
		)}},
		top: 64, ticks: []float64{0, 20, 40, 60}, lines: true,
		sum: burstAndCalm,
	},
	{
		name: "retries", title: "A crowd that tries again",
		note: "100 per 10 s. 150 clients come within the first second, and each tries until it is served.",
		rate: 100, period: 10 * second, offset: 4 * second, span: 16 * second, tick: 5 * second,
		columns: []column{
			{
				title:    "each tries again after 250 ms",
				arrivals: evenly(150, 0, second, anybody, anybody),
				again:    func(core.Result) time.Duration { return hasty },
			},
			{
				title:    "each waits as Retry-After says, in whole seconds",
				arrivals: evenly(150, 0, second, anybody, anybody),
				again:    header,
			},
		},
		top: 270, ticks: []float64{0, 100, 200},
		sum: served,
	},
	{
		name: "neighbours", title: "A greedy client and a polite one",
		note: "100 per 10 s. 23 requests each second of the greedy one, 7 of the polite one.",
		rate: 100, period: 10 * second, offset: 4 * second, span: 40 * second, tick: 10 * second,
		columns: []column{
			{title: "each counted by a key of its own", eyes: polite, arrivals: neighbours("greedy", "polite")},
			{title: "both counted by one key", eyes: polite, arrivals: neighbours("both", "both")},
		},
		top: 32, ticks: []float64{0, 10, 20, 30},
		sum: shareOfThePolite,
	},
}

// admittedAndWorst sums a row up: what came through, and how dense it was.
func admittedAndWorst(p pattern, _ column, all []event) string {
	at, left := times(all, false), times(all, true)
	text := fmt.Sprintf("%d admitted of %d; at most %d in any %.0f s", len(at), len(all), densest(at, p.period), p.period.Seconds())
	if !slices.Equal(at, left) {
		text += fmt.Sprintf(", of departures %d", densest(left, p.period))
	}
	return text
}

// burstAndCalm sums up how much of the burst was admitted, and how many refusals came after it.
func burstAndCalm(_ pattern, _ column, all []event) string {
	var came, burst, later, late int
	for _, e := range all {
		switch {
		case e.at < burstOver:
			if came++; e.admitted {
				burst++
			}
		case !e.admitted:
			later++
			late = int(e.at/second) + 1
		}
	}
	text := fmt.Sprintf("%d of %d admitted of the burst; %d refused after it", burst, came, later)
	if later > 0 {
		text += fmt.Sprintf(", until second %d", late)
	}
	return text
}

// served sums up the refusals until all of a crowd were served, and the time.
func served(_ pattern, _ column, all []event) string {
	refused, last := 0, time.Duration(0)
	for _, e := range all {
		if e.admitted {
			last = max(last, e.at)
		} else {
			refused++
		}
	}
	return fmt.Sprintf("%d refusals; last served at %.1f s", refused, last.Seconds())
}

// shareOfThePolite sums up how many requests of the polite client were admitted.
func shareOfThePolite(_ pattern, c column, all []event) string {
	admitted, came := 0, 0
	for _, e := range all {
		if !c.eyes(e.arrival) {
			continue
		}
		came++
		if e.admitted {
			admitted++
		}
	}
	return fmt.Sprintf("%d of %d polite ones admitted", admitted, came)
}
