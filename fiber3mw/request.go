package fiber3mw

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/utils/v2"
	utilsbytes "github.com/gofiber/utils/v2/bytes"
	"github.com/valyala/fasthttp"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/fiber3mw/internal/routes"
	"github.com/weir-go/weir/keyfunc"
)

// request implements keyfunc.Request. Fiber's strings live in a buffer that later
// requests overwrite, so all but those of the routing table are copied.
type request struct {
	c      fiber.Ctx
	routes *routes.Finder
	ends   <-chan struct{} // closed with the context that the request came with
}

func (q *request) Context() context.Context { return q.c.Context() }
func (q *request) Method() string           { return strings.Clone(q.c.Method()) }
func (q *request) ProtoMajor() int          { return 1 } // fasthttp speaks no other
func (q *request) Host() string             { return string(q.c.Request().Host()) }
func (q *request) Route() string            { return q.routes.Find(q.c) }
func (q *request) Native() any              { return q.c }

func (q *request) Path() string {
	path, config := q.c.Path(), q.c.App().Config()
	if decoded, err := url.PathUnescape(path); err == nil && !config.UnescapePath {
		path = decoded
	}
	own := []byte(path)
	if !config.CaseSensitive { // what is one route to Fiber must not be two keys
		own = utilsbytes.UnsafeToLower(own) // in place; ToLower returns a path in lower case as it is, without a copy
	}
	return utils.UnsafeString(own)
}

func (q *request) Peer() netip.AddrPort {
	addr := q.c.RequestCtx().RemoteAddr()
	if tcp, ok := addr.(*net.TCPAddr); ok { // almost always; it spares the text
		peer := tcp.AddrPort()
		return netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port())
	}
	return keyfunc.ParsePeer(addr.String())
}

func (q *request) Header(name string) []string {
	h := &q.c.Request().Header
	if name == fiber.HeaderContentType && len(h.ContentType()) == 0 { // PeekAll takes longer to find none
		return nil
	}
	values := h.PeekAll(name)
	if len(values) == 0 {
		return nil
	}
	all, lines := utils.UnsafeString(bytes.Join(values, nil)), make([]string, len(values)) // one copy, however many lines
	for i, value := range values {
		lines[i], all = all[:len(value)], all[len(value):]
	}
	return lines
}

func (q *request) ContentLength() int64 {
	n := int64(q.c.Request().Header.ContentLength())
	if n < -1 { // neither a length nor chunks: there is no body
		return 0
	}
	return n
}

func (q *request) Value(key any) any {
	if value := q.c.Locals(key); value != nil {
		return value
	}
	return q.c.Context().Value(key)
}

// Routed implements guard.Exchange. Fiber goes on to another route than the one that was found where a constraint does not
// hold, or where a handler calls Next. It does not say whether a route takes every method.
func (q *request) Routed() (pattern string, everyMethod bool) {
	if q.c.IsAbandoned() {
		return "", false
	}
	return q.routes.Taken(q.c), false
}

// Hijacked implements guard.Exchange. Fiber serves a WebSocket when its handler has returned.
func (q *request) Hijacked() bool { return !q.c.IsAbandoned() && q.c.RequestCtx().Hijacked() }

// response returns the answer that will be sent. That is not the request's own, which the handler goes on to write,
// if a timeout within Limit has abandoned it. A timeout around Limit has ended the context before, and what comes now
// is not sent.
func (q *request) response() *fasthttp.Response {
	if q.c.IsAbandoned() {
		select {
		case <-q.ends:
		default:
			if late := q.c.RequestCtx().LastTimeoutErrorResponse(); late != nil {
				return late
			}
		}
	}
	return q.c.Response()
}

// within gives the handlers ctx, which may end with its permit, as their Context and as a value of fiber.Ctx itself,
// until leave is called. A handler that Fiber's timeout has abandoned still reads them, so there they stay.
func (q *request) within(ctx context.Context) (leave func()) {
	outer, before := q.c.Context(), q.c.Locals(guard.ContextKey)
	q.c.SetContext(ctx)
	q.c.Locals(guard.ContextKey, ctx)
	return func() {
		if q.c.IsAbandoned() {
			return
		}
		q.c.SetContext(outer)
		q.c.Locals(guard.ContextKey, before)
	}
}
