package bench

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bench/internal/network"
	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/hosttest"
	"github.com/weir-go/weir/internal/redistest"
)

// BenchmarkCrowd measures what a crowd of callers of one policy costs a lone caller of another one, who shares nothing
// with them but the process and the server:
//
//	go test -C bench -run '^$' -bench Crowd -benchtime 5x .           # five seconds of each
//	go test -C bench -run '^$' -bench Crowd/3000/10ms -benchtime 5x . # of 3000 callers, with Redis 10 ms away
//
// The lone caller asks Redis while the crowd asks the same store, and again while the crowd asks an in-process store,
// which costs the lone one nothing but the processor. With no pause before they ask again, the crowd leaves the lone one
// hardly a processor. On Linux, the network to a Redis further away has a process of its own, which the crowd does not hold up.
//
// The figures say how long the lone one waited and how often it failed, by class, and the same of the crowd.
func BenchmarkCrowd(b *testing.B) {
	for _, c := range []crowd{
		{callers: 3000},
		{callers: 3000, distance: 10 * time.Millisecond},
		{callers: 10_000},
		{callers: 10_000, distance: 10 * time.Millisecond},
		{callers: 10_000, pause: 100 * time.Millisecond},
	} {
		b.Run(fmt.Sprintf("%d/%v/pause-%v", c.callers, c.distance, c.pause), func(b *testing.B) {
			o := redisstore.ClientOptions(redistest.Single(b).Addr())
			if c.distance > 0 {
				o.Dialer = network.Start(b, c.distance).Dial
			}
			rdb := redis.NewUniversalClient(o)
			b.Cleanup(func() { _ = rdb.Close() })
			store, err := redisstore.New(rdb, redisstore.Options{})
			require.NoError(b, err)
			b.Run("in-the-process", func(b *testing.B) { c.run(b, newMemory(b, 0), store) })
			b.Run("Redis", func(b *testing.B) { c.run(b, store, store) })
		})
	}
}

// crowd is a crowd of callers.
type crowd struct {
	callers  int
	distance time.Duration // of Redis
	pause    time.Duration // before each asks again
}

// outcomes counts decisions by the class of their failure, or by "served".
type outcomes map[string]int

func (o outcomes) add(err error) {
	class := "served"
	if err != nil {
		class = "unknown"
		if failed, ok := errors.AsType[*core.StoreError](err); ok {
			class = failed.Class
		}
	}
	o[class]++
}

// run lets the crowd ask one store and the lone caller another one.
func (c crowd) run(b *testing.B, crowds, lones core.Store) {
	b.Helper()
	ask := func(s core.Store, p core.Policy, key string) error {
		_, err := s.Take(b.Context(), core.Take{Policy: p, Key: key, Cost: 1})
		return err
	}
	flood, other := parse(b, "crowd", "1000000000/1s; fail closed"), parse(b, "lone", "1000000/1s; fail closed")
	_ = ask(crowds, flood, "first") // for the scripts and connections
	_ = ask(lones, other, "first")
	var over atomic.Bool
	var wg sync.WaitGroup
	var mu sync.Mutex
	all, lone := outcomes{}, outcomes{}
	for i := range c.callers {
		wg.Go(func() {
			mine := outcomes{}
			for key := fmt.Sprint("ip=10.0.0.", i); !over.Load(); {
				if mine.add(ask(crowds, flood, key)); c.pause > 0 {
					<-time.After(c.pause)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for class, n := range mine {
				all[class] += n
			}
		})
	}
	start := time.Now()
	<-time.After(time.Second / 2) // until all are about
	var took []time.Duration
	for b.Loop() {
		for end := time.Now().Add(time.Second); time.Now().Before(end); <-time.After(10 * time.Millisecond) {
			asked := time.Now()
			lone.add(ask(lones, other, "k"))
			took = append(took, time.Since(asked))
		}
	}
	over.Store(true)
	wg.Wait()
	seconds := time.Since(start).Seconds()
	slices.Sort(took)
	b.ReportMetric(0, "ns/op") // a second
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "us-p50")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "us-p99")
	for class, n := range lone {
		b.ReportMetric(100*float64(n)/float64(len(took)), "%-"+class)
	}
	for class, n := range all {
		b.ReportMetric(float64(n)/seconds, "crowd-"+class+"/s")
	}
}

func TestMain(m *testing.M) { hosttest.Main(m, network.Child) }
