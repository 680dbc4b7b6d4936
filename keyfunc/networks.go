package keyfunc

import (
	"cmp"
	"net/netip"
	"slices"
	"sort"
)

// The networks of tunnels in which an IPv6 address has the IPv4 address of its client: 6to4 (RFC 3056), which gives a
// client 65536 networks of size /64, and Teredo (RFC 4380), which gives it one for each server, shared with all others.
var (
	sixToFour = netip.MustParsePrefix("2002::/16")
	teredo    = netip.MustParsePrefix("2001::/32")
)

// tunneled returns the IPv4 address of a client of a tunnel, or the zero Addr. It is counted, but never
// trusted. An address that is not public identifies nobody.
func tunneled(addr netip.Addr) netip.Addr {
	b := addr.As16()
	switch {
	case sixToFour.Contains(addr):
		addr = netip.AddrFrom4([4]byte(b[2:6]))
	case teredo.Contains(addr):
		addr = netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]})
	default:
		return netip.Addr{}
	}
	if !addr.IsGlobalUnicast() || addr.IsPrivate() {
		return netip.Addr{}
	}
	return addr
}

// canonicalPrefix returns a network in its canonical form, masked. Unmapping comes first: masked to /64, all IPv4-mapped
// addresses would be one.
func canonicalPrefix(p netip.Prefix) netip.Prefix {
	if addr := p.Addr(); addr.Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(addr.Unmap(), p.Bits()-96)
	}
	return p.Masked()
}

// networks is a set of networks: canonical, sorted and disjoint, so that contains is a binary search.
type networks []netip.Prefix

func newNetworks(prefixes []netip.Prefix) networks {
	sorted := make([]netip.Prefix, len(prefixes))
	for i, p := range prefixes {
		sorted[i] = canonicalPrefix(p)
	}
	sort.Slice(sorted, func(i, j int) bool {
		p, q := sorted[i], sorted[j]
		return cmp.Or(p.Addr().Compare(q.Addr()), cmp.Compare(p.Bits(), q.Bits())) < 0
	})
	var ns networks
	for _, p := range sorted {
		if len(ns) == 0 || !ns[len(ns)-1].Contains(p.Addr()) { // a network comes before those within it
			ns = append(ns, p)
		}
	}
	return ns
}

func (ns networks) contains(addr netip.Addr) bool {
	i, found := slices.BinarySearchFunc(ns, addr, func(p netip.Prefix, a netip.Addr) int { return p.Addr().Compare(a) })
	return found || i > 0 && ns[i-1].Contains(addr)
}
