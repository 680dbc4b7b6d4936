// Hello serves one route with a limit of five requests a minute in net/http, sends itself
// a burst that is too large, and prints what comes back:
//
//	go run ./examples/hello
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(out io.Writer) error {
	g := guard.Must("5/1m", keyfunc.Join(keyfunc.IP(), keyfunc.Route()))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "hello")
	})

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: nethttp.Limit(g)(mux)}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	return burst(out, "http://"+listener.Addr().String()+"/hello")
}

// burst sends seven requests and prints a line for each answer.
func burst(out io.Writer, url string) error {
	for i := range 7 {
		resp, err := http.Get(url)
		if err != nil {
			return err
		}
		if err := resp.Body.Close(); err != nil {
			return err
		}
		fmt.Fprintf(out, "GET /hello  %d. %s", i+1, resp.Status)
		if after := resp.Header.Get("Retry-After"); after != "" {
			fmt.Fprintf(out, ", to be tried again after %s s", after)
		} else {
			fmt.Fprintf(out, ", %s left of %s", resp.Header.Get("X-RateLimit-Remaining"), resp.Header.Get("X-RateLimit-Limit"))
		}
		fmt.Fprintln(out)
	}
	return nil
}
