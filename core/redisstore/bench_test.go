package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/race"
	"github.com/weir-go/weir/internal/redistest"
)

// bare is the baseline.
var bare = redis.NewScript(redistest.GCRAByHand)

// BenchmarkDecision compares one decision by one goroutine with the baseline. The two take turns within one run, so
// that a machine whose speed wanders slows both. What counts is the ratio, of the medians and of the tenth percentiles.
// ns/op is that of both together.
func BenchmarkDecision(b *testing.B) {
	server := redistest.Single(b)
	ctx := context.Background()
	rdb := redis.NewUniversalClient(unhurried(redisstore.ClientOptions(server.Addr())))
	b.Cleanup(func() { _ = rdb.Close() })
	require.NoError(b, bare.Load(ctx, rdb).Err())
	store, err := redisstore.New(rdb, redisstore.Options{Deadline: patient, DenyCache: -1})
	require.NoError(b, err)
	for _, c := range []struct {
		policy          string
		emission, burst int64 // of the first limit, in microseconds
	}{
		{"one-limit: 1000000/1s", 1, 1_000_000},
		{"two-limits: 1000000/1s, 2000000/1m", 1, 1_000_000},
		{"refused: 1/1h", 3_600_000_000, 3_600_000_000},
	} {
		take := core.Take{Policy: core.MustParse(c.policy), Key: "ip=203.0.113.7", Cost: 1}
		name := "bare:1:" + take.Policy.Name() + ":" + take.Policy.Spec().Shape() + ":ip=203.0.113.7" // as long as ours
		b.Run(take.Policy.Name(), func(b *testing.B) {
			var took [2][]time.Duration // of the baseline, of a decision
			call := [2]func() error{
				func() error {
					return bare.EvalSha(ctx, rdb, []string{name}, c.emission, c.burst, 1).Err()
				},
				func() error {
					_, err := store.Take(ctx, take)
					return err
				},
			}
			for i := 0; b.Loop(); i++ {
				for _, which := range [2]int{i % 2, 1 - i%2} { // which comes first must not matter
					start := time.Now()
					if err := call[which](); err != nil {
						b.Fatal(err)
					}
					took[which] = append(took[which], time.Since(start))
				}
			}
			slices.Sort(took[0])
			slices.Sort(took[1])
			for name, at := range map[string]int{"p50": b.N / 2, "p10": b.N / 10} {
				b.ReportMetric(float64(took[1][at])/float64(took[0][at]), "x-bare-"+name)
				b.ReportMetric(float64(took[1][at].Nanoseconds()), "decision-ns-"+name)
			}
		})
	}
}

// A decision costs at most nine allocations, go-redis's own included.
func TestAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates too")
	}
	rdb := redis.NewUniversalClient(unhurried(redisstore.ClientOptions(redistest.Single(t).Addr())))
	t.Cleanup(func() { _ = rdb.Close() })
	store := newStore(t, rdb, redisstore.Options{Deadline: patient})
	take := core.Take{Policy: core.MustParse("allocations: 1000000/1s"), Key: "ip=203.0.113.7", Cost: 1}
	ctx := t.Context()
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
		_, err := store.Take(ctx, take)
		require.NoError(t, err)
	}), 9.0)
}

// BenchmarkAllowEach compares two policies that are asked at once with the same asked one after the other: by one caller
// and by fifty, near the server and a millisecond away from it. They take turns within one run. A ratio below 1 is that
// of the time it takes at once. ns/op is that of both together.
func BenchmarkAllowEach(b *testing.B) {
	server := redistest.Single(b)
	proxy := redistest.NewProxy(b, server.Addr())
	proxy.Latency(time.Millisecond)
	ctx := context.Background()
	for _, place := range []struct{ name, addr string }{{"near", server.Addr()}, {"1ms", proxy.Addr()}} {
		rdb := redis.NewUniversalClient(unhurried(redisstore.ClientOptions(place.addr)))
		b.Cleanup(func() { _ = rdb.Close() })
		store, err := redisstore.New(rdb, redisstore.Options{Deadline: patient})
		require.NoError(b, err)
		ls := limiters(b, store, "user: 1000000/1s", "tenant: 2000000/1s")
		ways := [2]func(all []enforce.Each) error{
			func(all []enforce.Each) error {
				_, err := enforce.AllowEach(ctx, all)
				return err
			},
			func(all []enforce.Each) error {
				for _, x := range all {
					if _, err := x.Limiter.Allow(ctx, x.Key); err != nil {
						return err
					}
				}
				return nil
			},
		}
		for _, callers := range []int{1, 50} {
			b.Run(fmt.Sprintf("%s/%d", place.name, callers), func(b *testing.B) {
				const calls = 20 // of each caller, before it is the turn of the other way
				var took [2][]time.Duration
				var spent [2]time.Duration
				for i := 0; b.Loop(); i++ {
					for _, which := range [2]int{i % 2, 1 - i%2} { // which comes first must not matter
						times := make([]time.Duration, callers*calls)
						var all sync.WaitGroup
						start := time.Now()
						for c := range callers {
							all.Go(func() {
								each := eachOf(ls, fmt.Sprint("ip=203.0.113.", c), fmt.Sprint("acme", c))
								for k := range calls {
									start := time.Now()
									if err := ways[which](each); err != nil {
										b.Error(err)
									}
									times[c*calls+k] = time.Since(start)
								}
							})
						}
						all.Wait()
						spent[which] += time.Since(start)
						took[which] = append(took[which], times...)
					}
				}
				for which, name := range [2]string{"at-once", "in-turn"} {
					slices.Sort(took[which])
					n := len(took[which])
					b.ReportMetric(float64(took[which][n/2].Microseconds()), name+"-us-p50")
					b.ReportMetric(float64(took[which][n*99/100].Microseconds()), name+"-us-p99")
					b.ReportMetric(float64(n)/spent[which].Seconds(), name+"/s")
				}
				b.ReportMetric(float64(took[0][len(took[0])/2])/float64(took[1][len(took[1])/2]), "x-in-turn-p50")
				b.ReportMetric(spent[0].Seconds()/spent[1].Seconds(), "x-in-turn-time")
			})
		}
	}
}

// BenchmarkAllowEachOfOne compares one policy asked for by AllowEach with the same asked for by AllowN, near the server.
func BenchmarkAllowEachOfOne(b *testing.B) {
	rdb := redis.NewUniversalClient(unhurried(redisstore.ClientOptions(redistest.Single(b).Addr())))
	b.Cleanup(func() { _ = rdb.Close() })
	store, err := redisstore.New(rdb, redisstore.Options{Deadline: patient})
	require.NoError(b, err)
	l := limiters(b, store, "user: 1000000/1s")[0]
	for name, ask := range map[string]func(ctx context.Context) error{
		"AllowEach": func(ctx context.Context) error {
			each := [1]enforce.Each{{Limiter: l, Key: "ip=203.0.113.7", Cost: 1}}
			_, err := enforce.AllowEach(ctx, each[:])
			return err
		},
		"AllowN": func(ctx context.Context) error {
			_, err := l.AllowN(ctx, "ip=203.0.113.7", 1)
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := ask(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
