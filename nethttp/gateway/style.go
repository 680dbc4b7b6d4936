package gateway

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"
)

// Style is the way in which a gateway describes a request: one set of headers, and no alternatives. A gateway passes
// headers on that it does not know, so that a client could describe itself by those of another style.
type Style uint8

// The styles. The zero Style is a mistake.
const (
	_ Style = iota
	// Nginx describes by X-Original-Method, X-Original-URI, X-Original-Host and X-Original-Address, which the
	// configuration of nginx sets.
	Nginx
	// Forwarded describes by X-Forwarded-Method, X-Forwarded-Uri, X-Forwarded-Host and the last address of
	// X-Forwarded-For, as the forward_auth of Caddy and the ForwardAuth of Traefik do; see [Options].Hops.
	Forwarded
	// Envoy sends the request itself without its body, with a prefix before the path, as the ext_authz of Envoy does over
	// HTTP. The client's address is in X-Forwarded-For; see [Options].Hops.
	Envoy
)

// String returns the name of s in files: "nginx", "forwarded" or "envoy".
func (s Style) String() string {
	if s < Nginx || s > Envoy {
		return fmt.Sprintf("Style(%d)", uint8(s))
	}
	return [...]string{Nginx: "nginx", Forwarded: "forwarded", Envoy: "envoy"}[s]
}

// names are the headers of a style, in the canonical form. What is in parentheses is in the request itself.
type names struct{ method, uri, host, address string }

var styles = [...]names{
	Nginx:     {"X-Original-Method", "X-Original-Uri", "X-Original-Host", "X-Original-Address"},
	Forwarded: {"X-Forwarded-Method", "X-Forwarded-Uri", "X-Forwarded-Host", "X-Forwarded-For"},
	Envoy:     {"(method)", "(path)", "Host", "X-Forwarded-For"},
}

const (
	maxValue = 8 << 10 // bytes of a header that is read
	maxHops  = 64
)

// unreadable is the reason for which a description cannot be read, without the value of the header.
type unreadable struct{ header, problem string }

// describe returns the request that a gateway describes by r, as if the client had sent it here.
func (e *endpoint) describe(r *http.Request) (*http.Request, *unreadable) {
	d := description{r: r}
	of := styles[e.options.Style]
	var method, uri, host string
	if e.options.Style == Envoy {
		method, uri, host = r.Method, d.unprefixed(of.uri, e.options.Prefix), r.Host
		if host == "" {
			d.fail(of.host, "is missing")
		}
	} else {
		method, uri, host = d.once(of.method), d.once(of.uri), d.once(of.host)
	}
	address := d.once(of.address)
	if d.bad != nil {
		return nil, d.bad
	}
	if !isToken(method) {
		d.fail(of.method, "is no method")
	}
	u := d.parse(of.uri, uri)
	client := d.client(of.address, address, e.options)
	length := d.length(e.options.Length)
	if d.bad != nil {
		return nil, d.bad
	}
	// It came by HTTP/1.1, whatever the gateway speaks: a refusal in the form of gRPC has the status 200, by which the
	// gateway would let the request pass.
	described := &http.Request{
		Method: method, URL: u, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: r.Header, Body: http.NoBody,
		ContentLength: length, Host: host, RequestURI: uri,
		RemoteAddr: netip.AddrPortFrom(client, somePort).String(),
	}
	return described.WithContext(r.Context()), nil
}

// somePort stands for the port of the client's socket, which the gateway does not send: an address without a port would
// be one that anybody may have written.
const somePort = 1

// description reads what a gateway says of a request. The first thing that cannot be read is kept.
type description struct {
	r   *http.Request
	bad *unreadable
}

func (d *description) fail(header, problem string) {
	if d.bad == nil {
		d.bad = &unreadable{header, problem}
	}
}

// once returns the value of a header that must stand once.
func (d *description) once(name string) string {
	lines := d.r.Header[name]
	switch {
	case len(lines) == 0 || len(lines) == 1 && lines[0] == "":
		d.fail(name, "is missing")
	case len(lines) > 1:
		d.fail(name, "stands more than once")
	case len(lines[0]) > maxValue:
		d.fail(name, "is longer than "+strconv.Itoa(maxValue)+" bytes")
	default:
		return lines[0]
	}
	return ""
}

// unprefixed returns the target of the request without the prefix.
func (d *description) unprefixed(name, prefix string) string {
	uri := d.r.RequestURI
	if uri == "" { // a request that no server has read
		uri = d.r.URL.RequestURI()
	}
	rest, found := strings.CutPrefix(uri, prefix)
	switch {
	case !found || !strings.HasPrefix(rest, "/"):
		d.fail(name, "is not behind the prefix "+strconv.Quote(prefix))
	case len(rest) > maxValue:
		d.fail(name, "is longer than "+strconv.Itoa(maxValue)+" bytes")
	}
	return rest
}

// dots writes dots that somebody has escaped as they are, so that "/x/%2e%2e/login" is "/login" here as for gateways.
var dots = strings.NewReplacer("%2e", ".", "%2E", ".")

// parse reads the target of a request.
func (d *description) parse(header, uri string) *url.URL {
	uri, _, _ = strings.Cut(uri, "#") // which gateways and servers cut off
	target, query, _ := strings.Cut(uri, "?")
	if target != "*" && !strings.HasPrefix(target, "/") {
		d.fail(header, "is no path")
		return nil
	}
	u, err := url.ParseRequestURI(dots.Replace(target))
	if err != nil {
		d.fail(header, "is no path")
		return nil
	}
	u.RawQuery = query
	return u
}

// client returns the address of the client in the value of a header.
func (d *description) client(header, value string, o Options) netip.Addr {
	if o.Style != Nginx {
		for range max(o.Hops, 1) - 1 {
			comma := strings.LastIndexByte(value, ',')
			if comma < 0 {
				d.fail(header, "has fewer than "+strconv.Itoa(o.Hops)+" addresses")
				return netip.Addr{}
			}
			value = value[:comma]
		}
		value = strings.TrimSpace(value[strings.LastIndexByte(value, ',')+1:])
	}
	addr, err := netip.ParseAddr(value)
	if err != nil || addr.Zone() != "" {
		d.fail(header, "is no address")
	}
	return addr.Unmap()
}

// length returns the value of the header with the length of the body, or -1 without one.
func (d *description) length(name string) int64 {
	if name == "" || len(d.r.Header[name]) == 0 {
		return -1
	}
	n, err := strconv.ParseUint(d.once(name), 10, 63)
	if err != nil {
		d.fail(name, "is no length")
	}
	return int64(n) //nolint:gosec // of 63 bits
}

// isToken reports whether a method is one, as RFC 9110 has it.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	})
}

// cleanPrefix returns the prefix of the style Envoy without a slash at its end.
func cleanPrefix(prefix string, wrong func(format string, args ...any)) string {
	clean := strings.TrimSuffix(prefix, "/")
	if clean != "" && (clean[0] != '/' || path.Clean(clean) != clean || strings.ContainsAny(clean, "?#% ")) {
		wrong("Options.Prefix is %q; give Envoy's path_prefix, such as \"/check\", or leave it out", prefix)
	}
	return clean
}
