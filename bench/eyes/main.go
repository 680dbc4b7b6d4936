// Eyes makes the picture of the page of observe/inspect for the documentation: of a program whose limits are in a Redis
// Cluster one of whose masters has died, while one caller does not stop. It needs redis-server and chromium:
//
//	go run ./eyes ../docs/debug-weir.png
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/redisstore"
	"github.com/weir-go/weir/internal/hosttest"
	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/observe/inspect"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) //nolint:forbidigo // the program's own
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "eyes:", err)
		os.Exit(1)
	}
}

// The times of the play.
const (
	well  = 15 * time.Second // before the master dies
	after = 20 * time.Second // until the picture is made
	pause = 10 * time.Millisecond
)

func run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("give the file of the picture, such as ../docs/debug-weir.png")
	}
	browser, err := exec.LookPath("chromium")
	if err != nil {
		return fmt.Errorf("%w; on Debian: apt-get install --no-install-recommends chromium", err)
	}
	file, err := filepath.Abs(args[0])
	if err != nil {
		return err
	}
	return hosttest.Run(ctx, "eyes", func(tb testing.TB) {
		if err := play(ctx, tb, func(url string) error { return picture(ctx, browser, url, file) }); err != nil {
			tb.Fatal(err)
		}
	})
}

// play stages the fault, and calls show with the URL of the page at its height.
func play(ctx context.Context, tb testing.TB, show func(url string) error) error {
	cluster := redistest.StartCluster(tb)
	o, err := observe.New(observe.Options{})
	if err != nil {
		return err
	}
	store, err := redisstore.New(cluster.Client(tb), redisstore.Options{Observe: o.ObserveFlight, ObserveBreaker: o.ObserveBreaker})
	if err != nil {
		return err
	}
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{Policy: "api: 600/1m", Key: keyfunc.ForwardedHops(1)},
		Routes: map[string]guard.Rule{
			"POST /login":  {Policy: "login: 5/1m; fail closed"},
			"GET /reports": {Policy: "reports: 20/1m, 4 concurrent; fail local 1/4"},
		},
		Store: store, Observe: o.Observe, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	defer g.Close()
	o.Watch([]*guard.Guard{g}, store)
	mux := http.NewServeMux()
	limit := nethttp.Limit(g)
	for _, route := range []string{"POST /login", "GET /reports", "GET /orders"} {
		mux.Handle(route, limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	page := &http.Server{Handler: inspect.Handler(o, inspect.Options{}), ReadHeaderTimeout: time.Second}
	go func() { _ = page.Serve(listener) }()
	defer page.Close()

	ctx, cancel := context.WithCancel(ctx)
	var callers sync.WaitGroup
	defer callers.Wait()
	defer cancel()
	for caller := range 60 {
		callers.Go(func() { call(ctx, mux, caller) })
	}
	if err := sleep(ctx, well); err != nil {
		return err
	}
	cluster.NodeFor(tb, "any").Kill()
	if err := sleep(ctx, after); err != nil {
		return err
	}
	return show("http://" + listener.Addr().String() + "/debug/weir?refresh=0")
}

// call sends requests as a caller does, the first of whom does not stop.
func call(ctx context.Context, app http.Handler, caller int) {
	between := 20 * pause
	if caller == 0 {
		between = pause
	}
	for i := caller; sleep(ctx, between) == nil; i++ {
		method, path := http.MethodGet, "/orders"
		switch {
		case caller == 0, i%40 == 0:
			method, path = http.MethodPost, "/login"
		case i%10 == 0:
			path = "/reports"
		}
		r := httptest.NewRequestWithContext(ctx, method, path, http.NoBody)
		r.Header.Set("X-Forwarded-For", "203.0."+strconv.Itoa(100+caller)+".7")
		app.ServeHTTP(httptest.NewRecorder(), r)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// picture lets a browser write what it shows of a URL into a file.
func picture(ctx context.Context, browser, url, file string) error {
	dir, err := os.MkdirTemp("", "eyes")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	args := []string{
		"--headless", "--disable-gpu", "--hide-scrollbars", "--window-size=1400,1000", "--user-data-dir=" + dir, "--screenshot=" + file,
	}
	if os.Geteuid() == 0 {
		args = append(args, "--no-sandbox") // it has none for root, and shows nothing but our page
	}
	out, err := exec.CommandContext(ctx, browser, append(args, url)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", browser, err, out)
	}
	return nil
}
