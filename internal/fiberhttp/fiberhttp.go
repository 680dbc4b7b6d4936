// Package fiberhttp reads and writes the messages of fasthttp, Fiber's server, for the adapters of Fiber 2 and 3. The
// strings of fasthttp live in a buffer that later requests overwrite, so all that it returns are copies.
package fiberhttp

import (
	"bytes"
	"net"
	"net/netip"
	"net/url"
	"unsafe"

	"github.com/valyala/fasthttp"

	"github.com/weir-go/weir/keyfunc"
)

const contentType = "Content-Type"

// Path returns a path as keys have it: decoded, unless the app does that, as unescaped says, and in lower case unless the
// app distinguishes cases, because one route to Fiber must not be two keys.
func Path(path string, unescaped, caseSensitive bool) string {
	if decoded, err := url.PathUnescape(path); err == nil && !unescaped {
		path = decoded
	}
	own := []byte(path)
	if !caseSensitive {
		for i, c := range own {
			if 'A' <= c && c <= 'Z' { // Fiber leaves all other letters as they are
				own[i] += 'a' - 'A'
			}
		}
	}
	return text(own)
}

// Peer returns the address of the peer, and the zero AddrPort if it has none, as behind a unix socket.
func Peer(addr net.Addr) netip.AddrPort {
	if tcp, ok := addr.(*net.TCPAddr); ok { // almost always; it spares the text
		peer := tcp.AddrPort()
		return netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port())
	}
	return keyfunc.ParsePeer(addr.String())
}

// Lines returns the lines of a field of a request, or nil if there is none.
func Lines(h *fasthttp.RequestHeader, name string) []string {
	if name == contentType && len(h.ContentType()) == 0 { // PeekAll takes longer to find none
		return nil
	}
	values := h.PeekAll(name)
	if len(values) == 0 {
		return nil
	}
	all, lines := text(bytes.Join(values, nil)), make([]string, len(values)) // one copy, however many lines
	for i, value := range values {
		lines[i], all = all[:len(value)], all[len(value):]
	}
	return lines
}

// ContentLength returns the length of a request's body, or -1 if it is not known.
func ContentLength(h *fasthttp.RequestHeader) int64 {
	n := int64(h.ContentLength())
	if n < -1 { // neither a length nor chunks: there is no body
		return 0
	}
	return n
}

// Get returns a field of an answer. It makes one line of several, because Set replaces the first alone.
func Get(h *fasthttp.ResponseHeader, name string) string {
	if name == contentType { // it has a place of its own
		return string(h.ContentType())
	}
	lines := 0
	for _, key := range h.PeekKeys() { // Peek takes longer to say that there is none, which is nearly always so
		if string(key) == name {
			lines++
		}
	}
	switch lines {
	case 0:
		return ""
	case 1:
		return string(h.Peek(name))
	}
	value := string(bytes.Join(h.PeekAll(name), []byte(", ")))
	h.Del(name)
	h.Set(name, value)
	return value
}

// Set sets a field of an answer, whose name is in canonical form. It spares the bytes of both a copy, because fasthttp
// makes its own.
func Set(h *fasthttp.ResponseHeader, name, value string) {
	h.SetCanonical(read(name), read(value))
}

// text returns the text of bytes that nobody changes any more.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// read returns the bytes of a text, to be read only.
func read(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
