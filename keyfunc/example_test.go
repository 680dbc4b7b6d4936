package keyfunc_test

import (
	"fmt"
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

// A tenant is what the host name begins with.
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
