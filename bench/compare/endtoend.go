package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

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

// site is a contender that serves HTTP in a process of its own: GET /many under a limit that nobody reaches. Where it is
// measured with a key over its limit, that limit is few.
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
	{"net/http", []site{
		{bare, floor, func(testing.TB, backend, limit) app { return mux() }},
		{"weir in the process", ours, func(tb testing.TB, _ backend, l limit) app {
			return nethttp.Limit(byClient(tb, nil, l))(mux())
		}},
		{"weir", ours, func(tb testing.TB, b backend, l limit) app {
			return nethttp.Limit(byClient(tb, weirStore(tb, b), l))(mux())
		}},
		{"redis_rate by hand", peer, func(tb testing.TB, b backend, l limit) app {
			return byHand(redisRate(tb, b, l)[0], l, clientOf)(mux())
		}},
		{"rueidis EVALSHA by hand", floor, func(tb testing.TB, b backend, l limit) app {
			return byHand(scriptByRueidis(tb, b, l)[0], l, clientOf)(mux())
		}},
		{"ulule/limiter", peer, func(tb testing.TB, b backend, l limit) app {
			return stdlib.NewMiddleware(ululeRedis(tb, b, l), stdlib.WithKeyGetter(clientOf)).Handler(mux())
		}},
		{"throttled", peer, func(tb testing.TB, b backend, l limit) app {
			store, err := throttledredis.NewCtx(b.client(tb, patient), "throttled:")
			require.NoError(tb, err)
			lim, err := throttled.NewGCRARateLimiterCtx(store, throttledQuota(l))
			require.NoError(tb, err)
			m := throttled.HTTPRateLimiterCtx{RateLimiter: lim, VaryBy: varyByClient{}}
			return m.RateLimit(mux())
		}},
	}},
	{"Gin", []site{
		{bare, floor, func(testing.TB, backend, limit) app { return ginApp() }},
		{"weir in the process", ours, func(tb testing.TB, _ backend, l limit) app { return ginApp(ginmw.Limit(byClient(tb, nil, l))) }},
		{"weir", ours, func(tb testing.TB, b backend, l limit) app {
			return ginApp(ginmw.Limit(byClient(tb, weirStore(tb, b), l)))
		}},
		{"redis_rate by hand", peer, func(tb testing.TB, b backend, l limit) app {
			return ginApp(ginByHand(redisRate(tb, b, l)[0], l, ginClient))
		}},
		{"rueidis EVALSHA by hand", floor, func(tb testing.TB, b backend, l limit) app {
			return ginApp(ginByHand(scriptByRueidis(tb, b, l)[0], l, ginClient))
		}},
		{"ulule/limiter", peer, func(tb testing.TB, b backend, l limit) app {
			return ginApp(ululegin.NewMiddleware(ululeRedis(tb, b, l), ululegin.WithKeyGetter(ginClient)))
		}},
		{"gin-rate-limit", peer, func(tb testing.TB, b backend, l limit) app {
			rdb := b.client(tb, patient).(*redis.Client) //nolint:forcetypeassert // one address is one server
			store := ginlimit.RedisStore(&ginlimit.RedisOptions{Rate: l.period, Limit: uint(l.rate), RedisClient: rdb})
			return ginApp(ginlimit.RateLimiter(store, &ginlimit.Options{KeyFunc: ginClient}))
		}},
	}},
	{"Echo", []site{
		{bare, floor, func(testing.TB, backend, limit) app { return echoApp() }},
		{"weir in the process", ours, func(tb testing.TB, _ backend, l limit) app { return echoApp(echomw.Limit(byClient(tb, nil, l))) }},
		{"weir", ours, func(tb testing.TB, b backend, l limit) app {
			return echoApp(echomw.Limit(byClient(tb, weirStore(tb, b), l)))
		}},
		{"redis_rate by hand", peer, func(tb testing.TB, b backend, l limit) app {
			return echoApp(echoByHand(redisRate(tb, b, l)[0], l, echoClient))
		}},
		{"rueidis EVALSHA by hand", floor, func(tb testing.TB, b backend, l limit) app {
			return echoApp(echoByHand(scriptByRueidis(tb, b, l)[0], l, echoClient))
		}},
	}},
	{"Fiber", []site{
		{bare, floor, func(testing.TB, backend, limit) app { return fiberApp() }},
		{"weir in the process", ours, func(tb testing.TB, _ backend, l limit) app { return fiberApp(fibermw.Limit(byClient(tb, nil, l))) }},
		{"weir", ours, func(tb testing.TB, b backend, l limit) app {
			return fiberApp(fibermw.Limit(byClient(tb, weirStore(tb, b), l)))
		}},
		{"redis_rate by hand", peer, func(tb testing.TB, b backend, l limit) app {
			return fiberApp(fiberByHand(redisRate(tb, b, l)[0], l, fiberClient))
		}},
		{"rueidis EVALSHA by hand", floor, func(tb testing.TB, b backend, l limit) app {
			return fiberApp(fiberByHand(scriptByRueidis(tb, b, l)[0], l, fiberClient))
		}},
		{"Fiber's own", peer, func(tb testing.TB, b backend, l limit) app {
			return fiberApp(fiberlimiter.New(fiberlimiter.Config{
				Max: l.rate, Expiration: l.period, KeyGenerator: fiberClient,
				Storage: fiberredis.NewFromConnection(b.client(tb, patient)),
			}))
		}},
	}},
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

func endToEndSections() []section {
	const note = "A server, its clients with 64 connections, and Redis on one machine. Requests per second; by hand: the same handler " +
		"around different clients of Redis."
	var all []section
	for _, denied := range []bool{false, true} {
		chart, title := "http-many", "HTTP from end to end, 10 000 keys"
		if denied {
			chart, title = "http-denied", "HTTP from end to end, one key that is over its limit"
		}
		for _, f := range sites {
			s := section{
				name: chart + "-" + f.framework, chart: chart, panel: f.framework, title: title, note: note,
				unit: perSecond, baseline: bare, also: []string{"redis_rate by hand"}, serves: true,
			}
			at := new(servers)
			for _, c := range f.all {
				s.rows = append(s.rows, row{c.name, c.kind, func(tb testing.TB, size scale) slice {
					return c.open(tb, f.framework, at, denied, size)
				}})
			}
			all = append(all, s)
		}
	}
	return all
}

// open starts the site in a process of its own, and returns what loads it.
func (c site) open(tb testing.TB, framework string, at *servers, denied bool, size scale) slice {
	tb.Helper()
	t := serverTask{Framework: framework, Site: c.name, Redis: at.start(tb, redisLoad{}).addrs}
	start := func(l limit, prefix string, patient bool) (client, *process) {
		t.Rate, t.Period, t.Patient = l.rate, l.period, patient
		p := begin(tb, task{Server: &t})
		var address string
		require.NoError(tb, p.read(&address))
		return client{address, c.name + "-" + prefix + "-"}, p
	}
	if c.name != bare {
		checked, _ := start(few(), "check", true)
		checked.check(tb)
	}
	l, keys, status := lasting(), make([]string, size.many()), http.StatusOK
	if denied {
		l, keys, status = few(), keys[:1], http.StatusTooManyRequests
	}
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	measured, process := start(l, "load", false)
	if denied {
		measured.exhaust(tb, keys[0])
	}
	if c.name == bare {
		status = http.StatusOK
	}
	const connections = 64
	return func(ctx context.Context, d time.Duration) (sample, error) {
		conns := make([]*connection, connections)
		for i := range conns {
			var err error
			if conns[i], err = measured.connect(ctx); err != nil {
				return sample{}, err
			}
			defer conns[i].Close()
		}
		requests := make([][]byte, len(keys))
		for i, key := range keys {
			requests[i] = measured.request(key)
		}
		var before, after usageReport
		if err := process.ask("used", &before); err != nil {
			return sample{}, err
		}
		got, err := load{goroutines: connections, batch: 1, server: at.processorTime, work: func(g int) work {
			return func(_ context.Context, i int) (bool, error) {
				got, err := conns[g].ask(requests[(g*977+i*7919)%len(requests)])
				if err == nil && got != status {
					err = errStatus
				}
				return got == http.StatusOK, err
			}
		}}.run(ctx, d)
		if err != nil {
			return sample{}, err
		}
		if err := process.ask("used", &after); err != nil {
			return sample{}, err
		}
		// The process has served the warm-up as well, which takes an eighth of the time.
		share := float64(d) / float64(d+d/8)
		got.Client = time.Duration(float64(after.Processor-before.Processor) * share)
		got.Allocs = uint64(float64(after.Allocs-before.Allocs) * share)
		return got, nil
	}
}

// check fails unless the site admits exactly its limit, and for each client by itself.
func (c client) check(tb testing.TB) {
	tb.Helper()
	conn, err := c.connect(tb.Context())
	require.NoError(tb, err)
	defer conn.Close()
	for _, key := range []string{"0", "1"} {
		got := 0
		for range 3 * few().rate {
			status, err := conn.ask(c.request(key))
			require.NoError(tb, err)
			if status == http.StatusOK {
				got++
			} else {
				require.Equal(tb, http.StatusTooManyRequests, status)
			}
		}
		require.Equal(tb, few().rate, got, "admitted of a limit of %d", few().rate)
	}
}

// exhaust uses up the few requests of a key.
func (c client) exhaust(tb testing.TB, key string) {
	tb.Helper()
	conn, err := c.connect(tb.Context())
	require.NoError(tb, err)
	defer conn.Close()
	for range 3 * few().rate {
		_, err := conn.ask(c.request(key))
		require.NoError(tb, err)
	}
}

// serverTask is what a child has to serve.
type serverTask struct {
	Framework, Site string
	Redis           []string
	Rate            int
	Period          time.Duration
	Patient         bool
}

func (t serverTask) app(tb testing.TB) (app, error) {
	for _, f := range sites {
		for _, c := range f.all {
			if f.framework == t.Framework && c.name == t.Site {
				return c.build(tb, backend{addrs: t.Redis, patient: t.Patient}, limit{t.Rate, t.Period}), nil
			}
		}
	}
	return nil, errors.New("no such site: " + strings.Join([]string{t.Framework, t.Site}, " "))
}

// client is how to reach a site.
type client struct{ address, prefix string }

func (c client) request(key string) []byte {
	return fmt.Appendf(nil, "GET /many HTTP/1.1\r\nHost: %s\r\n%s: %s%s\r\n\r\n", c.address, clientHeader, strings.ReplaceAll(c.prefix, " ", "-"), key)
}
