package main

import (
	"context"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// idle is after which time a key may be forgotten, where nothing is to be forgotten.
	idle    = 24 * time.Hour
	million = 1_000_000
)

func processSections() []section {
	var all []section
	for i, panel := range []string{"one core", "two cores"} {
		cores := i + 1
		note := "In the process, one goroutine for each core. Time between two decisions of the whole process."
		hot := section{
			name: "process-hot-" + strconv.Itoa(cores), chart: "process-hot", panel: panel, unit: nanoseconds,
			title: "In the process, one hot key", note: note, baseline: "sethvargo/go-limiter",
		}
		cold := section{
			name: "process-million-" + strconv.Itoa(cores), chart: "process-million", panel: panel, unit: nanoseconds,
			title: "In the process, a million keys", note: note, baseline: "sethvargo/go-limiter", isolated: true,
		}
		for _, l := range memoryLimiters {
			hot.rows = append(hot.rows, l.row(cores, plenty(), 1))
			cold.rows = append(cold.rows, l.row(cores, lasting(), million))
		}
		all = append(all, hot, cold)
	}
	heap := section{
		name: "process-heap", chart: "process-heap", unit: bytesPerKey, rounds: 2, isolated: true, baseline: "sethvargo/go-limiter",
		title: "In the process, memory per key",
		note:  "A million keys, their text included, and then what of that is left some seconds after all have expired.",
	}
	for _, l := range memoryLimiters {
		heap.rows = append(heap.rows, l.heap())
	}
	return append(all, heap)
}

// row is the limiter on that many cores, with that many keys.
func (m memoryLimiter) row(cores int, limit limit, keys int) row {
	return row{name: m.name, kind: m.kind, open: func(tb testing.TB, s scale) slice {
		checkExact(tb, m.open(tb, few(), idle).work(m.name))
		n := s.keys(keys)
		d := m.open(tb, limit, idle)
		for i := range n {
			_, err := d(tb.Context(), address(i))
			require.NoError(tb, err)
		}
		asked := randomKeys(n)
		l := load{goroutines: cores, batch: 64, work: func(g int) work {
			at := g * len(asked) / cores // no two walk together
			return func(ctx context.Context, _ int) (bool, error) {
				if at++; at >= len(asked) {
					at = 0
				}
				v, err := d(ctx, asked[at])
				return v.admitted, err
			}
		}}
		return func(ctx context.Context, d time.Duration) (sample, error) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
			return l.run(ctx, d)
		}
	}}
}

// randomKeys picks 4n times one of n keys, uniformly. They lie in memory in the order of their use: the key of a
// request was made a moment ago, so that it is in the cache, and only what it leads to is not.
func randomKeys(n int) []string {
	random := rand.New(rand.NewPCG(1, 2))
	var text strings.Builder
	ends := make([]int, 4*n)
	for i := range ends {
		text.WriteString(address(random.IntN(n)))
		ends[i] = text.Len()
	}
	keys, start := make([]string, len(ends)), 0
	for i, end := range ends {
		keys[i], start = text.String()[start:end], end
	}
	return keys
}

// heap measures the bytes of a limiter's keys in the first round, and the bytes left after they have expired in the
// second.
func (m memoryLimiter) heap() row {
	return row{name: m.name, kind: m.kind, open: func(tb testing.TB, s scale) slice {
		const period = 12 * time.Second // a million keys take a second, or ten on a busy machine
		n := s.keys(million)
		before := heap()
		decide := m.open(tb, limit{1, period}, period)
		per := func(bytes int64) float64 { return float64(bytes-before) / float64(n) }
		var filled sample
		var expired <-chan time.Time
		return func(ctx context.Context, _ time.Duration) (sample, error) {
			if filled.Decisions == 0 {
				start := time.Now()
				for i := range n {
					if _, err := decide(ctx, address(i)); err != nil { // a text of its own, as a request has
						return sample{}, err
					}
				}
				filled = sample{Decisions: int64(n), Elapsed: time.Since(start), Bytes: per(heap())}
				expired = time.After(2*period + period/2) // also for what is looked through once in a period
				return filled, nil
			}
			if s.quick {
				return filled, nil
			}
			select {
			case <-expired:
			case <-ctx.Done():
				return sample{}, ctx.Err()
			}
			// What sweeps when it is used is used, by few keys.
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for end := time.Now().Add(2 * time.Second); time.Now().Before(end); <-tick.C {
				for i := range 100 {
					if _, err := decide(ctx, address(i)); err != nil {
						return sample{}, err
					}
				}
			}
			got := filled
			got.Left = per(heap())
			_, err := decide(ctx, address(0)) // it is still in use
			return got, err
		}
	}}
}

// heap returns the bytes in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools have let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
