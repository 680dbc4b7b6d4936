// Stream serves events (SSE), at most two streams at once for each address. It opens three, and when one has ended
// another:
//
//	go run ./examples/stream
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// events sends the time until the client leaves. The permit is the request's: it comes back when the handler returns.
// If it is lost before, because a store was gone for longer than its lease, the context ends, too.
func events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	for {
		fmt.Fprintf(w, "data: %s\n\n", time.Now().Format(time.TimeOnly))
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-ticks.C:
		case <-r.Context().Done():
			return
		}
	}
}

func run(ctx context.Context, out io.Writer) error {
	g := guard.Must("streams: 2 concurrent lease 30s", keyfunc.IP())
	mux := http.NewServeMux()
	mux.HandleFunc("GET /events", events)
	server := httptest.NewServer(nethttp.Limit(g)(mux))
	defer server.Close()
	ctx, end := context.WithCancel(ctx)
	defer end() // the streams, for which the server's Close waits

	var first context.CancelFunc
	for i := range 3 {
		one, leave := context.WithCancel(ctx)
		defer leave()
		if i == 0 {
			first = leave
		}
		status, err := open(one, server.URL+"/events")
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "stream %d: %s\n", i+1, status)
	}
	first() // and the server notices a moment later
	for {
		status, err := open(ctx, server.URL+"/events")
		if err != nil {
			return err
		}
		if status == "200 OK" {
			fmt.Fprintln(out, "when one has ended:", status)
			return nil
		}
	}
}

// open opens a stream, which lasts until ctx ends.
func open(ctx context.Context, url string) (status string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	context.AfterFunc(ctx, func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		return resp.Status, resp.Body.Close()
	}
	return resp.Status, nil
}
