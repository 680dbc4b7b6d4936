package main

import (
	"log/slog"
	"net/http"
	"testing"

	ginlimit "github.com/JGLTechnologies/gin-rate-limit"
	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	fiberlimiter "github.com/gofiber/fiber/v2/middleware/limiter"
	fiberredis "github.com/gofiber/storage/redis/v3"
	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"github.com/throttled/throttled/v2"
	throttledredis "github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/ulule/limiter/v3"
	ululegin "github.com/ulule/limiter/v3/drivers/middleware/gin"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/echomw"
	"github.com/weir-go/weir/fibermw"
	"github.com/weir-go/weir/ginmw"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

// clientHeader names the client of a request: its key.
const clientHeader = "X-Client"

// site is a contender that serves HTTP in a process of its own: GET /many under a limit that nobody reaches. Where it
// is measured with a key over its limit, that limit is few.
type site struct {
	name  string
	kind  kind
	build func(tb testing.TB, b backend, l limit) app
}

// sites are all contenders, by framework. By hand is the same handler around different limiters.
var sites = []struct {
	framework string
	all       []site
}{
	{"net/http", everywhere(stdApp, func(g *guard.Guard) func(http.Handler) http.Handler { return nethttp.Limit(g) }, byHand, clientOf,
		site{"ulule/limiter", peer, func(tb testing.TB, b backend, l limit) app {
			return stdApp(stdlib.NewMiddleware(ululeRedis(tb, b, l), stdlib.WithKeyGetter(clientOf)).Handler)
		}},
		site{"throttled", peer, func(tb testing.TB, b backend, l limit) app {
			store, err := throttledredis.NewCtx(b.client(tb, patient), "throttled:")
			require.NoError(tb, err)
			lim, err := throttled.NewGCRARateLimiterCtx(store, throttledQuota(l))
			require.NoError(tb, err)
			m := throttled.HTTPRateLimiterCtx{RateLimiter: lim, VaryBy: varyByClient{}}
			return stdApp(m.RateLimit)
		}},
	)},
	{"Gin", everywhere(ginApp, ginmw.Limit, ginByHand, ginClient,
		site{"ulule/limiter", peer, func(tb testing.TB, b backend, l limit) app {
			return ginApp(ululegin.NewMiddleware(ululeRedis(tb, b, l), ululegin.WithKeyGetter(ginClient)))
		}},
		site{"gin-rate-limit", peer, func(tb testing.TB, b backend, l limit) app {
			rdb := b.client(tb, patient).(*redis.Client) //nolint:forcetypeassert // one address is one server
			store := ginlimit.RedisStore(&ginlimit.RedisOptions{Rate: l.period, Limit: uint(l.rate), RedisClient: rdb})
			return ginApp(ginlimit.RateLimiter(store, &ginlimit.Options{KeyFunc: ginClient}))
		}},
	)},
	{"Echo", everywhere(echoApp, echomw.Limit, echoByHand, echoClient)},
	{"Fiber", everywhere(fiberApp, fibermw.Limit, fiberByHand, fiberClient,
		site{"Fiber's own", peer, func(tb testing.TB, b backend, l limit) app {
			return fiberApp(fiberlimiter.New(fiberlimiter.Config{
				Max: l.rate, Expiration: l.period, KeyGenerator: fiberClient,
				Storage: fiberredis.NewFromConnection(b.client(tb, patient)),
			}))
		}},
	)},
}

// everywhere are the contenders that there are in every framework, and then its own. build makes an application A that
// uses middlewares M; weir and byHand make these. key says who has sent a request R.
func everywhere[A app, M, R any](
	build func(...M) A, weir func(*guard.Guard) M, byHand func(decide, limit, func(R) string) M, key func(R) string, own ...site,
) []site {
	return append([]site{
		{bare, floor, func(testing.TB, backend, limit) app { return build() }},
		{"weir in the process", ours, func(tb testing.TB, _ backend, l limit) app { return build(weir(byClient(tb, nil, l))) }},
		{"weir", ours, func(tb testing.TB, b backend, l limit) app { return build(weir(byClient(tb, weirStore(tb, b), l))) }},
		{"redis_rate by hand", peer, func(tb testing.TB, b backend, l limit) app {
			return build(byHand(redisRate(tb, b, l)[0], l, key))
		}},
		{"rueidis EVALSHA by hand", floor, func(tb testing.TB, b backend, l limit) app {
			return build(byHand(scriptByRueidis(tb, b, l)[0], l, key))
		}},
	}, own...)
}

// stdApp is mux within middlewares.
func stdApp(use ...func(http.Handler) http.Handler) http.Handler {
	h := mux()
	for _, m := range use {
		h = m(h)
	}
	return h
}

func byClient(tb testing.TB, store core.Store, l limit) *guard.Guard {
	tb.Helper()
	g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: policy(l), Key: keyfunc.Header(clientHeader)}, Store: store, Log: slog.New(slog.DiscardHandler)})
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = g.Close() })
	return g
}

func ululeRedis(tb testing.TB, b backend, l limit) *limiter.Limiter {
	tb.Helper()
	store, err := ululeredis.NewStoreWithOptions(b.client(tb, patient), limiter.StoreOptions{Prefix: "ulule"})
	require.NoError(tb, err)
	return limiter.New(store, limiter.Rate{Period: l.period, Limit: int64(l.rate)})
}

func clientOf(r *http.Request) string           { return r.Header.Get(clientHeader) }
func ginClient(c *gin.Context) string           { return c.GetHeader(clientHeader) }
func echoClient(c echo.Context) string          { return c.Request().Header.Get(clientHeader) }
func fiberClient(c *fiber.Ctx) string           { return c.Get(clientHeader) }
func (varyByClient) Key(r *http.Request) string { return clientOf(r) }

// varyByClient is clientOf for throttled.
type varyByClient struct{}
