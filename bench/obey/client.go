package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weir-go/weir/nethttp/obey"
)

// childEnv makes a process a child.
const childEnv = "WEIR_OBEY_CHILD"

// child answers each line of in, which is a task in JSON, with the requests it has sent, as soon as they are over. It
// ends with in.
func child(ctx context.Context, in io.Reader, out io.Writer) (isChild bool, _ error) {
	if _, isChild = os.LookupEnv(childEnv); !isChild {
		return false, nil
	}
	fmt.Fprintln(out, "{}")
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var tasks []task
		if err := json.Unmarshal(lines.Bytes(), &tasks); err != nil {
			return true, err
		}
		done, err := each(ctx, tasks)
		if err != nil {
			return true, err
		}
		if err := json.NewEncoder(out).Encode(done); err != nil {
			return true, err
		}
	}
	return true, lines.Err()
}

// task is the part of one process in a row.
type task struct {
	URL   string
	Key   string
	Obeys bool
	Pause time.Duration // of each worker between requests
	Lasts time.Duration
}

// exchange is a request and its answer, if it went out to the server.
type exchange struct {
	Sent   int64 // microseconds since 1970
	Status int   // 0: an error
	Error  string
	Unsent bool // because of a limit

	process int // is not sent
}

// each carries out all tasks side by side.
func each(ctx context.Context, tasks []task) ([][]exchange, error) {
	done := make([][]exchange, len(tasks))
	errs := make([]error, len(tasks))
	var all sync.WaitGroup
	for i, t := range tasks {
		all.Go(func() { done[i], errs[i] = t.run(ctx) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return done, nil
}

// run sends requests with a number of workers, who begin at once. Each waits for the answer, and then pauses.
func (t task) run(ctx context.Context) ([]exchange, error) {
	wire := &recorder{next: &http.Transport{MaxIdleConnsPerHost: workers}}
	defer wire.next.CloseIdleConnections()
	var transport http.RoundTripper = wire
	if t.Obeys {
		var err error
		if transport, err = obey.New(obey.Options{Next: wire}); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	time.AfterFunc(t.Lasts, cancel) // no deadline, which a Transport would see: nobody knows when it ends
	client := &http.Client{Transport: transport}
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := t.get(ctx, client); err != nil && ctx.Err() == nil {
					_, unsent := errors.AsType[*obey.WaitError](err)
					wire.add(exchange{Error: err.Error(), Unsent: unsent})
				}
				sleep(ctx, t.Pause)
			}
		})
	}
	all.Wait()
	return wire.done, nil
}

func (t task) get(ctx context.Context, client *http.Client) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, t.URL, http.NoBody)
	if err != nil {
		return err
	}
	r.Header.Set(authorization, "Bearer "+t.Key)
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// recorder is the way to the server. It keeps what went over it.
type recorder struct {
	next *http.Transport
	mu   sync.Mutex
	done []exchange
}

func (rec *recorder) add(e exchange) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.done = append(rec.done, e)
}

func (rec *recorder) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := time.Now()
	resp, err := rec.next.RoundTrip(r)
	if err != nil {
		return nil, err // the worker reports it
	}
	rec.add(exchange{Sent: sent.UnixMicro(), Status: resp.StatusCode})
	return resp, nil
}

// count puts together what processes have sent with one key in a given time, which begins with the first request.
func count(lasts time.Duration, processes [][]exchange) tally {
	t := tally{failed: map[string]int{}}
	var all []exchange
	for p, one := range processes {
		for _, e := range one {
			if e.Unsent {
				t.unsent++
				continue
			}
			if e.Error != "" {
				t.failed[e.Error]++
				continue
			}
			e.process = p
			all = append(all, e)
		}
	}
	admitted := make([]int, len(processes))
	slices.SortFunc(all, func(a, b exchange) int { return cmp.Compare(a.Sent, b.Sent) })
	for i, e := range all {
		if e.Sent >= all[0].Sent+lasts.Microseconds() {
			break
		}
		t.answers++
		switch e.Status {
		case http.StatusOK:
			t.admitted++
			admitted[e.process]++
		case http.StatusTooManyRequests:
			t.refused++
			if i >= 10 {
				t.refusedLater++
			}
		default:
			t.failed["status "+strconv.Itoa(e.Status)]++
		}
	}
	t.least = slices.Min(admitted)
	return t
}
