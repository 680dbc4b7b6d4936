package recipes

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coder "github.com/coder/websocket"
	"github.com/gin-gonic/gin"
	fiberws "github.com/gofiber/contrib/websocket"
	"github.com/gofiber/fiber/v2"
	"github.com/gorilla/websocket"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/echomw"
	"github.com/weir-go/weir/fibermw"
	"github.com/weir-go/weir/ginmw"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

// patience bounds every wait. It is only ever used up by a failure.
const patience = 20 * time.Second

var upgrader websocket.Upgrader

// talk serves a socket until it ends: it sends back what it gets, and obeys some words.
func talk(held context.Context, read func() (string, error), write func(string) error) {
	for held.Err() == nil {
		text, err := read()
		if err != nil {
			return
		}
		switch text {
		case "return":
			return
		case "panic":
			panic("as the client asked")
		}
		if write(text) != nil {
			return
		}
	}
}

// gorilla serves a socket of gorilla/websocket, in whose handler the permit is held: there is nothing to do for it.
func gorilla(w http.ResponseWriter, r *http.Request) {
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // it has answered
	}
	defer conn.Close()
	talk(r.Context(), func() (string, error) {
		_, p, err := conn.ReadMessage()
		return string(p), err
	}, func(s string) error { return conn.WriteMessage(websocket.TextMessage, []byte(s)) })
}

// coders is the same with coder/websocket.
func coders(w http.ResponseWriter, r *http.Request) {
	conn, err := coder.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	talk(r.Context(), func() (string, error) {
		_, p, err := conn.Read(r.Context())
		return string(p), err
	}, func(s string) error { return conn.Write(r.Context(), coder.MessageText, []byte(s)) })
}

// fiberSocket serves sockets of Fiber, whose handlers run after Fiber's own: they take the permit along.
func fiberSocket(app *fiber.App, limit fiber.Handler, serve func(held context.Context, conn *fiberws.Conn)) {
	app.Get("/ws", limit, func(c *fiber.Ctx) error {
		permit := guard.Detach(c.UserContext())
		c.Locals("permit", permit)
		err := c.Next()
		if err != nil || c.Response().StatusCode() != fiber.StatusSwitchingProtocols { // there is no socket
			_, release := permit.Claim(c.UserContext())
			release()
		}
		return err
	}, fiberws.New(func(conn *fiberws.Conn) {
		held, release := conn.Locals("permit").(*guard.Detached).Claim(context.Background())
		defer release()
		serve(held, conn)
	}, fiberws.Config{RecoverHandler: func(*fiberws.Conn) { _ = recover() }}))
}

// serveHTTP serves h, as quietly as a panic allows.
func serveHTTP(t *testing.T, h http.Handler) string {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	t.Cleanup(server.Close)
	return "ws" + strings.TrimPrefix(server.URL, "http")
}

var servers = map[string]func(t *testing.T, g *guard.Guard) (url string){
	"net/http, gorilla": func(t *testing.T, g *guard.Guard) string {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /ws", gorilla)
		return serveHTTP(t, nethttp.Limit(g)(mux))
	},
	"net/http, coder": func(t *testing.T, g *guard.Guard) string {
		mux := http.NewServeMux()
		mux.Handle("GET /ws", nethttp.Limit(g)(http.HandlerFunc(coders)))
		return serveHTTP(t, mux)
	},
	"gin, gorilla": func(t *testing.T, g *guard.Guard) string {
		gin.SetMode(gin.ReleaseMode)
		engine := gin.New()
		engine.Use(gin.RecoveryWithWriter(io.Discard), ginmw.Limit(g))
		engine.GET("/ws", func(c *gin.Context) { gorilla(c.Writer, c.Request) })
		return serveHTTP(t, engine)
	},
	"gin, coder": func(t *testing.T, g *guard.Guard) string {
		gin.SetMode(gin.ReleaseMode)
		engine := gin.New()
		engine.GET("/ws", ginmw.Limit(g), func(c *gin.Context) { coders(c.Writer, c.Request) })
		return serveHTTP(t, engine)
	},
	"echo, gorilla": func(t *testing.T, g *guard.Guard) string {
		e := echo.New()
		e.Use(middleware.RecoverWithConfig(middleware.RecoverConfig{LogErrorFunc: func(echo.Context, error, []byte) error { return nil }}), echomw.Limit(g))
		e.GET("/ws", func(c echo.Context) error { gorilla(c.Response(), c.Request()); return nil })
		return serveHTTP(t, e)
	},
	"echo, coder": func(t *testing.T, g *guard.Guard) string {
		e := echo.New()
		e.GET("/ws", func(c echo.Context) error { coders(c.Response(), c.Request()); return nil }, echomw.Limit(g))
		return serveHTTP(t, e)
	},
	"fiber, contrib": func(t *testing.T, g *guard.Guard) string {
		app := fiber.New(fiber.Config{DisableStartupMessage: true})
		fiberSocket(app, fibermw.Limit(g), func(held context.Context, conn *fiberws.Conn) {
			talk(held, func() (string, error) {
				_, p, err := conn.ReadMessage()
				return string(p), err
			}, func(s string) error { return conn.WriteMessage(fiberws.TextMessage, []byte(s)) })
		})
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		served := make(chan error, 1)
		go func() { served <- app.Listener(listener) }()
		t.Cleanup(func() {
			assert.NoError(t, app.ShutdownWithTimeout(patience))
			assert.NoError(t, <-served)
		})
		return "ws://" + listener.Addr().String()
	},
}

// dial asks for a socket, and returns the status of the answer if there is none.
func dial(t *testing.T, url string) (conn *websocket.Conn, status int) {
	t.Helper()
	conn, res, err := (&websocket.Dialer{HandshakeTimeout: patience}).Dial(url+"/ws", nil)
	if errors.Is(err, websocket.ErrBadHandshake) {
		assert.Equal(t, "1", res.Header.Get("X-RateLimit-Limit"))
		return nil, res.StatusCode
	}
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	return conn, res.StatusCode
}

// A socket holds its permit from the handshake until it has really ended, however it ends, in each framework; and what
// is to be settled is settled then, and not before.
func TestWebSocketPermits(t *testing.T) {
	write := func(conn *websocket.Conn, text string) error {
		return conn.WriteMessage(websocket.TextMessage, []byte(text))
	}
	endings := map[string]func(conn *websocket.Conn) error{
		"the client says goodbye": func(conn *websocket.Conn) error {
			return conn.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""))
		},
		"the client is gone": func(conn *websocket.Conn) error { return conn.Close() },
		"the connection is reset": func(conn *websocket.Conn) error {
			return errors.Join(conn.NetConn().(*net.TCPConn).SetLinger(0), conn.Close())
		},
		"the handler returns": func(conn *websocket.Conn) error { return write(conn, "return") },
		"the handler panics":  func(conn *websocket.Conn) error { return write(conn, "panic") },
		"the client breaks a rule": func(conn *websocket.Conn) error {
			_, err := conn.NetConn().Write(bytes.Repeat([]byte{0xff}, 20))
			return err
		},
	}
	for name, serve := range servers {
		for _, settling := range []bool{false, true} { // where weir looks at the answer, too
			t.Run(name+map[bool]string{false: "", true: ", settled"}[settling], func(t *testing.T) {
				var settled, panicked atomic.Int64
				rule := guard.Rule{Policy: "sockets: 1 concurrent lease 1h", Key: keyfunc.IP()}
				if settling {
					rule.Policy = "sockets: 1 concurrent lease 1h, 1000000/1h"
					rule.Settle = func(f guard.Final, taken int64) int64 {
						settled.Add(1)
						if f.Panicked {
							panicked.Add(1)
						}
						return taken
					}
				}
				g, err := guard.New(guard.Config{Rule: rule})
				require.NoError(t, err)
				t.Cleanup(func() { assert.NoError(t, g.Close()) })
				url := serve(t, g)
				opened, last := 0, ""
				open := func() (conn *websocket.Conn) {
					require.Eventually(t, func() bool {
						var status int
						conn, status = dial(t, url)
						if status == http.StatusSwitchingProtocols {
							return true
						}
						assert.Equal(t, http.StatusTooManyRequests, status)
						return false
					}, patience, time.Millisecond, "the permit does not come back after %s", last)
					opened++
					return conn
				}
				for ending, end := range endings {
					conn := open()
					for range 2 {
						require.NoError(t, write(conn, "hello"))
						_, p, err := conn.ReadMessage()
						require.NoError(t, err, ending)
						assert.Equal(t, "hello", string(p))
						_, status := dial(t, url)
						assert.Equal(t, http.StatusTooManyRequests, status, "another socket, while this one is open")
					}
					if settling {
						assert.EqualValues(t, opened-1, settled.Load(), "before %s", ending)
					}
					last = ending
					require.NoError(t, end(conn), ending)
					open().Close()
					require.Eventually(t, func() bool { return !settling || int(settled.Load()) == opened }, patience, time.Millisecond)
					_ = conn.Close() // some have been closed
				}

				// A handshake that fails holds nothing.
				for range 3 {
					require.Eventually(t, func() bool {
						res, err := http.Get("http" + strings.TrimPrefix(url, "ws") + "/ws")
						require.NoError(t, err)
						require.NoError(t, res.Body.Close())
						if res.StatusCode == http.StatusTooManyRequests {
							return false
						}
						assert.Contains(t, []int{http.StatusBadRequest, http.StatusUpgradeRequired}, res.StatusCode)
						return true
					}, patience, time.Millisecond)
				}
				open().Close()
			})
		}
	}
}
