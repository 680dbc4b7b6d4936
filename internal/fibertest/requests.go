package fibertest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
)

// A unix socket has no peer: such a request has no key by address.
func (f Fiber[C]) testUnixSocket(t *testing.T) {
	app := f.New(Config{})
	app.Use(f.Limit(NewGuard(t, keyfunc.IP(), guard.Config{})))
	path := filepath.Join(t.TempDir(), "s")
	Listen(t, app, "unix", path)
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
func (f Fiber[C]) testAppTest(t *testing.T) {
	app := f.New(Config{})
	app.Use(f.Limit(NewGuard(t, keyfunc.IP(), guard.Config{})))
	app.Add(http.MethodGet, "/", hello[C])
	status, body := Get(t, app, "/")
	assert.Equal(t, http.StatusOK, status, body)
	status, _ = Get(t, app, "/")
	assert.Equal(t, http.StatusTooManyRequests, status)
}

// A socket of both families reports IPv4 clients by IPv4-mapped addresses, which no prefix of IPv4 contains.
func (f Fiber[C]) testPeerOfBothFamilies(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "[::]:0")
	if err != nil {
		t.Skip("no IPv6: ", err)
	}
	peers := make(chan netip.AddrPort, 1)
	g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "9/1h", Key: keyfunc.Custom("peer", func(r keyfunc.Request) (string, error) {
		peers <- r.Peer()
		return "x", nil
	})}})
	require.NoError(t, err)
	app := f.New(Config{})
	app.Use(f.Limit(g))
	serveOn(t, app, listener)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	addr := listener.Addr().(*net.TCPAddr)
	res, err := (&http.Client{Transport: transport}).Get(fmt.Sprintf("http://127.0.0.1:%d/", addr.Port))
	if err != nil {
		t.Skip("its sockets are of IPv6 alone: ", err)
	}
	require.NoError(t, res.Body.Close())
	peer := <-peers
	assert.Equal(t, netip.MustParseAddr("127.0.0.1"), peer.Addr())
	assert.NotZero(t, peer.Port())
}

// A path has one key, however it is written, where Fiber treats both cases alike.
func (f Fiber[C]) testPathCase(t *testing.T) {
	for sensitive, want := range map[bool]int{false: http.StatusTooManyRequests, true: http.StatusOK} {
		app := f.New(Config{CaseSensitive: sensitive})
		app.Use(f.Limit(NewGuard(t, keyfunc.Path(), guard.Config{})))
		app.Add(http.MethodGet, "/*", hello[C])
		Get(t, app, "/login")
		for _, path := range []string{"/LOGIN", "/Login/", "/%4Cogin"} {
			status, _ := Get(t, app, path)
			if sensitive && path == "/%4Cogin" {
				continue // the same as /Login
			}
			assert.Equal(t, want, status, path)
		}
	}
}

// What other middleware has said in several lines is kept, in one.
func (f Fiber[C]) testSeveralLines(t *testing.T) {
	const name = "Access-Control-Expose-Headers"
	app := f.New(Config{})
	app.Use(func(c C) error {
		c.Response().Header.Add(name, "ETag")
		c.Response().Header.Add(name, "Link")
		return c.Next()
	})
	app.Use(f.Limit(NewGuard(t, keyfunc.Const("all"), guard.Config{Headers: guard.Headers{XRateLimit: guard.NoXRateLimit, Expose: true}})))
	res, err := app.Test(httptest.NewRequest(http.MethodGet, "/", nil))
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	assert.Equal(t, []string{"ETag, Link, Retry-After"}, res.Header[name])
}
