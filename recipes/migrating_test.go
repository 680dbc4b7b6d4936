package recipes

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/go-chi/httprate"
	"github.com/go-redis/redis_rate/v10"
	"github.com/gofiber/fiber/v2"
	fiberlimiter "github.com/gofiber/fiber/v2/middleware/limiter"
	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"
	"github.com/redis/go-redis/v9"
	"github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/throttled/throttled/v2"
	throttledstore "github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululestore "github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/enforce"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/echomw"
	"github.com/weir-go/weir/fibermw"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

type limiting = func(http.Handler) http.Handler

// What MIGRATING.md shows as before and after answers the same requests with the same statuses.
func TestMigrating(t *testing.T) {
	for name, c := range map[string]struct{ before, after func(*testing.T) http.Handler }{
		"ulule":     {wrap(beforeUlule), wrap(afterUlule)},
		"httprate":  {wrap(beforeHTTPRate), wrap(afterHTTPRate)},
		"sethvargo": {wrap(beforeSethvargo), wrap(afterSethvargo)},
		"throttled": {wrap(beforeThrottled), wrap(afterThrottled)},
		"echo":      {serveEcho(beforeEcho), serveEcho(afterEcho)},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := statuses(c.before(t)), statuses(c.after(t))
			assert.Equal(t, before, after)
			assert.Contains(t, before, http.StatusTooManyRequests)
			assert.Equal(t, http.StatusOK, before[0])
		})
	}
}

func statuses(h http.Handler) (codes []int) {
	for _, peer := range slices.Concat(slices.Repeat([]string{"192.0.2.1:1"}, 13), []string{"192.0.2.2:1"}) {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/items/1", nil)
		r.RemoteAddr = peer
		h.ServeHTTP(w, r)
		codes = append(codes, w.Code)
	}
	return codes
}

func wrap(limited func() (limiting, error)) func(*testing.T) http.Handler {
	return func(t *testing.T) http.Handler {
		t.Helper()
		limit, err := limited()
		require.NoError(t, err)
		return limit(hello)
	}
}

func beforeUlule() (limiting, error) {
	rate, err := limiter.NewRateFromFormatted("10-M")
	if err != nil {
		return nil, err
	}
	limit := stdlib.NewMiddleware(limiter.New(ululestore.NewStore(), rate))
	return limit.Handler, nil
}

func afterUlule() (limiting, error) {
	g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "10/1m fixed-window", Key: keyfunc.IP()}})
	if err != nil {
		return nil, err
	}
	return nethttp.Limit(g), nil
}

func beforeHTTPRate() (limiting, error) {
	byPeer := func(r *http.Request) (string, error) { return httprate.CanonicalizeIP(r.RemoteAddr), nil }
	return httprate.LimitBy(10, time.Minute, httprate.JoinKeys(byPeer, httprate.KeyByEndpoint)), nil
}

func afterHTTPRate() (limiting, error) {
	g, err := guard.New(guard.Config{Rule: guard.Rule{
		Policy: "10/1m sliding-counter",
		Key:    keyfunc.Join(keyfunc.IP(), keyfunc.Path()),
	}})
	if err != nil {
		return nil, err
	}
	return nethttp.Limit(g), nil
}

func beforeSethvargo() (limiting, error) {
	store, err := memorystore.New(&memorystore.Config{Tokens: 10, Interval: time.Minute})
	if err != nil {
		return nil, err
	}
	limit, err := httplimit.NewMiddleware(store, httplimit.IPKeyFunc())
	if err != nil {
		return nil, err
	}
	return limit.Handle, nil
}

func afterSethvargo() (limiting, error) {
	g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "10/1m fixed-window", Key: keyfunc.IP()}})
	if err != nil {
		return nil, err
	}
	return nethttp.Limit(g), nil
}

func beforeThrottled() (limiting, error) {
	store, err := throttledstore.NewCtx(65536)
	if err != nil {
		return nil, err
	}
	quota := throttled.RateQuota{MaxRate: throttled.PerMin(20), MaxBurst: 5}
	rate, err := throttled.NewGCRARateLimiterCtx(store, quota)
	if err != nil {
		return nil, err
	}
	byPeer := &throttled.VaryBy{RemoteAddr: true, Path: true}
	limit := throttled.HTTPRateLimiterCtx{RateLimiter: rate, VaryBy: byPeer}
	return limit.RateLimit, nil
}

func afterThrottled() (limiting, error) {
	g, err := guard.New(guard.Config{Rule: guard.Rule{
		Policy: "20/1m burst 6", // MaxBurst does not count the first one
		Key:    keyfunc.Join(keyfunc.IP(), keyfunc.Path()),
	}})
	if err != nil {
		return nil, err
	}
	return nethttp.Limit(g), nil
}

func serveEcho(limited func() (echo.MiddlewareFunc, error)) func(*testing.T) http.Handler {
	return func(t *testing.T) http.Handler {
		t.Helper()
		limit, err := limited()
		require.NoError(t, err)
		e := echo.New()
		e.Use(limit)
		e.GET("/items/:id", func(c echo.Context) error { return c.NoContent(http.StatusOK) })
		return e
	}
}

func beforeEcho() (echo.MiddlewareFunc, error) {
	return echomiddleware.RateLimiter(echomiddleware.NewRateLimiterMemoryStoreWithConfig(
		echomiddleware.RateLimiterMemoryStoreConfig{Rate: 1, Burst: 5, ExpiresIn: time.Hour},
	)), nil
}

func afterEcho() (echo.MiddlewareFunc, error) {
	g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "1/1s burst 5", Key: keyfunc.IP()}})
	if err != nil {
		return nil, err
	}
	return echomw.Limit(g), nil
}

func beforeFiber() (fiber.Handler, error) {
	return fiberlimiter.New(fiberlimiter.Config{
		Max:                3,
		Expiration:         time.Hour,
		SkipFailedRequests: true,
		Next:               func(c *fiber.Ctx) bool { return c.Path() == "/health" },
	}), nil
}

func afterFiber() (fiber.Handler, error) {
	g, err := guard.New(guard.Config{Rule: guard.Rule{
		Policy: "3/1h fixed-window",
		Key:    keyfunc.IP(),
		Skip:   func(r keyfunc.Request) bool { return r.Path() == "/health" },
		Settle: func(f guard.Final, taken int64) int64 {
			if f.Status >= 400 {
				return 0
			}
			return taken
		},
	}})
	if err != nil {
		return nil, err
	}
	return fibermw.Limit(g), nil
}

func TestMigratingFromFiber(t *testing.T) {
	var got [2][]int
	for i, limited := range []func() (fiber.Handler, error){beforeFiber, afterFiber} {
		limit, err := limited()
		require.NoError(t, err)
		app := fiber.New()
		app.Use(limit)
		app.Get("/failed", func(c *fiber.Ctx) error { return c.SendStatus(http.StatusBadRequest) })
		app.Get("/*", func(c *fiber.Ctx) error { return c.SendString("hello") })
		for _, path := range []string{"/", "/failed", "/failed", "/", "/health", "/", "/", "/health", "/failed"} {
			res, err := app.Test(httptest.NewRequest(http.MethodGet, path, nil), -1)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			got[i] = append(got[i], res.StatusCode)
		}
	}
	assert.Equal(t, got[0], got[1])
	assert.Equal(t, []int{200, 400, 400, 200, 200, 200, 429, 200, 429}, got[1])
}

func beforeRedisRate(rdb *redis.Client) func(r *http.Request, user string) (bool, error) {
	limiter := redis_rate.NewLimiter(rdb)
	return func(r *http.Request, user string) (bool, error) {
		res, err := limiter.Allow(r.Context(), user, redis_rate.PerMinute(10))
		if err != nil {
			return false, err
		}
		return res.Allowed > 0, nil
	}
}

func afterRedisRate(rdb *redis.Client) (func(r *http.Request, user string) (bool, error), error) {
	store, err := redisstore.New(rdb, redisstore.Options{Prefix: "myapp"})
	if err != nil {
		return nil, err
	}
	limiter, err := enforce.New(store, core.MustParse("user: 10/1m"), enforce.Options{})
	if err != nil {
		return nil, err
	}
	return func(r *http.Request, user string) (bool, error) {
		res, err := limiter.Allow(r.Context(), user)
		if err != nil {
			return false, err
		}
		return res.Allowed(), nil
	}, nil
}

// Without a server, what was open to the caller is decided by the policy: it compiles, and the fail word decides.
func TestMigratingFromRedisRate(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
	defer func() { assert.NoError(t, rdb.Close()) }()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	_, err := beforeRedisRate(rdb)(r, "ann")
	require.Error(t, err)
	after, err := afterRedisRate(rdb)
	require.NoError(t, err)
	for i := range 12 {
		ok, err := after(r, "ann")
		require.NoError(t, err)
		assert.Equal(t, i < 10, ok)
	}
}
