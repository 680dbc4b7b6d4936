package gateway

import (
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/weir-go/weir/keyfunc"
)

// checkTrusted returns the networks of o.Trusted, without what is written behind their bits.
func checkTrusted(o *Options, wrong func(format string, args ...any)) (trusted []netip.Prefix) {
	if len(o.Trusted) == 0 && !o.Socket {
		wrong("Options.Trusted is empty; list the networks of the gateways, such as 127.0.0.0/8 for one on this machine")
	}
	for i, p := range o.Trusted {
		if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
		}
		switch {
		case !p.IsValid():
			wrong("Options.Trusted[%d] is not a valid prefix; make it with netip.ParsePrefix, and do not ignore the error", i)
		case p.Bits() == 0:
			wrong("Options.Trusted[%d] is %v, which trusts everybody; list the networks of the gateways", i, o.Trusted[i])
		case p.Addr().Is4In6(): // it has peers of IPv4 as the others, unmapped
			wrong("Options.Trusted[%d] is %v, which is shorter than the /96 of IPv4-mapped addresses; write the IPv4 network", i, o.Trusted[i])
		}
		trusted = append(trusted, p.Masked())
	}
	return trusted
}

// trusts reports whether a peer is a gateway.
func (e *endpoint) trusts(peer string) bool {
	addr := keyfunc.ParsePeer(peer).Addr()
	if !addr.IsValid() {
		return e.options.Socket
	}
	addr = addr.WithZone("")
	for _, p := range e.trusted {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// complaints writes to the log what is wrong with checks, at most once a minute for each header: whoever sends them
// could fill the log.
type complaints struct {
	log *slog.Logger

	mu   sync.Mutex
	last map[string]time.Time // of each header, of which a style has four and a length
}

// complaintInterval is the time between two lines about the same header.
const complaintInterval = time.Minute

// add writes a line about a header, or about the peer if header is "".
func (c *complaints) add(text, header string, more ...any) {
	c.mu.Lock()
	now := time.Now()
	last, known := c.last[header]
	due := !known || now.Sub(last) >= complaintInterval
	if due {
		if c.last == nil {
			c.last = map[string]time.Time{}
		}
		c.last[header] = now
	}
	c.mu.Unlock()
	if !due {
		return
	}
	if header != "" {
		more = append([]any{"header", header}, more...)
	}
	c.log.Warn(text, more...)
}
