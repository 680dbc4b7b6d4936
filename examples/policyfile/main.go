// Policyfile serves a route whose limit stands in a file, asks itself for it each second, and prints what changes. Run
// it, and edit the file while it runs:
//
//	go run ./examples/policyfile
//
// Lines to try: "text: 3/1m", "text: 100/1m; shadow" (on trial: nobody is refused), "keys: {ip=127.0.0.1: blocked}", and
// one with a mistake, which changes nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/core/policies/filesource"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

// first is the file at the beginning, if there is none.
const first = `format: 1
policies:
  hello:
    text: 20/1m
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		log.Fatal("policyfile: ", err)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("policyfile", flag.ContinueOnError)
	path := flags.String("file", "policies.yaml", "`file` of policies, which is written if there is none")
	address := flags.String("addr", "127.0.0.1:8080", "`address` to listen on")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if _, err := os.Stat(*path); errors.Is(err, fs.ErrNotExist) {
		if err := os.WriteFile(*path, []byte(first), 0o600); err != nil {
			return err
		}
	}

	file, err := filesource.New(*path, filesource.Options{Log: slog.New(slog.NewTextHandler(out, nil))})
	if err != nil {
		return err
	}
	defer file.Close()
	g, err := guard.New(guard.Config{
		Rule:   guard.Rule{Policy: "hello: 10/1m", Key: keyfunc.IP()}, // what holds if the file does not say otherwise
		Source: file,
	})
	if err != nil {
		return err
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })

	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: nethttp.Limit(g)(hello), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	fmt.Fprintf(out, "serving http://%s; edit %s\n", listener.Addr(), *path)
	return watch(ctx, "http://"+listener.Addr().String(), out)
}

// watch asks each second, and prints the status and the limit when they change.
func watch(ctx context.Context, url string, out io.Writer) error {
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	for last := ""; ; {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		response.Body.Close()
		now := fmt.Sprintf("%s, limit %q", response.Status, response.Header.Get("X-RateLimit-Limit"))
		if now != last {
			fmt.Fprintf(out, "%s: %s\n", time.Now().Format(time.TimeOnly), now)
		}
		last = now
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return nil
		}
	}
}
