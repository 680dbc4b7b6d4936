package ginmw

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/answer"
)

// Limit is a middleware that enforces g: on the engine for every request, on a group or a route for those, as in
//
//	engine.POST("/login", ginmw.Limit(g.With("login", "5/1m")), login)
//
// A request that it refuses is aborted. As with all of Gin's middleware, Use must come before the routes. Limit
// panics if g is nil.
func Limit(g *guard.Guard) gin.HandlerFunc {
	if g == nil {
		panic("ginmw: Limit(nil): give it the Guard that guard.New returned")
	}
	return func(c *gin.Context) {
		x := &exchange{request: request{c}}
		x.Wrap(c.Writer.Header())
		defer x.abort()
		_ = g.Serve(x) // handlers of Gin have no errors
	}
}

// Handle makes an over-limit handler from a Gin handler, to send your own response. The headers are set
// already, and so is the status, 429 or whatever v.Status is; the request is aborted afterwards. If f sets no other
// status and writes nothing, the plain answer of guard.Reject is sent: v.Status and v.Body, which f may change.
//
// Behind another framework's Limit, the plain answer is sent, and an error logged. A nil f is a mistake that
// guard.New reports.
func Handle(f func(c *gin.Context, v *guard.Verdict)) guard.OverLimit {
	return guard.HandleNative("ginmw.Handle", native(f))
}

type native func(*gin.Context, *guard.Verdict)

// exchange implements guard.Exchange.
type exchange struct {
	request
	answer.Fields
	passed bool
}

// abort keeps a request that did not pass from the handlers after this one.
func (x *exchange) abort() {
	if !x.passed {
		x.c.Abort()
	}
}

func (*exchange) Scratch() *guard.Scratch { return nil } // net/http keeps the values of headers

func (x *exchange) Next(ctx context.Context) error {
	x.passed = true
	if ctx != nil {
		defer x.within(ctx)()
	}
	x.c.Next()
	return nil
}

// Reply writes the plain answer. The server drops its body if the request is a HEAD.
func (x *exchange) Reply(status int, body []byte) {
	x.c.Status(status)
	x.c.Writer.WriteHeaderNow()
	_, _ = x.c.Writer.Write(body) // nobody is left to tell
}

func (x *exchange) Handle(handler any, v *guard.Verdict) (answered, known bool, err error) {
	f, known := handler.(native)
	if !known {
		return false, false, nil
	}
	status := v.Status
	x.c.Status(status)
	f(x.c, v)
	return x.c.Writer.Written() || x.c.Writer.Status() != status, true, nil
}

func (x *exchange) BeforeHeader(f func()) { x.c.Writer = &writer{x.c.Writer, f} }

func (*exchange) Watch() {} // Gin's own writer does

func (x *exchange) Final(_ error, panicked bool) guard.Final {
	w := x.c.Writer
	f := guard.Final{Status: w.Status(), Bytes: int64(max(0, w.Size())), Panicked: panicked}
	switch {
	case w.Written():
	case panicked:
		f.Status = http.StatusInternalServerError
	case x.c.FullPath() == "":
		f.Bytes = -1 // Gin may write its own page later
	}
	return f
}
