package keyfunc

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/textproto"
	"strconv"
	"strings"
)

const (
	defaultV4Bits = 32
	defaultV6Bits = 64
)

// IP makes the key of the address of the socket's peer: the client, where clients connect directly. No header
// is read, so nobody can choose it. It is the one to use unless there is a proxy in front; behind a proxy it
// is the proxy's address, which all clients share: use [ForwardedIP] there.
//
// One address has one key, however it is written: an IPv4-mapped one is the IPv4 address, and a zone is dropped. IPv6
// addresses are counted by /64, because one client has all of it; see [Address] for other sizes. A client of 6to4 or
// Teredo, which give it many such networks, is counted by the IPv4 address in its address. Where there is no address,
// as on a unix socket, the error is [ErrNoKey].
//
// No socket has the peer 0.0.0.0 or ::, but a framework that runs without a network has, as Fiber does in App.Test.
// All such requests share the key of 0.0.0.0, and a test that lists 0.0.0.0/32 among the trusted networks has its
// headers read. In a header, both are no address.
//
// An address without a port is not the socket's: another middleware has put it there, mostly from a header that
// clients can write. It is taken as the address, and [Key.Warning] says so.
func IP() Func { return Address{}.Func() }

// ForwardedIP makes the key of the client's address behind proxies. trusted are the networks of those proxies.
// A peer that is not in them is the client itself, and headers are ignored. Otherwise X-Forwarded-For is read from
// right to left, all its lines, and the first address that is not in trusted is the client: what stands to the left
// of it may be the client's invention. Where an entry is no address, the walk ends at the last that was one.
//
// The same forms and sizes hold as for [IP]. With no trusted networks it is IP: a deployment that forgets to
// configure its proxies counts too coarsely rather than not at all. A network of size /0 and one that is not valid
// are mistakes that Err reports.
//
// Use it where the proxies' addresses are known; where only their number is, use [ForwardedHops]. No other header
// is read: neither Forwarded, nor X-Real-IP, nor CF-Connecting-IP, unless Address.Header names it.
func ForwardedIP(trusted ...netip.Prefix) Func { return Address{Trusted: trusted}.Func() }

// ForwardedHops makes the key of the client's address behind exactly n proxies, each of which appends the address
// of its peer to X-Forwarded-For: the n-th entry from the right. The socket's peer is the last of the proxies, and
// may be a unix socket. Where there are fewer entries, or one is no address, the last good one counts, and if there
// is none, the peer. The same forms and sizes hold as for [IP].
//
// With n = 0 it is IP. A negative n, and one above 64, are mistakes that Err reports.
//
// WARNING: a client that reaches the server past the proxies chooses its own address. Use [ForwardedIP] where that
// is possible.
func ForwardedHops(n int) Func { return Address{Hops: n}.Func() }

// Address makes a key from the client's address. Its fields are those of [IP], [ForwardedIP] and [ForwardedHops],
// and the sizes of the networks that are counted as one client:
//
//	keyfunc.Address{Trusted: proxies, V6Bits: 56}.Func()
//
// The zero Address is that of IP.
type Address struct {
	// Trusted are the networks of the proxies in front, as for ForwardedIP. Bits behind a prefix do not matter, and
	// an IPv4-mapped network is the IPv4 network that it is. Empty: no header is read, unless Hops is set.
	Trusted []netip.Prefix
	// Header names a header that holds the client's address alone, such as CF-Connecting-IP, and that the proxies in
	// Trusted write over what the client sent. It is read instead of X-Forwarded-For, and only if the socket's peer is in
	// Trusted, which must not be empty. If it is missing, stands twice or is no address, the peer is counted.
	//
	// WARNING: a proxy in Trusted that passes the header on as it came, as most load balancers do, lets every client that
	// reaches it choose an address.
	Header string
	// Hops is the number of proxies in front, 0 to 64, as for ForwardedHops. It excludes Trusted.
	Hops int
	// V4Bits is the size of the network that counts as one IPv4 client, 1 to 32. 0 is 32: each address.
	V4Bits int
	// V6Bits is the same for IPv6, 1 to 128. 0 is 64, the network of one customer's site or machine; use 56 or 48
	// where a customer gets so many. Above 64, one client has any number of keys.
	V6Bits int
}

// Func returns the Func that a describes. Fields out of range, Trusted together with Hops, and trusted networks that
// are not valid or hold everybody are mistakes that Err reports. Later changes of a do not matter.
func (a Address) Func() Func {
	if err := a.check(); err != nil {
		return Func{name: a.name(nil), err: err}
	}
	proxies, direct := a.proxies(), a.Hops == 0 && len(a.Trusted) == 0
	peers := func(peer netip.Addr) bool { return proxies.hops == 0 && !proxies.trusted.contains(canonical(peer)) }
	v4Bits, v6Bits := cmp.Or(a.V4Bits, defaultV4Bits), cmp.Or(a.V6Bits, defaultV6Bits)
	return Func{name: a.name(proxies.trusted), kinds: []string{kindIP}, sure: true, peers: peers, add: func(k *Key, r Request) error {
		socket := r.Peer()
		peer := canonical(socket.Addr())
		client := peer
		if !direct {
			client = proxies.client(r, peer)
		}
		if !client.IsValid() {
			return ErrNoKey
		}
		if socket.Port() == 0 && proxies.hops == 0 && !peer.IsUnspecified() {
			k.warning = portless
		}
		bits := v6Bits
		if client.Is4() {
			bits = v4Bits
		} else if outer := tunneled(client); outer.IsValid() {
			client, bits = outer, v4Bits
		}
		k.addNetwork(client, bits)
		return nil
	}}
}

// Client returns a function that finds the client's address behind the proxies of a, the address of which the key is
// made. Use it for what depends on who asks, such as to exempt an office or a monitor.
//
//	client, err := keyfunc.Address{Trusted: proxies}.Client()
//	...
//	skip := func(r keyfunc.Request) bool { return office.Contains(client(r)) }
//
// It returns the whole address, whatever V4Bits and V6Bits, and the zero Addr where there is none. The error is that of
// [Func.Err].
func (a Address) Client() (func(Request) netip.Addr, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	proxies := a.proxies()
	return func(r Request) netip.Addr {
		return proxies.client(r, canonical(r.Peer().Addr()))
	}, nil
}

// check returns the mistakes in the fields.
func (a Address) check() error {
	var errs []error
	check := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("keyfunc: Address."+format, args...))
		}
	}
	check(a.Hops < 0 || a.Hops > maxHops, "Hops is %d: use 1 to %d, or 0 for no proxies", a.Hops, maxHops)
	check(a.Hops != 0 && len(a.Trusted) > 0, "Hops is %d and Trusted has %d networks: use one of the two", a.Hops, len(a.Trusted))
	check(a.Header != "" && len(a.Trusted) == 0, "Header is %q and Trusted is empty: list the networks of the proxies that write it", a.Header)
	check(a.Header != "" && !isToken(a.Header), "Header is %q, which is not a header's name: use letters, digits and !#$%%&'*+-.^_`|~", a.Header)
	check(strings.EqualFold(a.Header, forwardedFor), "Header is %q, which holds a list: leave Header out", a.Header)
	check(a.V4Bits < 0 || a.V4Bits > 32, "V4Bits is %d: use 1 to 32, or 0 for %d", a.V4Bits, defaultV4Bits)
	check(a.V6Bits < 0 || a.V6Bits > 128, "V6Bits is %d: use 1 to 128, or 0 for %d", a.V6Bits, defaultV6Bits)
	for i, given := range a.Trusted {
		p := canonicalPrefix(given)
		switch {
		case !p.IsValid():
			check(true, "Trusted[%d] is not a valid prefix: make it with netip.ParsePrefix, and do not ignore the error", i)
		case p.Bits() == 0:
			check(true, "Trusted[%d] is %v, which trusts every client: list the networks of the proxies, or use Hops", i, given)
		case given.Addr().Is4In6() && p.Addr().Is6():
			check(true, "Trusted[%d] is %v, which is shorter than the /96 of IPv4-mapped addresses: write the IPv4 network", i, given)
		}
	}
	return errors.Join(errs...)
}

// name returns the name of a's Func. It shows no more than a few networks: those of a CDN are hundreds.
func (a Address) name(trusted networks) string {
	const shown = 4
	name, words := "ip", []string(nil)
	if len(a.Trusted) > 0 || a.Hops != 0 {
		name = "forwarded-ip"
	}
	for _, p := range trusted[:min(shown, len(trusted))] {
		words = append(words, p.String())
	}
	if more := len(trusted) - shown; more > 0 {
		words = append(words, strconv.Itoa(more)+" more")
	}
	if a.Header != "" {
		words = append(words, textproto.CanonicalMIMEHeaderKey(a.Header))
	}
	switch a.Hops {
	case 0:
	case 1:
		words = append(words, "1 hop")
	default:
		words = append(words, strconv.Itoa(a.Hops)+" hops")
	}
	if bits := cmp.Or(a.V4Bits, defaultV4Bits); bits != defaultV4Bits {
		words = append(words, "IPv4 by /"+strconv.Itoa(bits))
	}
	if bits := cmp.Or(a.V6Bits, defaultV6Bits); bits != defaultV6Bits {
		words = append(words, "IPv6 by /"+strconv.Itoa(bits))
	}
	if len(words) == 0 {
		return name
	}
	return name + "(" + strings.Join(words, ", ") + ")"
}

// portless is the warning about a peer's address that came without a port.
const portless = "the peer's address has no port, so it is not the socket's: a middleware has put it there, perhaps " +
	"from a header that clients can write; leave that middleware out and use keyfunc.ForwardedIP"

// ParsePeer reads the peer of a request from text, such as that of http.Request.RemoteAddr or of a net.Addr: an
// address and a port, as in "203.0.113.7:1234" or "[2001:db8::1]:1234". An IPv4-mapped address becomes the IPv4
// address. An address alone, which a middleware has put in the place of the socket's, gets the port 0. ParsePeer
// returns the zero AddrPort for anything else, such as the name of a unix socket.
func ParsePeer(text string) netip.AddrPort {
	if peer, err := netip.ParseAddrPort(text); err == nil {
		return netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port())
	}
	addr := parseHop(text)
	if !addr.IsValid() {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(addr, 0)
}

// nat64 is the network in which translators show the IPv4 clients of IPv6-only servers (RFC 6052): one /64 for all.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// canonical returns an address in the one form that all its notations share. Unspecified addresses become 0.0.0.0.
func canonical(addr netip.Addr) netip.Addr {
	addr = addr.Unmap().WithZone("")
	if nat64.Contains(addr) {
		b := addr.As16()
		addr = netip.AddrFrom4([4]byte(b[12:]))
	}
	if addr.IsUnspecified() {
		return netip.IPv4Unspecified()
	}
	return addr
}

// AddPrefix appends a network as a part of kind "ip": as "ip=2001:db8::/64", or as the bare address,
// "ip=203.0.113.7", if it is a network of one address. The network's own notation does not matter: bits
// behind the prefix are cleared, and an IPv4-mapped network is written as the IPv4 network that it is.
// The zero Prefix is written as an empty part.
func (k *Key) AddPrefix(p netip.Prefix) {
	p = canonicalPrefix(p)
	k.addNetwork(p.Addr(), p.Bits())
}

// addNetwork is AddPrefix for the network of an address that is in its canonical form.
func (k *Key) addNetwork(addr netip.Addr, bits int) {
	k.begin()
	k.b = append(k.b, kindIP+"="...)
	switch bits {
	case -1: // the zero Prefix
	case addr.BitLen(): // nearly always, and then there is nothing to mask
		k.b = addr.AppendTo(k.b)
	default:
		k.b = netip.PrefixFrom(addr, bits).Masked().AppendTo(k.b)
	}
}
