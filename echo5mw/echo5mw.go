package echo5mw

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/answer"
	"github.com/weir-go/weir/internal/reqctx"
)

// Limit is a middleware that enforces g: on the server for every request, on a group or a route for those, as in
//
//	e.POST("/login", login, echo5mw.Limit(g.With("login", "5/1m")))
//
// It writes its refusals itself and returns nil for them, so that middleware outside of it sees an answer that is
// sent. Limit panics if g is nil.
func Limit(g *guard.Guard) echo.MiddlewareFunc {
	if g == nil {
		panic("echo5mw: Limit(nil): give it the Guard that guard.New returned")
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			x := &exchange{request: request{c}, next: next}
			x.Wrap(c.Response().Header())
			if res, ok := c.Response().(*echo.Response); ok {
				x.res = res
			} else { // a writer of other middleware, which may keep the status to itself
				x.res = echo.NewResponse(c.Response(), c.Logger())
				c.SetResponse(writer{x.res})
				defer x.leave()
			}
			return g.Serve(x)
		}
	}
}

// Handle makes an over-limit handler from an Echo handler, to send your own response. The headers are set
// already, and a body without a status is a 429, or what v.Status was. An error that f returns goes the way of all
// errors in Echo. If f writes nothing and returns nil, the plain answer of guard.Reject is sent: v.Status and v.Body,
// which f may change.
//
// Behind another framework's Limit, the plain answer is sent, and an error logged. A nil f is a mistake that
// guard.New reports.
func Handle(f func(c *echo.Context, v *guard.Verdict) error) guard.OverLimit {
	return guard.HandleNative("echo5mw.Handle", native(f))
}

type native func(*echo.Context, *guard.Verdict) error

// exchange implements guard.Exchange.
type exchange struct {
	request
	answer.Fields
	res     *echo.Response // the answer
	next    echo.HandlerFunc
	watched bool
}

func (*exchange) Scratch() *guard.Scratch { return nil } // net/http keeps the values of headers

func (x *exchange) Next(ctx context.Context) error {
	if ctx != nil {
		outer := x.c.Request()
		x.c.SetRequest(outer.WithContext(ctx))
		defer func() { x.c.SetRequest(reqctx.Leave(ctx, outer, x.c.Request())) }()
	}
	return x.next(x.c)
}

// Reply writes the plain answer. The server drops its body if the request is a HEAD.
func (x *exchange) Reply(status int, body []byte) {
	x.res.WriteHeader(status)
	_, _ = x.res.Write(body) // nobody is left to tell
}

func (x *exchange) Handle(handler any, v *guard.Verdict) (answered, known bool, err error) {
	f, known := handler.(native)
	if known {
		x.res.Status = v.Status // of a body without one
		err = f(x.c, v)
	}
	return x.res.Committed, known, err
}

func (x *exchange) BeforeHeader(f func()) { x.res.Before(f) }

func (x *exchange) Watch() { x.watched = true } // res does

// Routed answers for a limit that comes before the router, by Pre. Echo copies what it knows of a route's methods, so
// it is asked only for a request that is watched: for others, nobody wants to know.
func (x *exchange) Routed() (pattern string, everyMethod bool) {
	return x.c.Path(), x.watched && x.c.RouteInfo().Method == echo.RouteAny
}

// Final answers for an error that is written later, by the server's HTTPErrorHandler, with the status it carries.
func (x *exchange) Final(err error, panicked bool) guard.Final {
	f := guard.Final{Status: http.StatusInternalServerError, Bytes: -1, Panicked: panicked}
	if x.res.Committed || !panicked {
		_, f.Status = echo.ResolveResponseStatus(x.res, err)
	}
	if x.res.Committed || err == nil && !panicked {
		f.Bytes = x.res.Size
	}
	return f
}
