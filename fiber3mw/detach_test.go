package fiber3mw_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	fiberrecover "github.com/gofiber/fiber/v3/middleware/recover"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/fiber3mw"
	"github.com/weir-go/weir/keyfunc"
)

// A detached permit comes back although the server never calls the handler of a connection that is to be hijacked,
// as on "Connection: close", and after a panic; and while that handler runs it is held.
func TestDetachedPermitComesBack(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		path, header string
		held         bool // until the client leaves
	}{
		"hijacked":       {"/hijack", "", true},
		"never called":   {"/hijack", "Connection: close\r\n", false},
		"never claimed":  {"/forget", "", false},
		"panics":         {"/panic", "", false},
		"panics, closed": {"/panic", "Connection: close\r\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy := "1 concurrent lease 200ms"
			if test.held { // a busy machine may not come to renew so short a lease
				policy = "1 concurrent lease 10s"
			}
			g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: policy, Key: keyfunc.Const("k")}})
			require.NoError(t, err)
			app := fiber.New()
			app.Use(fiberrecover.New(), fiber3mw.Limit(g))
			app.Get("/", func(c fiber.Ctx) error { return c.SendString("free") })
			app.Get("/hijack", func(c fiber.Ctx) error {
				permit := guard.Detach(c.Context())
				c.RequestCtx().Hijack(func(conn net.Conn) {
					_, release := permit.Claim(context.Background()) // it outlives the request
					defer release()
					_, err := conn.Read(make([]byte, 1)) // until the client leaves
					assert.Error(t, err)
				})
				return nil
			})
			app.Get("/forget", func(c fiber.Ctx) error { guard.Detach(c.Context()); return nil })
			app.Get("/panic", func(c fiber.Ctx) error {
				guard.Detach(c.Context())
				panic("a handler")
			})
			listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			served := make(chan error, 1)
			go func() { served <- app.Listener(listener, quiet) }()

			dial := func(path, header string) net.Conn {
				conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
				require.NoError(t, err)
				_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: example.org\r\n%s\r\n", path, header)
				require.NoError(t, err)
				return conn
			}
			status := func() int {
				conn := dial("/", "Connection: close\r\n")
				defer conn.Close()
				res, err := http.ReadResponse(bufio.NewReader(conn), nil)
				require.NoError(t, err)
				require.NoError(t, res.Body.Close())
				return res.StatusCode
			}
			const long = 30 * time.Second
			conn := dial(test.path, test.header)
			if test.held {
				res, err := http.ReadResponse(bufio.NewReader(conn), nil) // before anybody else asks for the permit
				require.NoError(t, err)
				require.NoError(t, res.Body.Close())
				require.Equal(t, http.StatusOK, res.StatusCode)
				for range 100 {
					require.Equal(t, http.StatusTooManyRequests, status())
				}
			} else { // the answer, or the end: the handler is over
				require.NoError(t, conn.SetReadDeadline(time.Now().Add(long)))
				_, err := conn.Read(make([]byte, 1))
				require.NoError(t, err)
			}
			require.NoError(t, conn.Close())
			require.Eventually(t, func() bool { return status() == http.StatusOK }, long, 5*time.Millisecond)
			require.NoError(t, app.Shutdown())
			require.NoError(t, <-served)
		})
	}
}
