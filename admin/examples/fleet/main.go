// Fleet starts a Redis, the record of a fleet's policies and two services of different frameworks, changes a limit while
// they run, and shows that both obey:
//
//	go run ./examples/fleet
//
// It needs redis-server, and leaves nothing behind.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/policies/redissource"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/ginmw"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) //nolint:forbidigo // the program's own
	err := run(ctx, os.Stdout)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// app is the name by which the fleet knows both services.
const app = "shop"

func run(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "weir-fleet")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	socket, stopRedis, err := startRedis(ctx, dir)
	if err != nil {
		return err
	}
	defer stopRedis()
	admin, stopAdmin, err := startAdmin(ctx, dir, socket)
	if err != nil {
		return err
	}
	defer stopAdmin()

	rdb := redis.NewUniversalClient(redisstore.ClientOptions(socket))
	defer rdb.Close()
	var services []service
	for _, of := range []struct {
		framework string
		handler   func(*guard.Guard) http.Handler
	}{{"net/http", withNetHTTP}, {"gin", withGin}} {
		s, err := newService(of.framework, rdb, of.handler)
		if err != nil {
			return err
		}
		defer s.close()
		services = append(services, s)
	}
	fmt.Fprintln(out, "The code says 100/1m:")
	if err := ask(ctx, out, services, "100"); err != nil {
		return err
	}
	for _, step := range []struct {
		says, policy, limit string
	}{
		{`The fleet says "200/1m":`, `{"text": "200/1m"}`, "200"},
		{`It gives one customer more, "300/1m":`, `{"text": "200/1m", "keys": {"header.x-user=anna": "300/1m"}}`, "300"},
	} {
		if err := admin.send(ctx, http.MethodPut, step.policy); err != nil {
			return err
		}
		fmt.Fprintln(out, step.says)
		if err := ask(ctx, out, services, step.limit); err != nil {
			return err
		}
	}
	if err := admin.send(ctx, http.MethodDelete, ""); err != nil {
		return err
	}
	fmt.Fprintln(out, "The fleet says nothing any more:")
	return ask(ctx, out, services, "100")
}

// service is a service with a source of policies.
type service struct {
	name   string
	url    string
	server *httptest.Server
	source *redissource.Source
}

// newService starts a service whose code says 100/1m. Both have a Redis and a prefix in common, and so also their counts.
func newService(name string, rdb redis.UniversalClient, handler func(*guard.Guard) http.Handler) (service, error) {
	store, err := redisstore.New(rdb, redisstore.Options{Prefix: app})
	if err != nil {
		return service{}, err
	}
	source, err := redissource.New(rdb, app, redissource.Options{Name: name})
	if err != nil {
		return service{}, err
	}
	g, err := guard.New(guard.Config{
		Store: store, Source: source,
		Rule: guard.Rule{Policy: "api: 100/1m", Key: keyfunc.HeaderInClear("X-User")},
	})
	if err != nil {
		return service{}, errors.Join(err, source.Close())
	}
	server := httptest.NewServer(handler(g))
	return service{name: name, url: server.URL, server: server, source: source}, nil
}

func (s service) close() {
	s.server.Close()
	_ = s.source.Close() // it has nothing to say
}

func withNetHTTP(g *guard.Guard) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "none yet") })
	return nethttp.Limit(g)(mux)
}

func withGin(g *guard.Guard) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.Use(ginmw.Limit(g))
	engine.GET("/orders", func(c *gin.Context) { c.String(http.StatusOK, "none yet\n") })
	return engine
}

// user is a customer, the text of whose key is "header.x-user=anna".
const user = "anna"

// ask sends requests to each service until it has answered by a limit, and prints that answer.
func ask(ctx context.Context, out io.Writer, services []service, limit string) error {
	began := time.Now()
	for _, s := range services {
		for {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/orders", http.NoBody)
			if err != nil {
				return err
			}
			request.Header.Set("X-User", user)
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				return err
			}
			if err := response.Body.Close(); err != nil {
				return err
			}
			if now := response.Header.Get("X-RateLimit-Limit"); now == limit {
				fmt.Fprintf(out, "  %-9s %s, %s left of %s, after %v\n", s.name, response.Status,
					response.Header.Get("X-RateLimit-Remaining"), now, time.Since(began).Round(time.Millisecond))
				break
			}
			if time.Since(began) > 30*time.Second {
				return fmt.Errorf("%s does not obey: its limit is %s", s.name, response.Header.Get("X-RateLimit-Limit"))
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	return nil
}
