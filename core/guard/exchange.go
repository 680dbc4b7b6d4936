package guard

import (
	"context"
	"sync"

	"github.com/weir-go/weir/core/guard/internal/accept"
	"github.com/weir-go/weir/keyfunc"
)

// Exchange is a request and its answer, as an adapter shows them to [Guard.Serve]. Its methods translate, and decide
// nothing. Applications have no use for it.
type Exchange interface {
	keyfunc.Request
	Header // of the answer; the method Header is that of the request

	// Scratch returns memory into which Serve writes the request's key and the numbers of the header, or nil. Return
	// nil if Set keeps the string that it is given, and if in doubt. If Set copies it, and exchanges are used again,
	// return a Scratch that is kept in the exchange, which saves allocations. No two requests may use one at the same
	// time.
	Scratch() *Scratch

	// Next calls the handler, with ctx in place of the request's context unless ctx is nil. An error is the
	// handler's, in a framework that has them.
	Next(ctx context.Context) error
	// Reply writes an answer.
	Reply(status int, body []byte)
	// Handle calls a handler that the adapter's own Handle was given, and reports whether it has answered. A body
	// without a status has that of v. known is false, and nothing done, if native is not one.
	Handle(native any, v *Verdict) (answered, known bool, err error)
	// BeforeHeader has f called right before the header is sent. It is called before a handler, and f once more after
	// that. It need do nothing in a framework that sends the header later.
	BeforeHeader(f func())
	// Routed returns, after Next, the pattern of the route that the request has taken, as its router has registered it,
	// without the method, and whether that route takes every method. It may be another one than Route found: a router
	// within the router knows more, middleware between may rewrite the path, and a handler may pass the request on to
	// the next route. Return "" if no router has said so.
	Routed() (pattern string, everyMethod bool)
	// Hijacked reports, after Next, whether the connection is served when the handler has returned. That gives back the
	// request's permits unless the handler has called [Detach], and the log has one line of it. Return false in a
	// framework that has no such handlers.
	Hijacked() bool
	// Watch is called before a handler if Final will be called after it.
	Watch()
	// Final returns how the request ended, after Watch: with the error of Next or Handle, or with a panic.
	Final(err error, panicked bool) Final
}

// Scratch is memory for the short texts of one request at a time. Those of the next one overwrite them. The zero
// Scratch is ready for use; see [Exchange].
type Scratch struct {
	key     keyfunc.Key
	numbers [64]byte
	shared  bool  // key is that of several rules, each of which overwrites the one before
	found   found // in the table of routes
}

// scratches are for exchanges without one.
var scratches = sync.Pool{New: func() any { return new(Scratch) }}

// native lets a handler of the framework answer, and sends the plain reply if it does not. v is a copy, which the
// handler may keep.
func (g *Guard) native(x Exchange, v Verdict) error {
	status := v.Status
	x.Watch()
	uncached := keepUncached(x)
	defer uncached()
	answered, known, err := x.Handle(v.Native, &v)
	if !known {
		g.warnForeign(x, &v)
		status, v.Body, _ = plain.answer(nil, asText, nameless, &v.Result, v.Err)
		v.Status = status
	}
	if !answered && err == nil {
		uncached()
		if len(v.Body) > 0 && x.Get(headerType) == "" {
			x.Set(headerType, accept.TypeText)
		}
		x.Reply(validStatus(v.Status, status), v.Body)
	}
	return err
}
