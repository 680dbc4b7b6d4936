package echomw

import (
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/weir-go/weir/core"
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
			v.SetHeaders(c.Response().Header())
			over, ok := v.Native.(native)
			if v.Action == core.Native && !ok {
				v.Misplaced("echomw")
			}
			panicked := true
			defer func() { v.Finish(final(c, err, panicked)) }()

			switch v.Action {
			case core.Pass:
				if v.NeedsContext() {
					mark := v // only this copy is on the heap
					c.SetRequest(c.Request().WithContext(core.NewContext(c.Request().Context(), &mark)))
				}
				err = next(c)
			case core.Native:
				answer := v
				if err = over(c, &answer); err == nil && !c.Response().Committed {
					reply(c, answer.Status, answer.Body)
				}
			default:
				reply(c, v.Status, v.Body)
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
	if f == nil {
		return core.Func("echomw.Handle", nil)
	}
	return core.HandleNative("echomw.Handle", native(f))
}

type native func(echo.Context, *core.Verdict) error

func reply(c echo.Context, status int, body []byte) {
	c.Response().WriteHeader(status)
	if c.Request().Method != http.MethodHead {
		_, _ = c.Response().Write(body) // nobody is left to tell
	}
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
