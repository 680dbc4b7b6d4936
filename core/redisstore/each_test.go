package redisstore_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// limiters are some on one store.
func limiters(t testing.TB, s core.Store, texts ...string) (all []*enforce.Limiter) {
	t.Helper()
	root, err := enforce.New(s, core.MustParse("root: 1/1s"), enforce.Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, root.Close()) })
	for _, text := range texts {
		l, err := root.With(core.MustParse(text))
		require.NoError(t, err)
		all = append(all, l)
	}
	return all
}

// eachOf asks for a unit of each.
func eachOf(ls []*enforce.Limiter, keys ...string) (all []enforce.Each) {
	for i, l := range ls {
		all = append(all, enforce.Each{Limiter: l, Key: keys[i], Cost: 1})
	}
	return all
}

// Several policies are one round trip, and so are several keys of one; beside a refusal that is remembered there is none.
func TestAllowEachIsOneFlight(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var flights []redisstore.Flight
	s := newStore(t, patientClient(t), redisstore.Options{Deadline: patient, Observe: func(f redisstore.Flight) {
		mu.Lock()
		defer mu.Unlock()
		if !f.Behind {
			flights = append(flights, f)
		}
	}})
	flown := func() (calls []int) {
		mu.Lock()
		defer mu.Unlock()
		for _, f := range flights {
			calls = append(calls, f.Calls)
		}
		flights = nil
		return calls
	}
	ls := limiters(t, s, "user: 2/1d fixed-window", "tenant: 90/1h sliding-window", "all: 900/1d fixed-window calendar UTC")
	user, keys := rand.Text(), []string{"", rand.Text(), rand.Text()}
	ask := func() []enforce.Each {
		keys[0] = user
		return eachOf(ls, keys...)
	}
	for _, want := range []bool{true, true, false} {
		admitted, err := enforce.AllowEach(t.Context(), ask())
		require.NoError(t, err)
		require.Equal(t, want, admitted)
		require.Equal(t, []int{3}, flown())
	}
	for range 50 {
		all := ask()
		admitted, err := enforce.AllowEach(t.Context(), all)
		require.NoError(t, err)
		require.False(t, admitted)
		if calls := flown(); calls == nil {
			assert.True(t, all[0].Result.Remembered)
			assert.Zero(t, all[1].Result)
		} else { // a refusal is good for a second
			assert.Equal(t, []int{3}, calls)
		}
	}
	var wide []enforce.Each
	for i := range 20 {
		wide = append(wide, enforce.Each{Limiter: ls[i%2], Key: fmt.Sprint(user, i), Cost: 1})
	}
	admitted, err := enforce.AllowEach(t.Context(), wide)
	require.NoError(t, err)
	require.True(t, admitted)
	require.Equal(t, []int{20}, flown())
}

// A crowd takes what there is and not a unit more, and what was taken in vain is given back, every unit.
func TestAllowEachInACrowd(t *testing.T) {
	t.Parallel()
	for name, rdb := range map[string]func(*testing.T) redis.UniversalClient{"single": patientClient, "cluster": patientClusterClient} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, rdb(t), redisstore.Options{Deadline: patient})
			ls := limiters(t, s, "user: 20/1d fixed-window", "tenant: 150/1d fixed-window")
			tenant, users := rand.Text(), rand.Text()
			var admitted [10]atomic.Int64
			var crowd sync.WaitGroup
			for i := range 50 {
				crowd.Go(func() {
					for range 20 {
						got, err := enforce.AllowEach(t.Context(), eachOf(ls, fmt.Sprint(users, i%10), tenant))
						if !assert.NoError(t, err) {
							return
						}
						if got {
							admitted[i%10].Add(1)
						}
					}
				})
			}
			crowd.Wait()
			all := int64(0)
			for i := range admitted {
				assert.LessOrEqual(t, admitted[i].Load(), int64(20))
				all += admitted[i].Load()
			}
			assert.LessOrEqual(t, all, int64(150))
			assert.Greater(t, all, int64(20), "some come through")
			used := func(l *enforce.Limiter, key string) int64 {
				res, err := l.Peek(t.Context(), key)
				require.NoError(t, err)
				return res.Limit - res.Remaining
			}
			require.Eventually(t, func() bool { return used(ls[1], tenant) == all }, patient, 10*time.Millisecond)
			for i := range admitted {
				require.Eventually(t, func() bool { return used(ls[0], fmt.Sprint(users, i)) == admitted[i].Load() }, patient, 10*time.Millisecond)
			}
		})
	}
}

// With a server that is gone, silent or slow, all have their answers within the time of one, each by its fail word; and
// a caller that leaves is not kept.
func TestAllowEachWithoutRedis(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*redistest.Proxy){
		"gone":   func(p *redistest.Proxy) { p.Refuse(); p.Disconnect(redistest.EOF) },
		"silent": func(p *redistest.Proxy) { p.Blackhole() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := redistest.NewProxy(t, sharedServer(t).Addr())
			rdb := closing(t, redis.NewUniversalClient(redisstore.ClientOptions(proxy.Addr())))
			const deadline = 500 * time.Millisecond
			s := newStore(t, rdb, redisstore.Options{Deadline: deadline})
			texts, keys := make([]string, 20), make([]string, 20)
			for i := range texts {
				texts[i], keys[i] = fmt.Sprintf("p%d: 3/1h", i), rand.Text()
			}
			ls := limiters(t, s, texts...)
			_, err := enforce.AllowEach(t.Context(), eachOf(ls, keys...))
			require.NoError(t, err)
			begin(proxy)
			for i := range 12 { // enough for the breaker
				all := eachOf(ls, keys...)
				start := time.Now()
				admitted, err := enforce.AllowEach(t.Context(), all)
				took := time.Since(start)
				require.NoError(t, err)
				assert.Equal(t, i < 3, admitted)
				if admitted {
					for _, x := range all {
						assert.True(t, x.Result.Local)
					}
				}
				assert.Less(t, took, 10*deadline, "one after the other it would be twenty")
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err = enforce.AllowEach(ctx, eachOf(ls, keys...))
			require.ErrorIs(t, err, context.Canceled)
			proxy.Pass()
			require.Eventually(t, func() bool {
				all := eachOf(ls, keys...)
				_, err := enforce.AllowEach(t.Context(), all)
				return assert.NoError(t, err) && !slices.ContainsFunc(all, func(x enforce.Each) bool { return x.Result.Local })
			}, patient, 50*time.Millisecond)
			lost := uint64(0)
			require.Eventually(t, func() bool { // until all is handed and given back
				left := 0
				lost = 0
				for _, lane := range ls[0].Stats().Lanes {
					left, lost = left+lane.Pending+lane.Out, lost+lane.Lost
				}
				return left == 0
			}, patient, time.Millisecond)
			err = ls[0].Close()
			assert.Equal(t, lost > 0, err != nil, "%v, and the server has lost %d", err, lost)
		})
	}
}

// A caller that has less time than the server takes has its answer by the fail words, long before the deadline.
func TestAllowEachInAHurry(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, sharedServer(t).Addr())
	rdb := closing(t, redis.NewUniversalClient(unhurried(redisstore.ClientOptions(proxy.Addr()))))
	s := newStore(t, rdb, redisstore.Options{Deadline: patient})
	ls := limiters(t, s, "one: 5/1d fixed-window", "two: 5/1d fixed-window")
	keys := []string{rand.Text(), rand.Text()}
	_, err := enforce.AllowEach(t.Context(), eachOf(ls, keys...))
	require.NoError(t, err)
	proxy.Latency(500 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	admitted, err := enforce.AllowEach(ctx, eachOf(ls, keys...))
	require.NoError(t, err, "the fail word has decided")
	assert.True(t, admitted)
	assert.Less(t, time.Since(start), 20*time.Second)
	proxy.Pass()
}

// A clock of this machine that is in another window of the calendar than the server's is asked for, once.
func TestTakeManyInAnotherWindow(t *testing.T) {
	t.Parallel()
	s := newStore(t, patientClient(t), redisstore.Options{Deadline: patient})
	var takes []core.Take
	for range 5 {
		takes = append(takes, core.Take{Policy: core.MustParse("calendar: 10/1d fixed-window calendar UTC"), Key: rand.Text(), Cost: 3})
		takes = append(takes, core.Take{Policy: core.MustParse("any: 10/1h"), Key: rand.Text(), Cost: 3})
	}
	for _, off := range []time.Duration{0, -40 * 24 * time.Hour, 40 * 24 * time.Hour} {
		s.Skew(off)
		all, err := s.TakeMany(t.Context(), takes)
		require.NoError(t, err)
		for _, res := range all {
			assert.EqualValues(t, 3, res.Taken)
		}
	}
	all, err := s.TakeMany(t.Context(), takes)
	require.NoError(t, err)
	for _, res := range all {
		assert.Equal(t, core.Refused, res.Outcome)
	}
}
