package main

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// patience is the longest wait for an event that must come.
const patience = 30 * time.Second

// work makes one decision. A goroutine calls it again and again, with i counting up.
type work func(ctx context.Context, i int) (admitted bool, err error)

// load is a closed loop: each goroutine begins its next decision when it has the answer to the last.
type load struct {
	goroutines int
	// work returns the work of goroutine g.
	work func(g int) work
	// batch is the number of decisions between two looks at the clock, for work that takes less than a look. With 1 a
	// decision is timed by itself: each of a lone goroutine, and each eighth of many.
	batch int
	// server returns the processor time of what else takes part.
	server func() (time.Duration, error)
}

// The phases of a slice. The first, an eighth of it, lets goroutines and connections get going and is not counted.
const (
	warming int32 = iota
	measuring
	over
)

// tally holds the counts of one goroutine.
type tally struct {
	decisions, admitted, failed int64
	latencies                   []time.Duration
}

func (l load) run(ctx context.Context, d time.Duration) (sample, error) {
	var phase atomic.Int32
	var wg sync.WaitGroup
	first, once := make(chan struct{}), sync.Once{} // the first decision that counts
	tallies := make([]tally, l.goroutines)
	for g := range l.goroutines {
		f := l.work(g)
		wg.Go(func() {
			t := tally{latencies: make([]time.Duration, 0, 1024)} // where the goroutine has it at hand
			defer func() { tallies[g] = t }()
			for i := 0; ; {
				now := phase.Load()
				if now == over {
					return
				}
				timed := l.batch > 1 || l.goroutines == 1 || i%8 == 0
				var start time.Time
				if timed {
					start = time.Now()
				}
				admitted, failed := int64(0), int64(0)
				for range l.batch {
					ok, err := f(ctx, i)
					i++
					switch {
					case err != nil:
						failed++
					case ok:
						admitted++
					}
				}
				if now == measuring {
					if timed {
						t.latencies = append(t.latencies, time.Since(start)/time.Duration(l.batch))
					}
					if t.decisions == 0 {
						once.Do(func() { close(first) })
					}
					t.decisions += int64(l.batch)
					t.admitted += admitted
					t.failed += failed
				}
			}
		})
	}
	begun := make(chan struct{})
	close(begun)
	before, err := l.after(ctx, d/8, begun)
	var atEnd usage
	if err == nil {
		phase.Store(measuring)
		atEnd, err = l.after(ctx, d, first)
	}
	phase.Store(over)
	wg.Wait()
	if err != nil {
		return sample{}, err
	}
	s := sample{
		Elapsed: atEnd.at.Sub(before.at), Allocs: atEnd.allocs - before.allocs,
		Client: atEnd.client - before.client, Server: atEnd.server - before.server,
	}
	var all []time.Duration
	for _, t := range tallies {
		s.Decisions += t.decisions
		s.Admitted += t.admitted
		s.Failed += t.failed
		all = append(all, t.latencies...)
	}
	slices.Sort(all)
	s.P50, s.P99 = quantile(all, 0.5), quantile(all, 0.99)
	return s, ctx.Err()
}

// usage holds the resources used until an instant.
type usage struct {
	at             time.Time
	allocs         uint64
	client, server time.Duration
}

// after waits for d, and for an event, and looks what has been used until then.
func (l load) after(ctx context.Context, d time.Duration, event <-chan struct{}) (u usage, err error) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
		return u, ctx.Err()
	}
	select {
	case <-event:
	case <-time.After(patience):
		return u, fmt.Errorf("no decision within %v", patience)
	case <-ctx.Done():
		return u, ctx.Err()
	}
	if l.server != nil {
		if u.server, err = l.server(); err != nil {
			return u, err
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u.allocs, u.client, u.at = m.Mallocs, processorTime(), time.Now()
	return u, nil
}

// quantile is the one of sorted durations that a share of q does not exceed, or 0 if there is none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(int(math.Ceil(q*float64(len(sorted)))), 1)-1]
}

// processorTime returns the processor time of this process.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
