package fleettest

import (
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/echomw"
	"github.com/weir-go/weir/fibermw"
	"github.com/weir-go/weir/ginmw"
	"github.com/weir-go/weir/nethttp"
)

// frameworks serve "/" behind a guard, over a socket, and return the URL.
var frameworks = map[string]func(testing.TB, *guard.Guard) string{
	"nethttp": func(t testing.TB, g *guard.Guard) string {
		return serve(t, nethttp.Limit(g)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello\n")) })))
	},
	"gin": func(t testing.TB, g *guard.Guard) string {
		gin.SetMode(gin.ReleaseMode)
		r := gin.New()
		r.Use(ginmw.Limit(g))
		r.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "hello\n") })
		return serve(t, r)
	},
	"echo": func(t testing.TB, g *guard.Guard) string {
		e := echo.New()
		e.Use(echomw.Limit(g))
		e.GET("/", func(c echo.Context) error { return c.String(http.StatusOK, "hello\n") })
		return serve(t, e)
	},
	"fiber": func(t testing.TB, g *guard.Guard) string {
		app := fiber.New(fiber.Config{DisableStartupMessage: true})
		app.Use(fibermw.Limit(g))
		app.Get("/", func(c *fiber.Ctx) error { return c.SendString("hello\n") })
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() { done <- app.Listener(listener) }()
		t.Cleanup(func() {
			assert.NoError(t, app.ShutdownWithContext(context.WithoutCancel(t.Context())))
			assert.NoError(t, <-done)
		})
		return "http://" + listener.Addr().String()
	},
}
