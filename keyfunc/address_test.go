package keyfunc_test

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/keyfunc"
)

func TestIP(t *testing.T) {
	assert.Equal(t, "ip", keyfunc.IP().String())
	for peer, want := range map[string]string{
		"203.0.113.7":                "ip=203.0.113.7",
		"64:ff9b::203.0.113.7":       "ip=203.0.113.7", // an IPv4 client behind NAT64
		"::ffff:203.0.113.7":         "ip=203.0.113.7",
		"::ffff:cb00:7107":           "ip=203.0.113.7",
		"::FFFF:203.0.113.7%eth0":    "ip=203.0.113.7",
		"2001:db8::1":                "ip=2001:db8::/64",
		"2001:0DB8:0::ffff:1":        "ip=2001:db8::/64",
		"2001:db8::1.2.3.4":          "ip=2001:db8::/64",
		"2001:db8:0:1::1":            "ip=2001:db8:0:1::/64",
		"fe80::1%eth0":               "ip=fe80::/64",
		"fe80::2%" + long(1000, "z"): "ip=fe80::/64",
		"::1":                        "ip=::/64",
		"127.0.0.1":                  "ip=127.0.0.1",
		"":                           noKey,
		"0.0.0.0":                    "ip=0.0.0.0", // a test without a network
		"::":                         "ip=0.0.0.0",
		"::%eth0":                    "ip=0.0.0.0",
		"::ffff:0.0.0.0":             "ip=0.0.0.0",
	} {
		assert.Equal(t, want, keyOf(keyfunc.IP(), from(peer)), peer)
	}
}

func TestParsePeer(t *testing.T) {
	for text, want := range map[string]string{
		"203.0.113.7:1234":          "203.0.113.7:1234",
		"[2001:db8::1]:1234":        "[2001:db8::1]:1234",
		"[::ffff:203.0.113.7]:1234": "203.0.113.7:1234",
		"[fe80::1%eth0]:1234":       "[fe80::1%eth0]:1234",
		"0.0.0.0:0":                 "0.0.0.0:0",
		"203.0.113.7":               "203.0.113.7:0",
		"2001:db8::1":               "[2001:db8::1]:0",
		"[2001:db8::1]":             "[2001:db8::1]:0",
		"::ffff:203.0.113.7":        "203.0.113.7:0",
		"fe80::1%eth0":              "[fe80::1]:0",
		"":                          "invalid AddrPort",
		"@":                         "invalid AddrPort",
		"/run/weir.sock":            "invalid AddrPort",
		"somebody:1234":             "invalid AddrPort",
		"somebody":                  "invalid AddrPort",
		":1234":                     "invalid AddrPort",
		"0.0.0.0":                   "invalid AddrPort",
		"203.0.113.7, 10.0.0.1":     "invalid AddrPort",
	} {
		assert.Equal(t, want, keyfunc.ParsePeer(text).String(), text)
	}
}

// An address without a port is the address, and doubtful. That of no network is not.
func TestWarning(t *testing.T) {
	ip, two := keyfunc.IP(), keyfunc.ForwardedHops(2)
	for _, c := range []struct {
		f    keyfunc.Func
		peer string
		want string
		warn bool
	}{
		{ip, "203.0.113.7:1234", "ip=203.0.113.7", false},
		{ip, "203.0.113.7", "ip=203.0.113.7", true},
		{ip, "0.0.0.0:0", "ip=0.0.0.0", false},
		{keyfunc.ForwardedIP(prefixes("10.0.0.0/8")...), "203.0.113.7", "ip=203.0.113.7", true},
		{two, "203.0.113.7", "ip=1.2.3.4", false}, // it is not looked at
		{keyfunc.Join(keyfunc.Const("all"), ip), "203.0.113.7", "const=all&ip=203.0.113.7", true},
		{keyfunc.FirstOf(keyfunc.Join(ip, keyfunc.User("uid")), keyfunc.Const("all")), "203.0.113.7", "const=all", false},
	} {
		var k keyfunc.Key
		r := &request{peer: keyfunc.ParsePeer(c.peer), header: map[string][]string{"X-Forwarded-For": {"1.2.3.4, 10.0.0.2"}}}
		require.NoError(t, c.f.AppendTo(&k, r))
		assert.Equal(t, c.want, k.String())
		assert.Equal(t, c.warn, k.Warning() != "", "%v %s: %s", c.f, c.peer, k.Warning())
		k.Reset()
		assert.Empty(t, k.Warning())
	}
}

// A client that connects directly has one key, whatever it sends.
func TestSpoofedHeadersOfADirectClient(t *testing.T) {
	for _, f := range []keyfunc.Func{keyfunc.IP(), keyfunc.ForwardedIP(), keyfunc.ForwardedHops(0), keyfunc.ForwardedIP(prefixes("10.0.0.0/8")...)} {
		for i := range 100 {
			spoofed := fmt.Sprintf("6.6.6.%d", i)
			r := from("203.0.113.7", spoofed)
			for _, name := range []string{"X-Real-Ip", "Forwarded", "True-Client-Ip", "Cf-Connecting-Ip", "X-Client-Ip"} {
				r.header[name] = []string{spoofed}
			}
			assert.Equal(t, "ip=203.0.113.7", keyOf(f, r), f.String())
		}
	}
}

func TestForwardedFor(t *testing.T) {
	trusted := keyfunc.ForwardedIP(prefixes("10.0.0.0/8", "2001:db8:f::/48")...)
	two := keyfunc.ForwardedHops(2)
	hops := func(n int, hop string) string { return strings.TrimSuffix(strings.Repeat(hop+",", n), ",") }
	for _, c := range []struct {
		name  string
		f     keyfunc.Func
		peer  string
		lines []string
		want  string
	}{
		{"no header", trusted, "10.0.0.1", nil, "ip=10.0.0.1"},
		{"no peer", trusted, "", []string{"1.2.3.4"}, noKey},
		{"one proxy", trusted, "10.0.0.1", []string{"1.2.3.4"}, "ip=1.2.3.4"},
		{"mapped peer", trusted, "::ffff:10.0.0.1", []string{"1.2.3.4"}, "ip=1.2.3.4"},
		{"zoned peer", trusted, "2001:db8:f::1%eth0", []string{"1.2.3.4"}, "ip=1.2.3.4"},
		{"two proxies", trusted, "10.0.0.1", []string{"1.2.3.4, 10.0.0.2"}, "ip=1.2.3.4"},
		{"proxies of both kinds", trusted, "10.0.0.1", []string{"1.2.3.4,2001:db8:f:1::2 ,\t::ffff:10.0.0.3"}, "ip=1.2.3.4"},
		{"spoofed through a proxy that appends", trusted, "10.0.0.1", []string{"6.6.6.6, 10.9.9.9, 1.2.3.4"}, "ip=1.2.3.4"},
		{"two lines", trusted, "10.0.0.1", []string{"6.6.6.6", "1.2.3.4"}, "ip=1.2.3.4"},
		{"proxies over two lines", trusted, "10.0.0.1", []string{"6.6.6.6, 1.2.3.4", "10.0.0.3, 10.0.0.2"}, "ip=1.2.3.4"},
		{"all trusted", trusted, "10.0.0.1", []string{"10.0.0.4, 10.0.0.3", "10.0.0.2"}, "ip=10.0.0.4"},
		{"port", trusted, "10.0.0.1", []string{"1.2.3.4:80"}, "ip=1.2.3.4"},
		{"brackets", trusted, "10.0.0.1", []string{"[2001:db8::1]"}, "ip=2001:db8::/64"},
		{"brackets and port", trusted, "10.0.0.1", []string{"[2001:DB8::1]:80"}, "ip=2001:db8::/64"},
		{"brackets, zone and port", trusted, "10.0.0.1", []string{"[2001:db8::1%eth0]:80"}, "ip=2001:db8::/64"},
		{"bare IPv6", trusted, "10.0.0.1", []string{"2001:db8::1"}, "ip=2001:db8::/64"},
		{"IPv6 that looks like a port", trusted, "10.0.0.1", []string{"2001:db8:0:7::80"}, "ip=2001:db8:0:7::/64"},
		{"mapped", trusted, "10.0.0.1", []string{"::FFFF:1.2.3.4"}, "ip=1.2.3.4"},
		{"mapped in brackets", trusted, "10.0.0.1", []string{"[::ffff:102:304]:1"}, "ip=1.2.3.4"},
		{"zone", trusted, "10.0.0.1", []string{"fe80::1%" + long(100, "a")}, "ip=fe80::/64"},
		{"spaces", trusted, "10.0.0.1", []string{" \t1.2.3.4\t "}, "ip=1.2.3.4"},
		{"trusted beyond the client", trusted, "10.0.0.1", []string{"10.0.0.9, 1.2.3.4, 10.0.0.2"}, "ip=1.2.3.4"},
		{"junk beyond the client", trusted, "10.0.0.1", []string{long(5000, "x") + ", 1.2.3.4, 10.0.0.2"}, "ip=1.2.3.4"},
		{"64 hops", trusted, "10.0.0.1", []string{"1.2.3.4," + hops(63, "10.0.0.2")}, "ip=1.2.3.4"},
		{"65 hops", trusted, "10.0.0.1", []string{"1.2.3.4," + hops(64, "10.0.0.2")}, "ip=10.0.0.1"},
		{"65 hops over lines", trusted, "10.0.0.1", append([]string{"1.2.3.4"}, strings.Split(hops(64, "10.0.0.2"), ",")...), "ip=10.0.0.1"},
		{"128 bytes", trusted, "10.0.0.1", []string{"10.0.0.3," + long(120, " ") + " 1.2.3.4"}, "ip=1.2.3.4"},
		{"a hop of 129 bytes", trusted, "10.0.0.1", []string{"10.0.0.3," + long(121, " ") + " 1.2.3.4"}, "ip=10.0.0.1"},
		{"a line of 128 bytes", trusted, "10.0.0.1", []string{long(120, " ") + " 1.2.3.4"}, "ip=1.2.3.4"},
		{"a line of 129 bytes", trusted, "10.0.0.1", []string{long(121, " ") + " 1.2.3.4"}, "ip=10.0.0.1"},
		{"a hop of a megabyte", trusted, "10.0.0.1", []string{long(1<<20, "1") + ",10.0.0.2"}, "ip=10.0.0.2"},

		{"hops: no header", two, "10.0.0.1", nil, "ip=10.0.0.1"},
		{"hops: as many as proxies", two, "10.0.0.1", []string{"1.2.3.4, 10.0.0.2"}, "ip=1.2.3.4"},
		{"hops: more", two, "10.0.0.1", []string{"6.6.6.6, 1.2.3.4", "10.0.0.2"}, "ip=1.2.3.4"},
		{"hops: fewer", two, "10.0.0.1", []string{"1.2.3.4"}, "ip=1.2.3.4"},
		{"hops: whatever the peer is", two, "203.0.113.7", []string{"1.2.3.4, 5.6.7.8"}, "ip=1.2.3.4"},
		{"hops: unix socket", two, "", []string{"1.2.3.4, 10.0.0.2"}, "ip=1.2.3.4"},
		{"hops: unix socket, fewer", two, "", []string{"1.2.3.4"}, "ip=1.2.3.4"},
		{"hops: unix socket, no header", two, "", nil, noKey},
		{"hops: unix socket, junk", two, "", []string{"1.2.3.4, unknown"}, noKey},
		{"hops: junk", two, "10.0.0.1", []string{"unknown, 10.0.0.2"}, "ip=10.0.0.2"},
		{"hops: junk first", two, "10.0.0.1", []string{"1.2.3.4, unknown"}, "ip=10.0.0.1"},
		{"hops: most", keyfunc.ForwardedHops(64), "10.0.0.1", []string{"6.6.6.6,1.2.3.4," + hops(63, "10.0.0.2")}, "ip=1.2.3.4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, keyOf(c.f, from(c.peer, c.lines...)))
		})
	}
	for _, junk := range []string{
		"", " ", "unknown", "_hidden", "evil junk\tstring", "1.2.3", "1.2.3.4.5", "01.2.3.4", "1.2.3.256", "1.2.3.4:", "1.2.3.4:x", "1.2.3.4:123456", ":80",
		"1.2.3.4 5.6.7.8", "1.2.3.4%eth0", "%eth0", "::1%", "[::1", "::1]", "[::1]80", "[::1]:", "[::1]:x", "[::1]x", "[]", "[]:80", "[1.2.3.4]", "[1.2.3.4]:80",
		"[unknown]", "[[::1]]", "0.0.0.0", "::", "[::]:80", "::ffff:0.0.0.0", "::%eth0", "0.0.0.0:80", "\"1.2.3.4\"", "for=1.2.3.4", "1.2.3.4;5.6.7.8", "::1::",
		"1:2:3:4:5:6:7:8:9", "10.0.0.0/8", "http://1.2.3.4",
	} {
		// An entry that is no address ends the walk. What is left of it is not believed.
		assert.Equal(t, "ip=10.0.0.2", keyOf(trusted, from("10.0.0.1", "6.6.6.6,"+junk+",10.0.0.2")), "%q", junk)
		assert.Equal(t, "ip=10.0.0.1", keyOf(trusted, from("10.0.0.1", "6.6.6.6", junk)), "%q", junk)
	}
}

func TestAddress(t *testing.T) {
	five := prefixes("192.168.0.0/16", "2001:db8::/32", "10.0.0.0/8", "172.16.0.0/12", "198.51.100.0/24")
	for _, c := range []struct {
		a    keyfunc.Address
		name string
		peer string
		want string
	}{
		{keyfunc.Address{}, "ip", "203.0.113.7", "ip=203.0.113.7"},
		{keyfunc.Address{V4Bits: 32, V6Bits: 64}, "ip", "203.0.113.7", "ip=203.0.113.7"},
		{keyfunc.Address{V4Bits: 24}, "ip(IPv4 by /24)", "203.0.113.7", "ip=203.0.113.0/24"},
		{keyfunc.Address{V4Bits: 24}, "ip(IPv4 by /24)", "::ffff:203.0.113.7", "ip=203.0.113.0/24"},
		{keyfunc.Address{V6Bits: 56}, "ip(IPv6 by /56)", "2001:db8:0:1ff::1", "ip=2001:db8:0:100::/56"},
		{keyfunc.Address{V6Bits: 128}, "ip(IPv6 by /128)", "2001:db8::1%eth0", "ip=2001:db8::1"},
		{keyfunc.Address{V6Bits: 1}, "ip(IPv6 by /1)", "::ffff:203.0.113.7", "ip=203.0.113.7"},
		{keyfunc.Address{Hops: 1}, "forwarded-ip(1 hop)", "10.0.0.1", "ip=1.2.3.4"},
		{keyfunc.Address{Hops: 2, V4Bits: 8, V6Bits: 48}, "forwarded-ip(2 hops, IPv4 by /8, IPv6 by /48)", "10.0.0.1", "ip=1.0.0.0/8"},
		{keyfunc.Address{Trusted: prefixes("10.0.0.0/8")}, "forwarded-ip(10.0.0.0/8)", "10.0.0.1", "ip=1.2.3.4"},
		{keyfunc.Address{Trusted: prefixes("10.0.0.0/8"), V4Bits: 16}, "forwarded-ip(10.0.0.0/8, IPv4 by /16)", "10.0.0.1", "ip=1.2.0.0/16"},
		{keyfunc.Address{Trusted: prefixes("::ffff:10.0.0.0/104")}, "forwarded-ip(10.0.0.0/8)", "10.0.0.1", "ip=1.2.3.4"},
		{keyfunc.Address{Trusted: prefixes("10.0.0.1/8")}, "forwarded-ip(10.0.0.0/8)", "10.0.0.1", "ip=1.2.3.4"},
		{keyfunc.Address{Trusted: prefixes("10.0.0.0/24", "10.0.0.0/8", "10.1.0.0/16", "10.0.0.0/8")}, "forwarded-ip(10.0.0.0/8)", "10.200.0.1", "ip=1.2.3.4"},
		{keyfunc.Address{Trusted: five}, "forwarded-ip(10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 198.51.100.0/24, 1 more)", "2001:db8::1", "ip=1.2.3.4"},
		{keyfunc.Address{Trusted: five}, "forwarded-ip(10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 198.51.100.0/24, 1 more)", "172.32.0.0", "ip=172.32.0.0"},
		{keyfunc.Address{Trusted: five}, "forwarded-ip(10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 198.51.100.0/24, 1 more)", "9.255.255.255", "ip=9.255.255.255"},
	} {
		f := c.a.Func()
		require.NoError(t, f.Err())
		assert.Equal(t, c.name, f.String())
		assert.Equal(t, c.want, keyOf(f, from(c.peer, "1.2.3.4")), c.name)
	}
	for _, a := range []keyfunc.Address{{Hops: 65}, {Hops: 1, Trusted: five}, {V4Bits: 33}, {Trusted: prefixes("0.0.0.0/0")}} {
		_, err := a.Client()
		assert.Equal(t, a.Func().Err(), err)
		require.Error(t, err)
	}
	client, err := keyfunc.Address{Trusted: five, V4Bits: 8, V6Bits: 8}.Client()
	require.NoError(t, err)
	assert.Equal(t, "1.2.3.4", client(from("10.0.0.1", "6.6.6.6, ::ffff:1.2.3.4")).String(), "whole, and canonical")
	assert.Equal(t, "203.0.113.7", client(from("203.0.113.7", "1.2.3.4")).String())
	assert.False(t, client(from("")).IsValid())

	f := keyfunc.Address{Trusted: five}.Func()
	five[2] = netip.MustParsePrefix("11.0.0.0/8")
	assert.Equal(t, "ip=1.2.3.4", keyOf(f, from("10.0.0.1", "1.2.3.4")), "a Func keeps its own networks")
}

// FuzzForwardedFor compares the walk with one that is written to be read, and demands what must hold of any.
func FuzzForwardedFor(f *testing.F) {
	f.Add("10.0.0.1", "6.6.6.6, 1.2.3.4:80\n10.0.0.2", "10.0.0.0/8", 0)
	f.Add("::ffff:10.0.0.1", "[2001:db8::1%eth0]:80 , unknown,::", "::ffff:10.0.0.0/104", 0)
	f.Add("", "fe80::1%%,a\n\n,1.2.3.4:123456", "10.0.0.0/8", 2)
	f.Add("2001:db8::1", strings.Repeat("2001:DB8::2,", 70), "2001:db8::/32", 0)
	f.Add("10.0.0.1", "1.2.3.4,"+strings.Repeat(" ", 130), "10.0.0.0/8", 3)
	f.Add("0.0.0.0", "1.0.0.0", "0.0.0.0/1", 0)
	f.Add("64:ff9b::10.0.0.1", "64:ff9b::1.2.3.4", "10.0.0.0/8", 0)
	f.Add("2002:1::", "2002:cb00:7207::1", "2002:1::/32", 0)
	f.Add("2002:cb00:7207::1", "1.2.3.4", "203.0.114.0/24", 0)
	f.Add("2001:0:1:2:0:1:34ff:8df8", "2001:0:1:2:0:1:34ff:8df8", "2001::/32", 0)
	f.Fuzz(func(t *testing.T, peer, header, trusted string, hops int) {
		network, err := netip.ParsePrefix(trusted)
		if err != nil {
			return // it is no network
		}
		addr, _ := netip.ParseAddr(peer)
		a := keyfunc.Address{Trusted: []netip.Prefix{network}, V4Bits: 32, V6Bits: 128}
		if hops > 0 {
			a.Trusted, a.Hops = nil, hops
		}
		walk := a.Func()
		if walk.Err() != nil {
			return // and has no other answer
		}
		lines := strings.Split(header, "\n")
		client := func(lines ...string) string {
			return keyOf(walk, &request{peer: socket(addr), header: map[string][]string{"X-Forwarded-For": lines}})
		}
		got := client(lines...)
		find, err := a.Client()
		require.NoError(t, err)
		found := find(&request{peer: socket(addr), header: map[string][]string{"X-Forwarded-For": lines}})
		require.Equal(t, got != noKey, found.IsValid())
		require.Equal(t, got, client(strings.Join(lines, ",")), "lines and commas mean the same")
		exact := keyfunc.Address{V6Bits: 128}.Func()
		direct := keyOf(exact, &request{peer: socket(addr)})
		if got != noKey {
			require.Equal(t, got, keyOf(exact, &request{peer: socket(found)}), "the key is made of the client's address")
			ip, err := netip.ParseAddr(strings.TrimPrefix(got, "ip="))
			require.NoError(t, err)
			require.Equal(t, got, keyOf(exact, &request{peer: socket(ip)}), "the form is canonical")
			require.False(t, ip.Is4In6() || ip.Zone() != "")
			require.Equal(t, ip.IsUnspecified(), got == direct && oneForm(addr).IsUnspecified(), "only the peer may be unspecified")
			if hops <= 0 && !trusts(network, found) { // which may be that of a tunnel, in which ip is
				require.Equal(t, got, client(append([]string{"6.6.6.6"}, lines...)...), "what is left of the client is not believed")
			}
		}
		if hops <= 0 && !trusts(network, addr) {
			require.Equal(t, direct, got, "a stranger's header is not read")
		}
		if entries := strings.Split(strings.Join(lines, ","), ","); len(entries) <= 64 {
			want := direct
			if ip := reference(addr, entries, network, hops); ip.IsValid() {
				want = keyOf(exact, &request{peer: socket(ip)})
			}
			require.Equal(t, want, got)
		}
	})
}

// trusts is Contains for an address and a network in any form. Nobody's address is in the network that holds it, too.
func trusts(network netip.Prefix, ip netip.Addr) bool {
	if bits := network.Bits() - 96; network.Addr().Is4In6() && bits >= 0 {
		network = netip.PrefixFrom(network.Addr().Unmap(), bits)
	}
	return network.Contains(oneForm(ip))
}

// oneForm returns the form of an address that stands for all of its forms.
func oneForm(ip netip.Addr) netip.Addr {
	ip = ip.Unmap().WithZone("")
	if text, ok := strings.CutPrefix(ip.StringExpanded(), "0064:ff9b:0000:0000:0000:0000:"); ok { // RFC 6052
		var a, b, c, d byte
		_, _ = fmt.Sscanf(text, "%02x%02x:%02x%02x", &a, &b, &c, &d)
		ip = netip.AddrFrom4([4]byte{a, b, c, d})
	}
	if ip.IsUnspecified() {
		return netip.IPv4Unspecified()
	}
	return ip
}

var (
	inBrackets = regexp.MustCompile(`^\[([^\]]*:[^\]]*)\](:[0-9]{1,5})?$`)
	withPort   = regexp.MustCompile(`^([^:]*):[0-9]{1,5}$`)
	withZone   = regexp.MustCompile(`(?s)^([^%]*:[^%]*)%.+$`)
)

// reference returns the client, or the zero Addr for the peer.
func reference(peer netip.Addr, entries []string, network netip.Prefix, hops int) netip.Addr {
	var last netip.Addr
	if hops <= 0 && !trusts(network, peer) {
		return last
	}
	for i := range entries {
		entry := entries[len(entries)-1-i]
		if len(entry) > 128 {
			return last
		}
		entry = strings.Trim(entry, " \t")
		for _, form := range []*regexp.Regexp{inBrackets, withPort, withZone} {
			if m := form.FindStringSubmatch(entry); m != nil {
				entry = m[1]
				if form == inBrackets {
					if m := withZone.FindStringSubmatch(entry); m != nil {
						entry = m[1]
					}
				}
				break
			}
		}
		ip, err := netip.ParseAddr(entry)
		if err != nil || ip.Zone() != "" || oneForm(ip).IsUnspecified() {
			return last
		}
		ip = oneForm(ip)
		last = ip
		if hops > 0 && i+1 == hops || hops <= 0 && !trusts(network, ip) {
			return last
		}
	}
	return last
}

func long(n int, s string) string { return strings.Repeat(s, n) }

// A header of 100 000 entries costs no more than one of 64.
func BenchmarkForwardedFor(b *testing.B) {
	for _, n := range []int{1, 64, 100_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			f := keyfunc.ForwardedIP(prefixes("10.0.0.0/8")...)
			r := from("10.0.0.1", strings.TrimSuffix(strings.Repeat("10.0.0.2, ", n), ", "))
			var k keyfunc.Key
			b.ReportAllocs()
			for b.Loop() {
				k.Reset()
				if err := f.AppendTo(&k, r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What a tunnel gives one client is one key, and no proxy is trusted for what is in a tunnel's address.
func TestTunnels(t *testing.T) {
	for peer, want := range map[string]string{
		"2002:cb00:7207::1":                    "ip=203.0.114.7",
		"2002:cb00:7207:ffff:1:2:3:4":          "ip=203.0.114.7",
		"2001:0:4137:9e76:8000:63bf:34ff:8df8": "ip=203.0.114.7",
		"2001:0:1:2:0:1:34ff:8df8":             "ip=203.0.114.7",
		"2002:a00:1:2::1":                      "ip=2002:a00:1:2::/64", // 10.0.0.1 is nobody's
		"2001:0:1:2:0:1:f5ff:fffe":             "ip=2001:0:1:2::/64",
		"2001:1::1":                            "ip=2001:1::/64",
		"2003:cb00:7207::1":                    "ip=2003:cb00:7207::/64",
	} {
		assert.Equal(t, want, keyOf(keyfunc.IP(), from(peer)), peer)
		assert.Equal(t, want, keyOf(keyfunc.ForwardedIP(prefixes("10.0.0.0/8", "203.0.114.7/32")...), from(peer, "8.8.8.8")), peer)
		assert.Equal(t, want, keyOf(keyfunc.ForwardedIP(prefixes("10.0.0.0/8")...), from("10.0.0.1", peer)), peer)
	}
	assert.Equal(t, "ip=203.0.114.0/24", keyOf(keyfunc.Address{V4Bits: 24, V6Bits: 48}.Func(), from("2002:cb00:7207::1")))
}
