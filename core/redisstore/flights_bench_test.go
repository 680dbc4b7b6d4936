package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// BenchmarkCrowd compares a hundred goroutines that ask for decisions with as many that call
// the baseline through the same client. The two take turns of a tenth of a second within one
// run; what is reported is the medians of the turns.
func BenchmarkCrowd(b *testing.B) {
	for _, c := range []struct {
		name           string
		keys, policies int
		rate           int
		distance       time.Duration // there and back
		cluster        bool
	}{
		{name: "many-keys", keys: 10_000, policies: 1, rate: 1_000_000},
		{name: "hot-key", keys: 1, policies: 1, rate: 1_000_000},
		{name: "denied", keys: 1, policies: 1, rate: 1},
		{name: "eight-policies", keys: 10_000, policies: 8, rate: 1_000_000},
		{name: "far-away", keys: 10_000, policies: 1, rate: 1_000_000, distance: time.Millisecond},
		{name: "cluster", keys: 10_000, policies: 1, rate: 1_000_000, cluster: true},
	} {
		b.Run(c.name, func(b *testing.B) {
			o := redisstore.ClientOptions()
			if c.cluster {
				o.Addrs = redistest.StartCluster(b).Addrs()
			} else {
				o.Addrs = []string{redistest.Single(b).Addr()}
			}
			if c.distance > 0 {
				proxy := redistest.NewProxy(b, o.Addrs[0])
				proxy.Latency(c.distance / 2)
				o.Addrs = []string{proxy.Addr()}
			}
			o.PoolTimeout, o.ContextTimeoutEnabled = time.Minute, true
			direct := redis.NewUniversalClient(o)
			rdb := redis.NewUniversalClient(o)
			b.Cleanup(func() { _, _ = rdb.Close(), direct.Close() })
			store, err := redisstore.New(rdb, redisstore.Options{Deadline: time.Second})
			require.NoError(b, err)
			var policies []core.Policy
			for i := range c.policies {
				policies = append(policies, core.MustParse(fmt.Sprintf("crowd%d: %d/1h", i, c.rate+i*1000)))
			}
			keys := make([]string, c.keys)
			for i := range keys {
				keys[i] = fmt.Sprintf("ip=203.0.113.%d", i)
			}
			emission := time.Hour.Microseconds() / int64(c.rate)
			call := [2]func(ctx context.Context, i int) error{
				func(ctx context.Context, i int) error {
					return bare.EvalSha(ctx, direct, []string{"bare:1:crowd0:g1h:" + keys[i%len(keys)]}, emission, time.Hour.Microseconds(), 1).Err()
				},
				func(ctx context.Context, i int) error {
					_, err := store.Take(ctx, core.Take{Policy: policies[i%len(policies)], Key: keys[i%len(keys)], Cost: 1})
					return err
				},
			}
			require.NoError(b, err)
			for i := range 3 * c.keys / max(1, c.keys/100) {
				_ = bare.Eval(b.Context(), direct, []string{"bare:1:crowd0:g1h:" + keys[i%len(keys)]}, emission, time.Hour.Microseconds(), 1).Err()
				_ = call[1](b.Context(), i)
			}
			var rates [2][]float64
			for b.Loop() {
				for which := range call {
					rates[which] = append(rates[which], crowdRate(b, call[which]))
				}
			}
			for which, name := range []string{"bare/s", "store/s"} {
				slices.Sort(rates[which])
				b.ReportMetric(rates[which][len(rates[which])/2], name)
			}
			b.ReportMetric(rates[1][len(rates[1])/2]/rates[0][len(rates[0])/2], "x-bare")
		})
	}
}

// crowdRate is how many calls a second a hundred goroutines make.
func crowdRate(b *testing.B, call func(ctx context.Context, i int) error) float64 {
	const turn, goroutines = 100 * time.Millisecond, 100
	var calls atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for g := range goroutines {
		wg.Go(func() {
			n := 0
			for i := g * 7919; time.Since(start) < turn; i++ {
				if err := call(b.Context(), i); err != nil {
					b.Error(err)
					return
				}
				n++
			}
			calls.Add(int64(n))
		})
	}
	wg.Wait()
	return float64(calls.Load()) / time.Since(start).Seconds()
}
