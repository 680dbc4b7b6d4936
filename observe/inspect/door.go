package inspect

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
)

// crossOrigin refuses what the page of another site sends. It knows older browsers by their Origin.
var crossOrigin = http.NewCrossOriginProtection()

// admit returns nil if the page may be shown to the sender of r, or else an error that says why not.
func (h *handler) admit(r *http.Request) error {
	if err := sameSite(r); err != nil {
		return err
	}
	if h.o.Allow != nil {
		if !h.o.Allow(r) {
			return errors.New("inspect.Options.Allow refuses this request")
		}
		return nil
	}
	return local(r)
}

// sameSite refuses requests that a page of another site has made, so that a browser on this machine is no way in. It
// lets through a link that somebody follows, as from a runbook: the site that has the link cannot read the page.
func sameSite(r *http.Request) error {
	if err := crossOrigin.Check(r); err != nil {
		return errors.New("a page of another site has sent this; open the page by its address")
	}
	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "", "none", "same-origin":
	default:
		if r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document" {
			return fmt.Errorf("a page of another site asks for this (Sec-Fetch-Site: %.20q); open the page by its address", site)
		}
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		if u, err := url.Parse(origin); err != nil || u.Host != r.Host {
			return errors.New("a page of another site asks for this (header Origin); open the page by its address")
		}
	}
	return nil
}

// local returns nil if r comes from this machine, from nobody behind a proxy on it, and by a name of this machine: a
// browser sends the name of a site along, whatever address that name may have by now.
func local(r *http.Request) error {
	const instead = "open it from this machine, as through \"ssh -L\", or set inspect.Options.Allow"
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() || peer.Addr().Unmap() == sidecar {
		return errors.New("the page is for this machine alone, and the request comes from elsewhere; " + instead)
	}
	for name := range r.Header {
		if forwards(name) {
			return fmt.Errorf("the request comes through a proxy (header %.40s), for whomever that stands; %s", name, instead)
		}
	}
	if !r.ProtoAtLeast(1, 1) || r.Proto == "HTTP/1.0" { // Fiber's adaptor says the version in Proto alone
		return errors.New("the request is of HTTP/1.0, as that of a proxy that says nothing of its clients; " + instead)
	}
	if !isLocalName(r.Host) {
		return fmt.Errorf("the page was asked for as %.60q, which is no name of this machine; use localhost or 127.0.0.1", r.Host)
	}
	return nil
}

// sidecar is the address from which the proxy in a pod of an Istio mesh passes on what comes from outside. It adds no
// header where it does not take the port for one of HTTP.
var sidecar = netip.AddrFrom4([4]byte{127, 0, 0, 6})

// isLocalName reports whether the Host of a request is localhost or a loopback address.
func isLocalName(host string) bool {
	name := host
	if withoutPort, _, err := net.SplitHostPort(host); err == nil {
		name = withoutPort
	}
	if strings.EqualFold(name, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(name, "["), "]"))
	return err == nil && addr.Unmap().IsLoopback()
}

// forwardingPrefixes begin the headers that proxies add. Others are in forwardingHeaders.
var forwardingPrefixes = []string{
	"X-Forwarded", "X-Original-", "X-Envoy-", "X-Amzn-", "X-Azure-", "X-Appengine-", "Cf-", "Fly-", "Fastly-", "L5d-",
}

var forwardingHeaders = []string{
	"Forwarded", "Via", "Proxy-Connection", "X-Real-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "X-Remote-Ip", "X-Remote-Addr",
	"X-Host", "X-Originating-Ip", "X-Proxyuser-Ip", "True-Client-Ip", "Client-Ip", "Cdn-Loop", "X-Cloud-Trace-Context", "X-Scheme",
}

// forwards reports whether a proxy has added the header of a name.
func forwards(name string) bool {
	name = textproto.CanonicalMIMEHeaderKey(name)
	return slices.Contains(forwardingHeaders, name) ||
		slices.ContainsFunc(forwardingPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
