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
	claimed, over := make(chan struct{}), make(chan struct{})
	for name, test := range map[string]struct {
		detach func(w http.ResponseWriter, r *http.Request)
		held   bool // from when claimed is closed until over is
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
			go attend(conn, detached.Claim, claimed, over)
			<-claimed
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy := "1 concurrent lease 200ms"
			if test.held { // a busy machine may not come to renew so short a lease
				policy = "1 concurrent lease 10s"
			}
			g, err := guard.New(guard.Config{Rule: guard.Rule{Policy: policy, Key: keyfunc.Const("k")}})
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
				end := sync.OnceFunc(func() { close(over) })
				defer end()
				gone.Go(func() { ask("/detach") }) // nobody answers
				<-claimed                          // before anybody else asks for the permit
				for range 100 {
					require.Equal(t, http.StatusTooManyRequests, ask("/"))
				}
				end()
			}
			require.Eventually(t, func() bool { return ask("/") == http.StatusOK }, 30*time.Second, 5*time.Millisecond)
		})
	}
}

// attend claims the permit of a connection, closes claimed, and holds both until over is closed.
func attend(conn net.Conn, claim func(context.Context) (context.Context, func()), claimed, over chan struct{}) {
	_, release := claim(context.Background()) // it outlives the request
	defer release()
	defer conn.Close()
	close(claimed)
	<-over
}
