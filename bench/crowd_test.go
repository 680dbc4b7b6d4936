package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
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
// hardly a processor. The way to a Redis further away is a process of its own, which the crowd does not hold up.
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
			addr := redistest.Single(b).Addr()
			if c.distance > 0 {
				addr = way(b, wayTask{addr, c.distance})
			}
			rdb := redis.NewUniversalClient(redisstore.ClientOptions(addr))
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

// wayEnv names the task of a process of this program that is the way to a server.
const wayEnv = "WEIR_CROWD_WAY"

// wayTask is a way to a server on which each round trip takes so much longer.
type wayTask struct {
	To       string
	Distance time.Duration
}

// way starts a process that carries connections to a server, and returns its address. As a goroutine it would wait for a
// processor behind the crowd, which no network does. It ends with tb.
func way(tb testing.TB, task wayTask) (addr string) {
	tb.Helper()
	require.NoError(tb, hosttest.Start(tb, wayEnv, task).Read(&addr), "the way did not begin")
	return addr
}

func TestMain(m *testing.M) {
	var task wayTask
	isWay, err := hosttest.Task(wayEnv, &task)
	if isWay && err == nil {
		err = task.serve(context.Background(), os.Stdin, os.Stdout)
	}
	switch {
	case !isWay:
		os.Exit(m.Run())
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve carries connections until in ends. It prints its address.
func (t wayTask) serve(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	far := network.New(ctx, t.Distance)
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			go t.join(ctx, near, far)
		}
	}()
	if err := json.NewEncoder(out).Encode(listener.Addr().String()); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	return err
}

// join carries a connection both ways until one side ends it.
func (t wayTask) join(ctx context.Context, near net.Conn, far *network.Network) {
	defer near.Close()
	server, err := far.Dial(ctx, "tcp", t.To)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		defer near.Close()
		_, _ = io.Copy(near, server)
	}()
	_, _ = io.Copy(server, near)
}
