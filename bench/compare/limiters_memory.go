package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	ginlimit "github.com/JGLTechnologies/gin-rate-limit"
	"github.com/didip/tollbooth/v7"
	tollboothlimiter "github.com/didip/tollbooth/v7/limiter"
	"github.com/go-chi/httprate"
	echomiddleware "github.com/labstack/echo/v4/middleware"
	sethvargo "github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/stretchr/testify/require"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/weir-go/weir/core"
)

// memoryLimiter is a contender that counts in the process. Where a library can forget idle keys, idle says when.
type memoryLimiter struct {
	name string
	kind kind
	open func(tb testing.TB, l limit, idle time.Duration) decide
}

// memoryLimiters are all of them. To compare another, add it here.
var memoryLimiters = []memoryLimiter{
	{"weir", ours, weirInProcess},
	{"sethvargo/go-limiter", peer, sethvargoInProcess},
	{"x/time/rate in a sync.Map", peer, timeRate},
	{"echo's own", peer, echoInProcess},
	{"ulule/limiter", peer, ululeInProcess},
	{"throttled", peer, throttledInProcess},
	{"httprate", peer, httprateInProcess},
	{"tollbooth", peer, tollboothInProcess},
	{"gin-rate-limit", peer, ginRateLimitInProcess},
}

func weirInProcess(tb testing.TB, l limit, _ time.Duration) decide {
	tb.Helper()
	store, err := core.NewMemory(core.MemoryOptions{MaxKeys: 2_000_000})
	require.NoError(tb, err)
	return weirOn(tb, store, 0, l)
}

func sethvargoStore(tb testing.TB, l limit, idle time.Duration) sethvargo.Store {
	tb.Helper()
	store, err := memorystore.New(&memorystore.Config{
		Tokens: uint64(l.rate), Interval: l.period, SweepInterval: idle, SweepMinTTL: idle,
	})
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = store.Close(context.WithoutCancel(tb.Context())) })
	return store
}

func sethvargoInProcess(tb testing.TB, l limit, idle time.Duration) decide {
	tb.Helper()
	store := sethvargoStore(tb, l, idle)
	return func(ctx context.Context, key string) (verdict, error) {
		_, remaining, reset, ok, err := store.Take(ctx, key)
		return verdict{ok, int64(remaining), time.Duration(reset)}, err
	}
}

// timeRate is the limiter that many programs write by hand. It never forgets a key.
func timeRate(_ testing.TB, l limit, _ time.Duration) decide {
	var all sync.Map
	perSecond := rate.Limit(float64(l.rate) / l.period.Seconds())
	return func(_ context.Context, key string) (verdict, error) {
		found, ok := all.Load(key)
		if !ok {
			found, _ = all.LoadOrStore(key, rate.NewLimiter(perSecond, l.rate))
		}
		return verdict{admitted: found.(*rate.Limiter).Allow()}, nil //nolint:forcetypeassert // nothing else is in it
	}
}

func echoStore(l limit, idle time.Duration) *echomiddleware.RateLimiterMemoryStore {
	return echomiddleware.NewRateLimiterMemoryStoreWithConfig(echomiddleware.RateLimiterMemoryStoreConfig{
		Rate: rate.Limit(float64(l.rate) / l.period.Seconds()), Burst: l.rate, ExpiresIn: idle,
	})
}

func echoInProcess(_ testing.TB, l limit, idle time.Duration) decide {
	store := echoStore(l, idle)
	return func(_ context.Context, key string) (verdict, error) {
		ok, err := store.Allow(key)
		return verdict{admitted: ok}, err
	}
}

func ululeInMemory(l limit, idle time.Duration) *limiter.Limiter {
	store := ululememory.NewStoreWithOptions(limiter.StoreOptions{Prefix: "u", CleanUpInterval: idle})
	return limiter.New(store, limiter.Rate{Period: l.period, Limit: int64(l.rate)})
}

func ululeInProcess(_ testing.TB, l limit, idle time.Duration) decide {
	return ululeBy(ululeInMemory(l, idle))
}

func throttledInProcess(tb testing.TB, l limit, _ time.Duration) decide {
	tb.Helper()
	return throttledOn(tb, throttledStore(tb), l)
}

func throttledStore(tb testing.TB) throttled.GCRAStoreCtx {
	tb.Helper()
	store, err := memstore.NewCtx(0) // a map without a bound, which is faster than its LRU
	require.NoError(tb, err)
	return store
}

// httprateInProcess has no call for a decision alone: this is the one that middleware makes, with all headers off.
func httprateInProcess(tb testing.TB, l limit, _ time.Duration) decide {
	lim := httprate.NewRateLimiter(l.rate, l.period, httprate.WithResponseHeaders(httprate.ResponseHeaders{}))
	w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(tb.Context(), http.MethodGet, "/", http.NoBody)
	return func(_ context.Context, key string) (verdict, error) {
		return verdict{admitted: !lim.OnLimit(w, r, key)}, nil
	}
}

func tollboothLimiter(l limit, idle time.Duration) *tollboothlimiter.Limiter {
	lim := tollbooth.NewLimiter(float64(l.rate)/l.period.Seconds(), &tollboothlimiter.ExpirableOptions{DefaultExpirationTTL: idle})
	return lim.SetBurst(l.rate)
}

func tollboothInProcess(_ testing.TB, l limit, idle time.Duration) decide {
	lim := tollboothLimiter(l, idle)
	return func(_ context.Context, key string) (verdict, error) {
		return verdict{admitted: tollbooth.LimitByKeys(lim, []string{key}) == nil}, nil
	}
}

func ginRateLimitInProcess(_ testing.TB, l limit, _ time.Duration) decide {
	return ginRateLimitOn(ginlimit.InMemoryStore(&ginlimit.InMemoryOptions{Rate: l.period, Limit: uint(l.rate)}), "")
}

func ginRateLimitOn(store ginlimit.Store, prefix string) decide {
	return func(_ context.Context, key string) (verdict, error) {
		info := store.Limit(prefix+key, nil)
		return verdict{!info.RateLimited, int64(info.RemainingHits), time.Until(info.ResetTime)}, nil
	}
}
