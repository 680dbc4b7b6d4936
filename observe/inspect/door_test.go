package inspect_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/observe/inspect"
)

func newObserver(t testing.TB) *observe.Observer {
	t.Helper()
	o, err := observe.New(observe.Options{})
	require.NoError(t, err)
	return o
}

// asked returns a request as one from this machine, with headers of the form "Name: value".
func asked(method, target, peer, host, proto string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, target, http.NoBody)
	r.RemoteAddr, r.Host = peer, host
	if proto == "HTTP/1.0" {
		r.Proto, r.ProtoMajor, r.ProtoMinor = proto, 1, 0
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	return r
}

// The page is for whoever sits at this machine, and for nobody who uses something on it as a way in.
func TestDoor(t *testing.T) {
	const here, name = "127.0.0.1:50000", "localhost:6060"
	for what, c := range map[string]struct {
		request *http.Request
		want    int
		says    string
	}{
		"loopback":                {asked("GET", "/", here, name, ""), 200, ""},
		"all of 127/8":            {asked("GET", "/", "127.9.9.9:1", "127.0.0.1", ""), 200, ""},
		"IPv6 loopback":           {asked("GET", "/", "[::1]:1", "[::1]:6060", ""), 200, ""},
		"IPv6 without a port":     {asked("GET", "/", "[::1]:1", "[::1]", ""), 200, ""},
		"IPv4 mapped":             {asked("GET", "/", "[::ffff:127.0.0.1]:1", name, ""), 200, ""},
		"HEAD":                    {asked("HEAD", "/", here, name, ""), 200, ""},
		"typed into a browser":    {asked("GET", "/", here, name, "", "Sec-Fetch-Site: none"), 200, ""},
		"its own link":            {asked("GET", "/", here, name, "", "Sec-Fetch-Site: same-origin"), 200, ""},
		"the link of a runbook":   {asked("GET", "/", here, name, "", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"), 200, ""},
		"another machine":         {asked("GET", "/", "10.0.0.7:1", name, ""), 403, "this machine alone"},
		"a public address":        {asked("GET", "/", "203.0.113.7:1", name, ""), 403, "this machine alone"},
		"a sidecar":               {asked("GET", "/", "127.0.0.6:1", name, ""), 403, "this machine alone"},
		"a unix socket":           {asked("GET", "/", "@", name, ""), 403, "this machine alone"},
		"no address":              {asked("GET", "/", "", name, ""), 403, "this machine alone"},
		"an address without port": {asked("GET", "/", "127.0.0.1", name, ""), 403, "this machine alone"},
		"HTTP/1.0":                {asked("GET", "/", here, name, "HTTP/1.0"), 403, "HTTP/1.0"},
		"DNS rebinding":           {asked("GET", "/", here, "evil.example:6060", ""), 403, "evil.example"},
		"no name":                 {asked("GET", "/", here, "", ""), 403, "no name of this machine"},
		"almost localhost":        {asked("GET", "/", here, "localhost.evil.example", ""), 403, "evil.example"},
		"a name with an address":  {asked("GET", "/", here, "127.0.0.1.evil.example", ""), 403, "evil.example"},
		"an outer address":        {asked("GET", "/", here, "203.0.113.7:6060", ""), 403, "203.0.113.7"},
		"script of another site":  {asked("GET", "/", here, name, "", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: script"), 403, "another site"},
		"frame of another site":   {asked("GET", "/", here, name, "", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"), 403, "another site"},
		"another port":            {asked("GET", "/", here, name, "", "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: cors"), 403, "another site"},
		"an older browser":        {asked("GET", "/", here, name, "", "Origin: http://evil.example"), 403, "Origin"},
		"a sandbox":               {asked("GET", "/", here, name, "", "Origin: null"), 403, "Origin"},
		"form of another site":    {asked("POST", "/?explain", here, name, "", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"), 403, "another site"},
		"form, older browser":     {asked("POST", "/?explain", here, name, "", "Origin: http://evil.example"), 403, "another site"},
		"DELETE":                  {asked("DELETE", "/", here, name, ""), 405, "use GET"},
		"POST elsewhere":          {asked("POST", "/", here, name, ""), 405, "use GET"},
	} {
		t.Run(what, func(t *testing.T) {
			w := httptest.NewRecorder()
			inspect.Handler(newObserver(t), inspect.Options{}).ServeHTTP(w, c.request)
			assert.Equal(t, c.want, w.Code, w.Body)
			assert.Contains(t, w.Body.String(), c.says)
			assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
			if c.want == http.StatusForbidden {
				assert.NotContains(t, w.Body.String(), "STORE")
			}
		})
	}
}

// A proxy on this machine stands for anybody. Each header that one adds refuses, with any value and in any case.
func TestProxies(t *testing.T) {
	h := inspect.Handler(newObserver(t), inspect.Options{})
	for _, name := range []string{
		"Forwarded", "X-Forwarded-For", "x-forwarded-proto", "X-Forwarded-Host", "X-Forwarded-Server", "X-Forwarded-Prefix", "X-Forwarded", "X-Real-IP",
		"Via", "True-Client-IP", "CF-Connecting-IP", "CF-Ray", "X-Client-IP", "X-Cluster-Client-IP", "Fly-Client-IP", "Fastly-Client-IP",
		"X-Original-Forwarded-For", "X-Envoy-External-Address", "X-Amzn-Trace-Id", "Proxy-Connection", "CDN-Loop", "L5d-Client-Id",
	} {
		for _, value := range []string{"127.0.0.1", "localhost", "", "unknown"} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, asked("GET", "/", "127.0.0.1:1", "localhost", "", name+": "+value))
			assert.Equal(t, http.StatusForbidden, w.Code, "%s: %s", name, value)
			assert.Contains(t, w.Body.String(), "proxy")
		}
	}
}

// Allow decides in place of all this, but for the pages of other sites.
func TestAllow(t *testing.T) {
	allow := true
	h := inspect.Handler(newObserver(t), inspect.Options{Allow: func(*http.Request) bool { return allow }})
	get := func(headers ...string) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, asked("GET", "/", "203.0.113.7:1", "ops.example", "", headers...))
		return w.Code
	}
	assert.Equal(t, 200, get("X-Forwarded-For: 203.0.113.9"))
	assert.Equal(t, 403, get("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image"))
	assert.Equal(t, 403, get("Origin: https://evil.example"))
	assert.Equal(t, 200, get("Origin: https://ops.example"))
	allow = false
	assert.Equal(t, 403, get())
}
