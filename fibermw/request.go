package fibermw

import (
	"context"
	"net/netip"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/fibermw/internal/routes"
	"github.com/weir-go/weir/internal/fiberhttp"
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
	config := q.c.App().Config()
	return fiberhttp.Path(q.c.Path(), config.UnescapePath, config.CaseSensitive)
}

func (q *request) Peer() netip.AddrPort { return fiberhttp.Peer(q.c.Context().RemoteAddr()) }
func (q *request) Header(name string) []string {
	return fiberhttp.Lines(&q.c.Request().Header, name)
}
func (q *request) ContentLength() int64 { return fiberhttp.ContentLength(&q.c.Request().Header) }

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
