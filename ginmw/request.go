package ginmw

import (
	"context"
	"net/netip"

	"github.com/gin-gonic/gin"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/reqctx"
	"github.com/weir-go/weir/keyfunc"
)

// request implements keyfunc.Request.
type request struct{ c *gin.Context }

func (q *request) Context() context.Context    { return q.c.Request.Context() }
func (q *request) Method() string              { return q.c.Request.Method }
func (q *request) ProtoMajor() int             { return q.c.Request.ProtoMajor }
func (q *request) Host() string                { return q.c.Request.Host }
func (q *request) Path() string                { return q.c.Request.URL.Path }
func (q *request) Route() string               { return q.c.FullPath() }
func (q *request) Peer() netip.AddrPort        { return keyfunc.ParsePeer(q.c.Request.RemoteAddr) }
func (q *request) Header(name string) []string { return q.c.Request.Header[name] }
func (q *request) ContentLength() int64        { return q.c.Request.ContentLength }
func (q *request) Native() any                 { return q.c }

func (q *request) Value(key any) any {
	if value, ok := get(q.c.Get, key); ok {
		return value
	}
	return q.c.Request.Context().Value(key)
}

// Routed implements guard.Exchange, for requests that a handler sends through the router again. Gin does not say whether
// a route takes every method.
func (q *request) Routed() (pattern string, everyMethod bool) { return q.c.FullPath(), false }

// Hijacked implements guard.Exchange. In Gin a handler serves the connection that it has taken over.
func (*request) Hijacked() bool { return false }

// within gives the handlers ctx, in the request and in Gin's own context, until leave is called.
func (q *request) within(ctx context.Context) (leave func()) {
	outer := q.c.Request
	before, _ := q.c.Get(guard.ContextKey)
	q.c.Request = outer.WithContext(ctx)
	q.c.Set(guard.ContextKey, ctx)
	return func() {
		q.c.Request = reqctx.Leave(ctx, outer, q.c.Request)
		q.c.Set(guard.ContextKey, before)
	}
}

// get calls a [gin.Context.Get], whose keys are strings before Gin 1.11, and anything since then.
func get[K any](of func(K) (any, bool), key any) (value any, ok bool) {
	if k, fits := key.(K); fits {
		return of(k)
	}
	return nil, false
}
