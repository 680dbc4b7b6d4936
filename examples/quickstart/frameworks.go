package main

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"

	"github.com/weir-go/weir/echomw"
	"github.com/weir-go/weir/fibermw"
	"github.com/weir-go/weir/ginmw"
	"github.com/weir-go/weir/nethttp"
)

// builder makes the guards for a framework that keeps the user's name under user.
type builder func(user any) (guards, error)

// frameworks start the same application on a listener.
var frameworks = map[string]func(net.Listener, builder) (stop func() error, err error){
	"nethttp": startNetHTTP,
	"gin":     startGin,
	"echo":    startEcho,
	"fiber":   startFiber,
}

func names() []string { return slices.Sorted(maps.Keys(frameworks)) }

// demoUser stands in for authentication, which would verify who sends a request.
const demoUser = "X-Demo-User"

// userKey is where the user's name is kept: a typed key for a context, text for the
// frameworks' own stores.
type userKey struct{}

const userName = "user"

func startNetHTTP(l net.Listener, build builder) (func() error, error) {
	g, err := build(userKey{})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello\n")) })
	mux.HandleFunc("GET /items/{id}", func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("item " + r.PathValue("id") + "\n"))
	})
	mux.Handle("POST /login", nethttp.Limit(g.login)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("welcome\n"))
	})))
	limited := nethttp.Limit(g.all)(mux)
	return serve(l, g, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user := r.Header.Get(demoUser); user != "" {
			r = r.WithContext(context.WithValue(r.Context(), userKey{}, user))
		}
		limited.ServeHTTP(w, r)
	})), nil
}

func startGin(l net.Listener, build builder) (func() error, error) {
	g, err := build(userName)
	if err != nil {
		return nil, err
	}
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.Use(func(c *gin.Context) {
		if user := c.GetHeader(demoUser); user != "" {
			c.Set(userName, user)
		}
	})
	r.Use(ginmw.Limit(g.all))
	r.GET("/hello", func(c *gin.Context) { c.String(http.StatusOK, "hello\n") })
	r.GET("/items/:id", func(c *gin.Context) { c.String(http.StatusOK, "item %s\n", c.Param("id")) })
	r.POST("/login", ginmw.Limit(g.login), func(c *gin.Context) { c.String(http.StatusOK, "welcome\n") })
	return serve(l, g, r), nil
}

func startEcho(l net.Listener, build builder) (func() error, error) {
	g, err := build(userName)
	if err != nil {
		return nil, err
	}
	e := echo.New()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if user := c.Request().Header.Get(demoUser); user != "" {
				c.Set(userName, user)
			}
			return next(c)
		}
	})
	e.Use(echomw.Limit(g.all))
	e.GET("/hello", func(c echo.Context) error { return c.String(http.StatusOK, "hello\n") })
	e.GET("/items/:id", func(c echo.Context) error { return c.String(http.StatusOK, "item "+c.Param("id")+"\n") })
	e.POST("/login", func(c echo.Context) error { return c.String(http.StatusOK, "welcome\n") }, echomw.Limit(g.login))
	return serve(l, g, e), nil
}

func startFiber(l net.Listener, build builder) (func() error, error) {
	g, err := build(userName)
	if err != nil {
		return nil, err
	}
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Use(func(c *fiber.Ctx) error {
		if user := c.Get(demoUser); user != "" {
			c.Locals(userName, user)
		}
		return c.Next()
	})
	app.Use(fibermw.Limit(g.all))
	app.Get("/hello", func(c *fiber.Ctx) error { return c.SendString("hello\n") })
	app.Get("/items/:id", func(c *fiber.Ctx) error { return c.SendString("item " + c.Params("id") + "\n") })
	app.Post("/login", fibermw.Limit(g.login), func(c *fiber.Ctx) error { return c.SendString("welcome\n") })
	done := make(chan error, 1)
	go func() { done <- app.Listener(l) }()
	return func() error {
		err := app.ShutdownWithTimeout(grace)
		if errors.Is(err, context.DeadlineExceeded) {
			err = nil // a client that neither asks nor hangs up
		}
		_ = l.Close() // in case it had not begun to serve
		select {
		case served := <-done:
			if !errors.Is(served, net.ErrClosed) {
				err = errors.Join(err, served)
			}
		case <-time.After(grace):
		}
		return errors.Join(err, g.Close())
	}, nil
}

// grace is how long a server waits for its clients when it stops.
const grace = 2 * time.Second

// serve runs what is an http.Handler. The guards are closed last: requests that are
// under way still use them.
func serve(l net.Listener, g guards, h http.Handler) (stop func() error) {
	server := &http.Server{Handler: h}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		err := server.Shutdown(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			err = server.Close() // a client that neither asks nor hangs up
		}
		if served := <-done; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return errors.Join(err, g.Close())
	}
}
