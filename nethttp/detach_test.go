package nethttp_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
)

// A detached permit comes back if nobody claims it, if the handler panics, and if its work is over; and not before.
func TestDetachedPermitComesBack(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	for name, test := range map[string]struct {
		detach func(w http.ResponseWriter, r *http.Request)
		held   bool // until release is closed
	}{
		"panics": {func(_ http.ResponseWriter, r *http.Request) {
			guard.Detach(r.Context())
			panic(http.ErrAbortHandler)
		}, false},
		"never claimed": {func(_ http.ResponseWriter, r *http.Request) { guard.Detach(r.Context()) }, false},
		"panics after it was hijacked": {func(w http.ResponseWriter, r *http.Request) {
			guard.Detach(r.Context())
			conn, _, err := http.NewResponseController(w).Hijack()
			if assert.NoError(t, err) {
				assert.NoError(t, conn.Close())
			}
			panic(http.ErrAbortHandler)
		}, false},
		"hijacked and claimed": {func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if !assert.NoError(t, err) {
				return
			}
			detached := guard.Detach(r.Context())
			started := make(chan struct{})
			go attend(conn, detached.Claim, started, release)
			<-started
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: "1 concurrent lease 200ms", Key: keyfunc.Const("k")}})
			require.NoError(t, err)
			mux := http.NewServeMux()
			mux.HandleFunc("/detach", test.detach)
			mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
			server := httptest.NewServer(nethttp.Limit(g)(mux))
			defer server.Close()
			ask := func(path string) int {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
				r.RequestURI = ""
				res, err := server.Client().Do(r)
				if err != nil { // it was cut off
					return 0
				}
				assert.NoError(t, res.Body.Close())
				return res.StatusCode
			}
			if !test.held {
				ask("/detach")
			} else {
				var gone sync.WaitGroup
				defer gone.Wait()
				gone.Go(func() { ask("/detach") }) // nobody answers
				require.Eventually(t, func() bool { return ask("/") == http.StatusTooManyRequests }, 30*time.Second, time.Millisecond)
				for start := time.Now(); time.Since(start) < time.Second; {
					require.Equal(t, http.StatusTooManyRequests, ask("/"))
				}
				close(release)
			}
			require.Eventually(t, func() bool { return ask("/") == http.StatusOK }, 30*time.Second, 5*time.Millisecond)
		})
	}
}

// attend takes care of a connection and its permit until over is closed.
func attend(conn net.Conn, claim func(context.Context) (context.Context, func()), started, over chan struct{}) {
	_, release := claim(context.Background()) // it outlives the request
	defer release()
	defer conn.Close()
	close(started)
	<-over
}
