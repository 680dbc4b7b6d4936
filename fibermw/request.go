package fibermw

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/fibermw/internal/routes"
	"github.com/weir-go/weir/keyfunc"
)

// request implements keyfunc.Request. Fiber's strings live in a buffer that later
// requests overwrite, so all but those of the routing table are copied.
type request struct {
	c      *fiber.Ctx
	routes *routes.Finder
}

func (q *request) Context() context.Context { return q.c.UserContext() }
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
	if config.CaseSensitive {
		return strings.Clone(path)
	}
	return utils.ToLower(path) // a copy; what is one route to Fiber must not be two keys
}

func (q *request) Peer() netip.AddrPort {
	addr := q.c.Context().RemoteAddr()
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
	return q.c.UserContext().Value(key)
}

// Routed implements guard.Exchange. Fiber goes on to another route than the one that was found where a constraint does not
// hold, or where a handler calls Next. It does not say whether a route takes every method.
func (q *request) Routed() (pattern string, everyMethod bool) { return q.routes.Taken(q.c), false }

// Hijacked implements guard.Exchange. Fiber serves a WebSocket when its handler has returned.
func (q *request) Hijacked() bool { return q.c.Context().Hijacked() }

// within gives the handlers ctx, which may end with its permit, as their UserContext and in fasthttp's own context,
// until leave is called.
func (q *request) within(ctx context.Context) (leave func()) {
	outer, before := q.c.UserContext(), q.c.Locals(guard.ContextKey)
	q.c.SetUserContext(ctx)
	q.c.Locals(guard.ContextKey, ctx)
	return func() {
		q.c.SetUserContext(outer)
		q.c.Locals(guard.ContextKey, before)
	}
}
