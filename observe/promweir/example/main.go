// Example is a program of net/http with limits that are counted in Redis. Prometheus reads what they do from another
// address, which clients do not reach:
//
//	go run ./example -redis 127.0.0.1:6379
//	curl http://127.0.0.1:8080/hello
//	curl http://127.0.0.1:2112/metrics
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/observe/promweir"
)

func main() {
	server := flag.String("redis", "127.0.0.1:6379", "`address` of Redis")
	listen := flag.String("listen", "127.0.0.1:8080", "`address` for clients")
	metrics := flag.String("metrics", "127.0.0.1:2112", "`address` for Prometheus")
	deadline := flag.Duration("deadline", redisstore.DefaultDeadline, "`time` in which Redis must have answered")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) //nolint:forbidigo // a main is where a context begins
	err := run(ctx, *server, *listen, *metrics, *deadline, os.Stdout)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, server, listen, metrics string, deadline time.Duration, out io.Writer) error {
	o, err := observe.New(observe.Options{})
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(promweir.New(o, promweir.Options{}))

	rdb := redis.NewUniversalClient(redisstore.ClientOptions(server))
	defer rdb.Close()
	store, err := redisstore.New(rdb, redisstore.Options{
		Deadline: deadline, Observe: o.ObserveFlight, ObserveBreaker: o.ObserveBreaker,
	})
	if err != nil {
		return err
	}
	g, err := guard.New(guard.Config{
		Rule:    guard.Rule{Policy: "api: 1000/1s", Key: keyfunc.IP()},
		Store:   store,
		Observe: o.Observe,
	})
	if err != nil {
		return err
	}
	defer g.Close()
	login := g.With("login", "100/1s; fail closed")
	o.Watch([]*guard.Guard{g, login})

	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	forClients := http.NewServeMux()
	forClients.Handle("GET /hello", nethttp.Limit(g)(hello))
	forClients.Handle("POST /login", nethttp.Limit(login)(hello))
	forPrometheus := http.NewServeMux()
	forPrometheus.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))

	failed := make(chan error, 2)
	for _, s := range []struct {
		name, addr string
		handler    http.Handler
	}{{"clients", listen, forClients}, {"Prometheus", metrics, forPrometheus}} {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.addr)
		if err != nil {
			return err
		}
		server := &http.Server{Handler: s.handler, ReadHeaderTimeout: 10 * time.Second}
		defer server.Close()
		go func() { failed <- server.Serve(l) }()
		fmt.Fprintf(out, "for %s: http://%s\n", s.name, l.Addr())
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}
