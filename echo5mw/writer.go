package echo5mw

import (
	"net/http"

	"github.com/labstack/echo/v5"
)

// writer is an echo.Response around a writer of other middleware, for the handlers of a limit.
type writer struct{ *echo.Response }

// leave takes the writer of x away, unless other middleware has done so.
func (x *exchange) leave() {
	if w, ok := x.c.Response().(writer); ok && w.Response == x.res {
		x.c.SetResponse(x.res.ResponseWriter)
	}
}

// Unwrap lets http.ResponseController and echo.UnwrapResponse find the writer below.
func (w writer) Unwrap() http.ResponseWriter { return w.Response }

// Flush does nothing where the writer below cannot. That of the echo.Response panics.
func (w writer) Flush() { _ = w.FlushError() }

// FlushError lets http.ResponseController flush.
func (w writer) FlushError() error { return http.NewResponseController(w.ResponseWriter).Flush() }
