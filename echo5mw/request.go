package echo5mw

import (
	"context"
	"net/netip"

	"github.com/labstack/echo/v5"

	"github.com/weir-go/weir/keyfunc"
)

// request implements keyfunc.Request.
type request struct{ c *echo.Context }

func (q *request) Context() context.Context    { return q.c.Request().Context() }
func (q *request) Method() string              { return q.c.Request().Method }
func (q *request) ProtoMajor() int             { return q.c.Request().ProtoMajor }
func (q *request) Host() string                { return q.c.Request().Host }
func (q *request) Path() string                { return q.c.Request().URL.Path }
func (q *request) Route() string               { return q.c.Path() }
func (q *request) Peer() netip.AddrPort        { return keyfunc.ParsePeer(q.c.Request().RemoteAddr) }
func (q *request) Header(name string) []string { return q.c.Request().Header[name] }
func (q *request) ContentLength() int64        { return q.c.Request().ContentLength }
func (q *request) Native() any                 { return q.c }

// Hijacked implements guard.Exchange. In Echo a handler serves the connection that it has taken over.
func (*request) Hijacked() bool { return false }

func (q *request) Value(key any) any {
	if name, ok := key.(string); ok {
		if value := q.c.Get(name); value != nil {
			return value
		}
	}
	return q.c.Request().Context().Value(key)
}
