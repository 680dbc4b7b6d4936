package nethttp

import (
	"net/http"

	"github.com/weir-go/weir/core"
	"github.com/weir-go/weir/internal/reqctx"
)

// Limit is a middleware that enforces g. Around the whole application it counts
// every request, also those that no route matches; around one route's handler it
// enforces the policy of that route, as in
//
//	mux.Handle("POST /login", nethttp.Limit(guard.With("login", "5/1m"))(login))
//
// The route of a request is what the first of find says that has an answer. If none
// has, it is the pattern of the *http.ServeMux that Limit wraps, if it does, and then
// the pattern that a mux around it has found. So Limit(guard)(mux) needs no find, and
// neither does a handler within a mux.
//
// The answer's writer is the server's own, except for rules with a Settle and for
// handlers made by [Handle]: those get one that is an http.Flusher, http.Hijacker and
// http.Pusher if the server's is, and from which http.ResponseController reaches the
// rest.
//
// Limit panics if g is nil.
func Limit(g *core.Guard, find ...Router) func(http.Handler) http.Handler {
	if g == nil {
		panic("nethttp: Limit(nil): give it the Guard that core.NewGuard returned")
	}
	return func(next http.Handler) http.Handler {
		return &limit{guard: g, next: next, find: routers(find, next)}
	}
}

// Handle makes an over-limit handler from an HTTP handler, for answers of the
// program's own. The headers are set already. If f writes nothing, the plain answer
// of core.Reject is sent: v.Status and v.Body, which f may change.
//
// Behind another framework's Limit, the plain answer is sent, and an error logged. A
// nil f is a mistake that core.NewGuard reports.
func Handle(f func(w http.ResponseWriter, r *http.Request, v *core.Verdict)) core.OverLimit {
	return core.HandleNative("nethttp.Handle", native(f))
}

type native func(http.ResponseWriter, *http.Request, *core.Verdict)

type limit struct {
	guard *core.Guard
	next  http.Handler
	find  []Router
}

// ServeHTTP implements http.Handler.
func (l *limit) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := l.guard.Check(&request{r, l.find})
	v.SetHeaders(core.HeaderMap(w.Header()))
	over, known := v.Native.(native)
	answer := v.ForNative(known, "nethttp")

	var watched *writer
	if v.NeedsFinal() || v.Action == core.Native {
		w, watched = watch(w)
	}
	inner := r
	final := core.Final{Bytes: -1, Panicked: true}
	defer func() {
		if watched != nil {
			final.Status, final.Bytes = watched.sent(final.Panicked)
		}
		reqctx.Return(r, inner)
		v.Finish(final)
	}()

	switch v.Action {
	case core.Pass:
		if v.NeedsContext() {
			inner = r.WithContext(core.NewContext(r.Context(), v))
		}
		l.next.ServeHTTP(w, inner)
	case core.Native:
		if over(w, r, answer); watched.status == 0 {
			if answer.Status < 200 || answer.Status > 999 { // no status of an answer
				answer.Status = v.Status
			}
			reply(w, answer)
		}
	default:
		reply(w, &v)
	}
	final.Panicked = false
}

// reply sends the plain answer. The server drops its body if the request is a HEAD.
func reply(w http.ResponseWriter, v *core.Verdict) {
	w.WriteHeader(v.Status)
	_, _ = w.Write(v.Body) // nobody is left to tell
}
