package keyfunc_test

import (
	"errors"
	"math"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/keyfunc"
)

func TestRoute(t *testing.T) {
	assert.Equal(t, "route", keyfunc.Route().String())
	for _, path := range []string{"/items/1", "/items/2", "/items//3", "/ITEMS/4;a=b", "/x/../items/5/"} {
		assert.Equal(t, "route=/items/%7Bid%7D", keyOf(keyfunc.Route(), &request{path: path, route: "/items/{id}"}))
		assert.Equal(t, "route=", keyOf(keyfunc.Route(), &request{path: path}), "unmatched requests share a key")
	}
}

func TestPath(t *testing.T) {
	assert.Equal(t, "path", keyfunc.Path().String())
	for path, want := range map[string]string{
		"/items/1":        "path=/items/1",
		"/items/1/":       "path=/items/1",
		"//items//1":      "path=/items/1",
		"/x/../items/./1": "path=/items/1",
		"/../../items/1":  "path=/items/1",
		"items/1":         "path=/items/1",
		"../items/1":      "path=/items/1",
		"":                "path=/",
		"/":               "path=/",
		"*":               "path=/%2A",
		"/Items/{1}":      "path=/Items/%7B1%7D",
		"/items;a=b":      "path=/items%3Ba%3Db",

		"/" + strings.Repeat("a", 100):    "path=/" + strings.Repeat("a", 100),
		"/" + strings.Repeat("a/.", 3000): "path=", // as all that are so long
		"/" + strings.Repeat("b", 4096):   "path=",
	} {
		assert.Equal(t, want, keyOf(keyfunc.Path(), &request{path: path}), "%q", path)
	}
}

func TestMethod(t *testing.T) {
	assert.Equal(t, "method", keyfunc.Method().String())
	for method, want := range map[string]string{
		"GET": "GET", "HEAD": "GET", "POST": "POST", "PUT": "PUT", "DELETE": "DELETE", "PATCH": "PATCH", "OPTIONS": "OPTIONS",
		"CONNECT": "CONNECT", "TRACE": "TRACE", "": "OTHER", "get": "OTHER", "BREW": "OTHER", "PROPFIND": "OTHER", "G{E}T": "OTHER",
	} {
		assert.Equal(t, "method="+want, keyOf(keyfunc.Method(), &request{method: method}), "%q", method)
	}
}

const (
	tooLong = "keyfunc: no key: the header has more than 8192 bytes"
	twice   = "keyfunc: no key: the header stands more than once"
)

// Credentials do not stand in keys, unless that is asked for.
func TestHeaderOfCredentials(t *testing.T) {
	const secret = "s3cret"
	ask := func(f keyfunc.Func, name string, lines ...string) string {
		require.NoError(t, f.Err())
		return keyOf(f, &request{header: map[string][]string{name: lines}})
	}
	for _, name := range []string{
		"Authorization", "Cookie", "X-Api-Key", "Apikey", "X-Auth-Token", "X-Access-Token", "Ocp-Apim-Subscription-Key", "X-Session-Id",
		"Proxy-Authorization", "X-Client-Secret", "X-Jwt", "X-Password", "X-Amz-Credential",
	} {
		f := keyfunc.Header(strings.ToUpper(name))
		assert.Equal(t, "header("+name+", hashed)", f.String())
		kind := "header." + strings.ToLower(name)
		assert.Equal(t, kind+"="+sum(secret), ask(f, name, secret))
		assert.Equal(t, twice, ask(f, name, secret, ""))
		assert.Equal(t, []string{kind}, f.Kinds())
		assert.Equal(t, noKey, ask(f, name))
		assert.Equal(t, tooLong, ask(f, name, strings.Repeat("x", 8193)))

		inClear := keyfunc.HeaderInClear(name)
		assert.Equal(t, "header("+name+")", inClear.String())
		assert.Equal(t, kind+"="+secret, ask(inClear, name, secret))
	}
	assert.Equal(t, "header.x-tenant="+secret, ask(keyfunc.Header("X-Tenant"), "X-Tenant", secret))
	require.ErrorContains(t, keyfunc.HeaderInClear("a b").Err(), "keyfunc: HeaderInClear(")

	var k keyfunc.Key
	f, r := keyfunc.Header("X-Api-Key"), &request{header: map[string][]string{"X-Api-Key": {secret}}}
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		k.Reset()
		_ = f.AppendTo(&k, r)
	}))
}

// A client that has one credential has one key, however it writes it: middleware that verifies it reads the first line,
// and takes any spelling of the scheme.
func TestHeaderOfOneClient(t *testing.T) {
	for _, header := range []func(string) keyfunc.Func{keyfunc.Header, keyfunc.HeaderInClear} {
		for _, name := range []string{"Authorization", "Proxy-Authorization"} {
			ask := func(lines ...string) string {
				return keyOf(header(name), &request{header: map[string][]string{name: lines}})
			}
			for _, text := range []string{"bearer s3cret", "BEARER s3cret", "Bearer   s3cret", "Bearer \t s3cret", "Bearer\ts3cret"} {
				assert.Equal(t, ask("Bearer s3cret"), ask(text), text)
			}
			assert.NotEqual(t, ask("Bearer s3cret"), ask("Bearer another"))
			assert.NotEqual(t, ask("Bearer s3cret"), ask("Bearer "))
			assert.Equal(t, ask("Bearer s3cret"), ask("s3cret"))
			assert.Equal(t, twice, ask("Bearer s3cret", "made-up"))
		}
		key := keyfunc.FirstOf(header("X-Api-Key"), keyfunc.IP())
		r := from("203.0.113.7")
		r.header = map[string][]string{"X-Api-Key": {"s3cret", "made-up"}}
		assert.Equal(t, "ip=203.0.113.7", keyOf(key, r))
	}
}

func TestHeader(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"one", []string{"abc"}, "header.x-tenant=abc"},
		{"two lines", []string{"a", "b"}, twice},
		{"a comma is no joint", []string{"a,b"}, "header.x-tenant=a%2Cb"},
		{"an empty line, too", []string{"", "b"}, twice},
		{"a scheme is one in Authorization alone", []string{"Bearer a"}, "header.x-tenant=Bearer%20a"},
		{"none", nil, noKey},
		{"empty", []string{""}, noKey},
		{"long", []string{strings.Repeat("k", 1000)}, "header.x-tenant=" + sum(strings.Repeat("k", 1000))},
		{"many lines", make([]string, 100_000), twice},
		{"too long", []string{strings.Repeat("x", 8193)}, tooLong},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, name := range []string{"X-Tenant", "x-tenant", "X-TENANT"} {
				f := keyfunc.Header(name)
				require.NoError(t, f.Err())
				assert.Equal(t, "header(X-Tenant)", f.String())
				assert.Equal(t, c.want, keyOf(f, &request{header: map[string][]string{"X-Tenant": c.lines}}))
			}
		})
	}
	const odd = "!#$%&'*+-.^_`|~x"
	assert.NoError(t, keyfunc.Header(odd).Err())
	assert.Equal(t, "header.%21%23%24%25%26%27%2A%2B-.%5E_%60%7C%7Ex=v",
		keyOf(keyfunc.Header(odd), &request{header: map[string][]string{keyName(keyfunc.Header(odd)): {"v"}}}))
}

// keyName is the canonical name that a Header Func asks for.
func keyName(f keyfunc.Func) string {
	return strings.TrimSuffix(strings.TrimPrefix(f.String(), "header("), ")")
}

type (
	id     int64
	serial uint32
	name   string
	blob   []byte
	label  struct{ text string }
	ref    struct{ text string }
	secret string
	broken struct{}
	ctxKey struct{}
	strKey string
)

func (l label) String() string                { return l.text }
func (r *ref) String() string                 { return r.text }
func (secret) String() string                 { return "***" }
func (s secret) MarshalText() ([]byte, error) { return []byte(s), nil }
func (broken) MarshalText() ([]byte, error)   { return nil, errors.New("cannot") }

func TestUser(t *testing.T) {
	const unfit = " is no key: store a string, a []byte, an integer, or a type with MarshalText or String"
	for _, c := range []struct {
		name  string
		value any
		want  string
	}{
		{"string", "alice", "user=alice"},
		{"like an address", "10.0.0.1", "user=10.0.0.1"},
		{"any bytes", "a\x00{b}", "user=a%00%7Bb%7D"},
		{"bytes", []byte("alice"), "user=alice"},
		{"int", -7, "user=-7"},
		{"int8", int8(-128), "user=-128"},
		{"int16", int16(7), "user=7"},
		{"int32", int32(7), "user=7"},
		{"int64", int64(-1 << 63), "user=-9223372036854775808"},
		{"uint", uint(7), "user=7"},
		{"uint8", uint8(7), "user=7"},
		{"uint16", uint16(7), "user=7"},
		{"uint32", uint32(7), "user=7"},
		{"uint64", ^uint64(0), "user=18446744073709551615"},
		{"uintptr", uintptr(7), "user=7"},
		{"zero is a user", 0, "user=0"},
		{"whole float", 7.0, "user=7"},
		{"own int", id(-7), "user=-7"},
		{"own uint", serial(7), "user=7"},
		{"own string", name("alice"), "user=alice"},
		{"own bytes", blob("alice"), "user=alice"},
		{"Stringer", label{"alice"}, "user=alice"},
		{"pointer Stringer", &ref{"alice"}, "user=alice"},
		{"library Stringer", &url.URL{Host: "a"}, "user=//a"},
		{"TextMarshaler", netip.MustParseAddr("::1"), "user=::1"},
		{"TextMarshaler before Stringer", secret("alice"), "user=alice"},
		{"nil", nil, noKey},
		{"empty", "", noKey},
		{"empty bytes", []byte{}, noKey},
		{"nil bytes", []byte(nil), noKey},
		{"empty own string", name(""), noKey},
		{"nil own bytes", blob(nil), noKey},
		{"empty Stringer", label{}, noKey},
		{"nil Stringer", (*ref)(nil), noKey},
		{"nil pointer to a Stringer", (*label)(nil), noKey},
		{"nil TextMarshaler", (*netip.Addr)(nil), noKey},
		{"empty TextMarshaler", netip.Addr{}, noKey},
		{"error", broken{}, "keyfunc: user(uid): cannot"},
		{"bool", true, "keyfunc: user(uid): a bool" + unfit},
		{"fraction", 7.5, "keyfunc: user(uid): a float64" + unfit},
		{"inexact float", float64(1 << 53), "keyfunc: user(uid): a float64" + unfit},
		{"not a number", math.NaN(), "keyfunc: user(uid): a float64" + unfit},
		{"struct", struct{ ID int }{7}, "keyfunc: user(uid): a struct { ID int }" + unfit},
		{"value of a pointer Stringer", ref{"alice"}, "keyfunc: user(uid): a keyfunc_test.ref" + unfit},
		{"pointer", new(string), "keyfunc: user(uid): a *string" + unfit},
		{"array", [1]byte{1}, "keyfunc: user(uid): a [1]uint8" + unfit},
		{"strings", []string{"a"}, "keyfunc: user(uid): a []string" + unfit},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, keyOf(keyfunc.User("uid"), &request{values: map[any]any{"uid": c.value}}))
		})
	}
	assert.Equal(t, noKey, keyOf(keyfunc.User("uid"), &request{}))
}

func TestUserKeys(t *testing.T) {
	for _, c := range []struct {
		key  any
		name string
	}{
		{"uid", "user(uid)"},
		{ctxKey{}, "user(keyfunc_test.ctxKey)"},
		{strKey("uid"), "user(keyfunc_test.strKey(uid))"},
		{id(3), "user(keyfunc_test.id(3))"},
		{&ref{}, "user(*keyfunc_test.ref)"},
	} {
		f := keyfunc.User(c.key)
		require.NoError(t, f.Err())
		assert.Equal(t, c.name, f.String())
		assert.Equal(t, "user=7", keyOf(f, &request{values: map[any]any{c.key: 7}}))
	}
}

// All kinds of parts differ, though their texts are the same.
func TestKindsDiffer(t *testing.T) {
	const text = "10.0.0.1"
	r := from(text)
	r.path, r.route, r.values = "/"+text, text, map[any]any{"uid": text}
	r.header["X-A"], r.header["X-B"] = []string{text}, []string{text}
	seen := map[string]string{}
	for _, f := range []keyfunc.Func{
		keyfunc.IP(), keyfunc.User("uid"), keyfunc.Route(), keyfunc.Path(), keyfunc.Const(text), keyfunc.Header("X-A"),
		keyfunc.Header("X-B"), keyfunc.Hash(keyfunc.IP()), tenant(answers(text, nil)),
	} {
		key := keyOf(f, r)
		assert.NotContains(t, seen, key, "%v and %v: %s", seen[key], f, strconv.Quote(key))
		seen[key] = f.String()
	}
}
