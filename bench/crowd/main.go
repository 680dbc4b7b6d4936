// Crowd measures what a crowd of callers of one policy costs a lone caller of another one, who shares nothing with them
// but the process and the server:
//
//	go run -C bench ./crowd
//
// The lone caller asks Redis, near and 10 ms away, while the crowd asks the same store, and again while the crowd asks
// an in-process store, which costs the lone one nothing but the processor. The table says how often the lone one failed
// and how long it waited, in both cases, and what became of the crowd. The way to a Redis further away is a process of
// its own, which the crowd does not hold up. It needs redis-server on the PATH.
//
//	-callers    how many there are in the crowd, one or more numbers
//	-distances  how far away Redis is
//	-pause      how long each of the crowd waits before it asks again; 0 leaves the lone one hardly a processor
//	-for        how long each measurement takes
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/hosttest"
	"github.com/weir-go/weir/internal/redistest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) //nolint:forbidigo // a main is where a context begins
	defer stop()
	isWay, err := isWay(ctx)
	if !isWay {
		err = command(ctx, os.Args[1:], os.Stdout)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "crowd:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("crowd", flag.ContinueOnError)
	callers, distances := []int{3000, 10_000}, []time.Duration{0, 10 * time.Millisecond}
	flags.Func("callers", "how many callers the crowd has, separated by commas (3000,10000)", each(&callers, strconv.Atoi))
	flags.Func("distances", "how far away Redis is, separated by commas (0,10ms)", each(&distances, time.ParseDuration))
	var l load
	flags.DurationVar(&l.pause, "pause", 0, "how long each of the crowd waits before it asks again")
	flags.DurationVar(&l.duration, "for", 5*time.Second, "how long each measurement takes")
	profile := flags.String("cpuprofile", "", "a file to write a profile of this process to")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return hosttest.Profile(*profile, func() error {
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(table, "callers\tdistance\tcrowd asks\tlone: asked\tfailed\tp50\tp99\tcrowd: served/s\tfailed/s\t")
		for _, l.callers = range callers {
			for _, distance := range distances {
				err := hosttest.Run(ctx, "crowd", func(tb testing.TB) { compare(tb, table, l, distance) })
				if err != nil {
					return err
				}
			}
		}
		return table.Flush()
	})
}

// each parses numbers between commas.
func each[T any](into *[]T, parse func(string) (T, error)) func(string) error {
	return func(text string) error {
		*into = nil
		for one := range strings.SplitSeq(text, ",") {
			v, err := parse(one)
			if err != nil {
				return err
			}
			*into = append(*into, v)
		}
		return nil
	}
}

// load is a crowd of callers and a lone one.
type load struct {
	callers         int
	pause, duration time.Duration
}

// compare prints what the lone caller gets beside a crowd that asks the same store, and beside one that asks another.
func compare(tb testing.TB, out io.Writer, l load, distance time.Duration) {
	tb.Helper()
	addr := redistest.Single(tb).Addr()
	if distance > 0 {
		addr = way(tb, addr, distance)
	}
	o := redisstore.ClientOptions(addr)
	rdb := redis.NewUniversalClient(o)
	tb.Cleanup(func() { _ = rdb.Close() })
	store, err := redisstore.New(rdb, redisstore.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	memory, err := core.NewMemory(core.MemoryOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		store core.Store
	}{{"in the process", memory}, {"Redis", store}} {
		lone, crowd := l.run(tb.Context(), store, c.store)
		slices.Sort(lone.took)
		seconds := l.duration.Seconds()
		fmt.Fprintf(out, "%d\t%v\t%s\t%d\t%s\t%v\t%v\t%.0f\t%s\t\n", l.callers, distance, c.name,
			len(lone.took), lone.classes(1), lone.quantile(0.5), lone.quantile(0.99), float64(crowd.served)/seconds, crowd.classes(seconds))
	}
}

// tally counts the outcomes of decisions.
type tally struct {
	served int64
	failed map[string]int64 // by class
	took   []time.Duration
}

func (t *tally) add(err error) {
	if err == nil {
		t.served++
		return
	}
	class := "unknown"
	if failed, ok := errors.AsType[*core.StoreError](err); ok {
		class = failed.Class
	}
	if t.failed == nil {
		t.failed = map[string]int64{}
	}
	t.failed[class]++
}

// classes lists the failures in a given time by their class.
func (t *tally) classes(seconds float64) string {
	var all []string
	for _, class := range slices.Sorted(maps.Keys(t.failed)) {
		all = append(all, fmt.Sprintf("%s %.0f", class, float64(t.failed[class])/seconds))
	}
	if all == nil {
		return "0"
	}
	return strings.Join(all, ", ")
}

// quantile returns a quantile of the times, which are sorted.
func (t *tally) quantile(q float64) time.Duration {
	if len(t.took) == 0 {
		return 0
	}
	return t.took[min(len(t.took)-1, int(q*float64(len(t.took))))].Round(10 * time.Microsecond)
}

// run lets the crowd ask one store and the lone caller another one.
func (l load) run(ctx context.Context, lones, crowds core.Store) (lone, crowd tally) {
	var over atomic.Bool
	var wg sync.WaitGroup
	var mu sync.Mutex
	flood, other := core.MustParse("crowd: 1000000000/1s; fail closed"), core.MustParse("lone: 1000000/1s; fail closed")
	ask := func(s core.Store, p core.Policy, key string) error {
		_, err := s.Take(ctx, core.Take{Policy: p, Key: key, Cost: 1})
		return err
	}
	_ = ask(crowds, flood, "first") // for the scripts and connections
	_ = ask(lones, other, "first")
	for i := range l.callers {
		wg.Go(func() {
			var t tally
			for key := fmt.Sprint("ip=10.0.0.", i); !over.Load() && ctx.Err() == nil; {
				if t.add(ask(crowds, flood, key)); l.pause > 0 {
					<-time.After(l.pause)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			crowd.served += t.served
			for class, n := range t.failed {
				if crowd.failed == nil {
					crowd.failed = map[string]int64{}
				}
				crowd.failed[class] += n
			}
		})
	}
	<-time.After(l.duration / 10) // until all are about
	for end := time.Now().Add(l.duration); time.Now().Before(end) && ctx.Err() == nil; <-time.After(10 * time.Millisecond) {
		start := time.Now()
		lone.add(ask(lones, other, "k"))
		lone.took = append(lone.took, time.Since(start))
	}
	over.Store(true)
	wg.Wait()
	return lone, crowd
}
