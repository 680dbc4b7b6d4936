package gatewayfile_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cmd/weir/internal/gatewayfile"
	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/gatewaytest"
	"github.com/weir-go/weir/nethttp/gateway"
)

const good = `listen: 127.0.0.1:9090
style: nginx
deny: 403
max-wait: 2s
rules:
  - policy: "api: 100/1m"
    key: ip/24/56 + header X-Api-Key + host + route + method
  - {policy: "site: 2/1m", key: ip}
routes:
  POST /login: {policy: "login: 1/1m; wait 1s", key: ip}
  /open: {instead: true}
`

func TestParse(t *testing.T) {
	t.Parallel()
	f, err := gatewayfile.Parse([]byte(good))
	require.NoError(t, err)
	assert.Equal(t, "tcp", f.Network)
	assert.Equal(t, "127.0.0.1:9090", f.Address)
	assert.Equal(t, gateway.Nginx, f.Options.Style)
	assert.Equal(t, http.StatusForbidden, f.Options.Deny)
	assert.Equal(t, 2*time.Second, f.Options.MaxWait)
	assert.Len(t, f.Options.Trusted, 2, "a listener on loopback trusts loopback")
	assert.False(t, f.Options.Socket)
	require.Len(t, f.Guard.Rules, 2)
	assert.Equal(t, "join(ip(IPv4 by /24, IPv6 by /56), header(X-Api-Key, hashed), custom(host), route, method)", f.Guard.Rules[0].Key.String())

	h, stop, err := f.Build(func(*guard.Config, *gateway.Options) {})
	require.NoError(t, err)
	defer func() { assert.NoError(t, stop()) }()
	for _, want := range []int{200, 200, 403} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = "127.0.0.1:4000"
		for name, value := range map[string]string{"Method": "GET", "Uri": "/x", "Host": "example.com", "Address": "203.0.113.7"} {
			r.Header.Set("X-Original-"+name, value)
		}
		r.Header.Set("X-Api-Key", "one")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		assert.Equal(t, want, w.Code)
	}
}

func TestParseSockets(t *testing.T) {
	t.Parallel()
	f, err := gatewayfile.Parse([]byte(strings.Replace(good, "127.0.0.1:9090", "unix:/run/weir.sock", 1)))
	require.NoError(t, err)
	assert.Equal(t, "unix", f.Network)
	assert.Equal(t, "/run/weir.sock", f.Address)
	assert.True(t, f.Options.Socket)
	f, err = gatewayfile.Parse([]byte(strings.Replace(good, "127.0.0.1:9090", "0.0.0.0:9090\ntrust: [10.0.0.0/8]", 1)))
	require.NoError(t, err)
	assert.Equal(t, "10.0.0.0/8", f.Options.Trusted[0].String())
}

// Each mistake is named by its line.
func TestMistakes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ old, text, want string }{
		"empty":         {good, "", "the file is empty"},
		"no object":     {good, "x", "line 1: the file is \"x\""},
		"syntax":        {"style: nginx", "style: [nginx", "this is not YAML"},
		"second":        {"  /open: {instead: true}\n", "  /open: {instead: true}\n---\nx: 1\n", "a second document begins here"},
		"unknown":       {"deny: 403", "denied: 403", `line 3: the file: there is no field "denied"; give deny, hops, listen,`},
		"twice":         {"deny: 403", "deny: 403\ndeny: 403", `line 4: the file: "deny" stands twice`},
		"no listen":     {"listen: 127.0.0.1:9090\n", "", "listen is missing"},
		"bad listen":    {"127.0.0.1:9090", "127.0.0.1", "line 1: listen is \"127.0.0.1\""},
		"everywhere":    {"127.0.0.1:9090", ":9090", "line 1: listen is \":9090\", which others than this machine reach, and trust is missing"},
		"bad trust":     {"deny: 403", "trust: [somebody]", "line 3: trust: \"somebody\" is no network"},
		"trust no list": {"deny: 403", "trust: 10.0.0.0/8", "line 3: trust is \"10.0.0.0/8\"; give a list"},
		"no style":      {"style: nginx\n", "", "style is missing"},
		"bad style":     {"style: nginx", "style: apache", "line 2: style is \"apache\""},
		"no prefix":     {"style: nginx", "style: envoy", "prefix is missing"},
		"bad deny":      {"deny: 403", "deny: 401", "line 3: deny is \"401\""},
		"octal deny":    {"deny: 403", "deny: 0403", "line 3: deny is \"0403\""},
		"bad wait":      {"max-wait: 2s", "max-wait: 2", "line 4: max-wait is \"2\""},
		"no rules":      {good, "listen: 127.0.0.1:1\nstyle: nginx\n", "rules and routes are missing"},
		"bad policy":    {"100/1m", "100/1", "line 6: core: policy"},
		"no policy":     {"policy: \"api: 100/1m\"\n    ", "", "line 6: Rules[0] has no policy or no key"},
		"bad key":       {"key: ip}\nroutes", "key: user}\nroutes", `line 8: key "user": "user" is no part of a key`},
		"bad size":      {"ip/24/56", "ip/24", "line 7: key"},
		"large size":    {"ip/24/56", "ip/33/56", "line 7: key"},
		"bad header":    {"header X-Api-Key", "header X Api", "line 7: key"},
		"alias":         {"key: ip}\nroutes", "key: &k ip}\nroutes", "line 8: key is an anchor or an alias"},
		"tag":           {"deny: 403", "deny: !!int 403", `line 3: deny is a value with the tag "!!int"; give`},
		"binary":        {"style: nginx", "style: !!binary bmdpbng=", `line 2: style is a value with the tag "!!binary"`},
		"own tag":       {"deny: 403", "trust: !x [10.0.0.0/8]", `line 3: trust is a value with the tag "!x"; give a list`},
		"object's tag":  {"/open: {instead: true}", "/open: !!map {instead: true}", `with the tag "!!map"; give fields`},
		"name's tag":    {"deny: 403", "!!str deny: 403", `line 3: the file: a name is a value with the tag "!!str"`},
		"tagged truth":  {"instead: true", "instead: !!bool true", `line 11: instead is a value with the tag "!!bool"`},
		"truth's name":  {"instead: true", "instead: &a true", "line 11: instead is an anchor"},
		"list's anchor": {"deny: 403", "trust: &a [10.0.0.0/8]", "line 3: trust is an anchor"},
		"merge":         {"/open: {instead: true}", "/open: {<<: {instead: true}}", "a name is \"<<\""},
		"null":          {"deny: 403", "deny:", "line 3: deny is"},
		"instead":       {"instead: true", "instead: no", "line 11: instead is \"no\""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, good, c.old)
			_, err := gatewayfile.Parse([]byte(strings.Replace(good, c.old, c.text, 1)))
			assert.ErrorContains(t, err, c.want)
		})
	}
	_, err := gatewayfile.Parse(make([]byte, gatewayfile.MaxSize+1))
	require.ErrorContains(t, err, "more than 1048576 bytes")
}

// What the guard and the gateway refuse has the line of the rule, or of the network.
func TestMistakesOfRules(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ old, text, want string }{
		"everybody":   {"deny: 403", "trust: [10.0.0.0/8, 0.0.0.0/0]", "line 3: gateway: Options.Trusted[1] is 0.0.0.0/0, which trusts everybody"},
		"mapped":      {"deny: 403", "trust:\n  - 10.0.0.0/8\n  - ::ffff:10.0.0.0/90", "line 5: gateway: Options.Trusted[1] is ::ffff:10.0.0.0/90, which is shorter"},
		"permits":     {"site: 2/1m", "site: 2 concurrent", "line 8: gateway: Rules[1], \"site: 2 concurrent\", holds permits"},
		"long wait":   {"wait 1s", "wait 3s", `line 10: gateway: Routes["POST /login"]`},
		"two numbers": {"site: 2/1m", "api: 2/1m", "line 8: guard: Rules[1]"},
		"no pattern":  {"POST /login", "POST login", `line 10: guard: Routes["POST login"]`},
		"no change":   {"/open: {instead: true}", "/open: {}", `line 11: guard: Routes["/open"]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, good, c.old)
			f, err := gatewayfile.Parse([]byte(strings.Replace(good, c.old, c.text, 1)))
			require.NoError(t, err)
			_, _, err = f.Build(func(*guard.Config, *gateway.Options) {})
			assert.ErrorContains(t, err, c.want)
		})
	}
}

// No file makes the reader panic, and what it accepts can be built or refused.
func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("? {a: b}\n: c"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		if file, err := gatewayfile.Parse(data); err == nil {
			if _, stop, err := file.Build(func(*guard.Config, *gateway.Options) {}); err == nil {
				_ = stop()
			}
		}
	})
}

// The file in the docs is one.
func TestDocumentedFile(t *testing.T) {
	t.Parallel()
	f, err := gatewayfile.Parse([]byte(gatewaytest.Documented(t, "weir: file")))
	require.NoError(t, err)
	_, stop, err := f.Build(func(*guard.Config, *gateway.Options) {})
	require.NoError(t, err)
	require.NoError(t, stop())
}
