package echomw

import (
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/internal/reqctx"
)

// Limit is a middleware that enforces g: on the server for every request, on a group
// or a route for those, as in
//
//	e.POST("/login", login, echomw.Limit(guard.With("login", "5/1m")))
//
// It writes its refusals itself and returns nil for them, so that middleware outside
// of it sees an answer that is sent. Limit panics if g is nil.
func Limit(g *core.Guard) echo.MiddlewareFunc {
	if g == nil {
		panic("echomw: Limit(nil): give it the Guard that core.NewGuard returned")
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) (err error) {
			v := g.Check(&request{c})
			v.SetHeaders(core.HeaderMap(c.Response().Header()))
			over, known := v.Native.(native)
			answer := v.ForNative(known, "echomw")
			panicked := true
			defer func() { v.Finish(final(c, err, panicked)) }()

			switch v.Action {
			case core.Pass:
				if v.NeedsContext() {
					outer := c.Request()
					c.SetRequest(outer.WithContext(core.NewContext(outer.Context(), v)))
					defer func() {
						reqctx.Return(outer, c.Request())
						c.SetRequest(c.Request().WithContext(outer.Context())) // v's context ends with its permit
					}()
				}
				err = next(c)
			case core.Native:
				if err = over(c, answer); err == nil && !c.Response().Committed {
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
}

// Handle makes an over-limit handler from an Echo handler, for answers of the
// program's own. The headers are set already. An error that f returns goes the way
// of all errors in Echo. If f writes nothing and returns nil, the plain answer of
// core.Reject is sent: v.Status and v.Body, which f may change.
//
// Behind another framework's Limit, the plain answer is sent, and an error logged. A
// nil f is a mistake that core.NewGuard reports.
func Handle(f func(c echo.Context, v *core.Verdict) error) core.OverLimit {
	return core.HandleNative("echomw.Handle", native(f))
}

type native func(echo.Context, *core.Verdict) error

// reply sends the plain answer. The server drops its body if the request is a HEAD.
func reply(c echo.Context, v *core.Verdict) {
	c.Response().WriteHeader(v.Status)
	_, _ = c.Response().Write(v.Body) // nobody is left to tell
}

// final tells how the request ended. An error is written later, by the server's
// HTTPErrorHandler, with the status that it carries.
func final(c echo.Context, err error, panicked bool) core.Final {
	if res := c.Response(); res.Committed || err == nil && !panicked {
		return core.Final{Status: res.Status, Bytes: res.Size, Panicked: panicked}
	}
	f := core.Final{Status: http.StatusInternalServerError, Bytes: -1, Panicked: panicked}
	if failed, ok := errors.AsType[*echo.HTTPError](err); ok {
		f.Status = failed.Code
		if cause, ok := failed.Internal.(*echo.HTTPError); ok { //nolint:errorlint // as Echo's own handler does
			f.Status = cause.Code
		}
	}
	return f
}
