package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	ginlimit "github.com/JGLTechnologies/gin-rate-limit"
	"github.com/didip/tollbooth/v7"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/httprate"
	"github.com/gofiber/fiber/v2"
	fiberlimiter "github.com/gofiber/fiber/v2/middleware/limiter"
	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"
	"github.com/sethvargo/go-limiter/httplimit"
	"github.com/stretchr/testify/require"
	"github.com/throttled/throttled/v2"
	ululegin "github.com/ulule/limiter/v3/drivers/middleware/gin"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/echomw"
	"github.com/weir-go/weir/fibermw"
	"github.com/weir-go/weir/ginmw"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

// middleware is a contender within a framework. It counts in the process, by the client's address, and sends three
// headers.
type middleware struct {
	name string
	kind kind
	// without means that it sends no headers.
	without bool
	build   func(tb testing.TB, l limit) app
}

// app is an application of any framework: an http.Handler or a *fiber.App.
type app any

const bare = "bare"

// middlewares are all contenders, by framework.
var middlewares = []struct {
	framework, fastest string
	all                []middleware
}{
	{"net/http", "sethvargo/go-limiter", []middleware{
		{bare, floor, true, func(testing.TB, limit) app { return mux() }},
		{"weir", ours, false, func(tb testing.TB, l limit) app { return nethttp.Limit(byAddress(tb, l))(mux()) }},
		{"sethvargo/go-limiter", peer, false, func(tb testing.TB, l limit) app {
			m, err := httplimit.NewMiddleware(sethvargoStore(tb, l, idle), httplimit.IPKeyFunc())
			require.NoError(tb, err)
			return m.Handle(mux())
		}},
		{"httprate", peer, false, func(_ testing.TB, l limit) app {
			return httprate.LimitBy(l.rate, l.period, func(r *http.Request) (string, error) {
				return httprate.CanonicalizeIP(peerAddress(r)), nil
			})(mux())
		}},
		{"throttled", peer, false, func(tb testing.TB, l limit) app {
			lim, err := throttled.NewGCRARateLimiterCtx(throttledStore(tb), throttledQuota(l))
			require.NoError(tb, err)
			m := throttled.HTTPRateLimiterCtx{RateLimiter: lim, VaryBy: varyByAddress{}}
			return m.RateLimit(mux())
		}},
		{"ulule/limiter", peer, false, func(_ testing.TB, l limit) app {
			return stdlib.NewMiddleware(ululeInMemory(l, idle)).Handler(mux())
		}},
		{"tollbooth", peer, false, func(_ testing.TB, l limit) app { return tollbooth.LimitHandler(tollboothLimiter(l, idle), mux()) }},
		{"by hand, x/time/rate", floor, false, func(tb testing.TB, l limit) app {
			return byHand(timeRate(tb, l, 0), l, mux())
		}},
	}},
	{"Gin", "ulule/limiter", []middleware{
		{bare, floor, true, func(testing.TB, limit) app { return ginApp() }},
		{"weir", ours, false, func(tb testing.TB, l limit) app { return ginApp(ginmw.Limit(byAddress(tb, l))) }},
		{"ulule/limiter", peer, false, func(_ testing.TB, l limit) app { return ginApp(ululegin.NewMiddleware(ululeInMemory(l, idle))) }},
		{"gin-rate-limit", peer, false, func(_ testing.TB, l limit) app {
			store := ginlimit.InMemoryStore(&ginlimit.InMemoryOptions{Rate: l.period, Limit: uint(l.rate)})
			return ginApp(ginlimit.RateLimiter(store, &ginlimit.Options{KeyFunc: func(c *gin.Context) string { return c.ClientIP() }}))
		}},
	}},
	{"Echo", "Echo's own and three headers", []middleware{
		{bare, floor, true, func(testing.TB, limit) app { return echoApp() }},
		{"weir", ours, false, func(tb testing.TB, l limit) app { return echoApp(echomw.Limit(byAddress(tb, l))) }},
		{"Echo's own and three headers", peer, false, func(_ testing.TB, l limit) app {
			return echoApp(echoHeaders(l), echomiddleware.RateLimiter(echoStore(l, idle)))
		}},
		{"Echo's own, no headers", peer, true, func(_ testing.TB, l limit) app {
			return echoApp(echomiddleware.RateLimiter(echoStore(l, idle)))
		}},
	}},
	{"Fiber", "Fiber's own and three headers", []middleware{
		{bare, floor, true, func(testing.TB, limit) app { return fiberApp() }},
		{"weir", ours, false, func(tb testing.TB, l limit) app { return fiberApp(fibermw.Limit(byAddress(tb, l))) }},
		{"Fiber's own and three headers", peer, false, func(_ testing.TB, l limit) app {
			return fiberApp(fiberlimiter.New(fiberlimiter.Config{Max: l.rate, Expiration: l.period, LimitReached: fiberHeaders(l)}))
		}},
	}},
}

func byAddress(tb testing.TB, l limit) *guard.Guard {
	tb.Helper()
	policy := core.Limit{Rate: int64(l.rate), Period: l.period}.String()
	g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: policy, Key: keyfunc.IP()}, Log: slog.New(slog.DiscardHandler)})
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = g.Close() })
	return g
}

// peerAddress is the address of a request's peer, without its port.
func peerAddress(r *http.Request) string {
	address, _, _ := net.SplitHostPort(r.RemoteAddr)
	return address
}

// varyByAddress keys throttled by the address; throttled's VaryBy would count each port by itself.
type varyByAddress struct{}

func (varyByAddress) Key(r *http.Request) string { return peerAddress(r) }

const body = "hello\n"

// mux and its like are the bare handlers.
func mux() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /many", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) })
	return m
}

func ginApp(use ...gin.HandlerFunc) *gin.Engine {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	_ = r.SetTrustedProxies(nil)
	r.Use(use...)
	r.GET("/many", func(c *gin.Context) { c.String(http.StatusOK, body) })
	return r
}

func echoApp(use ...echo.MiddlewareFunc) *echo.Echo {
	e := echo.New()
	e.IPExtractor = echo.ExtractIPDirect()
	e.Use(use...)
	e.GET("/many", func(c echo.Context) error { return c.String(http.StatusOK, body) })
	return e
}

func fiberApp(use ...fiber.Handler) *fiber.App {
	a := fiber.New(fiber.Config{DisableStartupMessage: true})
	for _, h := range use {
		a.Use(h)
	}
	a.Get("/many", func(c *fiber.Ctx) error { return c.SendString(body) })
	return a
}

// headers sets the three headers.
func (v verdict) headers(set func(name, value string), l limit) {
	set("X-Ratelimit-Limit", strconv.Itoa(l.rate))
	set("X-Ratelimit-Remaining", strconv.FormatInt(v.remaining, 10))
	set("X-Ratelimit-Reset", strconv.FormatInt(time.Now().Add(v.reset).Unix(), 10))
}

// byHand is the least that a program can write around a limiter.
func byHand(d decide, l limit, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, err := d(r.Context(), peerAddress(r))
		if err != nil {
			http.Error(w, "unavailable", http.StatusServiceUnavailable)
			return
		}
		v.headers(w.Header().Set, l)
		if !v.admitted {
			http.Error(w, "too many requests", http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// echoHeaders adds to Echo's limiter, which has no numbers, the work of writing some.
func echoHeaders(l limit) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			verdict{remaining: int64(l.rate - 1), reset: l.period}.headers(c.Response().Header().Set, l)
			return next(c)
		}
	}
}

// fiberHeaders adds to a refusal of Fiber's limiter the headers that its other answers have.
func fiberHeaders(l limit) fiber.Handler {
	return func(c *fiber.Ctx) error {
		verdict{reset: l.period}.headers(c.Set, l)
		return c.SendStatus(http.StatusTooManyRequests)
	}
}

// checkApp fails unless an application admits exactly its limit for each address, and says so in the headers of all
// answers.
func checkApp(tb testing.TB, a app, headers bool) {
	tb.Helper()
	ask := requests(tb.Context(), a, 2)
	checkExact(tb, func(_ context.Context, i int) (bool, error) {
		answer := ask(i)
		if headers && !answer.numbers() {
			return false, fmt.Errorf("a header is missing from an answer with status %d", answer.status)
		}
		if answer.status != http.StatusOK && answer.status != http.StatusTooManyRequests {
			return false, errStatus
		}
		return answer.status == http.StatusOK, nil
	})
}
