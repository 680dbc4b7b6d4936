// Gateway puts a limit into nginx, for a service that knows nothing of it: it starts the service, the endpoint that nginx
// asks before it passes a request on, and nginx, until it is interrupted. nginx must be installed.
//
//	go run ./examples/gateway
//	curl -i http://127.0.0.1:8000/   # six times
package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp/gateway"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, args []string) error {
	flags := flag.NewFlagSet("gateway", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:8000", "the address of nginx")
	if err := flags.Parse(args); err != nil {
		return err
	}

	// The service, which may be written in any language.
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "hello from the service, at", r.URL.Path)
	}))
	defer service.Close()

	// The endpoint. weir gateway is the same as a command.
	check, err := limits()
	if err != nil {
		return err
	}
	endpoint := httptest.NewServer(check)
	defer endpoint.Close()

	return nginx(ctx, out, *listen, endpoint.Listener.Addr().String(), service.Listener.Addr().String())
}

// limits returns the handler that nginx asks.
func limits() (http.Handler, error) {
	g, err := guard.New(guard.Config{
		Rule: guard.Rule{Policy: "all: 5/1m", Key: keyfunc.IP()},
		Routes: map[string]guard.Rule{
			"POST /login":  {Policy: "login: 2/1m"},
			"GET /healthz": {Instead: true}, // no limit
		},
	})
	if err != nil {
		return nil, err
	}
	return gateway.New(g, gateway.Options{
		Style:   gateway.Nginx,
		Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Deny:    http.StatusForbidden, // of which nginx.conf makes 429; nginx makes a 500 of 429
	})
}

//go:embed nginx.conf
var config string

// nginx runs nginx until ctx is over.
func nginx(ctx context.Context, out io.Writer, listen, check, service string) error {
	found, _ := exec.LookPath("nginx") // Debian has it in a directory that is not everybody's
	dir, err := os.MkdirTemp("", "gateway")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // the system removes what is left
	file := filepath.Join(dir, "nginx.conf")
	text := strings.NewReplacer("listen 80", "listen "+listen, "127.0.0.1:9090", check, "127.0.0.1:8080", service).Replace(config)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, cmp.Or(found, "/usr/sbin/nginx"), "-p", dir, "-e", "stderr", "-c", file)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("nginx does not start (apt-get install nginx-light): %w", err)
	}
	go sayWhenItAnswers(ctx, out, listen)
	if err := cmd.Wait(); ctx.Err() == nil {
		return fmt.Errorf("nginx has ended: %w", err)
	}
	return nil
}

// sayWhenItAnswers writes what to try, as soon as something listens.
func sayWhenItAnswers(ctx context.Context, out io.Writer, listen string) {
	for ctx.Err() == nil {
		if conn, err := net.Dial("tcp", listen); err == nil {
			_ = conn.Close()
			fmt.Fprintf(out, "nginx lets 5 requests a minute pass, and 2 logins:\n  curl -i http://%[1]s/\n  curl -i -X POST http://%[1]s//login\n", listen)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}
