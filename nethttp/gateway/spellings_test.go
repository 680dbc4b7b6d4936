package gateway_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/gatewaytest"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp/gateway"
)

// spelling is a way to write /x/login, and where it is that.
type spelling struct {
	uri     string
	gateway bool   // the route of the check
	below   bool   // the pattern "/x/*" holds for it
	mux     int    // the status of net/http with the pattern "/x/login"
	nginx   string // what a service gets behind a proxy_pass with a path
}

// docs/gateways.md says what these show. ginmw has a test of what Gin does with them.
var spellings = []spelling{
	{"/x/login", true, true, 200, "/x/login"},
	{"/x/%6Cogin", true, true, 200, "/x/login"},
	{"/x//login", true, true, 307, "/x/login"},
	{"/x/./login", true, true, 307, "/x/login"},
	{"/x%2Flogin", false, false, 404, "/x/login"},
	{"/x%2flogin", false, false, 404, "/x/login"},
	{"/x/login%2F", false, true, 404, "/x/login/"},
	{"/x/login%2F..%2Flogin", false, true, 404, "/x/login"},
	{"/x/login;p=1", false, true, 404, "/x/login;p=1"},
	{"/x;p=1/login", false, false, 404, "/x;p=1/login"},
	{"/x/login%3Bp=1", false, true, 404, "/x/login;p=1"},
	{"/x/login%20", false, true, 404, "/x/login%20"},
	{"/x/login/", false, true, 404, "/x/login/"},
	{"/x/LOGIN", false, true, 404, "/x/LOGIN"},
}

func TestSpellings(t *testing.T) {
	t.Parallel()
	routeOf := func(route, uri string) string {
		counted := new(keys)
		g := newGuard(t, guard.Config{
			Rule:    guard.Rule{Policy: "all: 9/1h", Key: keyfunc.IP()},
			Routes:  map[string]guard.Rule{route: {Policy: "route: 9/1h", Instead: true}},
			Observe: counted.observe,
		})
		h := newGateway(t, g, gateway.Options{Style: gateway.Nginx})
		assert.Equal(t, http.StatusOK, serve(h, check{uri: uri}.in(gateway.Nginx)).Code, uri)
		took := counted.take()
		require.Len(t, took, 1, "a rule for all requests holds, however they are written")
		name, _, _ := strings.Cut(took[0], " ")
		return name
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/x/login", func(http.ResponseWriter, *http.Request) {})
	for _, s := range spellings {
		assert.Equal(t, s.gateway, routeOf("/x/login", s.uri) == "route", s.uri)
		assert.Equal(t, s.below, routeOf("/x/*", s.uri) == "route", s.uri)
		assert.Equal(t, "route", routeOf("/*", s.uri), s.uri)
		r := httptest.NewRequest(http.MethodGet, s.uri, nil)
		assert.Equal(t, s.mux, serve(mux, r).Code, s.uri)
	}
}

// A proxy_pass of nginx with a path passes another spelling on than nginx has got, and one without passes the same.
func TestSpellingsBehindNginx(t *testing.T) {
	t.Parallel()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Got", r.RequestURI)
	}))
	t.Cleanup(service.Close)
	start := func(pass string) *gatewaytest.Server {
		return gatewaytest.Nginx(t, "server { listen 80; location / { proxy_pass "+pass+"; } }")
	}
	same, path := start(service.URL), start(service.URL+"/")
	transport := new(http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	got := func(front *gatewaytest.Server, uri string) string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+front.Addr(false)+uri, nil)
		require.NoError(t, err)
		res, err := transport.RoundTrip(r)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res.Header.Get("X-Got")
	}
	for _, s := range spellings {
		assert.Equal(t, s.uri, got(same, s.uri))
		assert.Equal(t, s.nginx, got(path, s.uri), s.uri)
	}
}
