package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir/internal/redistest"
)

var (
	still = flag.Duration("still", 10*time.Second, "slow: for how long Redis stands still")
	pause = flag.Duration("pause", 5*time.Millisecond, "slow: the time between the requests of a caller; without it they wait for processors, not for Redis")
)

// slow has Redis stand still under 50 callers of each service, and prints when their answers come. A caller stops
// waiting after 12 seconds.
func slow(tb testing.TB) {
	redis := redistest.Single(tb)
	files := map[string]string{"speed.yaml": config}
	for _, s := range []*service{
		start(tb, "weir's", weirs(tb), redis, files),
		start(tb, "theirs", theirs(tb), redis, files),
	} {
		fmt.Printf("%s\n", s.name)
		(&waits{s: s, during: 2 * time.Second}).print("with Redis")
		redis.Pause(tb)
		(&waits{s: s, during: *still}).print("with Redis stopped")
		redis.Resume(tb)
		time.Sleep(2 * time.Second) //nolint:forbidigo // the time in which a service may find Redis again
		(&waits{s: s, during: 2 * time.Second}).print("2 s after it went on")
	}
}

// waits has the answers that 50 callers of a service had, and the time they took.
type waits struct {
	s      *service
	during time.Duration

	mu    sync.Mutex
	took  []time.Duration
	codes map[string]int
}

func (w *waits) print(when string) {
	w.codes = map[string]int{}
	var all sync.WaitGroup
	began := time.Now()
	for range 50 {
		all.Go(func() {
			for time.Since(began) < w.during {
				w.ask()
				time.Sleep(*pause) //nolint:forbidigo // real load
			}
		})
	}
	all.Wait()
	slices.Sort(w.took)
	within := 0
	for _, d := range w.took {
		if d <= 18*time.Millisecond {
			within++
		}
	}
	p := played{took: w.took}
	fmt.Printf("  %-22s %8.0f answers/s, p50 %.2f ms, p99 %.2f ms, the last %.2f ms, %.3f%% within 18 ms:", when,
		float64(len(w.took))/time.Since(began).Seconds(), p.quantile(0.5), p.quantile(0.99), p.quantile(1), 100*float64(within)/float64(len(w.took)))
	for _, code := range slices.Sorted(maps.Keys(w.codes)) {
		fmt.Printf(" %d %s", w.codes[code], code)
	}
	fmt.Println()
}

func (w *waits) ask() {
	ctx, cancel := context.WithTimeout(context.Background(), 12*time.Second) //nolint:forbidigo // a caller of its own
	defer cancel()
	began := time.Now()
	res, err := w.s.client.ShouldRateLimit(ctx, &rlspb.RateLimitRequest{Domain: "speed", Descriptors: one()})
	took := time.Since(began)
	code := res.GetOverallCode().String()
	if err != nil {
		code = status.Code(err).String()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.took = append(w.took, took)
	w.codes[code]++
}
