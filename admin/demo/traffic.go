package demo

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// caller sends requests of one kind, at once as many as first says and then one each time.
type caller struct {
	service      string // app
	method, path string
	header       string // "X-User: 7, X-Plan: pro"
	first        int
	every        time.Duration
}

// callers are those of the two services: most stay within their limits, user 7 has used up the exports of the hour, and
// somebody guesses passwords.
var callers = []caller{
	{"shop", "GET", "/orders", "X-User: 7", 20, time.Second},
	{"shop", "POST", "/exports", "X-User: 7", 12, 10 * time.Second},
	{"shop", "GET", "/search", "X-User: 12", 20, 2 * time.Second},
	{"shop", "GET", "/orders", "X-User: 12, X-Plan: pro", 40, 500 * time.Millisecond},
	{"shop", "POST", "/exports", "X-User: 31", 3, time.Minute},
	{"shop", "GET", "/search", "X-Forwarded-For: 198.51.100.4", 10, 3 * time.Second},
	{"shop", "POST", "/login", "X-Forwarded-For: 198.51.100.4", 1, time.Minute},
	{"shop", "POST", "/login", "X-Forwarded-For: 203.0.113.7", 15, 700 * time.Millisecond},
	{"partners", "GET", "/prices", "X-Partner: acme, X-Plan: gold", 50, 300 * time.Millisecond},
	{"partners", "GET", "/prices", "X-Partner: initech", 30, 900 * time.Millisecond},
	{"partners", "POST", "/webhooks", "X-Partner: acme", 12, 400 * time.Millisecond},
	{"partners", "POST", "/webhooks", "X-Partner: initech", 8, 2 * time.Second},
}

// traffic sends the requests of all callers, until ctx ends.
func traffic(ctx context.Context, urls map[string]string) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: len(callers)}, Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	var sending sync.WaitGroup
	for _, c := range callers {
		sending.Go(func() {
			for range c.first {
				c.send(ctx, client, urls[c.service])
			}
			tick := time.NewTicker(c.every)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					c.send(ctx, client, urls[c.service])
				}
			}
		})
	}
	sending.Wait()
}

// send sends one request. What the answer says is the caller's affair.
func (c caller) send(ctx context.Context, client *http.Client, url string) {
	r, err := http.NewRequestWithContext(ctx, c.method, url+c.path, http.NoBody)
	if err != nil {
		return
	}
	for field := range strings.SplitSeq(c.header, ", ") {
		name, value, _ := strings.Cut(field, ": ")
		r.Header.Set(name, value)
	}
	if res, err := client.Do(r); err == nil {
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
}
