package echomw

import (
	"context"
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/answer"
	"github.com/weir-go/weir/internal/reqctx"
)

// Limit is a middleware that enforces g: on the server for every request, on a group or a route for those, as in
//
//	e.POST("/login", login, echomw.Limit(g.With("login", "5/1m")))
//
// It writes its refusals itself and returns nil for them, so that middleware outside of it sees an answer that is
// sent. Limit panics if g is nil.
func Limit(g *guard.Guard) echo.MiddlewareFunc {
	if g == nil {
		panic("echomw: Limit(nil): give it the Guard that guard.New returned")
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			x := &exchange{request: request{c}, next: next}
			x.Wrap(c.Response().Header())
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
func Handle(f func(c echo.Context, v *guard.Verdict) error) guard.OverLimit {
	return guard.HandleNative("echomw.Handle", native(f))
}

type native func(echo.Context, *guard.Verdict) error

// exchange implements guard.Exchange.
type exchange struct {
	request
	answer.Fields
	next echo.HandlerFunc
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
	x.c.Response().WriteHeader(status)
	_, _ = x.c.Response().Write(body) // nobody is left to tell
}

func (x *exchange) Handle(handler any, v *guard.Verdict) (answered, known bool, err error) {
	f, known := handler.(native)
	if known {
		x.c.Response().Status = v.Status // of a body without one
		err = f(x.c, v)
	}
	return x.c.Response().Committed, known, err
}

func (x *exchange) BeforeHeader(f func()) { x.c.Response().Before(f) }

func (*exchange) Watch() {} // Echo's own writer does

// Final answers for an error that is written later, by the server's HTTPErrorHandler, with the status it carries.
func (x *exchange) Final(err error, panicked bool) guard.Final {
	if res := x.c.Response(); res.Committed || err == nil && !panicked {
		return guard.Final{Status: res.Status, Bytes: res.Size, Panicked: panicked}
	}
	f := guard.Final{Status: http.StatusInternalServerError, Bytes: -1, Panicked: panicked}
	var failed *echo.HTTPError
	if errors.As(err, &failed) {
		f.Status = failed.Code
		if cause, ok := failed.Internal.(*echo.HTTPError); ok { //nolint:errorlint // as Echo's own handler does
			f.Status = cause.Code
		}
	}
	return f
}
