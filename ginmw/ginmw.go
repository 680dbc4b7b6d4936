package ginmw

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/internal/reqctx"
)

// Limit is a middleware that enforces g: on the engine for every request, on a group
// or a route for those, as in
//
//	engine.POST("/login", ginmw.Limit(guard.With("login", "5/1m")), login)
//
// A request that it refuses is aborted. As with all of Gin's middleware, Use must
// come before the routes. Limit panics if g is nil.
func Limit(g *core.Guard) gin.HandlerFunc {
	if g == nil {
		panic("ginmw: Limit(nil): give it the Guard that core.NewGuard returned")
	}
	return func(c *gin.Context) {
		var v core.Verdict // refuses until Check says otherwise
		panicked := true
		defer func() {
			if v.Action != core.Pass {
				c.Abort()
			}
			v.Finish(final(c, panicked))
		}()

		v = g.Check(&request{c})
		v.SetHeaders(core.HeaderMap(c.Writer.Header()))
		over, known := v.Native.(native)
		answer := v.ForNative(known, "ginmw")
		switch v.Action {
		case core.Pass:
			if v.NeedsContext() {
				outer := c.Request
				c.Request = outer.WithContext(core.NewContext(outer.Context(), v))
				defer func() {
					reqctx.Return(outer, c.Request)
					c.Request = c.Request.WithContext(outer.Context()) // v's context ends with its permit
				}()
			}
			c.Next()
		case core.Native:
			before := c.Writer.Status()
			if over(c, answer); !c.Writer.Written() && c.Writer.Status() == before {
				if answer.Status < 200 || answer.Status > 999 { // no status of an answer
					answer.Status = v.Status
				}
				reply(c, answer)
			}
		default:
			reply(c, &v)
		}
		panicked = false
	}
}

// Handle makes an over-limit handler from a Gin handler, for answers of the
// program's own. The headers are set already, and the request is aborted afterwards.
// If f sets no status and writes nothing, the plain answer of core.Reject is sent:
// v.Status and v.Body, which f may change.
//
// Behind another framework's Limit, the plain answer is sent, and an error logged. A
// nil f is a mistake that core.NewGuard reports.
func Handle(f func(c *gin.Context, v *core.Verdict)) core.OverLimit {
	return core.HandleNative("ginmw.Handle", native(f))
}

type native func(*gin.Context, *core.Verdict)

// reply sends the plain answer. The server drops its body if the request is a HEAD.
func reply(c *gin.Context, v *core.Verdict) {
	c.Status(v.Status)
	c.Writer.WriteHeaderNow()
	_, _ = c.Writer.Write(v.Body) // nobody is left to tell
}

func final(c *gin.Context, panicked bool) core.Final {
	f := core.Final{Status: c.Writer.Status(), Bytes: int64(max(0, c.Writer.Size())), Panicked: panicked}
	switch {
	case c.Writer.Written():
	case panicked:
		f.Status = http.StatusInternalServerError
	case c.FullPath() == "":
		f.Bytes = -1 // Gin may write its own page later
	}
	return f
}
