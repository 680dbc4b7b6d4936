package keyfunc_test

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/keyfunc"
)

func tenant(f func(keyfunc.Request) (string, error)) keyfunc.Func { return keyfunc.Custom("tenant", f) }

func answers(text string, err error) func(keyfunc.Request) (string, error) {
	return func(keyfunc.Request) (string, error) { return text, err }
}

func TestFuncs(t *testing.T) {
	r := from("203.0.113.7")
	r.method, r.route, r.values = "GET", "/items/{id}", map[any]any{"uid": "7"}
	ip, route, user, nobody := keyfunc.IP(), keyfunc.Route(), keyfunc.User("uid"), keyfunc.User("nobody")
	boom := fmt.Errorf("boom")
	for _, c := range []struct {
		f          keyfunc.Func
		name, want string
	}{
		{keyfunc.Const("all"), "const(all)", "const=all"},
		{tenant(answers("acme", nil)), "custom(tenant)", "tenant=acme"},
		{tenant(answers("", nil)), "custom(tenant)", noKey},
		{tenant(answers("ignored", boom)), "custom(tenant)", "boom"},
		{keyfunc.Custom("a"+strings.Repeat("0", 63), answers("x", nil)), "custom(a" + strings.Repeat("0", 63) + ")", "a" + strings.Repeat("0", 63) + "=x"},
		{keyfunc.Custom("ip_address.v-2", answers("x", nil)), "custom(ip_address.v-2)", "ip_address.v-2=x"},
		{keyfunc.Join(ip), "join(ip)", "ip=203.0.113.7"},
		{keyfunc.Join(ip, route), "join(ip, route)", "ip=203.0.113.7&route=/items/%7Bid%7D"},
		{keyfunc.Join(route, ip), "join(route, ip)", "route=/items/%7Bid%7D&ip=203.0.113.7"},
		{keyfunc.Join(ip, keyfunc.Join(route, user)), "join(ip, join(route, user(uid)))", "ip=203.0.113.7&route=/items/%7Bid%7D&user=7"},
		{keyfunc.Join(ip, nobody), "join(ip, user(nobody))", noKey},
		{keyfunc.FirstOf(user, ip), "first-of(user(uid), ip)", "user=7"},
		{keyfunc.FirstOf(nobody, ip), "first-of(user(nobody), ip)", "ip=203.0.113.7"},
		{keyfunc.FirstOf(keyfunc.Join(ip, nobody), route), "first-of(join(ip, user(nobody)), route)", "route=/items/%7Bid%7D"},
		{keyfunc.FirstOf(nobody, nobody), "first-of(user(nobody), user(nobody))", noKey},
		{keyfunc.FirstOf(tenant(answers("", boom)), ip), "first-of(custom(tenant), ip)", "boom"},
		{keyfunc.FirstOf(tenant(answers("", fmt.Errorf("no tenant: %w", keyfunc.ErrNoKey))), ip), "first-of(custom(tenant), ip)", "ip=203.0.113.7"},
		{keyfunc.Hash(ip), "hash(ip)", "hash=" + sum("ip=203.0.113.7")[1:]},
		{keyfunc.Join(route, keyfunc.Hash(ip)), "join(route, hash(ip))", "route=/items/%7Bid%7D&hash=" + sum("ip=203.0.113.7")[1:]},
		{keyfunc.Hash(keyfunc.Join(ip, route)), "hash(join(ip, route))", "hash=" + sum("ip=203.0.113.7&route=/items/%7Bid%7D")[1:]},
		{keyfunc.Hash(nobody), "hash(user(nobody))", noKey},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.NoError(t, c.f.Err())
			assert.Equal(t, c.name, c.f.String())
			assert.Equal(t, c.want, keyOf(c.f, r))
		})
	}
}

func TestAppendToLeavesTheKeyOnError(t *testing.T) {
	boom := errors.New("boom")
	for _, f := range []keyfunc.Func{
		{},
		keyfunc.IP(),
		keyfunc.Join(keyfunc.Const("a"), keyfunc.Const("b"), keyfunc.User("uid")),
		keyfunc.FirstOf(keyfunc.Join(keyfunc.Const("a"), tenant(answers("", boom))), keyfunc.Const("b")),
		keyfunc.Hash(keyfunc.Join(keyfunc.Const("a"), keyfunc.User("uid"))),
		keyfunc.Header("X-Empty"),
		keyfunc.Join(),
	} {
		var k keyfunc.Key
		k.Add("before", "1")
		r := from("")
		r.header["X-Empty"] = []string{""}
		require.Error(t, f.AppendTo(&k, r), f.String())
		assert.Equal(t, "before=1", k.String(), f.String())
	}
}

// What is missing is an error that can be told from others; what the program's own function
// returns comes out as it is, and so does its panic.
func TestErrors(t *testing.T) {
	var k keyfunc.Key
	for _, f := range []keyfunc.Func{
		keyfunc.IP(), keyfunc.User("uid"), keyfunc.Header("X-Api-Key"), tenant(answers("", nil)),
		keyfunc.ForwardedHops(1), keyfunc.Join(keyfunc.Route(), keyfunc.IP()), keyfunc.FirstOf(keyfunc.IP(), keyfunc.User("uid")),
	} {
		assert.ErrorIs(t, f.AppendTo(&k, from("")), keyfunc.ErrNoKey, f.String())
	}
	boom := errors.New("boom")
	assert.Same(t, boom, keyfunc.Join(keyfunc.Route(), tenant(answers("", boom))).AppendTo(&k, from("")))
	assert.PanicsWithValue(t, "boom", func() {
		_ = tenant(func(keyfunc.Request) (string, error) { panic("boom") }).AppendTo(&k, from(""))
	})
}

func TestMistakes(t *testing.T) {
	const zero = "keyfunc: zero Func: use a constructor such as keyfunc.IP"
	kind := func(kind string) string {
		return fmt.Sprintf(`keyfunc: Custom(%q): a kind is a lower-case letter and up to 63 more of a-z, 0-9, '_', '.' and '-', such as "tenant"`, kind)
	}
	used := func(kind string) string {
		return fmt.Sprintf(`keyfunc: Custom(%q): this package uses that kind itself: choose another, such as "my-%s"`, kind, kind)
	}
	ok := answers("x", nil)
	tests := []struct {
		f    keyfunc.Func
		name string
		want string
	}{
		{keyfunc.Func{}, "", zero},
		{keyfunc.Custom("tenant", nil), "custom(tenant)", `keyfunc: Custom("tenant"): the function is nil: give one that returns the text of the key`},
		{keyfunc.Custom("", nil), "custom()", kind("") + "\n" + `keyfunc: Custom(""): the function is nil: give one that returns the text of the key`},
		{keyfunc.Join(), "join()", "keyfunc: Join() of nothing: give at least one Func, such as keyfunc.IP()"},
		{keyfunc.FirstOf(), "first-of()", "keyfunc: FirstOf() of nothing: give at least one Func, such as keyfunc.IP()"},
		{
			keyfunc.Join(keyfunc.IP(), keyfunc.Func{}, keyfunc.FirstOf(keyfunc.User(nil), keyfunc.Const(""))),
			"join(ip, invalid, first-of(user(<nil>), const()))",
			"keyfunc: Join, part 2 of 3: " + zero + "\n" +
				"keyfunc: User(nil): give the key under which authentication stores the user\n" +
				`keyfunc: Const(""): the text is empty: give the shared key a name, such as keyfunc.Const("all")`,
		},
		{keyfunc.Hash(keyfunc.Func{}), "hash(invalid)", "keyfunc: Hash, part 1 of 1: " + zero},
		{keyfunc.Header("X Name"), "header(X Name)", `keyfunc: Header("X Name"): a header's name is letters, digits and !#$%&'*+-.^_` + "`|~, such as \"X-Api-Key\""},
		{keyfunc.Header(""), "header()", `keyfunc: Header(""): a header's name is letters, digits and !#$%&'*+-.^_` + "`|~, such as \"X-Api-Key\""},
		{keyfunc.Header("host"), "header(Host)", `keyfunc: Header("Host"): the host is not in the header: use keyfunc.Custom and Request.Host`},
		{keyfunc.User([]int{1}), "user([]int)", "keyfunc: User: a key of type []int cannot be compared: give a string, or a value of a type of your own"},
		{keyfunc.User([1]any{[]int{1}}), "user([1]interface {})", "keyfunc: User: a key of type [1]interface {} cannot be compared: give a string, or a value of a type of your own"},
		{
			keyfunc.Address{Hops: -1, V4Bits: 33, V6Bits: -1, Trusted: prefixes("10.0.0.0/8")}.Func(), "forwarded-ip(-1 hops, IPv4 by /33, IPv6 by /-1)",
			"keyfunc: Address.Hops is -1: use 1 to 64, or 0 for no proxies\n" +
				"keyfunc: Address.Hops is -1 and Trusted has 1 networks: use one of the two\n" +
				"keyfunc: Address.V4Bits is 33: use 1 to 32, or 0 for 32\n" +
				"keyfunc: Address.V6Bits is -1: use 1 to 128, or 0 for 64",
		},
		{keyfunc.Address{V4Bits: -1, V6Bits: 129}.Func(), "ip(IPv4 by /-1, IPv6 by /129)", "keyfunc: Address.V4Bits is -1: use 1 to 32, or 0 for 32\nkeyfunc: Address.V6Bits is 129: use 1 to 128, or 0 for 64"},
		{keyfunc.ForwardedHops(65), "forwarded-ip(65 hops)", "keyfunc: Address.Hops is 65: use 1 to 64, or 0 for no proxies"},
		{
			keyfunc.ForwardedIP(append(prefixes("0.0.0.0/0", "1.2.3.4/0", "::/0", "::ffff:1.2.3.4/96", "::ffff:1.2.3.4/95"), netip.Prefix{})...), "forwarded-ip",
			"keyfunc: Address.Trusted[0] is 0.0.0.0/0, which trusts every client: list the networks of the proxies, or use Hops\n" +
				"keyfunc: Address.Trusted[1] is 1.2.3.4/0, which trusts every client: list the networks of the proxies, or use Hops\n" +
				"keyfunc: Address.Trusted[2] is ::/0, which trusts every client: list the networks of the proxies, or use Hops\n" +
				"keyfunc: Address.Trusted[3] is ::ffff:1.2.3.4/96, which trusts every client: list the networks of the proxies, or use Hops\n" +
				"keyfunc: Address.Trusted[4] is ::ffff:1.2.3.4/95, which is shorter than the /96 of IPv4-mapped addresses: write the IPv4 network\n" +
				"keyfunc: Address.Trusted[5] is not a valid prefix: make it with netip.ParsePrefix, and do not ignore the error",
		},
	}
	for _, k := range []string{"", "Tenant", "1a", "_a", "a b", "a:b", "a/b", "a=b", "ä", "a{", "a" + strings.Repeat("0", 64)} {
		tests = append(tests, struct {
			f    keyfunc.Func
			name string
			want string
		}{keyfunc.Custom(k, ok), "custom(" + k + ")", kind(k)})
	}
	for _, k := range []string{"ip", "route", "path", "method", "user", "const", "hash", "header", "header.x-api-key", "header."} {
		tests = append(tests, struct {
			f    keyfunc.Func
			name string
			want string
		}{keyfunc.Custom(k, ok), "custom(" + k + ")", used(k)})
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.name, c.f.String())
			require.EqualError(t, c.f.Err(), c.want)
			assert.Equal(t, c.want, keyOf(c.f, from("203.0.113.7")), "an invalid Func makes no key")
		})
	}
}

func TestCombinationsKeepTheirOwnParts(t *testing.T) {
	parts := []keyfunc.Func{keyfunc.Const("a"), keyfunc.Const("b")}
	join, first := keyfunc.Join(parts...), keyfunc.FirstOf(parts...)
	parts[0] = keyfunc.Const("c")
	assert.Equal(t, "const=a&const=b", keyOf(join, from("")))
	assert.Equal(t, "const=a", keyOf(first, from("")))
}

// A text of 10 MB makes a short key, and nothing of its size is allocated.
func TestLongTexts(t *testing.T) {
	long := strings.Repeat("x", 10<<20)
	r := &request{route: long, method: long, values: map[any]any{"s": long, "b": []byte(long)}, header: map[string][]string{"X-Api-Key": {long[:8192]}}}
	for _, f := range []keyfunc.Func{
		keyfunc.Route(), keyfunc.Method(), keyfunc.User("s"), keyfunc.User("b"), keyfunc.Header("X-Api-Key"),
		keyfunc.Const(long), tenant(answers(long, nil)),
	} {
		var k keyfunc.Key
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		require.NoError(t, f.AppendTo(&k, r))
		runtime.ReadMemStats(&after)
		assert.LessOrEqual(t, k.Len(), 64)
		assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
	}
}

func TestFuncsDoNotAllocate(t *testing.T) {
	r := from("10.0.0.1", "6.6.6.6, [2001:db8::1%eth0]:80 , 10.0.0.2")
	r.method, r.path, r.route = "HEAD", "/items/1", "/items/{id}"
	r.header["X-Api-Key"] = []string{"abc"}
	r.values = map[any]any{"s": "alice", "b": []byte("alice"), "i": 123456, "n": id(123456), "t": name("alice")}
	for _, f := range []keyfunc.Func{
		keyfunc.Join(keyfunc.IP(), keyfunc.Route(), keyfunc.Method(), keyfunc.Path()),
		keyfunc.ForwardedIP(prefixes("10.0.0.0/8")...),
		keyfunc.ForwardedHops(2),
		keyfunc.FirstOf(keyfunc.User("nobody"), keyfunc.IP()),
		keyfunc.User("s"), keyfunc.User("b"), keyfunc.User("i"), keyfunc.User("n"), keyfunc.User("t"),
		keyfunc.Header("X-Api-Key"),
		keyfunc.Hash(keyfunc.IP()),
		keyfunc.Const("all"),
		tenant(answers("acme", nil)),
	} {
		requireNoAllocs(t, f, r)
	}
}

func TestFuncIsSafeForConcurrentUse(t *testing.T) {
	f := keyfunc.Join(keyfunc.FirstOf(keyfunc.User("uid"), keyfunc.ForwardedIP(prefixes("10.0.0.0/8")...)), keyfunc.Route(), keyfunc.Header("X-Tenant"))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			r := from("10.0.0.1", fmt.Sprintf("203.0.113.%d", i))
			r.header["X-Tenant"] = []string{"k"}
			for range 200 {
				assert.Equal(t, fmt.Sprintf("ip=203.0.113.%d&route=&header.x-tenant=k", i), keyOf(f, r))
			}
		})
	}
	wg.Wait()
}

func BenchmarkAppendTo(b *testing.B) {
	f := keyfunc.Join(keyfunc.IP(), keyfunc.Route())
	r := from("203.0.113.7")
	r.route = "/items/{id}"
	var k keyfunc.Key
	b.ReportAllocs()
	for b.Loop() {
		k.Reset()
		if err := f.AppendTo(&k, r); err != nil {
			b.Fatal(err)
		}
	}
}

func TestFuncKinds(t *testing.T) {
	tenant := keyfunc.Custom("tenant", func(keyfunc.Request) (string, error) { return "acme", nil })
	f := keyfunc.Join(keyfunc.FirstOf(keyfunc.User("uid"), keyfunc.IP()), keyfunc.Hash(keyfunc.Join(keyfunc.Path(), keyfunc.Method())), keyfunc.IP())
	assert.Equal(t, []string{"user", "ip", "path", "method"}, f.Kinds())
	assert.Equal(t, []string{"route", "tenant", "header.x-api-key", "const"},
		keyfunc.Join(keyfunc.Route(), tenant, keyfunc.Header("X-Api-Key"), keyfunc.Const("path")).Kinds())
	f.Kinds()[0] = "path"
	assert.Equal(t, "user", f.Kinds()[0])
	assert.Empty(t, keyfunc.Func{}.Kinds())
}

// Keys of the peer's address differ from those that look behind it.
func TestCountsPeer(t *testing.T) {
	proxies := netip.MustParsePrefix("10.0.0.0/8")
	for _, c := range []struct {
		f               keyfunc.Func
		proxy, stranger bool
	}{
		{keyfunc.IP(), true, true},
		{keyfunc.Address{V6Bits: 48}.Func(), true, true},
		{keyfunc.Join(keyfunc.Route(), keyfunc.FirstOf(keyfunc.User("u"), keyfunc.Hash(keyfunc.IP()))), true, true},
		{keyfunc.ForwardedIP(), true, true},
		{keyfunc.ForwardedIP(proxies), false, true},
		{keyfunc.Join(keyfunc.Route(), keyfunc.ForwardedIP(proxies)), false, true},
		{keyfunc.Join(keyfunc.ForwardedIP(proxies), keyfunc.Hash(keyfunc.IP())), true, true},
		{keyfunc.ForwardedHops(1), false, false},
		{keyfunc.Join(keyfunc.Route(), keyfunc.User("u")), false, false},
		{keyfunc.Func{}, false, false},
	} {
		assert.Equal(t, c.proxy, c.f.CountsPeer(netip.MustParseAddr("10.1.2.3")), c.f.String())
		assert.Equal(t, c.stranger, c.f.CountsPeer(netip.MustParseAddr("192.168.1.2")), c.f.String())
	}
	assert.False(t, keyfunc.ForwardedIP(proxies).CountsPeer(netip.MustParseAddr("::ffff:10.1.2.3")))
}

// What stands behind a part that each request has is never reached.
func TestUnreachable(t *testing.T) {
	user := keyfunc.User("u")
	for want, fs := range map[string][]keyfunc.Func{
		"": {
			keyfunc.FirstOf(user, keyfunc.IP()), keyfunc.FirstOf(keyfunc.IP()), keyfunc.Join(keyfunc.IP(), user), keyfunc.IP(),
			{},
			keyfunc.FirstOf(keyfunc.Join(keyfunc.IP(), user), keyfunc.IP()), keyfunc.FirstOf(keyfunc.Hash(user), keyfunc.Const("all")),
		},
		"user(u)": {
			keyfunc.FirstOf(keyfunc.IP(), user), keyfunc.FirstOf(user, keyfunc.IP(), user), keyfunc.Join(keyfunc.Route(), keyfunc.FirstOf(keyfunc.IP(), user)),
			keyfunc.FirstOf(keyfunc.Join(keyfunc.IP(), keyfunc.Route()), user), keyfunc.FirstOf(keyfunc.FirstOf(user, keyfunc.IP()), user),
		},
		"path": {keyfunc.FirstOf(keyfunc.IP(), keyfunc.Path(), user)},
	} {
		for _, f := range fs {
			assert.Equal(t, want, f.Unreachable(), f.String())
		}
	}
}
