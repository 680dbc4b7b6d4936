package keyfunc_test

import (
	"fmt"
	"net/http"
	"net/netip"

	"github.com/weir-go/weir/keyfunc"
)

// Each address is counted on each route apart.
func ExampleJoin() {
	r := &request{peer: netip.MustParseAddrPort("203.0.113.7:1234"), path: "/items/12", route: "/items/{id}"}

	f := keyfunc.Join(keyfunc.IP(), keyfunc.Route())
	var k keyfunc.Key
	err := f.AppendTo(&k, r)
	fmt.Println(f, "->", k.String(), err)
	// Output: join(ip, route) -> ip=203.0.113.7&route=/items/%7Bid%7D <nil>
}

// Users are counted by their id, all others by their address.
func ExampleFirstOf() {
	f := keyfunc.FirstOf(keyfunc.User("uid"), keyfunc.IP())
	for _, values := range []map[any]any{{"uid": 42}, {}} {
		r := &request{peer: netip.MustParseAddrPort("203.0.113.7:1234"), values: values}
		var k keyfunc.Key
		err := f.AppendTo(&k, r)
		fmt.Println(k.String(), err)
	}
	// Output:
	// user=42 <nil>
	// ip=203.0.113.7 <nil>
}

// Only what our own proxies say is believed: the client has written 6.6.6.6 itself.
func ExampleForwardedIP() {
	f := keyfunc.ForwardedIP(netip.MustParsePrefix("10.0.0.0/8"))
	r := &request{
		peer:   netip.MustParseAddrPort("10.0.0.1:443"),
		header: map[string][]string{"X-Forwarded-For": {"6.6.6.6", "203.0.113.7, 10.0.0.2"}},
	}
	var k keyfunc.Key
	err := f.AppendTo(&k, r)
	fmt.Println(k.String(), err)
	// Output: ip=203.0.113.7 <nil>
}

// The first label of the host name is the tenant.
func ExampleCustom() {
	tenant := keyfunc.Custom("tenant", func(r keyfunc.Request) (string, error) {
		if r.Host() != "acme.example.com" { // a host that is ours
			return "", keyfunc.ErrNoKey
		}
		return "acme", nil
	})
	for _, host := range []string{"acme.example.com", "example.com"} {
		var k keyfunc.Key
		err := tenant.AppendTo(&k, &request{host: host})
		fmt.Printf("%q %v\n", k.String(), err)
	}
	// Output:
	// "tenant=acme" <nil>
	// "" keyfunc: no key
}

// Mistakes are found when the program starts.
func ExampleFunc_Err() {
	f := keyfunc.Join(keyfunc.Header("X Key"), keyfunc.ForwardedHops(-1))
	fmt.Println(f.Err())
	// Output:
	// keyfunc: Header("X Key"): a header's name is letters, digits and !#$%&'*+-.^_`|~, such as "X-Api-Key"
	// keyfunc: Address.Hops is -1: use 1 to 64, or 0 for no proxies
}

// One client has a whole /56 of IPv6 here, and neighbours in a /24 of IPv4 share one limit.
func ExampleAddress() {
	f := keyfunc.Address{V4Bits: 24, V6Bits: 56}.Func()
	for _, peer := range []string{"203.0.113.7:1234", "[2001:db8:1:ff::7]:1234"} {
		var k keyfunc.Key
		err := f.AppendTo(&k, &request{peer: netip.MustParseAddrPort(peer)})
		fmt.Println(k.String(), err)
	}
	// Output:
	// ip=203.0.113.0/24 <nil>
	// ip=2001:db8:1::/56 <nil>
}

// GET and HEAD ask for the same work, and count as one method.
func ExampleMethod() {
	f := keyfunc.Join(keyfunc.Route(), keyfunc.Method())
	for _, method := range []string{"GET", "HEAD", "POST", "BREW"} {
		var k keyfunc.Key
		err := f.AppendTo(&k, &request{method: method, route: "/items"})
		fmt.Println(k.String(), err)
	}
	// Output:
	// route=/items&method=GET <nil>
	// route=/items&method=GET <nil>
	// route=/items&method=POST <nil>
	// route=/items&method=OTHER <nil>
}

// A key of fixed length, whatever the path.
func ExampleHash() {
	var k keyfunc.Key
	err := keyfunc.Hash(keyfunc.Path()).AppendTo(&k, &request{path: "/a/very/long/path"})
	fmt.Println(k.Text(), k.Len(), err)
	// Output: hash=h6QMal3yPnJGxCBseaM9UVXfViFIceq2cHiDOjA5w2A 48 <nil>
}

// A program can warn of keys that clients can make up.
func ExampleFunc_Kinds() {
	f := keyfunc.FirstOf(keyfunc.Header("X-Tenant"), keyfunc.IP())
	fmt.Println(f.Kinds())
	// Output: [header.x-tenant ip]
}

// Every request has an address, so nobody is counted by name.
func ExampleFunc_Unreachable() {
	f := keyfunc.FirstOf(keyfunc.IP(), keyfunc.User("uid"))
	fmt.Println(f.Unreachable())
	// Output: user(uid)
}

// If the peer is a proxy that nobody has listed, all of its clients share one limit.
func ExampleFunc_CountsPeer() {
	f := keyfunc.ForwardedIP(netip.MustParsePrefix("10.0.0.0/8"))
	fmt.Println(f.CountsPeer(netip.MustParseAddr("10.0.0.1")), f.CountsPeer(netip.MustParseAddr("192.168.0.1")))
	// Output: false true
}

// All addresses of a network share one key.
func ExampleKey_AddPrefix() {
	var k keyfunc.Key
	k.Add("tenant", "acme")
	k.AddPrefix(netip.MustParsePrefix("203.0.113.7/24"))
	fmt.Println(k.String())
	// Output: tenant=acme&ip=203.0.113.0/24
}

// An address that a middleware has put in the place of the socket's has no port.
func ExampleKey_Warning() {
	var k keyfunc.Key
	for _, text := range []string{"203.0.113.7:1234", "203.0.113.7"} {
		k.Reset()
		err := keyfunc.IP().AppendTo(&k, &request{peer: keyfunc.ParsePeer(text)})
		fmt.Println(k.String(), k.Warning() != "", err)
	}
	// Output:
	// ip=203.0.113.7 false <nil>
	// ip=203.0.113.7 true <nil>
}

func ExampleParsePeer() {
	for _, text := range []string{"203.0.113.7:1234", "[::ffff:203.0.113.7]:1234", "203.0.113.7", "@"} {
		fmt.Println(keyfunc.ParsePeer(text))
	}
	// Output:
	// 203.0.113.7:1234
	// 203.0.113.7:1234
	// 203.0.113.7:0
	// invalid AddrPort
}

// A function of a Request is a cost, a tier or a key. Behind an adapter, Native is the framework's own request.
func ExampleRequest() {
	kilobytes := func(r keyfunc.Request) int64 { return max(1, r.ContentLength()/1000) }
	protocol := keyfunc.Custom("http", func(r keyfunc.Request) (string, error) {
		if _, ok := r.Native().(*http.Request); ok && r.ProtoMajor() == 2 {
			return "2", nil
		}
		return "other", nil
	})
	r := &request{length: 42_000}
	var k keyfunc.Key
	err := protocol.AppendTo(&k, r)
	fmt.Println(kilobytes(r), k.String(), err)
	// Output: 42 http=other <nil>
}
