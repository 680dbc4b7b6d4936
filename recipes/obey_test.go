package recipes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/nethttp/obey"
)

// patient returns a client that repeats what was refused, outside of a Transport that waits, so that each knows all
// that it needs to: one how often, the other when.
func patient(next http.RoundTripper) *retryablehttp.Client {
	transport, err := obey.New(obey.Options{Next: next}) // repeats nothing
	if err != nil {
		panic(err)
	}
	client := retryablehttp.NewClient()
	client.HTTPClient.Transport = transport
	client.CheckRetry = func(ctx context.Context, resp *http.Response, err error) (bool, error) {
		if _, ok := errors.AsType[*obey.WaitError](err); ok {
			return false, nil // nothing was sent, and the wait will not be shorter next time
		}
		failed, ok := errors.AsType[*url.Error](err)
		if ok && failed.Op == "Post" || resp != nil && resp.Request.Method == http.MethodPost {
			return false, nil
		}
		return retryablehttp.DefaultRetryPolicy(ctx, resp, err)
	}
	return client
}

// Of a thousand requests a third is refused. The server sees as many requests as retryablehttp has counted, and no POST
// twice.
func TestRetryableHTTPOutside(t *testing.T) {
	for name, refuse := range map[string]func(w http.ResponseWriter){
		"Retry-After": func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		},
		"503 beside a limit": func(w http.ResponseWriter) {
			w.Header().Set("RateLimit-Policy", `"api";q=100;w=10`)
			w.Header().Set("RateLimit", `"api";r=90;t=9`)
			w.WriteHeader(http.StatusServiceUnavailable)
		},
		"nothing said": func(w http.ResponseWriter) { w.WriteHeader(http.StatusTooManyRequests) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { retryOutside(t, refuse) })
		})
	}
}

func retryOutside(t *testing.T, refuse func(http.ResponseWriter)) {
	const requests, workers = 1000, 20
	var mu sync.Mutex
	onWire := map[string]int{} // by method and number
	received := 0
	chance := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // no secret
	transport := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		assert.NoError(t, err)
		assert.Equal(t, r.URL.Path, string(body), "the body is whole, also when it is sent again")
		onWire[r.Method+" "+r.URL.Path]++
		received++
		if chance.IntN(3) == 0 {
			refuse(w)
		}
	}))
	client := patient(transport)
	client.Logger, client.RetryMax = nil, 30 // more than chance has refusals for one request
	var counted, posts, refusedPosts atomic.Int64
	client.RequestLogHook = func(retryablehttp.Logger, *http.Request, int) { counted.Add(1) }

	numbers := make(chan int)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for n := range numbers {
				method, path := http.MethodPut, fmt.Sprint("/", n)
				if n%2 == 0 {
					method = http.MethodPost
					posts.Add(1)
				}
				r, err := retryablehttp.NewRequestWithContext(t.Context(), method, "http://api.test"+path, strings.NewReader(path))
				if !assert.NoError(t, err) {
					continue
				}
				resp, err := client.Do(r)
				if !assert.NoError(t, err, "%s %s", method, path) {
					continue
				}
				assert.NoError(t, resp.Body.Close())
				if method == http.MethodPost && resp.StatusCode != http.StatusOK {
					refusedPosts.Add(1)
					continue
				}
				assert.Equal(t, http.StatusOK, resp.StatusCode, "%s %s", method, path)
			}
		})
	}
	for n := range requests {
		numbers <- n
	}
	close(numbers)
	all.Wait()

	assert.EqualValues(t, received, counted.Load(), "retryablehttp counts what is on the wire")
	assert.Greater(t, received, requests, "it has repeated some")
	assert.Positive(t, refusedPosts.Load(), "a caller sees that its POST was refused")
	seen := int64(0)
	for request, times := range onWire {
		if strings.HasPrefix(request, http.MethodPost) {
			assert.Equal(t, 1, times, request)
			seen++
		}
	}
	assert.Equal(t, posts.Load(), seen)
}

// serve returns a transport to a server of a handler. Their connections are in memory, so that both may be in a bubble.
func serve(t *testing.T, h http.Handler) *http.Transport {
	connections := make(chan net.Conn)
	listener := &pipes{connections: connections, closed: make(chan struct{})}
	server := &http.Server{Handler: h} //nolint:gosec // no stranger connects
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	transport := &http.Transport{
		MaxIdleConnsPerHost: 100,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			here, there := net.Pipe()
			select {
			case connections <- there:
				return here, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-ended, http.ErrServerClosed)
	})
	return transport
}

// pipes is a listener whose connections come over a channel.
type pipes struct {
	connections <-chan net.Conn
	once        sync.Once
	closed      chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.connections:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "api.test", Net: "pipe"} }
