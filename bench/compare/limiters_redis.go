package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"testing"
	"time"

	ginlimit "github.com/JGLTechnologies/gin-rate-limit"
	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"github.com/throttled/throttled/v2"
	throttledredis "github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/redistest"
)

// backend is the Redis that a contender is to use.
type backend struct {
	addrs []string // several are a Cluster
	dial  dialer   // nil is the ordinary one
	conns int      // of a client of go-redis; 0 is its own choice
	// patient gives weir as much time as all others take, where it is not its speed that is looked at: on a machine
	// that is busy with other things a decision may take longer than the usual deadline.
	patient bool
}

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// redisLimiter is a contender that counts in Redis. It returns a decide for each of the limits, all on one client.
type redisLimiter struct {
	name   string
	kind   kind
	open   func(tb testing.TB, b backend, limits ...limit) []decide
	single bool // it knows no Cluster
	far    bool // it is measured only where many callers are far from their server
}

// redisLimiters are all of them. Those of kind floor are no limiters: scripts by hand, and nothing around them.
var redisLimiters = []redisLimiter{
	{name: "weir", kind: ours, open: weirOnRedis},
	{name: "redis_rate", kind: peer, open: redisRate},
	{name: "ulule/limiter", kind: peer, open: ululeOnRedis},
	{name: "throttled", kind: peer, open: throttledOnRedis},
	{name: "gin-rate-limit", kind: peer, open: ginRateLimitOnRedis, single: true},
	{name: "go-redis EVALSHA", kind: floor, open: scriptByGoRedis},
	{name: "go-redis auto-pipeline", kind: floor, open: scriptByAutoPipeline, single: true},
	{name: "rueidis EVALSHA", kind: floor, open: scriptByRueidis},
	{name: "shared script", kind: floor, open: scriptShared, single: true, far: true},
}

// client is a client of go-redis with the options that weir recommends, so that nobody pays for what it leaves out. With
// the usual patience, a peer that waits for a connection does not fail.
func (b backend) client(tb testing.TB, patient bool) redis.UniversalClient {
	tb.Helper()
	o := redisstore.ClientOptions(b.addrs...)
	o.Dialer, o.PoolSize = b.dial, b.conns
	if patient {
		o.PoolTimeout, o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.MaxRetries = patience, patience, patience, patience, 3
	}
	rdb := redis.NewUniversalClient(o)
	tb.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// one makes a decide of each limit.
func one(limits []limit, f func(i int, l limit) decide) []decide {
	all := make([]decide, len(limits))
	for i, l := range limits {
		all[i] = f(i, l)
	}
	return all
}

// prefix keeps the keys of contenders and limits apart.
func prefix(name string, i int) string { return name + strconv.Itoa(i) + ":" }

var errLocal = errors.New("the store did not answer in time, and the process decided by itself")

// weirOnRedis has its usual deadline, unless b is patient.
func weirOnRedis(tb testing.TB, b backend, limits ...limit) []decide {
	tb.Helper()
	var o redisstore.Options
	if b.patient {
		o.Deadline = patience
	}
	store, err := redisstore.New(b.client(tb, b.patient), o)
	require.NoError(tb, err)
	return one(limits, func(i int, l limit) decide { return weirOn(tb, store, i, l) })
}

// weirOn decides by Limiter.Allow, as a program does.
func weirOn(tb testing.TB, store core.Store, i int, l limit) decide {
	tb.Helper()
	policy, err := core.NewPolicy("p"+strconv.Itoa(i), core.PolicyOptions{}, core.Limit{Rate: int64(l.rate), Period: l.period})
	require.NoError(tb, err)
	lim, err := enforce.New(store, policy, enforce.Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = lim.Close() })
	return func(ctx context.Context, key string) (verdict, error) {
		res, err := lim.Allow(ctx, key)
		if err == nil && res.Local {
			err = errLocal
		}
		return verdict{res.Allowed(), res.Remaining, res.ResetAfter}, err
	}
}

func redisRate(tb testing.TB, b backend, limits ...limit) []decide {
	tb.Helper()
	lim := redis_rate.NewLimiter(b.client(tb, true))
	return one(limits, func(i int, l limit) decide {
		prefix, limit := prefix("rr", i), redis_rate.Limit{Rate: l.rate, Burst: l.rate, Period: l.period}
		return func(ctx context.Context, key string) (verdict, error) {
			res, err := lim.Allow(ctx, prefix+key, limit)
			if err != nil {
				return verdict{}, err
			}
			return verdict{res.Allowed > 0, int64(res.Remaining), res.ResetAfter}, nil
		}
	})
}

func ululeOnRedis(tb testing.TB, b backend, limits ...limit) []decide {
	tb.Helper()
	rdb := b.client(tb, true)
	return one(limits, func(i int, l limit) decide {
		store, err := ululeredis.NewStoreWithOptions(rdb, limiter.StoreOptions{Prefix: prefix("ulule", i)})
		require.NoError(tb, err)
		return ululeBy(limiter.New(store, limiter.Rate{Period: l.period, Limit: int64(l.rate)}))
	})
}

func ululeBy(lim *limiter.Limiter) decide {
	return func(ctx context.Context, key string) (verdict, error) {
		c, err := lim.Get(ctx, key)
		return verdict{!c.Reached, c.Remaining, time.Until(time.Unix(c.Reset, 0))}, err
	}
}

func throttledOnRedis(tb testing.TB, b backend, limits ...limit) []decide {
	tb.Helper()
	rdb := b.client(tb, true)
	return one(limits, func(i int, l limit) decide {
		store, err := throttledredis.NewCtx(rdb, prefix("throttled", i))
		require.NoError(tb, err)
		return throttledOn(tb, store, l)
	})
}

func throttledOn(tb testing.TB, store throttled.GCRAStoreCtx, l limit) decide {
	tb.Helper()
	lim, err := throttled.NewGCRARateLimiterCtx(store, throttledQuota(l))
	require.NoError(tb, err)
	return func(ctx context.Context, key string) (verdict, error) {
		limited, res, err := lim.RateLimitCtx(ctx, key, 1)
		if err != nil {
			return verdict{}, err
		}
		return verdict{!limited, int64(res.Remaining), res.ResetAfter}, nil
	}
}

// throttledQuota returns l for throttled, whose burst comes on top of one.
func throttledQuota(l limit) throttled.RateQuota {
	return throttled.RateQuota{MaxRate: throttled.PerDuration(l.rate, l.period), MaxBurst: l.rate - 1}
}

func ginRateLimitOnRedis(tb testing.TB, b backend, limits ...limit) []decide {
	tb.Helper()
	rdb := b.client(tb, true).(*redis.Client) //nolint:forcetypeassert // one address is one server
	return one(limits, func(i int, l limit) decide {
		store := ginlimit.RedisStore(&ginlimit.RedisOptions{Rate: l.period, Limit: uint(l.rate), RedisClient: rdb})
		return ginRateLimitOn(store, prefix("gin", i))
	})
}

func scriptByGoRedis(tb testing.TB, b backend, limits ...limit) []decide {
	tb.Helper()
	rdb := b.client(tb, true)
	return scripts(tb, rdb, rdb, "bare", limits)
}

func scriptByAutoPipeline(tb testing.TB, b backend, limits ...limit) []decide {
	tb.Helper()
	rdb := b.client(tb, true).(*redis.Client) //nolint:forcetypeassert // one address is one server
	auto, err := rdb.AutoPipeline()
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = auto.Close() })
	return scripts(tb, rdb, auto, "auto", limits)
}

func scripts(tb testing.TB, rdb redis.UniversalClient, by redis.Scripter, name string, limits []limit) []decide {
	tb.Helper()
	loaded := redis.NewScript(redistest.GCRAByHand)
	load := func(ctx context.Context, c redis.Scripter) error { return loaded.Load(ctx, c).Err() }
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		require.NoError(tb, cluster.ForEachMaster(tb.Context(), func(ctx context.Context, c *redis.Client) error { return load(ctx, c) }))
	} else {
		require.NoError(tb, load(tb.Context(), rdb))
	}
	return one(limits, func(i int, l limit) decide {
		prefix, emission, burst := prefix(name, i), float64(l.period.Microseconds())/float64(l.rate), l.period.Microseconds()
		return func(ctx context.Context, key string) (verdict, error) {
			return replied(by.EvalSha(ctx, loaded.Hash(), []string{prefix + key}, emission, burst, 1).Int64Slice())
		}
	})
}

// replied reads a reply of the script: whether it admits, what remains, and until when.
func replied(reply []int64, err error) (verdict, error) {
	if err != nil {
		return verdict{}, err
	}
	return verdict{reply[0] > 0, reply[1], time.Duration(reply[3]) * time.Microsecond}, nil
}

func scriptByRueidis(tb testing.TB, b backend, limits ...limit) []decide {
	tb.Helper()
	o := rueidis.ClientOption{InitAddress: b.addrs, DisableCache: true}
	if b.dial != nil {
		o.DialCtxFn = func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return b.dial(ctx, "tcp", addr)
		}
	}
	client, err := rueidis.NewClient(o)
	require.NoError(tb, err)
	tb.Cleanup(client.Close)
	loaded := rueidis.NewLuaScript(redistest.GCRAByHand)
	return one(limits, func(i int, l limit) decide {
		prefix := prefix("rueidis", i)
		args := []string{fmt.Sprint(float64(l.period.Microseconds()) / float64(l.rate)), strconv.FormatInt(l.period.Microseconds(), 10), "1"}
		return func(ctx context.Context, key string) (verdict, error) {
			return replied(loaded.Exec(ctx, client, []string{prefix + key}, args).AsIntSlice())
		}
	})
}
