// Obey calls an API whose limit is ten requests a second, with workers that would send fifty, through a client that
// keeps to the limit: it reads the headers of the answers, and lets requests wait until they will be admitted. After six
// seconds it prints what came of it:
//
//	go run ./examples/obey
//	go run ./examples/obey -processes 2   # which share the limit and know nothing of each other
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
	"github.com/weir-go/weir/nethttp/obey"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		log.Fatal(err)
	}
}

// workers is the number of them in all processes, and pause the time in which each does something else between requests.
const (
	workers = 10
	pause   = 200 * time.Millisecond
)

func run(out io.Writer, args []string) error {
	flags := flag.NewFlagSet("obey", flag.ContinueOnError)
	processes := flags.Int("processes", 1, "how many processes call the API")
	lasts := flags.Duration("for", 6*time.Second, "how long they do")
	of := flags.Int("workers", workers, "how many workers this process has")
	api := flags.String("api", "", "the URL of an API that is there already; \"\" starts one")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	time.AfterFunc(*lasts, cancel) // a deadline would end the wait of those whose turn comes later
	if *api != "" {
		return call(ctx, out, *api, *of)
	}
	if *processes < 1 || *processes > workers {
		return fmt.Errorf("-processes %d: give 1 to %d", *processes, workers)
	}

	var answered, refused atomic.Int64
	server, err := serve(&answered, &refused)
	if err != nil {
		return err
	}
	defer server.Close()
	if *processes == 1 {
		err = call(ctx, out, server.URL, workers)
	} else {
		err = callers(out, *processes, server.URL, *lasts)
	}
	fmt.Fprintf(out, "the API has answered %d requests in %v, and %d of them with 429\n", answered.Load(), *lasts, refused.Load())
	return err
}

// serve starts the API. It counts its answers.
func serve(answered, refused *atomic.Int64) (*httptest.Server, error) {
	g, err := guard.New(guard.Config{
		Rule:    guard.Rule{Policy: "api: 20/2s", Key: keyfunc.Header("Authorization")},
		Headers: guard.Headers{RateLimit: true},
		Observe: func(e guard.Event) {
			answered.Add(1)
			if !e.Outcome.Allowed() {
				refused.Add(1)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	return httptest.NewServer(nethttp.Limit(g)(http.HandlerFunc(hello))), nil
}

func hello(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }

// callers runs this program several times, each with its part of the workers.
func callers(out io.Writer, processes int, api string, lasts time.Duration) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	said, errs := make([][]byte, processes), make([]error, processes)
	for i := range processes {
		all.Go(func() {
			cmd := exec.Command(self, "-api", api, "-workers", fmt.Sprint(workers/processes), "-for", lasts.String())
			cmd.Stderr = os.Stderr
			said[i], errs[i] = cmd.Output()
		})
	}
	all.Wait()
	fmt.Fprintf(out, "%s", bytes.Join(said, nil))
	return errors.Join(errs...)
}

// call has a number of workers send requests until ctx is over.
func call(ctx context.Context, out io.Writer, api string, workers int) error {
	transport, err := obey.New(obey.Options{})
	if err != nil {
		return err
	}
	client := &http.Client{Transport: transport}
	var all sync.WaitGroup
	var mu sync.Mutex
	answers := map[int]int{} // by status
	var failed error
	for range workers {
		all.Go(func() {
			for ctx.Err() == nil {
				status, err := get(ctx, client, api)
				mu.Lock()
				if err == nil {
					answers[status]++
				} else if ctx.Err() == nil {
					failed = errors.Join(failed, err)
				}
				mu.Unlock()
				select {
				case <-time.After(pause):
				case <-ctx.Done():
				}
			}
		})
	}
	all.Wait()
	fmt.Fprintf(out, "process %d: %d answers 200, %d answers 429\n", os.Getpid(), answers[http.StatusOK], answers[http.StatusTooManyRequests])
	return failed
}

func get(ctx context.Context, client *http.Client, api string) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, api, http.NoBody)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer of-the-team")
	resp, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}
