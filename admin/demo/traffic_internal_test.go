package demo

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/core/guard"
)

// What the callers send at the start shows each kind of answer: most are admitted, user 7 has no exports left and the
// guesser no logins, and each service knows every path that is asked for.
func TestFirstTraffic(t *testing.T) {
	programs := map[string]program{"shop": shop, "partners": partners}
	urls := map[string]string{}
	var mu sync.Mutex
	refused := map[string]int{} // by policy and key
	admitted := map[string]int{}
	for app, of := range programs {
		store, err := core.NewMemory(core.MemoryOptions{})
		require.NoError(t, err)
		handler, err := of(guard.Config{Store: store, Observe: func(e guard.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Result.Allowed() {
				admitted[e.Policy+" "+e.Key()]++
			} else {
				refused[e.Policy+" "+e.Key()]++
			}
		}})
		require.NoError(t, err)
		server := httptest.NewServer(signedIn(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, r)
			assert.Contains(t, []int{http.StatusOK, http.StatusTooManyRequests}, answer.Code, "%s %s", r.Method, r.URL)
			w.WriteHeader(answer.Code)
		})))
		t.Cleanup(server.Close)
		urls[app] = server.URL
	}
	client := new(http.Client)
	defer client.CloseIdleConnections()
	for _, c := range callers {
		for range c.first {
			c.send(t.Context(), client, urls[c.service])
		}
	}
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, 10, admitted["exports user=7"])
	assert.Equal(t, 2, refused["exports user=7"])
	assert.Equal(t, 10, refused["login ip=203.0.113.7"])
	assert.Positive(t, refused["webhooks header.x-partner=acme"])
	assert.Positive(t, admitted["partner header.x-partner=initech"])
	for key := range admitted {
		assert.False(t, strings.HasPrefix(key, "default"), key)
	}
}
