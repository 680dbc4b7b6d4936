package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	extpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weir-go/weir/internal/redistest"
)

var (
	connections = flag.Int("connections", 2, "speed: those to each service; Envoy has one for each of its workers, and a worker for each processor")
	turns       = flag.Int("turns", 15, "speed: the turns of each")
	turn        = flag.Duration("turn", time.Second, "speed: the time of a turn")
	only        = flag.String("only", "", "speed: the one load to play")
)

// config has a limit that nobody reaches for each client and each user, and a key that may do nothing for the rest of a
// year after the first request.
const config = `
domain: speed
descriptors:
  - {key: client, rate_limit: {unit: hour, requests_per_unit: 1000000000}}
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 1000000000}}
  - {key: refused, rate_limit: {unit: year, requests_per_unit: 1}}
`

// A load is a number of callers that ask the same kind of request again and again.
type load struct {
	name        string
	callers     int
	descriptors func() []*extpb.RateLimitDescriptor
	code        rlspb.RateLimitResponse_Code
}

func anybody(key string) *extpb.RateLimitDescriptor {
	return entries(key, strconv.Itoa(rand.IntN(10_000))) //nolint:gosec // load
}

func one() []*extpb.RateLimitDescriptor { return []*extpb.RateLimitDescriptor{anybody("client")} }

func two() []*extpb.RateLimitDescriptor {
	return []*extpb.RateLimitDescriptor{anybody("client"), anybody("user")}
}

func refused() []*extpb.RateLimitDescriptor {
	return []*extpb.RateLimitDescriptor{entries("refused", "one")}
}

var loads = []load{
	{"50 callers, one descriptor", 50, one, rlspb.RateLimitResponse_OK},
	{"50 callers, two descriptors", 50, two, rlspb.RateLimitResponse_OK},
	{"50 callers, a refused key", 50, refused, rlspb.RateLimitResponse_OVER_LIMIT},
	{"a lone caller, one descriptor", 1, one, rlspb.RateLimitResponse_OK},
	{"a lone caller, two descriptors", 1, two, rlspb.RateLimitResponse_OK},
}

// A figure is one of those that are compared.
type figure struct {
	name, format string
	of           func(played) float64
}

var figures = []figure{
	{"answers/s", "%8.0f%8.0f%7.2f", func(p played) float64 { return float64(len(p.took)) / p.over.Seconds() }},
	{"p50, ms", "%8.2f%8.2f%7.2f", func(p played) float64 { return p.quantile(0.5) }},
	{"p99, ms", "%8.2f%8.2f%7.2f", func(p played) float64 { return p.quantile(0.99) }},
	{"others, %", "%8.2f%8.2f%7.2f", func(p played) float64 { return 100 * float64(p.other) / float64(len(p.took)) }},
	{"processor, us", "%8.1f%8.1f%7.2f", func(p played) float64 { return micros(p.service) / float64(len(p.took)) }},
	{"and of Redis, us", "%8.1f%8.1f%7.2f", func(p played) float64 { return micros(p.redis) / float64(len(p.took)) }},
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// speed plays each load for both services in turns, and compares the turns that are next to each other: what else the
// machine does holds both back.
func speed(tb testing.TB) {
	redis := redistest.Single(tb)
	files := map[string]string{"speed.yaml": config}
	both := []*service{
		start(tb, "theirs", theirs(tb), redis, files, "CACHE_KEY_PREFIX=theirs"),
		start(tb, "weir's", weirs(tb), redis, files, "CACHE_KEY_PREFIX=weirs"),
	}
	fmt.Printf("%-31s", "theirs, weir's, ratio of")
	for _, f := range figures {
		fmt.Printf("%23s", f.name)
	}
	fmt.Println()
	for _, l := range loads {
		if *only != "" && *only != l.name {
			continue
		}
		for _, s := range both { // what a refused key may do, and a turn to get warm
			if _, err := s.client.ShouldRateLimit(tb.Context(), l.request()); err != nil {
				tb.Fatal(err)
			}
			if _, err := l.play(tb.Context(), s); err != nil {
				tb.Fatal(err)
			}
		}
		got := [2][]played{make([]played, *turns), make([]played, *turns)}
		for i := range 2 * *turns {
			which := (i + i/2) % 2 // each begins as often as the other
			p, err := l.play(tb.Context(), both[which])
			if err != nil {
				tb.Fatal(err)
			}
			got[which][i/2] = p
		}
		fmt.Printf("%-31s", l.name)
		for _, f := range figures {
			var a, b, ratios []float64
			for i := range *turns {
				a, b = append(a, f.of(got[0][i])), append(b, f.of(got[1][i]))
				ratios = append(ratios, b[i]/a[i])
			}
			fmt.Printf(f.format, median(a), median(b), median(ratios))
		}
		fmt.Println()
	}
}

func median(of []float64) float64 {
	of = slices.Sorted(slices.Values(of))
	return of[len(of)/2]
}

// played is the result of a load.
type played struct {
	took           []time.Duration // sorted
	over           time.Duration
	other          int           // answers that were not expected
	service, redis time.Duration // on all processors
}

// quantile returns milliseconds.
func (p played) quantile(q float64) float64 {
	return float64(p.took[int(q*float64(len(p.took)-1))]) / float64(time.Millisecond)
}

func (l load) request() *rlspb.RateLimitRequest {
	return &rlspb.RateLimitRequest{Domain: "speed", Descriptors: l.descriptors()}
}

// play has the callers of a load ask the service for a turn.
func (l load) play(ctx context.Context, s *service) (played, error) {
	var all sync.WaitGroup
	n := min(*connections, l.callers)
	took, other, errs := make([][]time.Duration, n), make([]int, n), make([]error, n)
	before, redis := processor(s.pid), processor(s.redis)
	began := time.Now()
	for i := range n {
		all.Go(func() {
			c, hangUp, err := dial(ctx, s.addr)
			if err != nil {
				errs[i] = err
				return
			}
			defer hangUp()
			took[i], errs[i] = c.play(l.callers/n, *turn, l.request, l.code)
			other[i] = c.other
		})
	}
	all.Wait()
	p := played{slices.Concat(took...), time.Since(began), 0, processor(s.pid) - before, processor(s.redis) - redis}
	slices.Sort(p.took)
	for _, n := range other {
		p.other += n
	}
	return p, errors.Join(errs...)
}
