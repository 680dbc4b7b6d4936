// Queue lets requests wait for their turn: ten a second, and twelve that may wait. Those that find no place get a
// poorer answer, at once. It sends itself more than that, and prints when each was answered:
//
//	go run ./examples/queue
package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"time"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

func main() {
	if err := run(os.Stdout, 20); err != nil {
		log.Fatal(err)
	}
}

// newGuard has one queue for all, because what is behind it is one search engine.
func newGuard() (*guard.Guard, error) {
	return guard.New(guard.Config{
		Rule: guard.Rule{
			Policy:    "search: 10/1s burst 1; wait 2s",
			Waiting:   12,
			Key:       keyfunc.Const("search"),
			OverLimit: guard.Degrade(),
		},
	})
}

// search asks the engine, or does without if it has enough to do.
func search(w http.ResponseWriter, r *http.Request) {
	if guard.Degraded(r.Context()) {
		fmt.Fprint(w, "from yesterday")
		return
	}
	fmt.Fprint(w, "from the engine")
}

// run sends n requests at once.
func run(out io.Writer, n int) error {
	g, err := newGuard()
	if err != nil {
		return err
	}
	defer g.Close() // refuses those that still wait
	mux := http.NewServeMux()
	mux.HandleFunc("GET /search", search)
	server := httptest.NewServer(nethttp.Limit(g)(mux))
	defer server.Close()

	var mu sync.Mutex
	var all sync.WaitGroup
	var failed error
	began := time.Now()
	for range n {
		all.Go(func() {
			answer, err := get(server.URL + "/search")
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
			fmt.Fprintf(out, "after %4d ms: %s\n", time.Since(began).Milliseconds(), answer)
		})
	}
	all.Wait()
	return failed
}

func get(url string) (answer string, err error) {
	resp, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.Status + " " + string(body), err
}
