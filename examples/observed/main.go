// Observed limits a program of net/http and shows operators on this machine what it limits: it sends itself the requests
// of some callers, one of whom does not stop, and prints the first lines of its page. With -serve it goes on, for a
// browser:
//
//	go run ./examples/observed
//	go run ./examples/observed -serve
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strconv"
	"time"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/observe/inspect"
)

func main() {
	serve := flag.Bool("serve", false, "go on, with the page at http://127.0.0.1:6060")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, "127.0.0.1:6060", *serve)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// program is a program with limits, and the page on another listener, which no proxy before the program reaches.
func program() (app, page http.Handler, err error) {
	o, err := observe.New(observe.Options{})
	if err != nil {
		return nil, nil, err
	}
	store, err := core.NewMemory(core.MemoryOptions{})
	if err != nil {
		return nil, nil, err
	}
	g, err := guard.New(guard.Config{
		Rule:    guard.Rule{Policy: "api: 100/1m", Key: keyfunc.IP()},
		Routes:  map[string]guard.Rule{"POST /login": {Policy: "login: 5/1m; fail closed"}},
		Store:   store,
		Observe: o.Observe,
	})
	if err != nil {
		return nil, nil, err
	}
	o.Watch([]*guard.Guard{g}, store)
	mux := http.NewServeMux()
	limit := nethttp.Limit(g)
	mux.Handle("GET /orders", limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "orders") })))
	mux.Handle("POST /login", limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "welcome") })))
	return mux, inspect.Handler(o, inspect.Options{}), nil
}

func run(ctx context.Context, out io.Writer, address string, serve bool) error {
	app, page, err := program()
	if err != nil {
		return err
	}
	burst(ctx, app)
	if err := show(ctx, out, page); err != nil || !serve {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\nthe page is at http://%s\n", listener.Addr())
	server := &http.Server{Handler: page, ReadHeaderTimeout: time.Second}
	go func() {
		ticks := time.NewTicker(time.Second)
		defer ticks.Stop()
		for ctx.Err() == nil {
			select {
			case <-ticks.C:
				burst(ctx, app)
			case <-ctx.Done():
			}
		}
		_ = server.Close()
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// burst sends the requests of ten callers who log in once, and of one who guesses passwords.
func burst(ctx context.Context, app http.Handler) {
	send := func(method, path, from string) {
		r := httptest.NewRequestWithContext(ctx, method, path, http.NoBody)
		r.RemoteAddr = from + ":1234"
		app.ServeHTTP(httptest.NewRecorder(), r)
	}
	for caller := range 10 {
		from := "198.51.100." + strconv.Itoa(caller)
		send(http.MethodPost, "/login", from)
		send(http.MethodGet, "/orders", from)
	}
	for range 50 {
		send(http.MethodPost, "/login", "203.0.113.7")
	}
}

// show prints the first lines of the page, as curl gets it: what there is to look at.
func show(ctx context.Context, out io.Writer, page http.Handler) error {
	server := httptest.NewServer(page)
	defer server.Close()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, http.NoBody)
	if err != nil {
		return err
	}
	res, err := server.Client().Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	for blank := 0; blank < 2 && lines.Scan(); {
		if lines.Text() == "" {
			blank++
		} else if blank == 1 {
			fmt.Fprintln(out, lines.Text())
		}
	}
	return lines.Err()
}
