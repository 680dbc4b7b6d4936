package redisstore_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/internal/schedtest"
)

var soak = flag.Duration("soak", 2*time.Second, "how long a crowd asks a server that fails now and then")

// sum is the number of units of a key that were taken: surely, and perhaps besides.
type sum struct{ surely, perhaps atomic.Int64 }

// Whatever comes together, and however the server fails meanwhile: nobody waits longer than its own time, but for
// what the scheduler takes, nothing is lost or executed twice, and no goroutine stays.
func TestSoak(t *testing.T) { //nolint:paralleltest // it counts goroutines
	server := redistest.Single(t)
	admin := server.Client(t)
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "narrow", "on", ">secret", "+@all",
		"resetkeys", "~weir:1:weir-try:*", "~weir:1:even*", "%R~weir:1:*").Err())
	proxy := redistest.NewProxy(t, server.Addr())
	o := redisstore.ClientOptions(proxy.Addr())
	o.Username, o.Password = "narrow", "secret"
	rdb := redis.NewUniversalClient(o)
	const deadline = 100 * time.Millisecond
	var merged atomic.Int64
	s := newStore(t, rdb, redisstore.Options{Deadline: deadline, Observe: func(f redisstore.Flight) { merged.Add(int64(f.Merged)) }})
	policies := []core.Policy{
		core.MustParse("even-a: 1000000/1d fixed-window"), core.MustParse("even-b: 1000000/1d fixed-window, 1000000/7d fixed-window"),
		core.MustParse("even-c: 1000/1d sliding-log"), core.MustParse("even-d: 1000000/365d"),
		core.MustParse("poison: 1000000/1d fixed-window"), // of which no key may be written
	}
	sums := make([][20]sum, len(policies))
	for _, p := range policies { // the first decision of a policy composes its scripts, which is no waiting
		_, _ = s.Take(t.Context(), core.Take{Policy: p, Key: "warm"})
	}
	before := behind()
	var calls, failures, served atomic.Int64
	again := func() { // the server answers
		t.Helper()
		n := served.Load()
		require.Eventually(t, func() bool { return served.Load() > n }, patient, time.Millisecond)
	}

	over := make(chan struct{})
	var overdue atomic.Int64 // by how much somebody has waited for longer than its own time and what the scheduler took, at most
	var wg sync.WaitGroup
	probe := schedtest.New()
	wg.Go(func() { probe.Run(over) })
	for g := range 64 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(*seed, uint64(g))) //nolint:gosec // the same numbers for the same seed
			for {
				select {
				case <-over:
					return
				default:
				}
				i, k := rng.IntN(len(policies)), rng.IntN(20)*rng.IntN(2)
				take := core.Take{Policy: policies[i], Key: fmt.Sprint(k), Cost: 1 + rng.Int64N(2)}
				ctx, own := t.Context(), deadline
				cancel := func() {}
				switch rng.IntN(8) {
				case 0:
					own = time.Duration(rng.Int64N(int64(10 * time.Millisecond)))
					ctx, cancel = context.WithTimeout(ctx, own)
				case 1:
					ctx, cancel = context.WithCancel(ctx)
					time.AfterFunc(time.Duration(rng.Int64N(int64(2*time.Millisecond))), cancel)
				}
				start, lost := time.Now(), probe.Lost()
				res, err := s.Take(ctx, take)
				if longer := time.Since(start) - own; longer > 0 {
					probe.Sample()
					longer -= probe.Lost().Since(lost)
					most := overdue.Load()
					for int64(longer) > most && !overdue.CompareAndSwap(most, int64(longer)) {
						most = overdue.Load()
					}
				}
				cancel()
				calls.Add(1)
				var failed *core.StoreError
				errors.As(err, &failed)
				switch of := &sums[i][k]; {
				case err == nil && take.Policy.Name() != "poison":
					of.surely.Add(res.Taken)
					served.Add(1)
				case !assert.Error(t, err, "nobody may write this key"):
					return
				case failed == nil:
					assert.ErrorIs(t, err, ctx.Err())
					of.perhaps.Add(take.Cost)
				case failed.MaybeExecuted:
					of.perhaps.Add(take.Cost)
					failures.Add(1)
				default:
					failures.Add(1)
					if failed.Class == core.ClassBreaker { // which answers at once
						<-time.After(time.Millisecond)
					}
				}
			}
		})
	}
	again()
	faults := []func(){
		func() { proxy.LoseNextReply("eval", redistest.EOF) },
		func() { proxy.LoseNextReply("eval", redistest.RST) },
		func() { proxy.LoseNextReply("eval", redistest.Hang) },
		func() { proxy.Disconnect(redistest.EOF) },
		func() { proxy.Disconnect(redistest.Hang) },
		func() { proxy.Latency(5 * time.Millisecond) },
		func() { proxy.Latency(0) },
		func() { assert.NoError(t, admin.ScriptFlush(t.Context()).Err()) },
		func() { proxy.Blackhole(); time.AfterFunc(20*time.Millisecond, proxy.Pass) },
	}
	rng := rand.New(rand.NewPCG(*seed, 64)) //nolint:gosec // as above
	for end := time.After(*soak); ; {
		select {
		case <-end:
		case <-time.After(time.Duration(rng.Int64N(int64(400 * time.Millisecond)))):
			faults[rng.IntN(len(faults))]()
			continue
		}
		break
	}
	proxy.Pass()
	again()
	close(over)
	wg.Wait()
	t.Logf("%d calls, %d failures, %d merged, at most %v late, seed %d", calls.Load(), failures.Load(), merged.Load(), time.Duration(overdue.Load()), *seed)
	assert.Less(t, time.Duration(overdue.Load()), time.Second)
	require.Eventually(t, func() bool { return behind() <= before }, patient, 10*time.Millisecond, "no goroutine stays")
	require.NoError(t, rdb.Close())

	direct := newStore(t, admin, redisstore.Options{Deadline: patient})
	for i, p := range policies {
		for k := range sums[i] {
			if p.Name() == "even-d" {
				continue // it drains
			}
			n, of := used(t, direct, p, fmt.Sprint(k)), &sums[i][k]
			if p.Name() == "poison" {
				assert.Zero(t, n)
				continue
			}
			assert.GreaterOrEqual(t, n, of.surely.Load(), "%v, key %d: nothing is lost", p, k)
			assert.LessOrEqual(t, n, of.surely.Load()+of.perhaps.Load(), "%v, key %d: nothing is executed twice", p, k)
		}
	}
}
