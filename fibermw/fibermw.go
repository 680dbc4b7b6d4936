package fibermw

import (
	"errors"

	"github.com/gofiber/fiber/v2"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/fibermw/internal/routes"
)

// Limit is a middleware that enforces g: on the app for every request, on a group or
// a route for those, as in
//
//	app.Post("/login", fibermw.Limit(guard.With("login", "5/1m")), login)
//
// It writes its refusals itself and returns nil for them. Limit panics if g is nil.
func Limit(g *core.Guard) fiber.Handler {
	if g == nil {
		panic("fibermw: Limit(nil): give it the Guard that core.NewGuard returned")
	}
	finder := &routes.Finder{}
	return func(c *fiber.Ctx) (err error) {
		v := g.Check(&request{c, finder})
		v.SetHeaders(header{c})
		over, known := v.Native.(native)
		answer := v.ForNative(known, "fibermw")
		panicked := true
		defer func() { v.Finish(final(c, err, panicked)) }()

		switch v.Action {
		case core.Pass:
			if v.NeedsContext() {
				outer := c.UserContext()
				c.SetUserContext(core.NewContext(outer, v))
				defer c.SetUserContext(outer) // v's context ends with its permit
			}
			err = c.Next()
		case core.Native:
			before := glance(c)
			if err = over(c, answer); err == nil && glance(c) == before {
				if answer.Status < 200 || answer.Status > 999 { // no status of an answer
					answer.Status = v.Status
				}
				reply(c, answer)
			}
		default:
			reply(c, &v)
		}
		panicked = false
		return err
	}
}

// Handle makes an over-limit handler from a Fiber handler, for answers of the
// program's own. The headers are set already. An error that f returns goes the way
// of all errors in Fiber. If f sets no status, writes nothing and returns nil, the
// plain answer of core.Reject is sent: v.Status and v.Body, which f may change.
//
// Behind another framework's Limit, the plain answer is sent, and an error logged. A
// nil f is a mistake that core.NewGuard reports.
func Handle(f func(c *fiber.Ctx, v *core.Verdict) error) core.OverLimit {
	return core.HandleNative("fibermw.Handle", native(f))
}

type native func(*fiber.Ctx, *core.Verdict) error

// reply sends the plain answer. The server drops its body if the request is a HEAD.
// The body is copied: Send would let middleware outside edit the text of all.
func reply(c *fiber.Ctx, v *core.Verdict) {
	c.Status(v.Status).Response().SetBody(v.Body)
}

// look is what of an answer tells whether a handler has written one.
type look struct {
	status, bytes int
	stream        bool
}

func glance(c *fiber.Ctx) look {
	res := c.Response()
	l := look{status: res.StatusCode(), stream: res.IsBodyStream()}
	if !l.stream { // a stream is read when it is sent
		l.bytes = len(res.Body())
	}
	return l
}

// final tells how the request ended. An error is written later, by the app's
// ErrorHandler, with the status that it carries.
func final(c *fiber.Ctx, err error, panicked bool) core.Final {
	f := core.Final{Status: fiber.StatusInternalServerError, Bytes: -1, Panicked: panicked}
	if failed, ok := errors.AsType[*fiber.Error](err); ok {
		f.Status = failed.Code
	} else if err == nil && !panicked {
		f.Status = c.Response().StatusCode()
		if !c.Response().IsBodyStream() { // it is sent later
			f.Bytes = int64(len(c.Response().Body()))
		}
	}
	return f
}

// header implements core.Header.
type header struct{ c *fiber.Ctx }

func (h header) Get(name string) string { return string(h.c.Response().Header.Peek(name)) }
func (h header) Set(name, value string) { h.c.Set(name, value) }
