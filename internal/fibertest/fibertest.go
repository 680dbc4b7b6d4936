// Package fibertest is the behaviour that the adapters of Fiber 2 and 3 share beyond that of all adapters, as tests that
// each of them runs. It knows neither version of Fiber: a [Fiber] translates what the two call differently.
package fibertest

import (
	"context"
	"io"
	"log/slog"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

// Ctx has the methods that *fiber.Ctx of Fiber 2 and fiber.Ctx of Fiber 3 have in common, as far as tests need them.
type Ctx interface {
	Next() error
	Get(key string, defaultValue ...string) string
	Set(key, value string)
	Locals(key any, value ...any) any
	MultipartForm() (*multipart.Form, error)
	Response() *fasthttp.Response
	SendString(body string) error
	SendStatus(status int) error
	SendStream(stream io.Reader, size ...int) error
}

// App is an app of Fiber.
type App[C Ctx] interface {
	// Use adds middleware for all paths.
	Use(handlers ...func(C) error)
	// Add adds a route, of which all handlers but the last are middleware. One of GET answers HEAD as well.
	Add(method, pattern string, handlers ...func(C) error)
	// All adds a route for all methods.
	All(pattern string, handler func(C) error)
	// Routes returns the routes but for middleware, as guard.Guard.Lint takes them.
	Routes() []string
	// Test answers a request without a network, however long that takes.
	Test(r *http.Request) (*http.Response, error)
	// Serve answers the requests of a listener until ShutdownWithTimeout. It prints nothing.
	Serve(listener net.Listener) error
	ShutdownWithTimeout(timeout time.Duration) error
	Handler() fasthttp.RequestHandler
	Server() *fasthttp.Server
}

// Config has the options of an App, named as Fiber names them.
type Config struct{ CaseSensitive, StreamRequestBody bool }

// Fiber is a version of Fiber with the adapter for it.
type Fiber[C Ctx] struct {
	// Name is the adapter's.
	Name string
	New  func(Config) App[C]
	// Limit and Handle are those of the adapter.
	Limit  func(*guard.Guard) func(C) error
	Handle func(func(C, *guard.Verdict) error) guard.OverLimit
	// Recover is Fiber's middleware of that name.
	Recover func(C) error
	// Error returns Fiber's error of a status.
	Error func(status int) error
	// Context and SetContext are for the context of the request, RequestCtx returns that of fasthttp, and Native the
	// one that a handler is most likely to take for the request's.
	Context    func(C) context.Context
	SetContext func(C, context.Context)
	RequestCtx func(C) *fasthttp.RequestCtx
	Native     func(C) context.Context
}

// Run tests what the adapters of Fiber share.
func (f Fiber[C]) Run(t *testing.T) {
	t.Helper()
	for _, c := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"Limit without a guard", f.testLimitNeedsGuard},
		{"a unix socket has no peer", f.testUnixSocket},
		{"a test without a network has a peer", f.testAppTest},
		{"a socket of both families", f.testPeerOfBothFamilies},
		{"cases of a path", f.testPathCase},
		{"several lines of a header", f.testSeveralLines},

		{"what native handlers answer", f.testNativeAnswers},
		{"a native handler's stream is not read", f.testNativeStreamIsNotRead},
		{"a native handler that is silent behind others", f.testNativeSilentBehindOthers},
		{"the body is copied", f.testBodyIsCopied},
		{"an error that panics", f.testFinalErrorPanics},

		{"a detached permit comes back", f.testDetachedPermitComesBack},
		{"a hijack handler that is never called", f.testHijackNeverCalled},
		{"a hijacked connection keeps its permit", f.testHijackKeepsPermit},
		{"a connection that was hijacked without Detach", f.testHijackWithoutDetach},
		{"a stream reports what it uses", f.testStreamReports},

		{"an entry that is overlooked", f.testOverlooked},
		{"constraints that Lint finds", f.testLintOfConstraints},
	} {
		t.Run(c.name, c.run)
	}
}

func (f Fiber[C]) testLimitNeedsGuard(t *testing.T) {
	assert.Panics(t, func() { f.Limit(nil) })
}

// Listen serves app at an address until the end of the test, and returns the address.
func Listen[C Ctx](t testing.TB, app App[C], network, address string) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), network, address)
	require.NoError(t, err)
	serveOn(t, app, listener)
	return listener.Addr().String()
}

func serveOn[C Ctx](t testing.TB, app App[C], listener net.Listener) {
	t.Helper()
	// fasthttp's cleaner of workers sleeps for this long, even after Shutdown.
	app.Server().MaxIdleWorkerDuration = time.Second
	served := make(chan error, 1)
	go func() { served <- app.Serve(listener) }()
	t.Cleanup(func() {
		assert.NoError(t, app.ShutdownWithTimeout(20*time.Second))
		assert.NoError(t, <-served)
	})
}

// NewGuard makes a Guard that admits one request an hour.
func NewGuard(t *testing.T, key keyfunc.Func, c guard.Config) *guard.Guard {
	t.Helper()
	c.Policy, c.Key, c.Log = "1/1h", key, slog.New(slog.DiscardHandler)
	g, err := guard.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, g.Close()) })
	return g
}

// Get sends a request to app without a network. header has names and values.
func Get[C Ctx](t *testing.T, app App[C], target string, header ...string) (status int, body string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := app.Test(r)
	require.NoError(t, err)
	read, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res.StatusCode, string(read)
}

// hello answers 200.
func hello[C Ctx](c C) error { return c.SendString("hello") }
