package nethttp

import (
	"context"
	"net/http"

	"github.com/weir-go/weir/core/guard"
	"github.com/weir-go/weir/internal/answer"
	"github.com/weir-go/weir/internal/reqctx"
)

// Limit is a middleware that enforces g. Around the whole application it counts every request, also those that no
// route matches; around one route's handler it enforces the policy of that route, as in
//
//	mux.Handle("POST /login", nethttp.Limit(g.With("login", "5/1m"))(login))
//
// The route of a request is the first that find returns and that is not empty. If there is none, it is the pattern of
// the *http.ServeMux that Limit wraps, if it does, and then the pattern that a mux around it has found. So
// Limit(g)(mux) needs no find, and neither does a handler within a mux.
//
// The answer's writer is the server's own, except for rules with a Settle and for handlers made by [Handle]: those
// get one that is an http.Flusher, http.Hijacker and http.Pusher if the server's is, and from which
// http.ResponseController reaches the rest.
//
// Limit panics if g is nil, and the middleware if the handler is.
func Limit(g *guard.Guard, find ...Router) func(http.Handler) http.Handler {
	if g == nil {
		panic("nethttp: Limit(nil): give it the Guard that guard.New returned")
	}
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("nethttp: Limit(g)(nil): give the handler to limit, such as http.DefaultServeMux")
		}
		return &limit{guard: g, next: next, find: routers(find, next)}
	}
}

// Handle makes an over-limit handler from an HTTP handler, to send your own response. The headers are set
// already, and a body without a status is a 429, or what v.Status was. If f writes nothing, the plain answer of
// guard.Reject is sent: v.Status and v.Body, which f may change.
//
// Behind another framework's Limit, the plain answer is sent, and an error logged. A nil f is a mistake that
// guard.New reports.
func Handle(f func(w http.ResponseWriter, r *http.Request, v *guard.Verdict)) guard.OverLimit {
	return guard.HandleNative("nethttp.Handle", native(f))
}

type native func(http.ResponseWriter, *http.Request, *guard.Verdict)

type limit struct {
	guard *guard.Guard
	next  http.Handler
	find  []Router
}

// ServeHTTP implements http.Handler.
func (l *limit) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{request: request{r, l, r.Pattern}, sent: writer{ResponseWriter: w}}
	x.Wrap(w.Header())
	_ = l.guard.Serve(x) // handlers of net/http have no errors
}

// exchange implements guard.Exchange.
type exchange struct {
	request
	answer.Fields
	sent    writer
	watched bool // the handler gets sent in place of the server's writer
}

// writer returns the ResponseWriter for the handler.
func (x *exchange) writer() http.ResponseWriter {
	if x.watched {
		return x.sent.like()
	}
	return x.sent.ResponseWriter
}

func (*exchange) Scratch() *guard.Scratch { return nil } // net/http keeps the values of headers

func (x *exchange) Next(ctx context.Context) error {
	if ctx == nil {
		x.limit.next.ServeHTTP(x.writer(), x.r)
		return nil
	}
	inner := x.r.WithContext(ctx)
	defer reqctx.Return(x.r, inner)
	x.limit.next.ServeHTTP(x.writer(), inner)
	return nil
}

// Reply writes the plain answer. The server drops its body if the request is a HEAD.
func (x *exchange) Reply(status int, body []byte) {
	x.sent.ResponseWriter.WriteHeader(status)
	_, _ = x.sent.ResponseWriter.Write(body) // nobody is left to tell
}

func (x *exchange) Handle(handler any, v *guard.Verdict) (answered, known bool, err error) {
	f, known := handler.(native)
	if known {
		x.sent.otherwise = v.Status
		f(x.writer(), x.r, v)
	}
	return x.sent.status != 0, known, nil
}

func (x *exchange) Watch() { x.watched = true }

func (x *exchange) BeforeHeader(f func()) { x.watched, x.sent.before = true, f }

func (x *exchange) Final(_ error, panicked bool) guard.Final {
	status, bytes := x.sent.final(panicked)
	return guard.Final{Status: status, Bytes: bytes, Panicked: panicked}
}
