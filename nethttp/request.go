package nethttp

import (
	"context"
	"net/http"
	"net/netip"

	"github.com/weir-go/weir/keyfunc"
)

// request implements keyfunc.Request.
type request struct {
	r      *http.Request
	limit  *limit
	before string // the request's pattern before the handler
}

func (q *request) Context() context.Context    { return q.r.Context() }
func (q *request) Method() string              { return q.r.Method }
func (q *request) ProtoMajor() int             { return q.r.ProtoMajor }
func (q *request) Host() string                { return q.r.Host }
func (q *request) Path() string                { return q.r.URL.Path }
func (q *request) Route() string               { return route(q.r, q.limit.find) }
func (q *request) Peer() netip.AddrPort        { return keyfunc.ParsePeer(q.r.RemoteAddr) }
func (q *request) Header(name string) []string { return q.r.Header[name] }
func (q *request) ContentLength() int64        { return q.r.ContentLength }
func (q *request) Value(key any) any           { return q.r.Context().Value(key) }
func (q *request) Native() any                 { return q.r }

// Hijacked implements guard.Exchange. In net/http a handler serves the connection that it has taken over.
func (*request) Hijacked() bool { return false }

// Routed implements guard.Exchange for what muxes within have found, and other routers that say so in the same place.
func (q *request) Routed() (pattern string, everyMethod bool) {
	if q.r.Pattern == q.before || q.r.Method == http.MethodConnect { // for which a mux may answer with the path
		return "", false
	}
	pattern = withoutMethod(q.r.Pattern)
	return pattern, pattern == q.r.Pattern
}
