// Quickstart serves a route with a rate limit in the framework of your choice, counting in the process or in Redis:
//
//	go run ./examples/quickstart -demo
//	go run ./examples/quickstart -framework gin -redis 127.0.0.1:6379
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/echomw"
	"github.com/weir-go/weir/fibermw"
	"github.com/weir-go/weir/ginmw"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

// server serves a framework's application until it is shut down.
type server struct {
	serve    func(net.Listener) error
	shutdown func(context.Context) error
}

// frameworks make the same application: GET /hello, with a limit on every route.
var frameworks = map[string]func(g *guard.Guard) server{
	"nethttp": func(g *guard.Guard) server {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /hello", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello\n")) })
		return serving(&http.Server{Handler: nethttp.Limit(g)(mux)})
	},
	"gin": func(g *guard.Guard) server {
		gin.SetMode(gin.ReleaseMode)
		r := gin.New()
		r.Use(ginmw.Limit(g))
		r.GET("/hello", func(c *gin.Context) { c.String(http.StatusOK, "hello\n") })
		return serving(&http.Server{Handler: r})
	},
	"echo": func(g *guard.Guard) server {
		e := echo.New()
		e.Use(echomw.Limit(g))
		e.GET("/hello", func(c echo.Context) error { return c.String(http.StatusOK, "hello\n") })
		return serving(&http.Server{Handler: e})
	},
	"fiber": func(g *guard.Guard) server {
		app := fiber.New(fiber.Config{DisableStartupMessage: true})
		app.Use(fibermw.Limit(g))
		app.Get("/hello", func(c *fiber.Ctx) error { return c.SendString("hello\n") })
		return server{app.Listener, app.ShutdownWithContext}
	},
}

func serving(s *http.Server) server { return server{s.Serve, s.Shutdown} }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		log.Fatal("quickstart: ", err)
	}
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	flags := flag.NewFlagSet("quickstart", flag.ExitOnError)
	framework := flags.String("framework", "nethttp", "`name` of the framework: nethttp, gin, echo or fiber")
	addr := flags.String("addr", "127.0.0.1:8080", "`host:port` to listen on")
	servers := flags.String("redis", "", "`host:port[,host:port...]` of Redis; without it, the process counts")
	policy := flags.String("policy", "hello: 5/10s", "the `limits` on every route, such as \"hello: 20/1s, 1000/1h; fail open\"")
	demo := flags.Bool("demo", false, "send each framework seven requests, print the answers, and exit")
	_ = flags.Parse(args) // it ends the program if it fails
	if frameworks[*framework] == nil || flags.NArg() > 0 {
		return fmt.Errorf("-framework %q %q: give one of the four, and limits in quotes", *framework, flags.Args())
	}
	// X-Demo-User stands in for authentication: a program counts keyfunc.User("user"), which clients cannot make up.
	key := keyfunc.Join(keyfunc.FirstOf(keyfunc.Header("X-Demo-User"), keyfunc.IP()), keyfunc.Route())
	config := guard.Config{Rule: guard.Rule{Policy: *policy, Key: key}}
	if *servers != "" {
		rdb := redis.NewUniversalClient(redisstore.ClientOptions(strings.Split(*servers, ",")...))
		defer rdb.Close()
		if config.Store, err = redisstore.New(rdb, redisstore.Options{}); err != nil {
			return err
		}
	}
	g, err := guard.New(config)
	if err != nil {
		return fmt.Errorf("-policy: %w", err)
	}
	defer g.Close() // last: requests that are under way use it
	if *demo {
		for name, start := range frameworks {
			send := func(url string) error { return burst(ctx, out, name, url) }
			err = errors.Join(err, listen(ctx, "127.0.0.1:0", start(g), send))
		}
		return err
	}
	return listen(ctx, *addr, frameworks[*framework](g), func(url string) error {
		fmt.Fprintf(out, "%s serves %s with %s; try\n  curl -i %[2]s/hello\n", *framework, url, *policy)
		<-ctx.Done()
		return nil
	})
}

// burst sends requests of one user, and prints a line for each answer.
func burst(ctx context.Context, out io.Writer, name, url string) error {
	for i := range 7 {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/hello", http.NoBody)
		if err != nil {
			return err
		}
		req.Header, req.Close = http.Header{"X-Demo-User": {name + url}}, true
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		fmt.Fprintf(out, "%s %d: %s, %s left\n", name, i+1, resp.Status, resp.Header.Get("X-RateLimit-Remaining"))
	}
	return nil
}

// listen serves while f runs.
func listen(ctx context.Context, addr string, s server, f func(url string) error) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	go func() { _ = s.serve(l) }()
	err = f("http://" + l.Addr().String())
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	return errors.Join(err, s.shutdown(grace))
}
