package observe

import (
	"math"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"
)

// Histogram is a number of durations, by how long they were. Its buckets grow by a ninth each, so that classic and
// native buckets of Prometheus and exponential ones of OpenTelemetry are made of it exactly.
type Histogram struct {
	Count uint64
	Sum   time.Duration
	// Exemplars has at most one of each classic bucket, the shortest first, of the durations of decisions; see
	// Options.Exemplar.
	Exemplars []Exemplar

	cells []uint64 // nil if Count is 0
}

// Classic returns, for each of the bounds of the metric in seconds, how many durations were not longer. The bounds must
// be among those of a [Metric].
func (h Histogram) Classic(bounds []float64) []uint64 {
	counts := make([]uint64, len(bounds))
	if h.cells == nil {
		return counts
	}
	sum, cell := uint64(0), 0
	for i, b := range bounds {
		for nanoseconds := int64(math.Round(b * 1e9)); cell < len(grid.upper) && grid.upper[cell] <= nanoseconds; cell++ {
			sum += h.cells[cell]
		}
		counts[i] = sum
	}
	return counts
}

// The numbers of a native histogram.
const (
	// NativeSchema is the schema of the buckets of [Histogram.Native]: 2^3 for each doubling. It is the scale of
	// OpenTelemetry's exponential histogram.
	NativeSchema = 3
	// NativeZero is the longest duration that counts as zero there, in seconds: 60ns.
	NativeZero = 1.0 / (1 << -lowest)

	lowest, highest = -24, 6 // the powers of two, in seconds, between which buckets are apart
)

// Native returns the buckets of a native histogram of Prometheus: bucket i has the durations above 2^((i-1)/8) seconds,
// up to 2^(i/8). zero are those of at most [NativeZero]. In OpenTelemetry the bucket's number is i-1.
func (h Histogram) Native() (zero uint64, buckets map[int]int64) {
	buckets = map[int]int64{}
	for i, n := range h.cells {
		switch {
		case n == 0:
		case grid.native[i] == zeroBucket:
			zero += n
		default:
			buckets[int(grid.native[i])] += int64(n) //nolint:gosec // it would take centuries
		}
	}
	return zero, buckets
}

// Quantile returns a duration that the part q of the durations does not exceed, such as 0.99 for p99. It is right within
// a ninth. It is 0 of no durations.
func (h Histogram) Quantile(q float64) time.Duration {
	if h.Count == 0 {
		return 0
	}
	rank := max(uint64(math.Ceil(min(max(q, 0), 1)*float64(h.Count))), 1)
	for i, n := range h.cells {
		if rank <= n {
			if i == len(grid.upper) {
				i--
			}
			return time.Duration(grid.upper[i])
		}
		rank -= n
	}
	return time.Duration(grid.upper[len(grid.upper)-1])
}

// grid is the cells of all histograms: those of a native one, cut where a classic one of some metric has a bound.
var grid = newGrid()

type cells struct {
	upper  []int64 // the longest duration of each cell but the last, in nanoseconds
	native []int16 // the native bucket of each cell
	// first has the first cell in which a duration can be: by its highest bit and the three below it.
	first [64 << firstBits]int16
}

const (
	firstBits  = 3
	zeroBucket = math.MinInt16
)

func newGrid() *cells {
	g := &cells{}
	perDoubling := 1 << NativeSchema
	natives := map[int64]int16{}
	for i := lowest * perDoubling; i <= highest*perDoubling; i++ {
		upper := int64(math.Floor(math.Exp2(float64(i)/float64(perDoubling)) * 1e9))
		natives[upper] = int16(i) //nolint:gosec // at most 48
		g.upper = append(g.upper, upper)
	}
	for _, m := range Metrics() {
		for _, b := range m.Bounds {
			g.upper = append(g.upper, int64(math.Round(b*1e9)))
		}
	}
	slices.Sort(g.upper)
	g.upper = slices.Compact(g.upper)
	g.native = make([]int16, len(g.upper)+1)
	next := int16(highest*perDoubling + 1)
	g.native[len(g.upper)] = next
	for i, upper := range slices.Backward(g.upper) {
		if n, ok := natives[upper]; ok {
			next = n
		}
		if g.native[i] = next; upper <= g.zero() {
			g.native[i] = zeroBucket
		}
	}
	for i := range g.first {
		high := i >> firstBits
		least := int64(1) << high
		if high >= firstBits {
			least = int64(1<<firstBits|i&(1<<firstBits-1)) << (high - firstBits)
		}
		cell, _ := slices.BinarySearch(g.upper, least)
		g.first[i] = int16(cell) //nolint:gosec // some hundreds
	}
	return g
}

// zero is NativeZero in nanoseconds.
func (*cells) zero() int64 { return int64(math.Floor(NativeZero * 1e9)) }

// cell returns the cell of a duration.
func (g *cells) cell(d time.Duration) int {
	n := uint64(max(d, 1)) //nolint:gosec // it is positive
	high := bits.Len64(n) - 1
	i := int(g.first[high<<firstBits|int(n<<(63-high)>>(63-firstBits))&(1<<firstBits-1)])
	for i < len(g.upper) && uint64(g.upper[i]) < n { //nolint:gosec // they are positive
		i++
	}
	return i
}

// counts is a number of decisions and a histogram of those that were measured. It has one stripe for each processor, up to
// four, so that processors seldom write to the same line of memory. All of it is allocated at once, 2.2 KB a stripe.
type counts struct {
	words  []atomic.Uint64
	series *Series // the histogram that has these durations; those of several outcomes are in one
}

// The words of a stripe.
const (
	wordUnmeasured = iota // how many were not measured
	wordSum               // of the durations, in nanoseconds
	wordCells             // from here on
)

func newCounts() *counts { return &counts{words: make([]atomic.Uint64, stripes*stripeLen)} }

// count counts one that took d, or, if d is 0, one that was not measured.
func (c *counts) count(d time.Duration) {
	stripe := c.words[stripe()*stripeLen:][:stripeLen]
	if d <= 0 {
		stripe[wordUnmeasured].Add(1)
		return
	}
	stripe[wordSum].Add(uint64(d))
	stripe[wordCells+grid.cell(d)].Add(1)
}

// total returns how many were counted.
func (c *counts) total() (n uint64) {
	if c == nil {
		return 0
	}
	for s := range stripes {
		stripe := c.words[s*stripeLen:][:stripeLen]
		n += stripe[wordUnmeasured].Load()
		for i := range grid.native {
			n += stripe[wordCells+i].Load()
		}
	}
	return n
}

// addTo adds the durations that were measured to a histogram, and returns how many were counted. The Sum may be of some
// more or less than the Count.
func (c *counts) addTo(h *Histogram) (n uint64) {
	for s := range stripes {
		stripe := c.words[s*stripeLen:][:stripeLen]
		n += stripe[wordUnmeasured].Load()
		sum := stripe[wordSum].Load()
		if sum == 0 {
			continue
		}
		if h.cells == nil {
			h.cells = make([]uint64, len(grid.native))
		}
		h.Sum += time.Duration(sum) //nolint:gosec // it would take centuries
		for i := range h.cells {
			in := stripe[wordCells+i].Load()
			h.cells[i] += in
			h.Count += in
			n += in
		}
	}
	return n
}
