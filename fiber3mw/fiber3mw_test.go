package fiber3mw_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/fiber3mw"
	"github.com/weir-go/weir/internal/adaptertest"
	"github.com/weir-go/weir/keyfunc"
)

// quiet listens without a banner.
var quiet = fiber.ListenConfig{DisableStartupMessage: true}

func TestAdapter(t *testing.T) { adaptertest.Run(t, adapter(fiber.New)) }

// adapter serves apps that newApp makes.
func adapter(newApp func(...fiber.Config) *fiber.App) adaptertest.Adapter {
	return adaptertest.Adapter{
		Name: "fiber3mw",
		Serve: func(t testing.TB, app adaptertest.App) string {
			t.Helper()
			return serve(t, newApp(fiber.Config{StreamRequestBody: app.Unread}), app)
		},
		Handle:      handle,
		HandleNil:   func() guard.OverLimit { return fiber3mw.Handle(nil) },
		Pattern:     pattern,
		IsNative:    func(r any) bool { _, ok := r.(fiber.Ctx); return ok },
		NeverLeaves: true,
		HTTP1Only:   true,

		UploadsInMemory: true,
	}
}

var wildcard, rest = regexp.MustCompile(`\{(\w+)\}`), regexp.MustCompile(`\{(\w+)\.\.\.\}`)

func pattern(p string) string {
	return rest.ReplaceAllString(wildcard.ReplaceAllString(p, ":$1"), "*")
}

func serve(t testing.TB, f *fiber.App, app adaptertest.App) string {
	t.Helper()
	f.Use(recovering(app.Recovered), leaving(app.Left), login)
	for _, g := range app.Guards {
		f.Use(fiber3mw.Limit(g))
	}
	for _, r := range app.Routes {
		var handlers []any
		for _, g := range r.Guards {
			handlers = append(handlers, fiber3mw.Limit(g))
		}
		handlers = append(handlers, handler(r.Handler))
		f.Add([]string{r.Method}, pattern(r.Pattern), handlers[0], handlers[1:]...) // of GET, Fiber also makes HEAD
	}
	return "http://" + listen(t, f, "tcp", "127.0.0.1:0")
}

// listen serves f and returns the address.
func listen(t testing.TB, f *fiber.App, network, address string) string {
	t.Helper()
	listener, err := net.Listen(network, address)
	require.NoError(t, err)
	// fasthttp's cleaner of workers sleeps for this long, even after Shutdown.
	f.Server().MaxIdleWorkerDuration = time.Second
	served := make(chan error, 1)
	go func() { served <- f.Listener(listener, quiet) }()
	t.Cleanup(func() {
		assert.NoError(t, f.ShutdownWithTimeout(20*time.Second))
		assert.NoError(t, <-served)
	})
	return listener.Addr().String()
}

func recovering(recovered func(any)) fiber.Handler {
	return func(c fiber.Ctx) (err error) {
		defer func() {
			if value := recover(); value != nil {
				if recovered != nil {
					recovered(value)
				}
				err = fiber.ErrInternalServerError
			}
		}()
		return c.Next()
	}
}

func leaving(left func(context.Context)) fiber.Handler {
	return func(c fiber.Ctx) error {
		if left != nil {
			defer func() { left(c.Context()) }()
		}
		return c.Next()
	}
}

func login(c fiber.Ctx) error {
	if user := c.Get(adaptertest.UserInStore); user != "" {
		c.Locals(adaptertest.StoreKey, string([]byte(user)))
	}
	if user := c.Get(adaptertest.UserInContext); user != "" {
		c.SetContext(context.WithValue(c.Context(), adaptertest.ContextKey{}, string([]byte(user))))
	}
	if peer := c.Get(adaptertest.RewrittenPeer); peer != "" {
		c.RequestCtx().SetRemoteAddr(&net.TCPAddr{IP: net.ParseIP(peer)})
	}
	return c.Next()
}

func handler(h adaptertest.Handler) fiber.Handler {
	return func(c fiber.Ctx) error {
		h.Called(c.Context(), c)
		if h.Upload != nil {
			h.Upload(c.MultipartForm())
		}
		h.Header.Each(c.Set)
		switch {
		case h.Panic != nil:
			panic(h.Panic)
		case h.Hijack != nil:
			permit := guard.Detach(c.Context())
			c.RequestCtx().Hijack(func(conn net.Conn) {
				held, release := permit.Claim(context.Background())
				defer release()
				h.Hijack(held, conn)
			})
			return nil
		case h.Stream != nil:
			var permit *guard.Detached
			if h.Detached {
				permit = guard.Detach(c.Context())
			}
			c.RequestCtx().SetBodyStreamWriter(func(w *bufio.Writer) {
				_, release := permit.Claim(context.Background())
				defer release()
				_, _ = w.WriteString("first")
				_ = w.Flush()
				<-h.Stream
				_, _ = w.WriteString("last")
			})
			return nil
		case h.Fail && h.Status == 0:
			return errors.New("failed")
		case h.Fail:
			return fiber.NewError(h.Status, "failed")
		default:
			return c.Status(h.Code()).SendString("ok")
		}
	}
}

func handle(n adaptertest.Native) guard.OverLimit {
	return fiber3mw.Handle(func(c fiber.Ctx, v *guard.Verdict) error {
		c.Set("X-Native", v.Policy)
		n.Header.Each(c.Set)
		n.Edit(v)
		switch {
		case n.Panic != nil:
			panic(n.Panic)
		case n.Fail:
			return fiber.NewError(n.Status, "failed")
		case n.Body != "":
			return c.SendString(n.Body)
		case n.Status != 0:
			return c.Status(n.Status).SendString("native")
		}
		return nil
	})
}

func BenchmarkLimit(b *testing.B) { adaptertest.Benchmark(b, loop) }

func TestAllocations(t *testing.T) { adaptertest.TestAllocations(t, loop, 0, 0) }

func loop(tb testing.TB, g *guard.Guard, loop func(func(adaptertest.Client) int)) {
	tb.Helper()
	app := fiber.New()
	if g != nil {
		app.Use(fiber3mw.Limit(g))
	}
	app.Get("/items/:id", func(c fiber.Ctx) error { return c.SendStatus(http.StatusNoContent) })
	handle := app.Handler()
	// Only another app can make a request of fasthttp.
	outer := fiber.New()
	outer.Get("/items/1", func(c fiber.Ctx) error {
		ctx := c.RequestCtx()
		loop(func(client adaptertest.Client) int {
			ctx.SetRemoteAddr(client.Addr)
			ctx.Response.Reset()
			handle(ctx)
			return ctx.Response.StatusCode()
		})
		return nil
	})
	res, err := outer.Test(httptest.NewRequest(http.MethodGet, "/items/1", nil), fiber.TestConfig{})
	require.NoError(tb, err)
	require.NoError(tb, res.Body.Close())
}

// guard makes a Guard that admits one request an hour.
func newGuard(t *testing.T, key keyfunc.Func, c guard.Config) *guard.Guard {
	t.Helper()
	c.Policy, c.Key, c.Log = "1/1h", key, slog.New(slog.DiscardHandler)
	g, err := guard.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, g.Close()) })
	return g
}

// get sends a request to f without a network. Header has names and values.
func get(t *testing.T, f *fiber.App, target string, header ...string) (status int, body string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := f.Test(r, fiber.TestConfig{})
	require.NoError(t, err)
	read, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res.StatusCode, string(read)
}

// A unix socket has no peer: such a request has no key by address.
func TestUnixSocket(t *testing.T) {
	f := fiber.New()
	f.Use(fiber3mw.Limit(newGuard(t, keyfunc.IP(), guard.Config{})))
	path := filepath.Join(t.TempDir(), "s")
	listen(t, f, "unix", path)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	defer transport.CloseIdleConnections()
	res, err := (&http.Client{Transport: transport}).Get("http://socket/")
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	assert.Equal(t, http.StatusForbidden, res.StatusCode)
}

// A test without a network has a key by address: that of nobody else.
func TestAppTest(t *testing.T) {
	f := fiber.New()
	f.Use(fiber3mw.Limit(newGuard(t, keyfunc.IP(), guard.Config{})))
	f.Get("/", func(c fiber.Ctx) error { return c.SendString("hello") })
	status, body := get(t, f, "/")
	assert.Equal(t, http.StatusOK, status, body)
	status, _ = get(t, f, "/")
	assert.Equal(t, http.StatusTooManyRequests, status)
}

// Whatever of the answer a native handler has set, the plain one does not replace it.
func TestNativeAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		over   func(fiber.Ctx, *guard.Verdict) error
		status int
		body   string
	}{
		"status": {func(c fiber.Ctx, _ *guard.Verdict) error { c.Status(http.StatusTeapot); return nil }, http.StatusTeapot, ""},
		"body":   {func(c fiber.Ctx, _ *guard.Verdict) error { return c.SendString("less") }, http.StatusTooManyRequests, "less"},
		"stream": {func(c fiber.Ctx, _ *guard.Verdict) error {
			c.RequestCtx().SetBodyStreamWriter(func(w *bufio.Writer) { _, _ = w.WriteString("less") })
			return nil
		}, http.StatusTooManyRequests, "less"},
		"next":    {func(c fiber.Ctx, _ *guard.Verdict) error { return c.Next() }, http.StatusTooManyRequests, "hello"},
		"changed": {func(_ fiber.Ctx, v *guard.Verdict) error { v.Status, v.Body = 420, []byte("calm"); return nil }, 420, "calm"},
	} {
		t.Run(name, func(t *testing.T) {
			f := fiber.New()
			f.Use(fiber3mw.Limit(newGuard(t, keyfunc.Const("all"), guard.Config{Rule: guard.Rule{OverLimit: fiber3mw.Handle(c.over)}})))
			f.Get("/", func(c fiber.Ctx) error { return c.SendString("hello") })
			get(t, f, "/")
			status, body := get(t, f, "/")
			assert.Equal(t, c.status, status)
			assert.Equal(t, c.body, body)
		})
	}
}

// A stream of a native handler is sent as it comes: nobody waits for it before.
func TestNativeStreamIsNotRead(t *testing.T) {
	f, streams := fiber.New(), false
	f.Use(func(c fiber.Ctx) error {
		err := c.Next()
		streams = c.Response().IsBodyStream()
		return err
	}, fiber3mw.Limit(newGuard(t, keyfunc.Const("all"), guard.Config{
		Rule: guard.Rule{
			OverLimit: fiber3mw.Handle(func(c fiber.Ctx, _ *guard.Verdict) error {
				return c.SendStream(strings.NewReader("")) // that it is empty, only reading tells
			}),
		},
	})))
	f.Get("/", func(c fiber.Ctx) error { return c.SendString("hello") })
	get(t, f, "/")
	assert.False(t, streams)
	status, body := get(t, f, "/")
	assert.True(t, streams)
	assert.Equal(t, http.StatusTooManyRequests, status)
	assert.Empty(t, body)
}

// What earlier handlers have set is not the native handler's answer.
func TestNativeSilentBehindOthers(t *testing.T) {
	f := fiber.New()
	f.Use(func(c fiber.Ctx) error {
		_ = c.Status(http.StatusAccepted).SendString("draft")
		return c.Next()
	}, fiber3mw.Limit(newGuard(t, keyfunc.Const("all"), guard.Config{
		Rule: guard.Rule{
			OverLimit: fiber3mw.Handle(func(fiber.Ctx, *guard.Verdict) error { return nil }),
		},
	})))
	f.Get("/", func(c fiber.Ctx) error { return c.SendString("hello") })
	get(t, f, "/")
	status, body := get(t, f, "/")
	assert.Equal(t, http.StatusTooManyRequests, status)
	assert.Equal(t, "too many requests\n", body)
}

// Middleware outside that edits the body in place edits its own.
func TestBodyIsCopied(t *testing.T) {
	f := fiber.New()
	f.Use(func(c fiber.Ctx) error {
		err := c.Next()
		c.Response().Body()[0] ^= 0x20
		return err
	}, fiber3mw.Limit(newGuard(t, keyfunc.Const("all"), guard.Config{})))
	f.Get("/", func(c fiber.Ctx) error { return c.SendString("hello") })
	get(t, f, "/")
	for range 2 {
		_, body := get(t, f, "/")
		assert.Equal(t, "Too many requests\n", body)
	}
}

// A path has one key, however it is written, where Fiber treats both cases alike.
func TestPathCase(t *testing.T) {
	for sensitive, want := range map[bool]int{false: http.StatusTooManyRequests, true: http.StatusOK} {
		f := fiber.New(fiber.Config{CaseSensitive: sensitive})
		f.Use(fiber3mw.Limit(newGuard(t, keyfunc.Path(), guard.Config{})))
		f.Get("/*", func(c fiber.Ctx) error { return c.SendStatus(http.StatusOK) })
		get(t, f, "/login")
		for _, path := range []string{"/LOGIN", "/Login/", "/%4Cogin"} {
			status, _ := get(t, f, path)
			if sensitive && path == "/%4Cogin" {
				continue // the same as /Login
			}
			assert.Equal(t, want, status, path)
		}
	}
}

func TestLimitNeedsGuard(t *testing.T) {
	assert.Panics(t, func() { fiber3mw.Limit(nil) })
}

// A socket of both families reports IPv4 clients by IPv4-mapped addresses, which no prefix of IPv4 contains.
func TestPeerOfBothFamilies(t *testing.T) {
	listener, err := net.Listen("tcp", "[::]:0")
	if err != nil {
		t.Skip("no IPv6: ", err)
	}
	peers := make(chan netip.AddrPort, 1)
	g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "9/1h", Key: keyfunc.Custom("peer", func(r keyfunc.Request) (string, error) {
		peers <- r.Peer()
		return "x", nil
	})}})
	require.NoError(t, err)
	app := fiber.New()
	app.Use(fiber3mw.Limit(g))
	served := make(chan error, 1)
	go func() { served <- app.Listener(listener, quiet) }()
	res, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", listener.Addr().(*net.TCPAddr).Port))
	if err != nil {
		t.Skip("its sockets are of IPv6 alone: ", err)
	}
	require.NoError(t, res.Body.Close())
	peer := <-peers
	assert.Equal(t, netip.MustParseAddr("127.0.0.1"), peer.Addr())
	assert.NotZero(t, peer.Port())
	http.DefaultClient.CloseIdleConnections()
	require.NoError(t, app.Shutdown())
	require.NoError(t, <-served)
}
