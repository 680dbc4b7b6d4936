package keyfunc

import (
	"net/netip"
	"net/textproto"
	"slices"
	"strings"
)

// How much of X-Forwarded-For is read at most: a header of a megabyte would take milliseconds for each request.
const (
	maxHops = 64
	maxHop  = 128 // bytes
)

const forwardedFor = "X-Forwarded-For"

// proxies describes the proxies in front of the server.
type proxies struct {
	hops    int
	trusted networks
	header  string // with the client's address alone, or ""
}

func (a Address) proxies() proxies {
	return proxies{a.Hops, newNetworks(a.Trusted), textproto.CanonicalMIMEHeaderKey(a.Header)}
}

// client returns the client's address in its canonical form, as is the peer's, or the zero Addr if there is none.
func (p proxies) client(r Request, peer netip.Addr) netip.Addr {
	if p.hops == 0 && !p.trusted.contains(peer) {
		return peer
	}
	if p.header != "" {
		return p.named(r, peer)
	}
	last, read := peer, 0
	for _, line := range slices.Backward(r.Header(forwardedFor)) {
		for more := true; more; {
			if read == maxHops {
				return peer
			}
			read++
			var hop string
			line, hop, more = cutHop(line)
			addr := parseHop(hop)
			if !addr.IsValid() {
				return last
			}
			if read == p.hops || p.hops == 0 && !p.trusted.contains(addr) {
				return addr
			}
			last = addr
		}
	}
	return last
}

// named returns the client's address as the one line of the header says it, or the peer's if that does not.
func (p proxies) named(r Request, peer netip.Addr) netip.Addr {
	lines := r.Header(p.header)
	if len(lines) != 1 || len(lines[0]) > maxHop {
		return peer
	}
	if addr := parseHop(lines[0]); addr.IsValid() {
		return addr
	}
	return peer
}

// cutHop cuts the last entry off a line. An entry that is too long is returned as none.
func cutHop(line string) (before, hop string, more bool) {
	start := max(0, len(line)-maxHop-1)
	if i := strings.LastIndexByte(line[start:], ','); i >= 0 {
		i += start
		return line[:i], line[i+1:], true
	}
	if len(line) > maxHop {
		return "", "", false
	}
	return "", line, false
}

// parseHop reads an entry: an address alone, with a port, or in brackets. It returns the zero Addr for anything else.
func parseHop(hop string) netip.Addr {
	hop = strings.Trim(hop, " \t")
	if inner, ok := strings.CutPrefix(hop, "["); ok {
		text, rest, closed := strings.Cut(inner, "]")
		port, hasPort := strings.CutPrefix(rest, ":")
		if !closed || rest != "" && !(hasPort && isPort(port)) || !strings.Contains(text, ":") {
			return netip.Addr{}
		}
		return parseAddr(text)
	}
	if host, port, ok := strings.Cut(hop, ":"); ok && !strings.Contains(port, ":") {
		if !isPort(port) {
			return netip.Addr{}
		}
		return parseAddr(host)
	}
	return parseAddr(hop)
}

// isPort reports whether s is a port number. Its value does not matter.
func isPort(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return 1 <= len(s) && len(s) <= 5
}

// parseAddr reads an address, and drops the zone before netip sees it, which would keep a copy of its text.
func parseAddr(s string) netip.Addr {
	if addr, zone, ok := strings.Cut(s, "%"); ok {
		if zone == "" || !strings.Contains(addr, ":") { // only IPv6 has zones
			return netip.Addr{}
		}
		s = addr
	}
	addr, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}
	}
	if addr = canonical(addr); addr.IsUnspecified() { // no client has it
		return netip.Addr{}
	}
	return addr
}
