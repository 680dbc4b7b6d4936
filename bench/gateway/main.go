// Gateway measures the check of nginx: how many requests a second nginx passes on with the check of docs/gateways.md, with
// limit_req, and with no limit, in turns of one run, and how many connections it opens to the endpoint:
//
//	go run -C bench ./gateway
//
// The load, the endpoint and the service behind nginx are in this process, on the same processors as nginx.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/gatewaytest"
	"github.com/weir-go/weir/internal/hosttest"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp/gateway"
)

var (
	turns   = flag.Int("turns", 15, "the turns of each")
	turn    = flag.Duration("turn", time.Second, "the time of a turn")
	clients = flag.Int("clients", 32, "the connections to nginx, which keep them")
)

func main() {
	flag.Parse()
	if err := hosttest.Run(context.Background(), "gateway", measure); err != nil { //nolint:forbidigo // a main is where a context begins
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

// more are locations without the check, in the same server.
const more = `
    location /none { proxy_pass http://127.0.0.1:8080; }
    location /limit_req { limit_req zone=all burst=1000000 nodelay; proxy_pass http://127.0.0.1:8080; }
}
`

func measure(tb testing.TB) {
	g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "api: 1000000000/1m", Key: keyfunc.IP()}})
	if err != nil {
		tb.Fatal(err)
	}
	check, err := gateway.New(g, gateway.Options{Style: gateway.Nginx, Deny: http.StatusForbidden, Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	if err != nil {
		tb.Fatal(err)
	}
	var checks, connections atomic.Int64
	endpoint := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		checks.Add(1)
		check.ServeHTTP(w, r)
	}))
	endpoint.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	endpoint.Start()
	tb.Cleanup(endpoint.Close)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello\n") }))
	tb.Cleanup(service.Close)
	config := strings.TrimSuffix(strings.TrimSpace(gatewaytest.Documented(tb, "nginx: whole")), "}") + more
	config = strings.NewReplacer("127.0.0.1:9090", endpoint.Listener.Addr().String(), "127.0.0.1:8080", service.Listener.Addr().String()).Replace(config)
	nginx := gatewaytest.Nginx(tb, "limit_req_zone $binary_remote_addr zone=all:10m rate=1000000r/s;\n"+config)

	paths := []string{"/none", "/limit_req", "/checked"}
	rates, shares := map[string][]float64{}, map[string][]float64{} // shares are those of the same turn, on a machine that may be busy
	for range *turns {
		for _, path := range paths {
			rate, err := load(tb.Context(), nginx.Addr(false), path)
			if err != nil {
				tb.Fatal(err)
			}
			rates[path] = append(rates[path], rate)
			none := rates["/none"]
			shares[path] = append(shares[path], rate/none[len(none)-1])
		}
	}
	fmt.Printf("%-12s %12s %8s\n", "nginx with", "requests/s", "share")
	for _, path := range paths {
		name := map[string]string{"/none": "no limit", "/limit_req": "limit_req", "/checked": "the check"}[path]
		fmt.Printf("%-12s %12.0f %7.0f%%\n", name, median(rates[path]), 100*median(shares[path]))
	}
	fmt.Printf("%d checks on %d connections\n", checks.Load(), connections.Load())
}

func median(of []float64) float64 {
	of = slices.Sorted(slices.Values(of))
	return of[len(of)/2]
}

// load sends requests on all connections for a turn, and returns how many a second were answered by 200.
func load(ctx context.Context, addr, path string) (rate float64, err error) {
	var all sync.WaitGroup
	var answers atomic.Int64
	failed := make(chan error, *clients)
	request := []byte("GET " + path + " HTTP/1.1\r\nHost: example.com\r\n\r\n")
	began := time.Now()
	for range *clients {
		all.Go(func() {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
			if err != nil {
				failed <- err
				return
			}
			defer func() { _ = conn.Close() }()
			reader := bufio.NewReader(conn)
			for time.Since(began) < *turn {
				if _, err = conn.Write(request); err != nil {
					failed <- err
					return
				}
				res, err := http.ReadResponse(reader, nil)
				if err != nil {
					failed <- err
					return
				}
				_, err = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
				if err == nil && res.StatusCode != http.StatusOK {
					err = fmt.Errorf("%s: %s", path, res.Status)
				}
				if err != nil {
					failed <- err
					return
				}
				if answers.Add(1); res.Close { // nginx closes a connection after a thousand requests
					_ = conn.Close()
					if conn, err = new(net.Dialer).DialContext(ctx, "tcp", addr); err != nil {
						failed <- err
						return
					}
					reader.Reset(conn)
				}
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	select {
	case err := <-failed:
		return 0, err
	default:
		return float64(answers.Load()) / took.Seconds(), nil
	}
}
