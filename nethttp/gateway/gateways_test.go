package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/gatewaytest"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
	"github.com/weir-go/weir/nethttp/gateway"
)

// block is a block of a gateway's configuration in docs/gateways.md, after the comment that names it.
var block = regexp.MustCompile("(?ms)^<!-- (nginx|caddy): ([a-z ]+) -->\n\n```(?:nginx|caddyfile)\n(.*?)^```$")

// documented returns the block of that name.
func documented(t *testing.T, name string) string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/gateways.md")
	require.NoError(t, err)
	for _, found := range block.FindAllStringSubmatch(string(doc), -1) {
		if found[1]+": "+found[2] == name {
			return found[3]
		}
	}
	t.Fatalf("docs/gateways.md has no block %q", name)
	return ""
}

// Every block for nginx and Caddy has a name by which a test runs it.
func TestDocumentedBlocksAreRun(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/gateways.md")
	require.NoError(t, err)
	var names []string
	for _, found := range block.FindAllStringSubmatch(string(doc), -1) {
		names = append(names, found[1]+": "+found[2])
	}
	assert.Equal(t, []string{"nginx: whole", "nginx: in the location of the check", "nginx: in the server", "caddy: short", "caddy: long"}, names)
	assert.Len(t, names, strings.Count(string(doc), "```nginx\n")+strings.Count(string(doc), "```caddyfile\n"))
}

// door is a gateway with a service and an endpoint behind it.
type door struct {
	*gatewaytest.Server

	endpoint    *httptest.Server
	connections atomic.Int64 // to the endpoint
	bodies      atomic.Int64 // bytes that have come to it
}

// kind is a gateway as the docs configure it.
type kind struct {
	name  string
	style gateway.Style
	deny  int
	start func(t *testing.T, put put) *gatewaytest.Server
	// shows reports that the client gets the headers when it is allowed.
	shows bool
}

// put puts in a configuration what a test has in the place of what the docs have.
type put func(config string) string

// addresses puts in the addresses of the endpoint and the service.
func addresses(check, service string) put {
	return strings.NewReplacer("127.0.0.1:9090", check, "127.0.0.1:8080", service).Replace
}

// patient puts in timeouts that a busy machine keeps to, for tests of what a living endpoint says.
var patient = strings.NewReplacer(
	"proxy_connect_timeout 250ms", "proxy_connect_timeout 60s", "proxy_read_timeout 1s", "proxy_read_timeout 60s",
	"dial_timeout 250ms", "dial_timeout 60s", "response_header_timeout 1s", "response_header_timeout 60s",
).Replace

func nginx(t *testing.T, put put) *gatewaytest.Server {
	t.Helper()
	return gatewaytest.Nginx(t, "client_max_body_size 20m;\n"+put(documented(t, "nginx: whole")))
}

// passingNginx lets requests pass when the endpoint is dead.
func passingNginx(t *testing.T, put put) *gatewaytest.Server {
	t.Helper()
	const location = "    location = /weir-check {\n"
	config := documented(t, "nginx: whole")
	require.Equal(t, 1, strings.Count(config, location))
	config = strings.Replace(config, location, location+documented(t, "nginx: in the location of the check"), 1)
	config = strings.TrimSuffix(strings.TrimSpace(config), "}") + documented(t, "nginx: in the server") + "}\n"
	return gatewaytest.Nginx(t, put(config))
}

func caddy(name string) func(t *testing.T, put put) *gatewaytest.Server {
	return func(t *testing.T, put put) *gatewaytest.Server {
		t.Helper()
		return gatewaytest.Caddy(t, put(documented(t, name)))
	}
}

var kinds = []kind{
	{"nginx", gateway.Nginx, http.StatusForbidden, nginx, true},
	{"caddy", gateway.Forwarded, 0, caddy("caddy: short"), false},
	{"caddy with headers", gateway.Forwarded, 0, caddy("caddy: long"), true},
}

// open starts a gateway with these timeouts that asks check, with a service that answers with the length of the body that it was sent.
func (k kind) open(t *testing.T, check http.Handler, timeouts put) *door {
	t.Helper()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body) // the length says what came
		fmt.Fprint(w, n)
	}))
	t.Cleanup(service.Close)
	d := &door{}
	d.endpoint = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > 0 {
			d.bodies.Add(r.ContentLength)
		}
		n, _ := io.Copy(io.Discard, r.Body) // as above
		d.bodies.Add(n)
		check.ServeHTTP(w, r)
	}))
	d.endpoint.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			d.connections.Add(1)
		}
	}
	d.endpoint.Start()
	t.Cleanup(d.endpoint.Close)
	address := addresses(d.endpoint.Listener.Addr().String(), service.Listener.Addr().String())
	d.Server = k.start(t, func(config string) string { return address(timeouts(config)) })
	return d
}

// limits are rules of all kinds that a gateway can have. Nothing comes back while the test runs.
func limits() guard.Config {
	return guard.Config{
		Rule: guard.Rule{Policy: "all: 5/24h", Key: keyfunc.Join(keyfunc.IP(), host)},
		Routes: map[string]guard.Rule{
			"POST /login":         {Policy: "login: 5/24h"},
			"/items/{id}":         {Policy: "items: 10/24h", Key: keyfunc.Join(keyfunc.IP(), keyfunc.Route(), keyfunc.Method())},
			"/files/*":            {Policy: "files: 12/24h", Key: keyfunc.Join(keyfunc.IP(), keyfunc.Path()), Instead: true},
			"/keyed":              {Policy: "keyed: 10/24h", Key: keyfunc.Header("X-Api-Key"), Instead: true},
			"DELETE /busy/{$}":    {Policy: "busy: 2/24h", Instead: true, OverLimit: guard.Reject(guard.RejectOptions{Status: 503, Body: "busy\n"})},
			"/open/{anything...}": {Instead: true},
		},
	}
}

// clients are the addresses from which a worker sends. Workers have none in common, so that the order of each client's
// requests is known.
func clients(worker int) (addrs []string) {
	for i := range 3 {
		addrs = append(addrs, fmt.Sprintf("127.0.%d.%d", worker+1, i+1))
	}
	if worker == 0 {
		addrs = append(addrs, "::1")
	}
	return addrs
}

// randomRequest returns the text of a request of a worker, and the length of the body that follows it.
func randomRequest(rnd *rand.Rand, worker int) (text string, body int) {
	pick := func(of ...string) string { return of[rnd.IntN(len(of))] }
	path := ""
	for range rnd.IntN(3) {
		path += pick("/", "/.", "/x/..", "/%78/..", "/x/%2e%2E", "/%2E")
	}
	path += "/" + pick("", "login", "%6Cogin", "l%6fgin", "login/", "items/1", "items/2", "items/a%2Fb", "items/%C3%A9", "items/1/more",
		"files/a", "files/b/c", "files//d", "keyed", "busy/", "open/all", "else", "Login", "a+b", "a%20b", "it;x=1")
	path += pick("", "", "?a=b", "?x=/../y&%zz", "?")
	method := pick("GET", "GET", "POST", "POST", "PUT", "DELETE", "DELETE", "OPTIONS", "PATCH", "HEAD")
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, path, pick("example.com", "example.org", "www.example.com:8443"))
	for range rnd.IntN(4) {
		value := pick("192.0.2.9", "192.0.2.10, 192.0.2.11", "/forged", "DELETE", "forged.example", "2001:db8::9", "for=192.0.2.9", "\"\"")
		fmt.Fprintf(&b, "%s: %s\r\n", pick("X-Original-Method", "X-Original-URI", "X-Original-Host", "X-Original-Address", "x-original-uri",
			"X-Forwarded-Method", "X-Forwarded-Uri", "X-Forwarded-Host", "X-Forwarded-For", "x-forwarded-for", "X-Forwarded-Proto",
			"X-Real-IP", "Forwarded", "X-Envoy-External-Address", "X-Weir-Status", "X-Original_URI", "Client-Ip"), value)
	}
	if rnd.IntN(8) == 0 {
		fmt.Fprintf(&b, "Connection: %s\r\n", pick("X-Forwarded-For", "X-Original-Uri", "X-Forwarded-Uri, keep-alive", "X-Original-Address"))
	}
	if rnd.IntN(2) == 0 {
		fmt.Fprintf(&b, "X-Api-Key: %s-%d\r\n", pick("one", "two"), worker)
	}
	if rnd.IntN(4) == 0 {
		fmt.Fprintf(&b, "Accept: %s\r\n", pick("application/json", "application/problem+json", "*/*"))
	}
	if method == "POST" || method == "PUT" {
		switch {
		case rnd.IntN(60) == 0:
			body = 10 << 20
		case rnd.IntN(2) == 0:
			body = rnd.IntN(1000)
		}
		fmt.Fprintf(&b, "Content-Length: %d\r\n", body)
	}
	b.WriteString("\r\n")
	return b.String(), body
}

// connection is that of a client, which it keeps.
type connection struct {
	net.Conn
	answers *bufio.Reader
}

// dial connects to the gateway from an address.
func dial(ctx context.Context, d *door, from string) (*connection, error) {
	local := net.ParseIP(from)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: local}}
	conn, err := dialer.DialContext(ctx, "tcp", d.Addr(local.To4() == nil))
	if err != nil {
		return nil, err
	}
	return &connection{conn, bufio.NewReader(conn)}, nil
}

var tenMegabytes = bytes.Repeat([]byte("x"), 10<<20)

// The real gateways, as the docs configure them, refuse what the guard refuses if the client comes without them, and
// nothing else, whatever clients say of themselves.
func TestGatewaysRefuseWhatTheGuardRefuses(t *testing.T) {
	const workers = 8
	requests := 10_000
	if testing.Short() {
		requests = 1000
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			d := k.open(t, newGateway(t, newGuard(t, limits()), gateway.Options{Style: k.style, Deny: k.deny}), patient)
			direct := nethttp.Limit(newGuard(t, limits()), routesOf(limits()))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, r.ContentLength)
			}))
			var refused, passed atomic.Int64
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			var all sync.WaitGroup
			for worker := range workers {
				all.Go(func() {
					rnd := rand.New(rand.NewPCG(seed, uint64(worker)))
					conns := map[string]*connection{}
					defer func() {
						for _, c := range conns {
							_ = c.Close()
						}
					}()
					from := clients(worker)
					for range requests / workers {
						client := from[rnd.IntN(len(from))]
						text, body := randomRequest(rnd, worker)
						text = strings.Replace(text, "example", fmt.Sprintf("w%d.example", rnd.IntN(requests/1000)), 1) // so that about half pass
						got, err := exchange(t.Context(), d, conns, client, text, body)
						want := expected(t, direct, client, text)
						if err != nil && want.Code != http.StatusOK && body == len(tenMegabytes) {
							refused.Add(1) // the gateway has closed the connection, and the answer was lost
							continue
						}
						if !assert.NoError(t, err, text) {
							return
						}
						if !same(t, k, want, got, client, text) {
							return
						}
						if want.Code == http.StatusOK {
							passed.Add(1)
							if !strings.HasPrefix(text, "HEAD") && !assert.Equal(t, fmt.Sprint(body), got.body, "all of the body comes to the service: %s", text) {
								return
							}
						} else {
							refused.Add(1)
						}
					}
				})
			}
			all.Wait()
			t.Logf("%d passed, %d refused, %d connections to the endpoint", passed.Load(), refused.Load(), d.connections.Load())
			if t.Failed() {
				return
			}
			assert.Greater(t, passed.Load(), int64(requests/10))
			assert.Greater(t, refused.Load(), int64(requests/10))
			assert.Zero(t, d.bodies.Load(), "no byte of a body comes to the endpoint")
			assert.LessOrEqual(t, d.connections.Load(), int64(64), "connections to the endpoint are used again")
		})
	}
}

// routesOf finds routes as the endpoint does.
func routesOf(c guard.Config) nethttp.Router {
	mux := http.NewServeMux()
	for pattern := range c.Routes {
		mux.Handle(strings.TrimSuffix(pattern, "*"), http.NotFoundHandler())
	}
	return nethttp.Mux(mux)
}

// reply is the answer of a gateway.
type reply struct {
	status int
	header http.Header
	body   string
}

// exchange sends a request and reads the answer, on the client's connection if that is still open.
func exchange(ctx context.Context, d *door, conns map[string]*connection, client, text string, body int) (reply, error) {
	method, _, _ := strings.Cut(text, " ")
	for attempt := 0; ; attempt++ {
		c := conns[client]
		if c == nil {
			var err error
			if c, err = dial(ctx, d, client); err != nil {
				return reply{}, err
			}
			conns[client] = c
			attempt = 1
		}
		sent := make(chan error, 1)
		go func() { // a gateway may answer before it has read all
			_, err := c.Write(append([]byte(text), tenMegabytes[:body]...))
			sent <- err
		}()
		var got reply
		res, err := http.ReadResponse(c.answers, &http.Request{Method: method})
		if err == nil {
			var answer []byte
			answer, err = io.ReadAll(res.Body)
			_ = res.Body.Close()
			got = reply{res.StatusCode, res.Header, string(answer)}
		}
		if err != nil || res.Close {
			_ = c.Close()
			delete(conns, client)
		}
		if wrote := <-sent; wrote != nil {
			_ = c.Close()
			delete(conns, client)
		}
		if err == nil || attempt > 0 || !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return got, err
		}
		// The gateway has closed a connection that it had kept, before it read the request.
	}
}

// expected returns the answer to a client that comes without a gateway.
func expected(t *testing.T, direct http.Handler, client, text string) *httptest.ResponseRecorder {
	target, _, _ := strings.Cut(text, " HTTP/1.1")
	path, query, found := strings.Cut(target, "?")
	path = strings.NewReplacer("%2e", ".", "%2E", ".").Replace(path) // as the endpoint reads it
	if found {
		path += "?" + query
	}
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(path + text[len(target):])))
	require.NoError(t, err, text)
	r.RemoteAddr = net.JoinHostPort(client, "4000")
	w := httptest.NewRecorder()
	direct.ServeHTTP(w, r)
	return w
}

// same compares an answer of a gateway with that to a client that came without it.
func same(t *testing.T, k kind, want *httptest.ResponseRecorder, got reply, client, text string) bool {
	about := client + " " + text
	ok := assert.Equal(t, want.Code, got.status, about)
	for _, name := range []string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "Retry-After", "Cache-Control"} {
		if want.Code == http.StatusOK && !k.shows {
			ok = ok && assert.Empty(t, got.header[name], about)
			continue
		}
		expected, found := want.Header()[name], got.header[name]
		if name == "X-Ratelimit-Reset" || name == "Retry-After" { // the two were asked at different times
			ok = ok && assert.Len(t, found, len(expected), "%s: %s", name, about)
			continue
		}
		ok = ok && assert.Equal(t, expected, found, "%s: %s", name, about)
	}
	if want.Code != http.StatusOK && k.deny == 0 && !strings.HasPrefix(text, "HEAD") {
		ok = ok && assert.Equal(t, want.Body.String(), got.body, about)
	}
	return ok
}

// With the endpoint dead, the documented choice holds, within its timeout.
func TestDeadEndpoint(t *testing.T) {
	t.Parallel()
	passing := kind{"nginx that passes", gateway.Nginx, http.StatusForbidden, passingNginx, true}
	for _, k := range append(slices.Clone(kinds), passing) {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			want := http.StatusServiceUnavailable
			if k.name == passing.name {
				want = http.StatusOK
			}
			check := newGateway(t, newGuard(t, guard.Config{Rule: guard.Rule{Policy: "2/24h", Key: keyfunc.Join(keyfunc.IP(), keyfunc.Path())}}),
				gateway.Options{Style: k.style, Deny: k.deny})
			release := make(chan struct{})
			var state atomic.Value
			state.Store("alive")
			d := k.open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch state.Load() {
				case "hung":
					select { // until the gateway has given up
					case <-release:
					case <-r.Context().Done():
					}
				case "killed":
					conn, _, err := http.NewResponseController(w).Hijack()
					if assert.NoError(t, err) {
						_ = conn.Close()
					}
					return
				}
				check.ServeHTTP(w, r)
			}), func(config string) string { return config })
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			get := func(path string) (status int) {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+d.Addr(false)+path, nil)
				require.NoError(t, err)
				res, err := client.Do(r)
				require.NoError(t, err)
				_ = res.Body.Close()
				return res.StatusCode
			}
			alive := func(path string) {
				for attempt := range 20 { // on a busy machine a check may take longer than the timeout
					at := fmt.Sprint(path, attempt)
					if slices.Equal([]int{get(at), get(at), get(at)}, []int{200, 200, 429}) {
						return
					}
				}
				require.Fail(t, "the endpoint is not asked")
			}
			alive("/first")
			state.Store("killed")
			assert.Equal(t, want, get("/"), "an endpoint that was killed")
			state.Store("hung")
			began := time.Now()
			assert.Equal(t, want, get("/"), "an endpoint that hangs")
			assert.Less(t, time.Since(began), 30*time.Second, "the timeout is that of the gateway")
			close(release)
			state.Store("alive")
			alive("/second")
			require.NoError(t, d.endpoint.Listener.Close())
			d.endpoint.CloseClientConnections()
			assert.Equal(t, want, get("/"), "an endpoint that was stopped")
		})
	}
}
