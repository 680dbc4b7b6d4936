// Package reqctx is for middleware that gives a request a context of its own. That takes
// a copy of the request, in which the handlers inside note what they find; where nobody
// returns it, middleware outside does not see the pattern, and the server, which looks
// at the request that it has made, leaves the files of an uploaded form on the disk.
package reqctx

import (
	"context"
	"net/http"
	"strings"
)

// Return notes in outer what the handlers of inner, a copy of it, have found: the pattern
// of an http.ServeMux with the values of its wildcards, and the form, if they have parsed
// it. Nothing else of outer is written, and nothing at all where nothing was found: other
// goroutines may be reading it.
func Return(outer, inner *http.Request) {
	if outer.Pattern != inner.Pattern {
		outer.Pattern = inner.Pattern
		for name := range wildcards(inner.Pattern) {
			if value, ok := pathValue(inner, name); ok {
				outer.SetPathValue(name, value)
			}
		}
	}
	if outer.Form == nil && inner.Form != nil {
		outer.Form = inner.Form
	}
	if outer.PostForm == nil && inner.PostForm != nil {
		outer.PostForm = inner.PostForm
	}
	if outer.MultipartForm == nil && inner.MultipartForm != nil {
		outer.MultipartForm = inner.MultipartForm
	}
}

// Leave does what Return does, for a framework whose context has the request: it returns the one that middleware
// outside is to find there. That is inner, with all that was done to it, but with the context of outer if ctx, which
// the handlers had, may end before that: it does so with a permit.
func Leave(ctx context.Context, outer, inner *http.Request) *http.Request {
	Return(outer, inner)
	if ctx.Done() != outer.Context().Done() {
		return inner.WithContext(outer.Context())
	}
	return inner
}

// pathValue returns the value of a wildcard, if r has it. A mux that does not clean the path, as for
// "CONNECT http://a.com/x", finds "/{x}/{y}/{z...}" with fewer values than wildcards, and PathValue panics for the rest.
func pathValue(r *http.Request, name string) (value string, ok bool) {
	defer func() {
		if !ok {
			_ = recover() // an index that is out of range, and nothing else: no other code runs
		}
	}()
	return r.PathValue(name), true
}

// wildcards yields the names in a pattern such as "GET /files/{dir}/{path...}".
func wildcards(pattern string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for {
			_, rest, found := strings.Cut(pattern, "{")
			name, rest, _ := strings.Cut(rest, "}")
			if !found || name != "$" && !yield(strings.TrimSuffix(name, "...")) {
				return
			}
			pattern = rest
		}
	}
}
