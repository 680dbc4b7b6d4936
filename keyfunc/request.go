package keyfunc

import (
	"context"
	"net/netip"
)

// Request is the view of a request from which keys, costs and routes are read. Each web framework's adapter
// implements it; a test or a program without HTTP may do so too. It is read by one goroutine at a time.
//
// The strings that its methods return stay valid after the handler has returned, also where the framework
// reuses its buffers. The Request itself must not be kept when the function that was given it has returned.
type Request interface {
	// Context is the request's context. It ends when the client leaves, where the framework notices that.
	Context() context.Context
	// Method is the request's method as it came: HEAD stays HEAD. The key part [Method] folds it.
	Method() string
	// ProtoMajor is the major version of HTTP by which the request came: 1, 2 or 3.
	ProtoMajor() int
	// Host is the host that was asked for. It is not among the headers, because net/http takes it out of them.
	Host() string
	// Path is the path of the request's URL, decoded.
	Path() string
	// Route is the pattern that the router has chosen, without the method, such as "/items/{id}". It is
	// computed when asked for. It is "" where no route matches, or none is known.
	Route() string
	// Peer is the address and the port of the socket's other end. The port is 0 where the address came
	// without one: then it is not the socket's, but another middleware has put it there. Peer is the zero
	// AddrPort where there is no address, as on a unix socket. An IPv4 address is never IPv4-mapped, so that a
	// netip.Prefix such as 10.0.0.0/8 contains it: use netip.Addr.Unmap, or [ParsePeer], which reads text.
	Peer() netip.AddrPort
	// Header returns all lines of the header of that name, in order. The name is given in its canonical
	// form, such as "X-Api-Key". The lines are only read.
	Header(name string) []string
	// ContentLength is the length of the body in bytes, -1 where it is unknown.
	ContentLength() int64
	// Value returns the value that earlier handlers have stored under key: in the framework's own store, and if there
	// is none, in the context. It is nil where there is none.
	Value(key any) any
	// Native is the framework's own request: *http.Request, *gin.Context, echo.Context (in v5
	// *echo.Context) or *fiber.Ctx (in v3 fiber.Ctx).
	Native() any
}
