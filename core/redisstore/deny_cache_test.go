package redisstore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/race"
	"github.com/weir-go/weir/internal/redistest"
)

// denied is a store, and a take of a key of its own that Redis has just refused.
type denied struct {
	*testing.T
	*redisstore.Store
	take core.Take
	last core.Result // that was admitted
}

func newDenied(t *testing.T, policy string) *denied {
	t.Helper()
	d := &denied{T: t, Store: newStore(t, sharedServer(t).Client(t), redisstore.Options{Deadline: patient})}
	d.take = core.Take{Policy: core.MustParse(policy), Key: rand.Text(), Cost: 1}
	d.exhaust()
	return d
}

// exhaust takes until it is refused.
func (d *denied) exhaust() {
	d.Helper()
	for {
		res := d.ask(d.take)
		if !res.Allowed() {
			return
		}
		d.last = res
	}
}

func (d *denied) ask(t core.Take) core.Result {
	d.Helper()
	res, err := d.Take(d.Context(), t)
	require.NoError(d, err)
	return res
}

// cached asks until there was an answer from memory: on a machine that is a second late, what was
// known is forgotten first.
func (d *denied) cached() {
	d.Helper()
	for hits := d.Stats().DenyHits; d.Stats().DenyHits == hits; {
		require.False(d, d.ask(d.take).Allowed())
	}
}

// What was refused is refused again without Redis, for each cost and with what is left to wait.
func TestDenyCache(t *testing.T) {
	t.Parallel()
	midday := fmt.Sprintf("Etc/GMT%+d", time.Now().UTC().Hour()-12) // a zone in which no day ends meanwhile
	for _, policy := range []string{
		"denied: 2/1h", "denied: 2/1h; wait 1s", "denied: 2/1h token-bucket", "denied: 2/1h leaky-bucket", "denied: 2/1h fixed-window",
		"denied: 2/1d fixed-window calendar " + midday, "denied: 2/1h sliding-window", "denied: 2/1h sliding-counter", "denied: 2/1h sliding-log",
		"denied: 2/1h, 9/1h fixed-window, 9/1h sliding-log",
	} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			d := newDenied(t, policy)
			plain := newStore(t, sharedServer(t).Client(t), redisstore.Options{Deadline: patient, DenyCache: -1})
			d.cached()
			for _, cost := range []int64{1, 1, 2, 3, 2} {
				take := d.take
				take.Cost = cost
				before, err := plain.Take(t.Context(), take)
				require.NoError(t, err)
				hits := d.Stats().DenyHits
				res := d.ask(take)
				assert.Equal(t, d.Stats().DenyHits > hits, res.Remembered)
				assert.False(t, before.Remembered)
				after, err := plain.Take(t.Context(), take)
				require.NoError(t, err)
				assert.Equal(t, before.Outcome, res.Outcome)
				assert.Equal(t, before.Limit, res.Limit)
				// By two clocks of one machine: what the network takes is between them, and nothing else.
				const rounded = time.Microsecond
				assert.GreaterOrEqual(t, res.RetryAfter, after.RetryAfter-rounded)
				assert.LessOrEqual(t, res.At, after.At+1)
			}
			assert.Zero(t, plain.Stats().DenyHits)
		})
	}
}

// Each request is either answered from memory or asks Redis, as a peek and one with a forced clock do.
func TestDenyCacheSparesRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	count := func() int { return int(server.CommandStats(t)["evalsha"]) }
	s := newStore(t, server.Client(t), redisstore.Options{Deadline: patient})
	take := core.Take{Policy: core.MustParse("spared: 1/1h"), Key: "k", Cost: 1}
	_, err := s.Take(t.Context(), take)
	require.NoError(t, err)
	server.ResetStats(t)
	const n = 2000
	began := time.Now()
	for i := range n {
		take := take
		switch i % 4 {
		case 1:
			take.Cost, take.AtMost = 5, true
		case 2:
			take.Cost, take.AtMost = 0, true
		}
		_, err := s.Take(t.Context(), take)
		require.NoError(t, err)
	}
	// A refusal is good for a second, so that on no machine there are many.
	asked := int(time.Since(began)/time.Second) + 1
	hits := int(s.Stats().DenyHits)
	assert.Equal(t, n, hits+count())
	assert.GreaterOrEqual(t, hits, n-asked)
	server.ResetStats(t)
	for _, other := range []core.Take{{}, {Cost: 1, Now: time.Now().UnixMicro()}} {
		other.Policy, other.Key = take.Policy, take.Key
		_, err := s.Take(t.Context(), other)
		require.NoError(t, err)
	}
	assert.Equal(t, 2, count())
	assert.EqualValues(t, hits, s.Stats().DenyHits)

	off := newStore(t, server.Client(t), redisstore.Options{Deadline: patient, DenyCache: -1})
	server.ResetStats(t)
	for range 100 {
		_, err := off.Take(t.Context(), take)
		require.NoError(t, err)
	}
	assert.Equal(t, 100, count())
	assert.Zero(t, off.Stats().DenyHits)
}

// What is given back, reset or changed through the store itself counts at once.
func TestDenyCacheSeesOwnChanges(t *testing.T) {
	t.Parallel()
	for range 20 {
		d := newDenied(t, "own: 3/1h")
		d.cached()
		require.NoError(t, d.Refund(t.Context(), []core.Refund{{Policy: d.take.Policy, Key: d.take.Key, Receipt: d.last, Units: 1}}))
		require.True(t, d.ask(d.take).Allowed(), "after a refund")
		d.exhaust()
		d.cached()
		require.NoError(t, d.Reset(t.Context(), d.take.Policy, d.take.Key))
		require.True(t, d.ask(d.take).Allowed(), "after a reset")
		d.exhaust()
		d.cached()
		more := d.take
		more.Policy = core.MustParse("own: 3/1h burst 30")
		require.True(t, d.ask(more).Allowed(), "with other numbers")
		require.False(t, d.ask(d.take).Allowed(), "with the old ones")
	}
}

// What others give back and reset counts after a second: for a request that begins later than that,
// whatever has been answered in between.
func TestDenyCacheSeesOthersChanges(t *testing.T) {
	t.Parallel()
	other := newStore(t, sharedServer(t).Client(t), redisstore.Options{Deadline: patient})
	for name, change := range map[string]func(t *testing.T, d *denied){
		"reset": func(t *testing.T, d *denied) {
			require.NoError(t, other.Reset(t.Context(), d.take.Policy, d.take.Key))
		},
		"refund": func(t *testing.T, d *denied) {
			require.NoError(t, other.Refund(t.Context(), []core.Refund{{Policy: d.take.Policy, Key: d.take.Key, Receipt: d.last, Units: 1}}))
		},
		"del": func(t *testing.T, d *denied) {
			n, err := sharedServer(t).Client(t).Del(t.Context(), "weir:1:others:"+d.take.Policy.Spec().Shape()+":"+d.take.Key).Result()
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDenied(t, "others: 3/1h")
			d.cached()
			change(t, d)
			d.admittedWithin(time.Second)
		})
	}
	t.Run("flushall", func(t *testing.T) {
		t.Parallel()
		server := redistest.Single(t)
		d := &denied{T: t, Store: newStore(t, server.Client(t), redisstore.Options{Deadline: patient})}
		d.take = core.Take{Policy: core.MustParse("others: 3/1h"), Key: "k", Cost: 1}
		d.exhaust()
		d.cached()
		require.NoError(t, server.Client(t).FlushAll(t.Context()).Err())
		d.admittedWithin(time.Second)
	})
	t.Run("refund, of a policy that gives back", func(t *testing.T) {
		t.Parallel()
		d := newDenied(t, "others: 3/1h; wait 1s")
		d.cached()
		require.NoError(t, other.Reset(t.Context(), d.take.Policy, d.take.Key))
		d.admittedWithin(250 * time.Millisecond)
	})
}

// admittedWithin asks without a pause until it is admitted.
func (d *denied) admittedWithin(limit time.Duration) {
	d.Helper()
	changed := time.Now()
	for late := false; !d.ask(d.take).Allowed(); late = time.Since(changed) > limit {
		require.False(d, late, "refused again, %v after there was room", limit)
	}
}

// A store that fails, and a breaker that is open, do not keep what is known from being right; and it
// is not known for longer than a second.
func TestDenyCacheWhileRedisIsDown(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Single(t).Addr())
	rdb := redis.NewUniversalClient(redisstore.ClientOptions(proxy.Addr()))
	defer func() { assert.NoError(t, rdb.Close()) }()
	s := newStore(t, rdb, redisstore.Options{})
	take := core.Take{Policy: core.MustParse("down: 1/1h"), Key: "k", Cost: 1}
	other := take
	other.Key = "other"
	answered := 0
	for answered == 0 { // but on a machine that is a second late
		proxy.Pass()
		var asked time.Time
		require.Eventually(t, func() bool {
			hits := s.Stats().DenyHits
			asked = time.Now()
			res, err := s.Take(t.Context(), take)
			return err == nil && !res.Allowed() && s.Stats().DenyHits == hits // it is Redis that has said so
		}, patient, time.Millisecond)
		proxy.Refuse()
		proxy.Disconnect(redistest.EOF)
		for range 10 { // enough for the breaker
			_, _ = s.Take(t.Context(), other)
		}
		for {
			hits := s.Stats().DenyHits
			res, err := s.Take(t.Context(), take)
			late := time.Since(asked) >= time.Second
			if s.Stats().DenyHits > hits {
				answered++
				require.NoError(t, err)
				require.Equal(t, core.Refused, res.Outcome)
				require.False(t, res.Local)
			} else {
				require.True(t, late || err == nil, "%v", err)
				require.Error(t, err)
				break
			}
		}
	}
}

// A caller that has left gets its context's error, also from memory.
func TestDenyCacheCallerLeft(t *testing.T) {
	t.Parallel()
	d := newDenied(t, "left: 1/1h")
	d.cached()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := d.Take(ctx, d.take)
	assert.ErrorIs(t, err, context.Canceled)
}

// A hundred goroutines on some keys get what there is, and not a unit more, while units are given back.
func TestDenyCacheCrowd(t *testing.T) {
	t.Parallel()
	s := newStore(t, sharedServer(t).Client(t), redisstore.Options{Deadline: patient, DenyCache: 8})
	p := core.MustParse("crowd: 50/1d")
	prefix := rand.Text()
	var taken [5]atomic.Int64
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			k := i % len(taken)
			key := fmt.Sprint(prefix, k)
			for n := range 100 {
				res, err := s.Take(t.Context(), core.Take{Policy: p, Key: key, Cost: 1 + int64(n%2)})
				if !assert.NoError(t, err) {
					return
				}
				taken[k].Add(res.Taken)
				if res.Allowed() && n%5 == 0 {
					taken[k].Add(-res.Taken)
					assert.NoError(t, s.Refund(t.Context(), []core.Refund{{Policy: p, Key: key, Receipt: res, Units: res.Taken}}))
				}
			}
		})
	}
	all.Wait()
	assert.Positive(t, s.Stats().DenyHits)
	for k := range taken {
		// Of a meter, a refund does not give back what has drained in the meantime.
		assert.LessOrEqual(t, taken[k].Load(), int64(51))
		assert.Greater(t, taken[k].Load(), int64(40))
	}
}

func TestDenyCacheAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates too")
	}
	d := newDenied(t, "denied: 1/1h, 100/1h fixed-window")
	ctx := t.Context()
	least := 100.0
	for range 100 { // what is known dies in between
		least = min(least, testing.AllocsPerRun(100, func() { _, _ = d.Take(ctx, d.take) }))
	}
	assert.Zero(t, least)
}

func TestDenyCacheMistakes(t *testing.T) {
	rdb := sharedServer(t).Client(t)
	for _, n := range []int{-2, 1<<24 + 1} {
		_, err := redisstore.New(rdb, redisstore.Options{DenyCache: n})
		require.ErrorContains(t, err, fmt.Sprintf("DenyCache is %d; give 1 to 16777216, 0 for 65536, or -1 for none", n))
	}
	assert.Zero(t, new(redisstore.Store).Stats())
}

// What this store itself takes behind a refusal counts: so much at most, a charge of what was used already, another
// cost.
func TestDenyCacheCountsOwnTakes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		policy         string
		cost           int64
		first, then    core.Take
		refused, again time.Duration // how long until the cost fits
	}{
		{"own: 10/20s", 5, core.Take{Cost: 8}, core.Take{Cost: 2, AtMost: true}, 6 * time.Second, 10 * time.Second},
		{"own: 10/20s", 5, core.Take{Cost: 8}, core.Take{Cost: 1}, 6 * time.Second, 8 * time.Second},
		{"own: 10/20s debt 5", 6, core.Take{Cost: 10}, core.Take{Cost: 5, AtMost: true, Debt: true}, 2 * time.Second, 12 * time.Second},
		{"own: 10/20h sliding-log", 5, core.Take{Cost: 8}, core.Take{Cost: 2, AtMost: true}, 20 * time.Hour, 20 * time.Hour},
	} {
		s := newStore(t, sharedServer(t).Client(t), redisstore.Options{Deadline: patient})
		d := &denied{T: t, Store: s, take: core.Take{Policy: core.MustParse(c.policy), Key: rand.Text(), Cost: c.cost}}
		for _, other := range []*core.Take{&c.first, &c.then} {
			other.Policy, other.Key = d.take.Policy, d.take.Key
		}
		began := time.Now()
		require.True(t, d.ask(c.first).Allowed())
		res := d.ask(d.take)
		require.False(t, res.Allowed())
		assert.LessOrEqual(t, res.RetryAfter, c.refused)
		require.True(t, d.ask(c.then).Allowed())
		for range 3 {
			res = d.ask(d.take)
			assert.False(t, res.Allowed())
			assert.GreaterOrEqual(t, res.RetryAfter, c.again-time.Since(began)-time.Microsecond, c.policy)
			assert.LessOrEqual(t, res.RetryAfter, c.again, c.policy)
		}
	}
}

// Whatever a store alone takes, in whatever order and by several at a time, each answer from memory is the one that
// follows from what is in Redis, in every field.
func TestDenyCacheAgreesWithRedis(t *testing.T) {
	t.Parallel()
	seed := mrand.Uint64()
	for _, tiers := range [][2]string{
		{"10/20h", "30/20h"},
		{"10/20h debt 5", "12/20h debt 3"},
		{"3/7h burst 9; wait 1h", "3/7h burst 9; wait 1h"},
		{"10/20h token-bucket debt 5", "20/30h token-bucket"},
		{"10/20h leaky-bucket", "20/20h leaky-bucket"},
		{"10/20h fixed-window", "20/20h fixed-window"},
		{"10/20h sliding-window", "7/20h sliding-window"},
		{"10/20h sliding-counter", "20/20h sliding-counter"},
		{"10/20h sliding-log", "7/20h sliding-log"},
		{"10/20h debt 5, 12/30h sliding-log", "20/20h debt 5, 12/30h sliding-log"},
	} {
		t.Run(tiers[0], func(t *testing.T) {
			t.Parallel()
			rdb := sharedServer(t).Client(t)
			s := newStore(t, rdb, redisstore.Options{Deadline: patient})
			policies := [2]core.Policy{core.MustParse("agrees: " + tiers[0]), core.MustParse("agrees: " + tiers[1])}
			rng := mrand.New(mrand.NewPCG(seed, 0))
			anyTake := func(key string) core.Take {
				p := policies[min(rng.IntN(4), 1)^1]
				take := core.Take{Policy: p, Key: key, Cost: 1 + rng.Int64N(p.Limits()[0].Burst)}
				switch rng.IntN(5) {
				case 0:
					take.Cost = 1
				case 1, 2:
					take.Cost, take.AtMost, take.Debt = rng.Int64N(4), true, rng.IntN(2) == 0
				}
				if wait := p.Options().Wait; wait > 0 && !take.AtMost {
					take.Wait = time.Duration(rng.Int64N(int64(wait)))
				}
				return take
			}
			hits := uint64(0)
			for round := range 40 {
				key := rand.Text()
				if round%2 == 0 {
					var crowd sync.WaitGroup
					for range 10 {
						take := anyTake(key)
						crowd.Go(func() { _, _ = s.Take(t.Context(), take) })
					}
					crowd.Wait()
				}
				for range 10 {
					take := anyTake(key)
					known := s.Stats().DenyHits
					got, err := s.Take(t.Context(), take)
					require.NoError(t, err)
					if s.Stats().DenyHits == known {
						continue
					}
					hits++
					name := "weir:1:agrees:" + take.Policy.Spec().Shape() + ":" + key
					text, err := rdb.Get(t.Context(), name).Bytes()
					if !errors.Is(err, redis.Nil) { // what is refused for good leaves nothing there
						require.NoError(t, err)
					}
					take.Now = got.At
					want, _, _ := take.Policy.Spec().Step(text, take)
					want.Remembered = true
					require.Equal(t, want, got, "%v after %s, seed %d", take, text, seed)
				}
			}
			assert.Positive(t, hits)
		})
	}
}
