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
	"net/url"
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
	"github.com/weir-go/weir/internal/race"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
	"github.com/weir-go/weir/nethttp/gateway"
)

// Every block has a name by which a test runs it, or, in cmd/weir and recipes, reads it.
func TestDocumentedBlocksAreRun(t *testing.T) {
	t.Parallel()
	doc, names := gatewaytest.Docs(t), gatewaytest.DocumentedNames(t)
	assert.Equal(t, []string{
		"sh: install", "weir: first file", "sh: start", "nginx: whole", "sh: try",
		"weir: file", "nginx: in the location of the check", "nginx: in the server", "nginx: behind another proxy",
		"caddy: short", "caddy: long", "caddy: behind another proxy", "caddy: that passes",
		"traefik: whole", "envoy: whole",
	}, names)
	assert.Len(t, names, strings.Count(doc, "```sh\n")+strings.Count(doc, "```nginx\n")+strings.Count(doc, "```caddyfile\n")+strings.Count(doc, "```yaml\n"))
}

// door is a gateway with a service and an endpoint behind it.
type door struct {
	*gatewaytest.Server

	endpoint    *httptest.Server
	connections atomic.Int64 // to the endpoint
	bodies      atomic.Int64 // bytes that have come to it
	admitted    atomic.Int64 // checks that let a request pass
	served      atomic.Int64 // requests that came to the service
}

// kind is a gateway as the docs configure it.
type kind struct {
	name  string
	style gateway.Style
	deny  int
	start func(t *testing.T, put put) *gatewaytest.Server
	// shows reports that the client gets the headers when it is allowed.
	shows bool
	// http2 reports that clients speak HTTP/2, without TLS.
	http2 bool
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
	return gatewaytest.Nginx(t, "client_max_body_size 20m;\n"+put(gatewaytest.Documented(t, "nginx: whole")))
}

// nginxForAll has the check in the server, for all locations.
func nginxForAll(t *testing.T, put put) *gatewaytest.Server {
	t.Helper()
	config := gatewaytest.Documented(t, "nginx: whole")
	begin, end := strings.Index(config, "        auth_request /weir-check;"), strings.Index(config, "\n        proxy_pass http://127.0.0.1:8080;")
	require.Less(t, 0, begin)
	require.Less(t, begin, end)
	check := config[begin:end]
	config = config[:begin] + config[end:]
	return gatewaytest.Nginx(t, "client_max_body_size 20m;\n"+put(strings.Replace(config, "    location / {\n", check+"    location / {\n", 1)))
}

// passingNginx lets requests pass when the endpoint is dead.
func passingNginx(t *testing.T, put put) *gatewaytest.Server {
	t.Helper()
	return gatewaytest.Nginx(t, put(gatewaytest.Passing(t)))
}

func caddy(name string) func(t *testing.T, put put) *gatewaytest.Server {
	return func(t *testing.T, put put) *gatewaytest.Server {
		t.Helper()
		return gatewaytest.Caddy(t, put(gatewaytest.Documented(t, name)))
	}
}

var kinds = []kind{
	{name: "nginx", style: gateway.Nginx, deny: http.StatusForbidden, start: nginx, shows: true},
	{name: "caddy", style: gateway.Forwarded, start: caddy("caddy: short")},
	{name: "caddy with headers", style: gateway.Forwarded, start: caddy("caddy: long"), shows: true},
}

// passing are those that let requests pass when the endpoint is dead.
var passing = []kind{
	{name: "nginx that passes", style: gateway.Nginx, deny: http.StatusForbidden, start: passingNginx},
	{name: "caddy that passes", style: gateway.Forwarded, start: caddy("caddy: that passes")},
}

// others are variants that the docs allow, which get fewer requests.
var others = append([]kind{
	{name: "nginx for all locations", style: gateway.Nginx, deny: http.StatusForbidden, start: nginxForAll, shows: true},
}, overHTTP2...)

// overHTTP2 are the same for clients that speak HTTP/2. Caddy asks by HTTP/2 too, which nginx cannot.
var overHTTP2 = []kind{
	{name: "nginx over HTTP2", style: gateway.Nginx, deny: http.StatusForbidden, shows: true, http2: true, start: func(t *testing.T, put put) *gatewaytest.Server {
		t.Helper()
		return nginx(t, func(config string) string { return strings.Replace(put(config), "listen 80;", "listen 80 http2;", 1) })
	}},
	{name: "caddy over HTTP2", style: gateway.Forwarded, http2: true, start: caddyOverHTTP2("caddy: short")},
	{name: "caddy with headers over HTTP2", style: gateway.Forwarded, shows: true, http2: true, start: caddyOverHTTP2("caddy: long")},
}

func caddyOverHTTP2(name string) func(t *testing.T, put put) *gatewaytest.Server {
	return func(t *testing.T, put put) *gatewaytest.Server {
		t.Helper()
		config := strings.Replace(put(gatewaytest.Documented(t, name)), "transport http {\n", "transport http {\nversions h2c\n", 1)
		return gatewaytest.Caddy(t, config, "servers {", "protocols h1 h2c", "}")
	}
}

// open starts a gateway with these timeouts that asks check, with a service that calls the given functions, and answers
// with the length of the body that it was sent.
func (k kind) open(t *testing.T, check http.Handler, timeouts put, served ...func(*http.Request)) *door {
	t.Helper()
	d := &door{}
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.served.Add(1)
		for _, f := range served {
			f(r)
		}
		n, _ := io.Copy(io.Discard, r.Body) // the length says what came
		fmt.Fprint(w, n)
	}))
	t.Cleanup(service.Close)
	d.endpoint = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			// Caddy 2.6 never ends what it asks by HTTP/2 for a request that has named a trailer.
			deadline := http.NewResponseController(w)
			assert.NoError(t, deadline.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
			n, _ := io.Copy(io.Discard, r.Body) // the length says what came
			assert.NoError(t, deadline.SetReadDeadline(time.Time{}))
			d.bodies.Add(n)
		}
		seen := &seenWriter{ResponseWriter: w}
		check.ServeHTTP(seen, r)
		if seen.status == 0 {
			d.admitted.Add(1)
		}
	}))
	d.endpoint.Config.Protocols = new(http.Protocols)
	d.endpoint.Config.Protocols.SetHTTP1(true)
	d.endpoint.Config.Protocols.SetUnencryptedHTTP2(true)
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

// seenWriter keeps the status of an answer. That of a request that passes is not written.
type seenWriter struct {
	http.ResponseWriter
	status int
}

func (w *seenWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *seenWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// limits are rules of all kinds that a gateway can have. Nothing comes back while the test runs. Of two rules with nothing
// left the headers show the one that is full later, which must not be left to the moment of the first request: items has
// another period than all, and login the same numbers.
func limits() guard.Config {
	return guard.Config{
		Rule: guard.Rule{Policy: "all: 5/24h", Key: keyfunc.Join(keyfunc.IP(), host)},
		Routes: map[string]guard.Rule{
			"POST /login":         {Policy: "login: 5/24h"},
			"/items/{id}":         {Policy: "items: 10/23h", Key: keyfunc.Join(keyfunc.IP(), keyfunc.Route(), keyfunc.Method())},
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

// request is a request of a client.
type request struct {
	head    string // as HTTP/1.1 has it, with the empty line at its end
	body    int    // the length of the body that follows
	chunked bool   // whether the body comes in chunks, with a trailer
}

// bytes returns the whole request.
func (q *request) bytes() []byte {
	if !q.chunked {
		return append([]byte(q.head), tenMegabytes[:q.body]...)
	}
	wire := []byte(q.head)
	if q.body > 0 {
		wire = fmt.Appendf(wire, "%x\r\n%s\r\n", q.body, tenMegabytes[:q.body])
	}
	return append(wire, "0\r\nX-Original-Uri: /trailer\r\nX-Forwarded-For: 192.0.2.12\r\n\r\n"...)
}

// method returns the method.
func (q *request) method() string {
	method, _, _ := strings.Cut(q.head, " ")
	return method
}

// parse returns the head as a server reads it, after change has rewritten the target.
func (q *request) parse(change func(target string) string) (*http.Request, error) {
	method, rest, _ := strings.Cut(q.head, " ")
	target, rest, _ := strings.Cut(rest, " ")
	return http.ReadRequest(bufio.NewReader(strings.NewReader(method + " " + change(target) + " " + rest)))
}

// randomRequest returns a request of a worker.
func randomRequest(rnd *rand.Rand, worker, hosts int) *request {
	q := new(request)
	pick := func(of ...string) string { return of[rnd.IntN(len(of))] }
	path := ""
	for range rnd.IntN(3) {
		path += pick("/", "/.", "/x/..", "/%78/..", "/x/%2e%2E", "/%2E")
	}
	path += "/" + pick("", "login", "%6Cogin", "l%6fgin", "login/", "items/1", "items/2", "items/a%2Fb", "items/%C3%A9", "items/1/more",
		"files/a", "files/b/c", "files//d", "keyed", "busy/", "open/all", "else", "Login", "a+b", "a%20b", "it;x=1")
	path += pick("", "", "?a=b", "?x=/../y&%zz", "?")
	method := pick("GET", "GET", "POST", "POST", "PUT", "DELETE", "DELETE", "OPTIONS", "PATCH", "HEAD")
	asked := fmt.Sprintf("w%d.%s", rnd.IntN(hosts), pick("example.com", "example.org", "www.example.com:8443"))
	version := "1.1"
	if rnd.IntN(16) == 0 {
		version = "1.0"
	}
	if rnd.IntN(16) == 0 { // then the field Host means nothing
		path, asked = "http://"+asked+path, "forged.example"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/%s\r\nHost: %s\r\n", method, path, version, asked)
	for range rnd.IntN(4) {
		value := pick("192.0.2.9", "192.0.2.10, 192.0.2.11", "/forged", "DELETE", "forged.example", "2001:db8::9", "for=192.0.2.9", "\"\"")
		fmt.Fprintf(&b, "%s: %s\r\n", pick("X-Original-Method", "X-Original-URI", "X-Original-Host", "X-Original-Address", "x-original-uri",
			"X-Forwarded-Method", "X-Forwarded-Uri", "X-Forwarded-Host", "X-Forwarded-For", "x-forwarded-for", "X-Forwarded-Proto",
			"X-Real-IP", "Forwarded", "X-Envoy-External-Address", "X-Weir-Status", "X-Original_URI", "X_Forwarded_For", "Client-Ip"), value)
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
			q.body = 10 << 20
		case rnd.IntN(2) == 0:
			q.body = rnd.IntN(1000)
		}
		if q.chunked = version == "1.1" && rnd.IntN(4) == 0; q.chunked {
			b.WriteString("Transfer-Encoding: chunked\r\nTrailer: X-Original-Uri\r\n")
		} else {
			fmt.Fprintf(&b, "Content-Length: %d\r\n", q.body)
		}
	}
	b.WriteString("\r\n")
	q.head = b.String()
	return q
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
// nothing else, whatever clients say of themselves, and by which version of HTTP.
func TestGatewaysRefuseWhatTheGuardRefuses(t *testing.T) {
	const workers = 8
	for i, k := range append(slices.Clone(kinds), others...) {
		t.Run(k.name, func(t *testing.T) {
			requests := 10_000
			if i >= len(kinds) {
				requests = 4000
			}
			if testing.Short() || race.Enabled { // with which clients and guards take most of the time
				requests = 1000
			}
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
					exchange := d.clients(k)
					defer exchange.close()
					from := clients(worker)
					for range requests / workers {
						client := from[rnd.IntN(len(from))]
						q := randomRequest(rnd, worker, requests/1000) // so many hosts that about half pass
						got, err := exchange.send(t.Context(), client, q)
						want := expected(t, direct, client, q)
						if err != nil && want.Code != http.StatusOK && q.body == len(tenMegabytes) {
							refused.Add(1) // the gateway has closed the connection, and the answer was lost
							continue
						}
						if !assert.NoError(t, err, q.head) {
							return
						}
						if !same(t, k, want, got, client, q) {
							return
						}
						if want.Code == http.StatusOK {
							passed.Add(1)
							if q.method() != "HEAD" && !assert.Equal(t, fmt.Sprint(q.body), got.body, "all of the body comes to the service: %s", q.head) {
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
			if k.style == gateway.Nginx || k.http2 {
				assert.LessOrEqual(t, d.connections.Load(), int64(64), "connections to the endpoint are used again")
			}
			assert.Equal(t, d.admitted.Load(), d.served.Load(), "what comes to the service has passed the check")
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

// exchanges sends the requests of a worker, on the connections of its clients.
type exchanges interface {
	send(ctx context.Context, client string, q *request) (reply, error)
	close()
}

func (d *door) clients(k kind) exchanges {
	if k.http2 {
		return &http2Clients{d, map[string]*http.Transport{}, k.style != gateway.Nginx}
	}
	return &http1Clients{d, map[string]*connection{}}
}

// http1Clients speak HTTP/1.
type http1Clients struct {
	door  *door
	conns map[string]*connection
}

func (h *http1Clients) close() {
	for _, c := range h.conns {
		_ = c.Close()
	}
}

// send uses the client's connection if that is still open.
func (h *http1Clients) send(ctx context.Context, client string, q *request) (reply, error) {
	for attempt := 0; ; attempt++ {
		c := h.conns[client]
		if c == nil {
			var err error
			if c, err = dial(ctx, h.door, client); err != nil {
				return reply{}, err
			}
			h.conns[client] = c
			attempt = 1
		}
		sent := make(chan error, 1)
		go func() { // a gateway may answer before it has read all
			_, err := c.Write(q.bytes())
			sent <- err
		}()
		var got reply
		res, err := http.ReadResponse(c.answers, &http.Request{Method: q.method()})
		if err == nil {
			var answer []byte
			answer, err = io.ReadAll(res.Body)
			_ = res.Body.Close()
			got = reply{res.StatusCode, res.Header, string(answer)}
		}
		if err != nil || res.Close {
			_ = c.Close()
			delete(h.conns, client)
		}
		if wrote := <-sent; wrote != nil {
			_ = c.Close()
			delete(h.conns, client)
		}
		if err == nil || attempt > 0 || !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return got, err
		}
		// The gateway has closed a connection that it had kept, before it read the request.
	}
}

// http2Clients speak HTTP/2 without TLS.
type http2Clients struct {
	door       *door
	transports map[string]*http.Transport
	trailers   bool // nginx (1.22) takes them for a mistake
}

func (h *http2Clients) close() {
	for _, t := range h.transports {
		t.CloseIdleConnections()
	}
}

func (h *http2Clients) send(ctx context.Context, client string, q *request) (reply, error) {
	local := net.ParseIP(client)
	transport := h.transports[client]
	if transport == nil {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: local}}
		transport = &http.Transport{Protocols: new(http.Protocols), DialContext: dialer.DialContext, DisableCompression: true}
		transport.Protocols.SetUnencryptedHTTP2(true)
		h.transports[client] = transport
	}
	var target string
	read, err := q.parse(func(t string) string { target = t; return t })
	if err != nil {
		return reply{}, err
	}
	target = strings.TrimPrefix(target, "http://"+read.Host) // HTTP/2 has the two apart
	out := &http.Request{
		Method: q.method(), Host: read.Host, Header: read.Header, Body: http.NoBody,
		// As it is written, and not as package url would write it.
		URL: &url.URL{Scheme: "http", Host: h.door.Addr(local.To4() == nil), Opaque: "http://" + read.Host + target},
	}
	read.Header.Del("Connection") // HTTP/2 has none, and net/http sends none
	if read.ContentLength != 0 {
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(tenMegabytes[:q.body])), read.ContentLength
	}
	if q.chunked && h.trailers {
		out.Trailer = http.Header{"X-Original-Uri": {"/trailer"}, "X-Forwarded-For": {"192.0.2.12"}}
	}
	res, err := transport.RoundTrip(out.WithContext(ctx))
	if err != nil {
		return reply{}, err
	}
	defer res.Body.Close()
	if res.ProtoMajor != 2 {
		return reply{}, fmt.Errorf("the answer came by %s", res.Proto)
	}
	answer, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, string(answer)}, err
}

// expected returns the answer to a client that comes without a gateway.
func expected(t *testing.T, direct http.Handler, client string, q *request) *httptest.ResponseRecorder {
	r, err := q.parse(func(target string) string {
		path, query, found := strings.Cut(target, "?")
		path = strings.NewReplacer("%2e", ".", "%2E", ".").Replace(path) // as the endpoint reads it
		if found {
			path += "?" + query
		}
		return path
	})
	require.NoError(t, err, q.head)
	r.RemoteAddr = net.JoinHostPort(client, "4000")
	w := httptest.NewRecorder()
	direct.ServeHTTP(w, r)
	return w
}

// same compares an answer of a gateway with that to a client that came without it.
func same(t *testing.T, k kind, want *httptest.ResponseRecorder, got reply, client string, q *request) bool {
	about := client + " " + q.head
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
	if want.Code != http.StatusOK && k.deny == 0 && q.method() != "HEAD" {
		ok = ok && assert.Equal(t, want.Body.String(), got.body, about)
	}
	return ok
}

// With the endpoint dead, the documented choice holds, within its timeout.
func TestDeadEndpoint(t *testing.T) {
	t.Parallel()
	for i, k := range append(slices.Clone(passing), kinds...) {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			want := http.StatusServiceUnavailable
			if i < len(passing) {
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
			}), func(config string) string { return config }, func(r *http.Request) {
				if r.URL.Path == "/broken" {
					panic(http.ErrAbortHandler)
				}
			})
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			send := func(method, path string, body int) (status int, answer string) {
				r, err := http.NewRequestWithContext(t.Context(), method, "http://"+d.Addr(false)+path, bytes.NewReader(tenMegabytes[:body]))
				require.NoError(t, err)
				res, err := client.Do(r)
				require.NoError(t, err)
				text, err := io.ReadAll(res.Body)
				require.NoError(t, err)
				_ = res.Body.Close()
				return res.StatusCode, string(text)
			}
			get := func(path string) int {
				status, _ := send(http.MethodGet, path, 0)
				return status
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
			before := d.served.Load()
			status, _ := send(http.MethodPost, "/broken", 100)
			assert.GreaterOrEqual(t, status, 500, "a service that was killed")
			assert.LessOrEqual(t, d.served.Load()-before, int64(1), "it gets no request twice")
			require.NoError(t, d.endpoint.Listener.Close())
			d.endpoint.CloseClientConnections()
			assert.Equal(t, want, get("/"), "an endpoint that was stopped")
			before = d.served.Load()
			if want == http.StatusOK {
				status, answer := send(http.MethodPost, "/", 1<<19)
				assert.Equal(t, want, status)
				assert.Equal(t, fmt.Sprint(1<<19), answer, "the body comes to the service whole")
				assert.Equal(t, before+1, d.served.Load())
			} else {
				status, _ := send(http.MethodPost, "/", 100) // which is sent before the answer comes
				assert.Equal(t, want, status)
				assert.Equal(t, before, d.served.Load(), "the service gets nothing")
			}
		})
	}
}

// When many clients come at once to a gateway that has no connections yet, the checks go to the endpoint, and what passes
// to the service. Caddy before 2.7 takes a connection to the one for one to the other, if it may use it again.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	for _, k := range append(slices.Clone(kinds), passing...) {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			var misled atomic.Int64
			g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1000000/1h", Key: keyfunc.IP()}})
			d := k.open(t, newGateway(t, g, gateway.Options{Style: k.style, Deny: k.deny}), patient, func(r *http.Request) {
				if r.Header.Get("X-Forwarded-Uri") != "" || r.Header.Get("X-Original-Uri") != "" {
					misled.Add(1)
				}
			})
			start := make(chan struct{})
			var all sync.WaitGroup
			for range 200 {
				all.Go(func() {
					conn, err := net.Dial("tcp", d.Addr(false))
					if !assert.NoError(t, err) {
						return
					}
					defer conn.Close()
					answers := bufio.NewReader(conn)
					<-start
					for range 5 {
						_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n") // what comes says it
						res, err := http.ReadResponse(answers, nil)
						if !assert.NoError(t, err) {
							return
						}
						_, _ = io.Copy(io.Discard, res.Body) // as above
						_ = res.Body.Close()
						assert.Equal(t, http.StatusOK, res.StatusCode)
					}
				})
			}
			close(start)
			all.Wait()
			assert.Zero(t, misled.Load(), "checks that came to the service")
			assert.EqualValues(t, 1000, d.admitted.Load())
			assert.EqualValues(t, 1000, d.served.Load())
		})
	}
}

// Behind another proxy, the gateways find the client as the docs say: by what that proxy has appended, and not by what
// a client has written.
func TestBehindAnotherProxy(t *testing.T) {
	t.Parallel()
	for _, k := range []struct {
		kind

		hops int
	}{
		{kind{name: "nginx", style: gateway.Nginx, deny: http.StatusForbidden, start: func(t *testing.T, put put) *gatewaytest.Server {
			t.Helper()
			return gatewaytest.Nginx(t, gatewaytest.Documented(t, "nginx: behind another proxy")+put(gatewaytest.Documented(t, "nginx: whole")))
		}}, 0},
		{kind{name: "caddy", style: gateway.Forwarded, start: behindAnotherProxy("caddy: short")}, 2},
		{kind{name: "caddy with headers", style: gateway.Forwarded, start: behindAnotherProxy("caddy: long")}, 2},
	} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			counted := new(keys)
			g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "all: 1000/1h", Key: keyfunc.IP()}, Observe: counted.observe})
			d := k.open(t, newGateway(t, g, gateway.Options{Style: k.style, Deny: k.deny, Hops: k.hops}), patient)
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			for said, want := range map[string]string{
				"203.0.113.7":              "203.0.113.7",
				"192.0.2.9, 203.0.113.8":   "203.0.113.8",
				"192.0.2.9, 2001:db8::7":   "2001:db8::/64",
				"192.0.2.9,rubbish, ::1":   "::/64",
				"127.0.0.1, 198.51.100.77": "198.51.100.77",
			} {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+d.Addr(false)+"/", nil)
				require.NoError(t, err)
				r.Header.Set("X-Forwarded-For", said)
				res, err := client.Do(r)
				require.NoError(t, err)
				_ = res.Body.Close()
				assert.Equal(t, http.StatusOK, res.StatusCode, said)
				assert.Equal(t, []string{"all ip=" + want}, counted.take(), said)
			}
		})
	}
}

// A cost by the length of the body, which nginx sends as the docs say, and not by what a client says of it.
func TestLengthFromNginx(t *testing.T) {
	t.Parallel()
	const line = "proxy_set_header X-Original-Length $content_length;"
	require.Contains(t, gatewaytest.Docs(t), "`"+line+"`")
	k := kind{style: gateway.Nginx, start: func(t *testing.T, put put) *gatewaytest.Server {
		t.Helper()
		const location = "location = /weir-check {\n"
		return gatewaytest.Nginx(t, put(strings.Replace(gatewaytest.Documented(t, "nginx: whole"), location, location+line, 1)))
	}}
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1000/24h", Key: keyfunc.IP(), Cost: func(r keyfunc.Request) int64 { return max(1, r.ContentLength()) }}})
	d := k.open(t, newGateway(t, g, gateway.Options{Style: k.style, Deny: http.StatusForbidden, Length: "X-Original-Length"}), patient)
	exchange := d.clients(k)
	defer exchange.close()
	for _, c := range []struct {
		body      int
		chunked   bool
		status    int
		remaining string
	}{{600, false, 200, "400"}, {600, false, 429, "400"}, {399, false, 200, "1"}, {100, true, 200, "0"}, {0, false, 429, "0"}} {
		q := &request{head: fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nX-Original-Length: 0\r\nContent-Length: %d\r\n\r\n", c.body), body: c.body}
		if c.chunked { // of unknown length
			q = &request{head: "POST / HTTP/1.1\r\nHost: a\r\nX-Original-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n", body: c.body, chunked: true}
		}
		got, err := exchange.send(t.Context(), "127.0.0.1", q)
		require.NoError(t, err, c)
		assert.Equal(t, c.status, got.status, c)
		assert.Equal(t, c.remaining, got.header.Get("X-Ratelimit-Remaining"), c)
	}
}

// behindAnotherProxy puts the line for that into both gateways of a Caddyfile.
func behindAnotherProxy(name string) func(t *testing.T, put put) *gatewaytest.Server {
	return func(t *testing.T, put put) *gatewaytest.Server {
		t.Helper()
		const begin = "127.0.0.1:9090 {\n"
		config := gatewaytest.Documented(t, name)
		require.Equal(t, 1, strings.Count(config, begin))
		return gatewaytest.Caddy(t, put(strings.Replace(config, begin, begin+gatewaytest.Documented(t, "caddy: behind another proxy"), 1)))
	}
}
