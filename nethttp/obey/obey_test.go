package obey_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
	"github.com/weir-go/weir/nethttp/obey"
)

// A client that obeys sends what is left of a window, and no more.
func TestRealServer(t *testing.T) {
	g, err := guard.New(guard.Config{
		Rules:   []guard.Rule{{Policy: "api: 20/1s", Key: keyfunc.Const("all")}},
		Headers: guard.Headers{RateLimit: true},
	})
	require.NoError(t, err)
	server := httptest.NewServer(nethttp.Limit(g)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	defer server.Close()
	transport, err := obey.New(obey.Options{})
	require.NoError(t, err)
	client := http.Client{Transport: transport}
	for range 30 {
		res, err := client.Get(server.URL)
		require.NoError(t, err)
		res.Body.Close()
		require.Equal(t, http.StatusOK, res.StatusCode)
	}
}
