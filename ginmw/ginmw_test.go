package ginmw_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/ginmw"
	"github.com/weir-go/weir/internal/adaptertest"
	"github.com/weir-go/weir/keyfunc"
)

func init() { gin.SetMode(gin.TestMode) }

func TestAdapter(t *testing.T) {
	adaptertest.Run(t, adaptertest.Adapter{
		Name:      "ginmw",
		Serve:     serve,
		Handle:    handle,
		HandleNil: func() guard.OverLimit { return ginmw.Handle(nil) },
		Pattern:   pattern,
		IsNative:  func(r any) bool { _, ok := r.(*gin.Context); return ok },
	})
}

var wildcard, rest = regexp.MustCompile(`\{(\w+)\}`), regexp.MustCompile(`\{(\w+)\.\.\.\}`)

func pattern(p string) string {
	return rest.ReplaceAllString(wildcard.ReplaceAllString(p, ":$1"), "*$1")
}

func serve(t testing.TB, app adaptertest.App) string {
	t.Helper()
	engine := gin.New()
	engine.Use(recovering(app.Recovered), leaving(app.Left), login)
	engine.Use(limited(app.Guards)...)
	for _, r := range app.Routes {
		methods := []string{r.Method}
		if r.Method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
		engine.Match(methods, pattern(r.Pattern), append(limited(r.Guards), handler(r.Handler))...)
	}
	return adaptertest.ServeHTTP(t, engine)
}

func limited(guards []*guard.Guard) (handlers []gin.HandlerFunc) {
	for _, g := range guards {
		handlers = append(handlers, ginmw.Limit(g))
	}
	return handlers
}

// recovering does not abort, as gin's own Recovery does: so a handler that runs on
// after a panic would be seen.
func recovering(recovered func(any)) gin.HandlerFunc {
	return func(c *gin.Context) {
		defer func() {
			if value := recover(); value != nil {
				if recovered != nil {
					recovered(value)
				}
				c.Status(http.StatusInternalServerError)
			}
		}()
		c.Next()
	}
}

func leaving(left func(context.Context)) gin.HandlerFunc {
	return func(c *gin.Context) {
		if left != nil {
			defer func() { left(c.Request.Context()) }()
		}
		c.Next()
	}
}

func login(c *gin.Context) {
	if user := c.GetHeader(adaptertest.UserInStore); user != "" {
		c.Set(adaptertest.StoreKey, user)
	}
	if user := c.GetHeader(adaptertest.UserInContext); user != "" {
		c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), adaptertest.ContextKey{}, user))
	}
	if peer := c.GetHeader(adaptertest.RewrittenPeer); peer != "" {
		c.Request.RemoteAddr = peer
	}
}

func handler(h adaptertest.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		h.Called(c.Request.Context(), c)
		if h.Upload != nil {
			err := c.Request.ParseMultipartForm(0)
			h.Upload(c.Request.MultipartForm, err)
		}
		h.Header.Each(c.Header)
		switch {
		case h.Panic != nil:
			panic(h.Panic)
		case h.Hijack != nil:
			if conn, _, err := c.Writer.Hijack(); err == nil {
				defer conn.Close()
				h.Hijack(c.Request.Context(), conn)
			}
		case h.Stream != nil:
			_, _ = c.Writer.WriteString("first")
			c.Writer.Flush()
			<-h.Stream
			_, _ = c.Writer.WriteString("last")
		case h.Fail && h.Status == 0:
			_ = c.AbortWithError(http.StatusInternalServerError, errors.New("failed"))
		case h.Fail:
			_ = c.AbortWithError(h.Status, errors.New("failed"))
		default:
			c.String(h.Code(), "ok")
		}
	}
}

func handle(n adaptertest.Native) guard.OverLimit {
	return ginmw.Handle(func(c *gin.Context, v *guard.Verdict) {
		c.Header("X-Native", v.Policy)
		n.Header.Each(c.Header)
		n.Edit(v)
		switch {
		case n.Panic != nil:
			panic(n.Panic)
		case n.Fail:
			_ = c.Error(errors.New("failed"))
			c.Status(n.Status)
		case n.Body != "":
			_, _ = c.Writer.WriteString(n.Body)
		case n.Status != 0:
			c.String(n.Status, "native")
		}
	})
}

func BenchmarkLimit(b *testing.B) { adaptertest.Benchmark(b, loop) }

func TestAllocations(t *testing.T) { adaptertest.TestAllocations(t, loop, 2, 3) }

var loop = adaptertest.LoopHTTP(func(g *guard.Guard) http.Handler {
	engine := gin.New()
	if g != nil {
		engine.Use(ginmw.Limit(g))
	}
	engine.GET("/items/:id", func(c *gin.Context) { c.Status(http.StatusNoContent) })
	return engine
})

func newGuard(t *testing.T, policy string, c guard.Config) *guard.Guard {
	t.Helper()
	c.Policy, c.Key, c.Log = policy, keyfunc.IP(), slog.New(slog.DiscardHandler)
	g, err := guard.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, g.Close()) })
	return g
}

func get(h http.Handler, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	return w
}

// A refused request is aborted, also if the native handler forgets it, and after it
// no further middleware runs. A handler that means to serve less may call Next.
func TestAbort(t *testing.T) {
	for name, c := range map[string]struct {
		over   guard.OverLimit
		status int
		later  int
	}{
		"plain":     {nil, http.StatusTooManyRequests, 1},
		"forgotten": {ginmw.Handle(func(c *gin.Context, v *guard.Verdict) { c.JSON(v.Status, gin.H{}) }), http.StatusTooManyRequests, 1},
		"next":      {ginmw.Handle(func(c *gin.Context, v *guard.Verdict) { c.Next() }), http.StatusAccepted, 2},
	} {
		t.Run(name, func(t *testing.T) {
			engine, later := gin.New(), 0
			engine.Use(ginmw.Limit(newGuard(t, "1/1h", guard.Config{Rule: guard.Rule{OverLimit: c.over}})), func(*gin.Context) { later++ })
			engine.GET("/", func(c *gin.Context) { c.String(http.StatusAccepted, "ok") })
			assert.Equal(t, http.StatusAccepted, get(engine, "/").Code)
			assert.Equal(t, c.status, get(engine, "/").Code)
			assert.Equal(t, c.later, later)
		})
	}
}

// gin's own Recovery and NoRoute live together with a limit.
func TestWithRecoveryAndNoRoute(t *testing.T) {
	engine := gin.New()
	engine.Use(gin.RecoveryWithWriter(io.Discard), ginmw.Limit(newGuard(t, "2/1h", guard.Config{})))
	engine.GET("/panic", func(*gin.Context) { panic("a panic") })
	engine.NoRoute(func(c *gin.Context) { c.String(http.StatusNotFound, "own page") })
	assert.Equal(t, http.StatusInternalServerError, get(engine, "/panic").Code)
	w := get(engine, "/nothing")
	assert.Equal(t, http.StatusNotFound, w.Code)
	assert.Equal(t, "own page", w.Body.String())
	assert.Equal(t, "0", w.Header().Get("X-RateLimit-Remaining"))
	w = get(engine, "/nothing")
	assert.Equal(t, http.StatusTooManyRequests, w.Code)
	assert.Equal(t, "too many requests\n", w.Body.String())
}

func TestLimitNeedsGuard(t *testing.T) {
	assert.Panics(t, func() { ginmw.Limit(nil) })
}

// The type of a native handler's answer is the handler's: Gin keeps one that is there already.
func TestNativeType(t *testing.T) {
	gin.SetMode(gin.TestMode)
	g := guard.Must("1/1h", keyfunc.Const("all"))
	json, err := g.WithRule(guard.Rule{Policy: "json: 1/1h", OverLimit: ginmw.Handle(func(c *gin.Context, v *guard.Verdict) {
		c.JSON(v.Status, gin.H{"policy": v.Policy})
	})})
	require.NoError(t, err)
	engine := gin.New()
	engine.GET("/", ginmw.Limit(json), func(c *gin.Context) { c.Status(http.StatusNoContent) })
	for _, want := range []string{"", "application/json; charset=utf-8"} {
		w := httptest.NewRecorder()
		engine.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		assert.Equal(t, want, w.Header().Get("Content-Type"))
	}
}
