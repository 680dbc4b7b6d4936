// Command inprocess measures a decision in the process beside what else there is in Go: one key that everybody asks
// for and a million of them, on one core and on two, what a key takes, and what is left of it after expiry.
//
//	cd bench && go run ./inprocess
//
// All contenders take turns, round by round, so that a machine whose speed wanders slows all of them. Medians are
// compared, and the least of all rounds stands beside them. The processor time is what to read where others use the
// machine at the same time: it leaves out what they take, but for what they drive out of the caches.
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	rounds := flag.Int("rounds", 9, "how many rounds to measure")
	span := flag.Duration("for", 200*time.Millisecond, "how long each contender is measured in a round")
	many := flag.Int("keys", 1_000_000, "how many keys are many")
	only := flag.String("only", "", "the contenders whose names contain this, in place of all")
	heap := flag.Bool("heap", true, "measure memory, too, which takes a minute")
	flag.Parse()

	var chosen []contender
	for _, c := range contenders {
		if strings.Contains(c.name, *only) {
			chosen = append(chosen, c)
		}
	}
	if len(chosen) == 0 {
		fmt.Fprintf(os.Stderr, "inprocess: no contender is called %q\n", *only)
		os.Exit(2)
	}
	measureSpeed(chosen, *many, *rounds, *span)
	if *heap {
		measureHeap(chosen, *many)
	}
}

// workload is keys in the order in which they are asked for.
type workload struct {
	name  string
	limit limit
	keys  []string
}

// draw draws n keys of a number of them, uniformly. They lie in memory in the order of their use: a key that is asked
// for was made a moment ago, so that it is in the cache, and only what it leads to is not.
func draw(n, of int) []string {
	random := rand.New(rand.NewPCG(1, 2))
	var text strings.Builder
	ends := make([]int, n)
	for i := range ends {
		text.WriteString(name(random.IntN(of)))
		ends[i] = text.Len()
	}
	keys, start := make([]string, n), 0
	for i, end := range ends {
		keys[i], start = text.String()[start:end], end
	}
	return keys
}

// name is the key of client i: an address.
func name(i int) string { return fmt.Sprintf("ip:10.%d.%d.%d", i>>16&255, i>>8&255, i&255) }

func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = name(i)
	}
	return all
}

// measureSpeed prints how long a decision takes.
func measureSpeed(chosen []contender, many, rounds int, span time.Duration) {
	loads := []workload{
		{"hot key", unlimited, []string{name(0)}},
		{fmt.Sprintf("%d keys", many), thousandPerHour, draw(4*many, many)},
	}
	type cell struct{ load, contender, cores int }
	passed, used := map[cell][]float64{}, map[cell][]float64{}
	takers := make([][]taker, len(loads))
	for l, load := range loads {
		for _, c := range chosen {
			take := c.build(load.limit, many)
			for _, key := range names(many)[:min(many, len(load.keys))] {
				if !take(key) {
					panic(c.name + " refuses what its limit admits")
				}
			}
			takers[l] = append(takers[l], take)
		}
	}
	runtime.GC()
	for range rounds {
		for l, load := range loads {
			for _, cores := range []int{1, 2} {
				for c := range chosen {
					at := cell{l, c, cores}
					time, processor := measure(takers[l][c], load.keys, cores, span)
					passed[at], used[at] = append(passed[at], time), append(used[at], processor)
				}
			}
		}
	}
	for what, took := range map[string]map[cell][]float64{"ns from one decision to the next": passed, "processor ns per decision": used} {
		w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintf(w, "%s, median (least) of %d rounds", what, rounds)
		for _, load := range loads {
			fmt.Fprintf(w, "\t%s, 1 core\t%[1]s, 2 cores", load.name)
		}
		fmt.Fprintln(w)
		for c := range chosen {
			fmt.Fprint(w, chosen[c].name)
			for l := range loads {
				for _, cores := range []int{1, 2} {
					all := took[cell{l, c, cores}]
					slices.Sort(all)
					fmt.Fprintf(w, "\t%.0f (%.0f)", all[len(all)/2], all[0])
				}
			}
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w)
		_ = w.Flush()
	}
}

// measure returns how many nanoseconds pass between two decisions, of all cores together, and how many of the
// processor's one takes.
func measure(take taker, keys []string, cores int, span time.Duration) (passed, used float64) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
	var decided atomic.Int64
	var over atomic.Bool
	var wg sync.WaitGroup
	start, startUsed := time.Now(), processorTime()
	for core := range cores {
		wg.Go(func() {
			n, at := int64(0), core*len(keys)/cores
			for !over.Load() {
				for range 1000 {
					take(keys[at])
					if at++; at == len(keys) {
						at = 0
					}
				}
				n += 1000
			}
			decided.Add(n)
		})
	}
	time.AfterFunc(span, func() { over.Store(true) })
	wg.Wait()
	n := float64(decided.Load())
	return float64(time.Since(start)) / n, float64(processorTime()-startUsed) / n
}

// processorTime is what this process has used up to now.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// measureHeap prints what a key takes, and what is left of it when it has expired, for those that forget anything.
func measureHeap(chosen []contender, many int) {
	keys := names(many)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "heap bytes per key of %d\theld\tafter expiry\n", many)
	for _, c := range chosen {
		before := heapBytes()
		take := c.build(thousandPerHour, many)
		for _, key := range keys {
			take(key)
		}
		perKey := func() float64 { return float64(heapBytes()-before) / float64(many) }
		held := perKey()
		if c.forgets == 0 {
			fmt.Fprintf(w, "%s\t%.1f\tnever\n", c.name, held)
		} else {
			<-time.After(c.forgets)
			left := perKey()
			fmt.Fprintf(w, "%s\t%.1f\t%.1f (%.0f %%)\n", c.name, held, left, 100*left/held)
		}
		runtime.KeepAlive(take)
	}
	_ = w.Flush()
	runtime.KeepAlive(keys)
}

func heapBytes() int64 {
	runtime.GC()
	runtime.GC() // for what the first one has found
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
