package fiber3mw

import (
	"context"
	"errors"
	"sync"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/fiber3mw/internal/routes"
)

// Limit is a middleware that enforces g: on the app for every request, on a group or
// a route for those, as in
//
//	app.Post("/login", fiber3mw.Limit(g.With("login", "5/1m")), login)
//
// It writes its refusals itself and returns nil for them. Limit panics if g is nil.
func Limit(g *guard.Guard) fiber.Handler {
	if g == nil {
		panic("fiber3mw: Limit(nil): give it the Guard that guard.New returned")
	}
	finder := &routes.Finder{}
	return func(c fiber.Ctx) error {
		if unread(c) {
			return c.Next()
		}
		x := exchanges.Get().(*exchange)
		x.request = request{c, finder, c.Context().Done()}
		err := g.Serve(x)
		x.request = request{} // a handler that has kept it does not see another client's
		exchanges.Put(x)
		return err
	}
}

// Handle makes an over-limit handler from a Fiber handler, to send your own
// response. The headers are set already, and so is the status, 429 or whatever v.Status
// is. An error that f returns goes the way of all errors in Fiber. If f sets
// no other status, writes nothing and returns nil, the plain answer of guard.Reject is
// sent: v.Status and v.Body, which f may change.
//
// Behind another framework's Limit, the plain answer is sent, and an error logged. A
// nil f is a mistake that guard.New reports.
func Handle(f func(c fiber.Ctx, v *guard.Verdict) error) guard.OverLimit {
	return guard.HandleNative("fiber3mw.Handle", native(f))
}

type native func(fiber.Ctx, *guard.Verdict) error

// exchange implements guard.Exchange.
type exchange struct {
	request
	scratch guard.Scratch
}

// exchanges are used again, as Fiber does with its own contexts.
var exchanges = sync.Pool{New: func() any { return new(exchange) }}

func (x *exchange) Next(ctx context.Context) error {
	if ctx != nil {
		defer x.within(ctx)()
	}
	return x.c.Next()
}

// Reply writes the plain answer. The server drops its body if the request is a HEAD. The body is copied: Send would
// let middleware outside edit the text of all.
func (x *exchange) Reply(status int, body []byte) {
	x.c.Status(status)
	x.c.Response().SetBody(body)
}

func (x *exchange) Handle(handler any, v *guard.Verdict) (answered, known bool, err error) {
	f, known := handler.(native)
	if !known {
		return false, false, nil
	}
	x.c.Status(v.Status)
	before := glance(x.response())
	err = f(x.c, v)
	return glance(x.response()) != before, true, err
}

func (*exchange) Watch() {} // Fiber keeps the answer until all is done

// look has the marks by which a handler's answer shows.
type look struct {
	status, bytes int
	stream        bool
}

func glance(res *fasthttp.Response) look {
	l := look{status: res.StatusCode(), stream: res.IsBodyStream()}
	if !l.stream { // a stream is read when it is sent
		l.bytes = len(res.Body())
	}
	return l
}

// Final answers for an error that is written later, by the app's ErrorHandler, with the status that it carries.
func (x *exchange) Final(err error, panicked bool) guard.Final {
	f := guard.Final{Status: fiber.StatusInternalServerError, Bytes: -1, Panicked: panicked}
	if failed := (*fiber.Error)(nil); err != nil && errors.As(err, &failed) {
		f.Status = failed.Code
	} else if err == nil && !panicked {
		res := x.response()
		f.Status = res.StatusCode()
		if !res.IsBodyStream() { // it is sent later
			f.Bytes = int64(len(res.Body()))
		}
	}
	return f
}
