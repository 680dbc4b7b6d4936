package obey_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
	"github.com/weir-go/weir/nethttp/obey"
)

// wire is an http.RoundTripper that takes requests to a handler in the process, and its answers back.
type wire struct {
	server http.Handler
	rtt    time.Duration // there and back; each request takes up to a tenth more
	skew   time.Duration // by which the server's clock is ahead
	epoch  bool          // X-RateLimit-Reset is in Unix seconds
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	half := w.rtt/2 + time.Duration(rand.Int64N(int64(w.rtt)/20+1000)) + 1
	if err := pause(r.Context(), half); err != nil {
		return nil, err
	}
	rec := httptest.NewRecorder()
	w.server.ServeHTTP(rec, r)
	res := rec.Result()
	if res.Header.Get("Date") == "" {
		res.Header.Set("Date", time.Now().Add(w.skew).UTC().Format(http.TimeFormat))
	}
	if reset, err := strconv.ParseInt(res.Header.Get("X-Ratelimit-Reset"), 10, 64); err == nil && w.epoch {
		res.Header.Set("X-Ratelimit-Reset", strconv.FormatInt(reset+int64(w.skew/time.Second), 10))
	}
	if err := pause(r.Context(), half); err != nil {
		return nil, err
	}
	return res, nil
}

// pause waits in the bubble.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tally counts the answers of a server.
type tally struct {
	mu      sync.Mutex
	served  int
	refused int
	late    int    // refused after the first ten
	failed  int    // requests that were not sent
	each    [8]int // requests of each client
}

func (c *tally) count(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		c.mu.Lock()
		defer c.mu.Unlock()
		if rec.Code == http.StatusOK {
			c.served++
		} else {
			c.refused++
			if c.served+c.refused > 10 {
				c.late++
			}
		}
		maps.Copy(w.Header(), rec.Header())
		w.WriteHeader(rec.Code)
	})
}

// load is a closed loop: workers that would together send five times the limit.
type load struct {
	server  func() http.Handler
	limit   int
	window  time.Duration
	length  time.Duration
	clients int
	wire    wire
	obey    bool
	phase   time.Duration // after a full second and window, at which it begins
}

func (l load) run(t testing.TB) *tally {
	_ = pause(t.Context(), l.phase+1)
	c := &tally{}
	w := l.wire
	w.server = c.count(l.server())
	ctx, cancel := context.WithTimeout(t.Context(), l.length)
	defer cancel()
	think := time.Duration(20 * float64(l.window) / float64(5*l.limit))
	var all sync.WaitGroup
	for i := range l.clients {
		client := http.Client{Transport: &w}
		if l.obey {
			transport, err := obey.New(obey.Options{Next: &w})
			require.NoError(t, err)
			client.Transport = transport
		}
		for range 20 {
			all.Go(func() {
				if pause(ctx, time.Duration(rand.Int64N(int64(think/100)))+1) != nil {
					return
				}
				for ctx.Err() == nil {
					r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server/", http.NoBody)
					require.NoError(t, err)
					res, err := client.Do(r)
					if err == nil {
						res.Body.Close()
						c.mu.Lock()
						c.each[i]++
						c.mu.Unlock()
					} else if !errors.Is(err, context.DeadlineExceeded) {
						c.mu.Lock()
						c.failed++
						c.mu.Unlock()
					}
					if pause(ctx, think+time.Duration(rand.Int64N(1000))) != nil {
						return
					}
				}
			})
		}
	}
	all.Wait()
	return c
}

var nothing = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// weir returns a server with a limit.
func weir(policy string, style guard.Headers) func() http.Handler {
	return func() http.Handler {
		g, err := guard.New(guard.Config{
			Rules:   []guard.Rule{{Policy: "api: " + policy, Key: keyfunc.Const("all")}},
			Headers: style,
		})
		if err != nil {
			panic(err)
		}
		return nethttp.Limit(g)(nothing)
	}
}

// express answers as express-rate-limit 8 does, with its store in memory: a window begins with the first request after
// the last one has ended.
func express(limit int, window time.Duration, legacy bool) func() http.Handler {
	return func() http.Handler {
		var mu sync.Mutex
		var end time.Time
		hits := 0
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			now := time.Now().Truncate(time.Millisecond)
			if !end.After(now) {
				hits, end = 0, now.Add(window)
			}
			hits++
			left := max(limit-hits, 0)
			seconds := int(math.Ceil(end.Sub(now).Seconds()))
			h := w.Header()
			if legacy {
				h.Set("X-RateLimit-Limit", strconv.Itoa(limit))
				h.Set("X-RateLimit-Remaining", strconv.Itoa(left))
				h.Set("X-RateLimit-Reset", strconv.FormatInt((end.UnixMilli()+999)/1000, 10))
			} else {
				h.Add("RateLimit", fmt.Sprintf(`"%d-in-%v"; r=%d; t=%d`, limit, window, left, seconds))
				h.Add("RateLimit-Policy", fmt.Sprintf(`"%d-in-%v"; q=%d; w=%d; pk=:ZjFhMmIzYzRkNWU2:`,
					limit, window, limit, int(math.Ceil(window.Seconds()))))
			}
			if hits > limit {
				h.Set("Retry-After", strconv.Itoa(seconds))
				w.WriteHeader(http.StatusTooManyRequests)
			}
		})
	}
}

// httprate answers as go-chi/httprate 0.16 does: two windows, the earlier one weighted, whose Reset is rounded down and
// whose Retry-After is a whole window.
func httprate(limit int, window time.Duration) func() http.Handler {
	return func() http.Handler {
		start := time.Now()
		var mu sync.Mutex
		index, current, previous := 0, 0, 0
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			now := time.Now()
			i := int(now.Sub(start) / window)
			begin := start.Add(time.Duration(i) * window)
			curr, prev := 0, 0
			switch i - index {
			case 0:
				curr, prev = current, previous
			case 1:
				prev = current
			}
			rate := int(math.Round(float64(prev)*(float64(window)-float64(now.Sub(begin)))/float64(window) + float64(curr)))
			h := w.Header()
			h.Set("X-RateLimit-Limit", strconv.Itoa(limit))
			h.Set("X-RateLimit-Reset", strconv.FormatInt(begin.Add(window).Unix(), 10))
			if rate+1 > limit {
				h.Set("X-RateLimit-Remaining", strconv.Itoa(limit-rate))
				h.Set("Retry-After", strconv.Itoa(int(window.Seconds())))
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			index, current, previous = i, curr+1, prev
			h.Set("X-RateLimit-Remaining", strconv.Itoa(limit-rate-1))
		})
	}
}
