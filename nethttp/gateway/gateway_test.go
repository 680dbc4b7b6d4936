package gateway_test

import (
	"cmp"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/logtest"
	"github.com/weir-go/weir/keyfunc"
	"github.com/weir-go/weir/nethttp"
	"github.com/weir-go/weir/nethttp/gateway"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// host is the host that was asked for.
var host = keyfunc.Custom("host", func(r keyfunc.Request) (string, error) { return r.Host(), nil })

// keys keeps the keys that a guard has counted.
type keys struct {
	mu   sync.Mutex
	seen []string
}

func (k *keys) observe(e guard.Event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.seen = append(k.seen, e.Policy+" "+string(e.AppendKey(nil)))
}

// take returns the keys since the last call.
func (k *keys) take() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	seen := k.seen
	k.seen = nil
	return seen
}

func newGuard(t *testing.T, c guard.Config) *guard.Guard {
	t.Helper()
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	g, err := guard.New(c)
	require.NoError(t, err)
	return g
}

func newGateway(t *testing.T, g *guard.Guard, o gateway.Options) http.Handler {
	t.Helper()
	if o.Trusted == nil {
		o.Trusted = loopback
	}
	h, err := gateway.New(g, o)
	require.NoError(t, err)
	return h
}

// check is a request of a gateway, in one of the styles.
type check struct{ method, uri, host, address string }

// in returns the request by which a gateway describes c.
func (c check) in(style gateway.Style) *http.Request {
	method, host := cmp.Or(c.method, http.MethodGet), cmp.Or(c.host, "example.com")
	uri, address := cmp.Or(c.uri, "/"), cmp.Or(c.address, "203.0.113.7")
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "127.0.0.1:4000"
	switch style {
	case gateway.Nginx:
		r.Header["X-Original-Method"], r.Header["X-Original-Uri"] = []string{method}, []string{uri}
		r.Header["X-Original-Host"], r.Header["X-Original-Address"] = []string{host}, []string{address}
	case gateway.Forwarded:
		r.Header["X-Forwarded-Method"], r.Header["X-Forwarded-Uri"] = []string{method}, []string{uri}
		r.Header["X-Forwarded-Host"], r.Header["X-Forwarded-For"] = []string{host}, []string{address}
	case gateway.Envoy:
		r.Method, r.RequestURI, r.Host = method, "/check"+uri, host
		r.Header["X-Forwarded-For"] = []string{address}
	}
	return r
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// prefixOf is the prefix of the checks above.
func prefixOf(style gateway.Style) string {
	if style == gateway.Envoy {
		return "/check"
	}
	return ""
}

var styles = []gateway.Style{gateway.Nginx, gateway.Forwarded, gateway.Envoy}

// What a gateway describes is limited as if the client had come without it.
func TestDescribed(t *testing.T) {
	t.Parallel()
	for _, style := range styles {
		t.Run(style.String(), func(t *testing.T) {
			t.Parallel()
			counted := new(keys)
			g := newGuard(t, guard.Config{
				Rule:    guard.Rule{Policy: "all: 1000/1h", Key: keyfunc.Join(keyfunc.IP(), keyfunc.Method(), host, keyfunc.Route())},
				Routes:  map[string]guard.Rule{"POST /login": {Policy: "login: 500/1h", Instead: true}, "/files/*": {Policy: "files: 5/1h", Instead: true}},
				Observe: counted.observe,
			})
			h := newGateway(t, g, gateway.Options{Style: style, Prefix: prefixOf(style)})
			for _, c := range []struct {
				check

				want string
			}{
				{check{}, "all ip=203.0.113.7&method=GET&host=example.com&route="},
				{check{method: "HEAD", address: "::ffff:203.0.113.7"}, "all ip=203.0.113.7&method=GET&host=example.com&route="},
				{check{address: "2001:db8::1:2:3:4"}, "all ip=2001:db8::/64&method=GET&host=example.com&route="},
				{check{method: "POST", uri: "/login?x=%zz"}, "login ip=203.0.113.7&method=POST&host=example.com&route=/login"},
				{check{method: "POST", uri: "/%6Cogin"}, "login ip=203.0.113.7&method=POST&host=example.com&route=/login"},
				{check{method: "POST", uri: "//login"}, "login ip=203.0.113.7&method=POST&host=example.com&route=/login"},
				{check{method: "POST", uri: "/./login"}, "login ip=203.0.113.7&method=POST&host=example.com&route=/login"},
				{check{method: "POST", uri: "/x/../login"}, "login ip=203.0.113.7&method=POST&host=example.com&route=/login"},
				{check{method: "POST", uri: "/x/%2e%2E/login"}, "login ip=203.0.113.7&method=POST&host=example.com&route=/login"},
				{check{method: "POST", uri: "/login#top"}, "login ip=203.0.113.7&method=POST&host=example.com&route=/login"},
				{check{method: "GET", uri: "/login"}, "all ip=203.0.113.7&method=GET&host=example.com&route="},
				{check{uri: "/files/a/b"}, "files ip=203.0.113.7&method=GET&host=example.com&route=/files/"},
				{check{method: "OPTIONS", uri: "*"}, "all ip=203.0.113.7&method=OPTIONS&host=example.com&route="},
			} {
				if style == gateway.Envoy && c.uri == "*" {
					continue // it is behind no prefix
				}
				res := serve(h, c.in(style))
				assert.Equal(t, http.StatusOK, res.Code, c)
				assert.NotEmpty(t, res.Header().Get("X-Ratelimit-Remaining"), c)
				assert.Zero(t, res.Body.String(), c)
				assert.Equal(t, []string{c.want}, counted.take(), c)
			}
		})
	}
}

// A refusal has the guard's own status, headers and body, or 403 and its own status beside it.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, style := range styles {
		for _, deny := range []int{0, http.StatusForbidden} {
			plain := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1/1h", Key: keyfunc.IP()}})
			direct := nethttp.Limit(plain)(http.NotFoundHandler())
			h := newGateway(t, newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1/1h", Key: keyfunc.IP()}}),
				gateway.Options{Style: style, Prefix: prefixOf(style), Deny: deny})
			for range 2 {
				serve(h, check{}.in(style))
				serve(direct, httptest.NewRequest(http.MethodGet, "/", nil))
			}
			asked := check{}.in(style)
			asked.Header.Set("Accept", "application/json")
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Accept", "application/json")
			got, want := serve(h, asked), serve(direct, r)
			assert.Equal(t, http.StatusTooManyRequests, want.Code)
			assert.Equal(t, cmp.Or(deny, want.Code), got.Code)
			if style == gateway.Nginx {
				assert.Empty(t, got.Body.String(), "nginx would close the connection")
			} else {
				assert.Equal(t, want.Body.String(), got.Body.String())
			}
			for _, h := range []http.Header{got.Header(), want.Header()} { // a second may pass between the two
				assert.NotEmpty(t, h.Get("Retry-After"))
				h.Del("Retry-After")
				h.Del("X-Ratelimit-Reset")
			}
			if deny != 0 {
				want.Header().Set(gateway.StatusHeader, "429")
			}
			assert.Equal(t, want.Header(), got.Header())
		}
	}
}

// A refusal with a status by which gateways let requests pass does not let them pass.
func TestRefusalThatLooksLikeSuccess(t *testing.T) {
	t.Parallel()
	// A call of gRPC, whose refusals have the status 200.
	h := newGateway(t, newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1/1h", Key: keyfunc.IP()}}),
		gateway.Options{Style: gateway.Envoy, Prefix: "/check"})
	for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		r := check{method: http.MethodPost, uri: "/pkg.Service/Method"}.in(gateway.Envoy)
		r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
		r.Header.Set("Content-Type", "application/grpc")
		assert.Equal(t, want, serve(h, r).Code)
	}

	// A handler that answers with 200.
	h = newGateway(t, newGuard(t, guard.Config{Rule: guard.Rule{
		Policy: "1/1h", Key: keyfunc.IP(),
		OverLimit: guard.HandlerFunc("ok", func(*guard.Refusal) guard.Verdict { return guard.Verdict{Status: http.StatusOK} }),
	}}), gateway.Options{Style: gateway.Nginx})
	for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		assert.Equal(t, want, serve(h, check{}.in(gateway.Nginx)).Code)
	}
}

// Only trusted peers may ask, and what they cannot describe is counted nowhere.
func TestNotCounted(t *testing.T) {
	t.Parallel()
	counted := new(keys)
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1000/1h", Key: keyfunc.IP(), Cost: func(r keyfunc.Request) int64 { return max(0, r.ContentLength()) }}, Observe: counted.observe})
	for _, style := range styles {
		said := new(logtest.Log)
		h := newGateway(t, g, gateway.Options{Style: style, Prefix: prefixOf(style), Length: "X-Original-Length", Log: said.Logger()})
		headers := map[gateway.Style][]string{
			gateway.Nginx:     {"X-Original-Method", "X-Original-Uri", "X-Original-Host", "X-Original-Address"},
			gateway.Forwarded: {"X-Forwarded-Method", "X-Forwarded-Uri", "X-Forwarded-Host", "X-Forwarded-For"},
			gateway.Envoy:     {"X-Forwarded-For"},
		}[style]
		for _, name := range headers {
			for problem, lines := range map[string][]string{
				"missing": nil, "empty": {""}, "twice": {"GET", "GET"}, "long": {"/" + strings.Repeat("x", 8<<10)},
			} {
				r := check{}.in(style)
				r.Header[name] = lines
				res := serve(h, r)
				assert.Equal(t, http.StatusBadRequest, res.Code, "%v: %s %s", style, name, problem)
			}
			assert.Len(t, said.With("header="+name), 1, "one line a minute for each header")
		}
		for _, bad := range []check{
			{method: "GE T"},
			{method: "GET/"},
			{uri: "login"},
			{uri: "/%zz"},
			{uri: "/\x7f"},
			{address: "somebody"},
			{address: "203.0.113.7:80"},
			{address: "fe80::1%eth0"},
			{address: "203.0.113.7, "},
			{address: "unix:"},
		} {
			assert.Equal(t, http.StatusBadRequest, serve(h, bad.in(style)).Code, "%v: %+v", style, bad)
		}
		for _, length := range [][]string{{"-1"}, {"ten"}, {""}, {"1", "1"}, {"9223372036854775808"}} {
			r := check{}.in(style)
			r.Header["X-Original-Length"] = length
			assert.Equal(t, http.StatusBadRequest, serve(h, r).Code, "%v: %v", style, length)
		}
		for _, peer := range []string{"192.0.2.1:4000", "[2001:db8::1]:4000", "@", ""} {
			r := check{}.in(style)
			r.RemoteAddr = peer
			assert.Equal(t, http.StatusForbidden, serve(h, r).Code, "%v: %s", style, peer)
		}
		assert.Len(t, said.With("no trusted gateway"), 1)
		assert.Empty(t, said.With("somebody"), "the values stay out of the log")
	}
	assert.Empty(t, counted.take())
}

// The log has a line for each header once a minute.
func TestComplaintsEveryMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		said := new(logtest.Log)
		h := newGateway(t, guard.Must("1/1h", keyfunc.IP()), gateway.Options{Style: gateway.Nginx, Log: said.Logger()})
		for range 240 {
			r := check{}.in(gateway.Nginx)
			r.Header.Del("X-Original-Uri")
			serve(h, r)
			<-time.After(time.Second)
		}
		assert.Len(t, said.With("header=X-Original-Uri"), 4)
	})
}

// A gateway passes on what a client says by the headers of the other styles, and it has no effect.
func TestOtherStylesAreIgnored(t *testing.T) {
	t.Parallel()
	for _, style := range styles {
		counted := new(keys)
		g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1000/1h", Key: keyfunc.Join(keyfunc.IP(), keyfunc.Path())}, Observe: counted.observe})
		h := newGateway(t, g, gateway.Options{Style: style, Prefix: prefixOf(style)})
		r := check{uri: "/mine"}.in(style)
		for _, other := range styles {
			for name, lines := range (check{uri: "/forged", address: "192.0.2.99", host: "forged.example"}.in(other)).Header {
				if _, own := r.Header[name]; !own {
					r.Header[name] = lines
				}
			}
		}
		for _, name := range []string{"X-Real-Ip", "Forwarded", "True-Client-Ip", "X-Envoy-External-Address", "X-Forwarded-Uri"} {
			if _, own := r.Header[name]; !own {
				r.Header[name] = []string{"192.0.2.99"}
			}
		}
		assert.Equal(t, http.StatusOK, serve(h, r).Code)
		assert.Equal(t, []string{"default ip=203.0.113.7&path=/mine"}, counted.take(), style)
	}
}

// The client is the last address in X-Forwarded-For, or as many from the right as proxies have added.
func TestHops(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		style gateway.Style
		hops  int
		value string
		want  string // "" is 400
	}{
		{gateway.Forwarded, 0, "192.0.2.1, 203.0.113.7", "203.0.113.7"},
		{gateway.Forwarded, 0, "rubbish,203.0.113.7", "203.0.113.7"},
		{gateway.Forwarded, 0, "203.0.113.7,rubbish", ""},
		{gateway.Forwarded, 2, "192.0.2.1, 203.0.113.7, 10.0.0.1", "203.0.113.7"},
		{gateway.Forwarded, 2, "203.0.113.7", ""},
		{gateway.Envoy, 0, "192.0.2.1, 203.0.113.7", "203.0.113.7"},
		{gateway.Envoy, 1, "203.0.113.7", "203.0.113.7"},
		{gateway.Envoy, 2, "192.0.2.1, 203.0.113.7, 10.0.0.1", "203.0.113.7"},
		{gateway.Envoy, 2, "203.0.113.7", ""},
	} {
		counted := new(keys)
		g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1000/1h", Key: keyfunc.IP()}, Observe: counted.observe})
		h := newGateway(t, g, gateway.Options{Style: c.style, Prefix: prefixOf(c.style), Hops: c.hops})
		res := serve(h, check{address: c.value}.in(c.style))
		if c.want == "" {
			assert.Equal(t, http.StatusBadRequest, res.Code, c)
			assert.Empty(t, counted.take(), c)
			continue
		}
		assert.Equal(t, []string{"default ip=" + c.want}, counted.take(), c)
	}
}

// Costs by the length of a body that the gateway names.
func TestLength(t *testing.T) {
	t.Parallel()
	g := newGuard(t, guard.Config{Rule: guard.Rule{Policy: "1000/1h", Key: keyfunc.IP(), Cost: keyfunc.Request.ContentLength}})
	h := newGateway(t, g, gateway.Options{Style: gateway.Nginx, Length: "x-original-length"})
	for _, c := range []struct {
		length    string
		status    int
		remaining string
	}{{"600", 200, "400"}, {"600", 429, "400"}, {"400", 200, "0"}} {
		r := check{}.in(gateway.Nginx)
		r.Header.Set("X-Original-Length", c.length)
		res := serve(h, r)
		assert.Equal(t, c.status, res.Code, c)
		assert.Equal(t, c.remaining, res.Header().Get("X-Ratelimit-Remaining"), c)
	}
	assert.Equal(t, http.StatusServiceUnavailable, serve(h, check{}.in(gateway.Nginx)).Code, "its length is unknown")
}

// A unix socket has no address.
func TestSocket(t *testing.T) {
	t.Parallel()
	h, err := gateway.New(guard.Must("1/1h", keyfunc.IP()), gateway.Options{Style: gateway.Nginx, Socket: true})
	require.NoError(t, err)
	r := check{}.in(gateway.Nginx)
	r.RemoteAddr = "@"
	assert.Equal(t, http.StatusOK, serve(h, r).Code)
	assert.Equal(t, http.StatusForbidden, serve(h, check{}.in(gateway.Nginx)).Code, "which has an address")
}

// The networks of gateways are taken or refused as those of proxies are in keyfunc.
func TestTrustedAsInKeyfunc(t *testing.T) {
	t.Parallel()
	for text, contained := range map[string]string{
		"10.0.0.0/8": "10.1.2.3", "10.9.9.9/8": "10.1.2.3", "10.1.2.3/32": "10.1.2.3", "2001:db8::/32": "2001:db8::1",
		"::ffff:10.0.0.0/104": "10.1.2.3", "::ffff:10.1.2.3/128": "10.1.2.3", "::ffff:10.0.0.0/97": "10.1.2.3",
		"0.0.0.0/0": "", "::/0": "", "::ffff:0.0.0.0/96": "", "::ffff:0.0.0.0/95": "", "::ffff:10.0.0.0/1": "",
	} {
		trusted := []netip.Prefix{netip.MustParsePrefix(text)}
		h, err := gateway.New(guard.Must("1/1h", keyfunc.IP()), gateway.Options{Style: gateway.Nginx, Trusted: trusted})
		_, theirs := keyfunc.Address{Trusted: trusted}.Client()
		assert.Equal(t, theirs != nil, err != nil, "%s: %v, and in keyfunc %v", text, err, theirs)
		if assert.Equal(t, contained == "", err != nil, text) && err == nil {
			r := check{}.in(gateway.Nginx)
			r.RemoteAddr = netip.AddrPortFrom(netip.MustParseAddr(contained), 4000).String()
			assert.Equal(t, http.StatusOK, serve(h, r).Code, text)
		}
	}
}

// New lists all that cannot work.
func TestNewRefuses(t *testing.T) {
	t.Parallel()
	good := gateway.Options{Style: gateway.Nginx, Trusted: loopback}
	with := func(change func(*gateway.Options)) gateway.Options { o := good; change(&o); return o }
	rule := guard.Rule{Policy: "1/1h", Key: keyfunc.IP()}
	of := func(change func(*guard.Rule)) guard.Config { r := rule; change(&r); return guard.Config{Rule: r} }
	for name, c := range map[string]struct {
		guard   guard.Config
		options gateway.Options
		want    []string // "" for none
	}{
		"good":       {guard.Config{Rule: rule}, good, nil},
		"nothing":    {guard.Config{Rule: rule}, gateway.Options{}, []string{"Style is 0", "Trusted is empty"}},
		"style":      {guard.Config{Rule: rule}, with(func(o *gateway.Options) { o.Style = 4 }), []string{"Style is 4"}},
		"everybody":  {guard.Config{Rule: rule}, with(func(o *gateway.Options) { o.Trusted = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")} }), []string{"Trusted[0] is 0.0.0.0/0, which trusts everybody"}},
		"mapped":     {guard.Config{Rule: rule}, with(func(o *gateway.Options) { o.Trusted = []netip.Prefix{netip.MustParsePrefix("::ffff:0.0.0.0/96")} }), []string{"trusts everybody"}},
		"short":      {guard.Config{Rule: rule}, with(func(o *gateway.Options) { o.Trusted = []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/90")} }), []string{"Trusted[0] is ::ffff:10.0.0.0/90, which is shorter than the /96"}},
		"no prefix":  {guard.Config{Rule: rule}, with(func(o *gateway.Options) { o.Trusted = []netip.Prefix{{}} }), []string{"Trusted[0] is not a valid prefix"}},
		"deny":       {guard.Config{Rule: rule}, with(func(o *gateway.Options) { o.Deny = 401 }), []string{"Deny is 401"}},
		"hops":       {guard.Config{Rule: rule}, with(func(o *gateway.Options) { o.Style, o.Hops = gateway.Envoy, 65 }), []string{"Hops is 65"}},
		"prefix":     {guard.Config{Rule: rule}, with(func(o *gateway.Options) { o.Style, o.Prefix = gateway.Envoy, "check" }), []string{`Prefix is "check"`}},
		"not Envoy":  {guard.Config{Rule: rule}, with(func(o *gateway.Options) { o.Style, o.Prefix = gateway.Forwarded, "/check" }), []string{"in the style Envoy only"}},
		"nginx hops": {guard.Config{Rule: rule}, with(func(o *gateway.Options) { o.Hops = 2 }), []string{"the style Nginx has one address"}},
		"few hops":   {guard.Config{Rule: rule}, with(func(o *gateway.Options) { o.Style, o.Hops = gateway.Forwarded, -1 }), []string{"Hops is -1"}},
		"permits":    {of(func(r *guard.Rule) { r.Policy = "5 concurrent" }), good, []string{"holds permits"}},
		"settle":     {of(func(r *guard.Rule) { r.Settle = func(guard.Final, int64) int64 { return 1 } }), good, []string{"Settle or an After"}},
		"after":      {of(func(r *guard.Rule) { r.After = func(guard.Final) int64 { return 1 } }), good, []string{"Settle or an After"}},
		"degrade":    {of(func(r *guard.Rule) { r.OverLimit = guard.Degrade() }), good, []string{"by Degrade"}},
		"native":     {of(func(r *guard.Rule) { r.OverLimit = guard.HandleNative("x", 1) }), good, []string{"of a framework"}},
		"cost":       {of(func(r *guard.Rule) { r.Cost = func(keyfunc.Request) int64 { return 1 } }), good, []string{"has a Cost"}},
		"length":     {of(func(r *guard.Rule) { r.Cost = func(keyfunc.Request) int64 { return 1 } }), with(func(o *gateway.Options) { o.Length = "X-Length" }), nil},
		"wait":       {of(func(r *guard.Rule) { r.Policy = "10/1s; wait 2s" }), good, []string{"for up to 2s, and Options.MaxWait is 0s"}},
		"short wait": {of(func(r *guard.Rule) { r.Policy = "10/1s; wait 2s" }), with(func(o *gateway.Options) { o.MaxWait = 2 * time.Second }), nil},
		"queue":      {of(func(r *guard.Rule) { r.Policy = "10/1s burst 21 leaky-bucket" }), with(func(o *gateway.Options) { o.MaxWait = time.Second }), []string{"for up to 2s"}},
		"long queue": {of(func(r *guard.Rule) { r.Policy = "1000000000/24h burst 1000000000 leaky-bucket" }), good, []string{"for up to 23h59m59"}},
		"tier": {of(func(r *guard.Rule) {
			r.Policy, r.Tiers = "10/1s burst 2 leaky-bucket", map[string]string{"slow": "1/1s burst 4 leaky-bucket"}
			r.Tier = func(keyfunc.Request) string { return "" }
		}), with(func(o *gateway.Options) { o.MaxWait = time.Second }), []string{"for up to 3s"}},
		"route":    {guard.Config{Rule: rule, Routes: map[string]guard.Rule{"/items/:id": {Policy: "2/1h"}}}, good, []string{`Routes["/items/:id"] is the pattern of another router`}},
		"pattern":  {guard.Config{Rule: rule, Routes: map[string]guard.Rule{"/items/{id": {Policy: "2/1h"}}}, good, []string{`Routes["/items/{id"]`}},
		"conflict": {guard.Config{Rule: rule, Routes: map[string]guard.Rule{"/a/{x}": {Policy: "2/1h"}, "/a/{y}": {Policy: "b: 2/1h"}}}, good, []string{"matches the same requests"}},
		"found":    {guard.Config{Rule: rule, Routes: map[string]guard.Rule{"/items/:id": {Policy: "2/1h"}}}, with(func(o *gateway.Options) { o.Find = func(*http.Request) string { return "" } }), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, err := gateway.New(newGuard(t, c.guard), c.options)
			if c.want == nil {
				require.NoError(t, err)
				return
			}
			assert.Nil(t, h)
			for _, want := range c.want {
				assert.ErrorContains(t, err, want)
			}
			for line := range strings.Lines(err.Error()) {
				assert.True(t, strings.HasPrefix(line, "gateway: "), line)
			}
		})
	}
	_, err := gateway.New(nil, good)
	require.ErrorContains(t, err, "the guard is nil")
}

// A rule for all requests is named once, though it stands for each route.
func TestNewNamesRulesOnce(t *testing.T) {
	t.Parallel()
	g := newGuard(t, guard.Config{
		Rule:   guard.Rule{Policy: "5 concurrent", Key: keyfunc.IP()},
		Routes: map[string]guard.Rule{"/a": {Policy: "a: 1/1s"}, "/b": {Policy: "b: 1/1s"}},
	})
	_, err := gateway.New(g, gateway.Options{Style: gateway.Nginx, Trusted: loopback})
	require.Error(t, err)
	assert.Equal(t, 1, strings.Count(err.Error(), "holds permits"))
}

// Whatever a description says, it is counted for a client's own address, or gets 400 and is not counted.
func FuzzDescription(f *testing.F) {
	f.Add("GET", "/login?a=b", "example.com", "203.0.113.7")
	f.Add("POST", "//x/../%6Cogin#a", "[::1]:80", "rubbish, ::ffff:203.0.113.7")
	f.Add("G T", "*", "", "fe80::1%eth0")
	f.Add("PUT", "/%zz", "a\x00b", ",")
	f.Fuzz(func(t *testing.T, method, uri, host, address string) {
		for _, style := range styles {
			counted := new(keys)
			g := newGuard(t, guard.Config{
				Rule:    guard.Rule{Policy: "1000/1h", Key: keyfunc.IP()},
				Routes:  map[string]guard.Rule{"POST /login": {Policy: "login: 500/1h"}, "/files/*": {Policy: "files: 500/1h"}},
				Observe: counted.observe,
			})
			h := newGateway(t, g, gateway.Options{Style: style, Prefix: prefixOf(style), Log: slog.New(slog.DiscardHandler)})
			res := serve(h, check{method, uri, host, address}.in(style))
			seen := counted.take()
			if res.Code == http.StatusBadRequest {
				assert.Empty(t, seen)
				continue
			}
			require.Equal(t, http.StatusOK, res.Code)
			require.NotEmpty(t, seen)
			said := cmp.Or(address, "203.0.113.7") // as in
			if style != gateway.Nginx {
				said = strings.TrimSpace(said[strings.LastIndexByte(said, ',')+1:])
			}
			addr, err := netip.ParseAddr(said)
			require.NoError(t, err)
			direct := httptest.NewRequest(http.MethodGet, "/", nil)
			direct.RemoteAddr = netip.AddrPortFrom(addr, 4000).String()
			serve(nethttp.Limit(g)(http.NotFoundHandler()), direct)
			_, want, _ := strings.Cut(counted.take()[0], " ")
			for _, key := range seen {
				assert.Equal(t, want, key[strings.IndexByte(key, ' ')+1:])
			}
		}
	})
}
