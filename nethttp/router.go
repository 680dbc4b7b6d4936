package nethttp

import (
	"net/http"
	"reflect"
	"slices"
	"strings"
)

// Router finds the route that a request will take, before the router has run: its
// pattern, such as "/items/{id}", without the method, or "" if no route matches. It
// is asked only if a key, a cost or a handler asks for the route. It must not
// answer with anything that clients can make up, such as the path: each would be a
// new key with a fresh limit.
//
// [Mux] makes one for http.ServeMux. For chi it is
//
//	func(r *http.Request) string {
//		method, path := r.Method, cmp.Or(r.URL.RawPath, r.URL.Path)
//		if c := chi.RouteContext(r.Context()); c != nil {
//			method, path = cmp.Or(c.RouteMethod, method), cmp.Or(c.RoutePath, path)
//		}
//		return mux.Find(chi.NewRouteContext(), method, path)
//	}
//
// where mux is the chi.Mux with all the routes, and Limit is mounted by its Use, after
// middleware that rewrites paths or methods. What is rewritten later leads to another
// route than was found, which the log says once; see guard.Config.StrictRoutes.
type Router func(*http.Request) string

// Mux finds the routes of m, and of muxes that are handlers of it. It does not look
// into a mux that another middleware wraps, such as http.StripPrefix, because that
// sees other paths than m: mount a Limit around such a mux instead. Limit needs Mux
// where something stands between it and the mux, such as another middleware; it
// finds a mux that it wraps itself, also through other Limits.
//
// A pattern with a host keeps it: "example.com/items/{id}". If the mux redirects to a
// path's canonical form, the route is the one that is redirected to; a redirected
// CONNECT has none.
func Mux(m *http.ServeMux) Router {
	return func(r *http.Request) string {
		found, next := "", m
		for range nested {
			h, pattern := next.Handler(r)
			if r.Method == http.MethodConnect && reflect.TypeOf(h) == redirect {
				break // the mux has answered with the path in place of a pattern
			}
			if pattern != "" {
				found = pattern
			}
			if next = muxOf(h); next == nil {
				break
			}
		}
		return withoutMethod(found)
	}
}

// nested bounds the muxes that are looked into, each a handler of the one before.
const nested = 16

// muxOf returns the mux that a handler is, also through Limits, or nil.
func muxOf(h http.Handler) *http.ServeMux {
	for {
		switch next := h.(type) {
		case *http.ServeMux:
			return next
		case *limit:
			h = next.next
		default:
			return nil
		}
	}
}

// redirect is the type of the handlers by which a mux redirects.
var redirect = reflect.TypeOf(http.RedirectHandler("/", http.StatusTemporaryRedirect))

// routers are find, and what next knows: a mux, or a Limit that knows one.
func routers(find []Router, next http.Handler) []Router {
	switch next := next.(type) {
	case *http.ServeMux:
		return append(slices.Clip(find), Mux(next))
	case *limit:
		return append(slices.Clip(find), next.find...)
	default:
		return find
	}
}

func route(r *http.Request, find []Router) string {
	for _, f := range find {
		if found := f(r); found != "" {
			return found
		}
	}
	return withoutMethod(r.Pattern)
}

// withoutMethod is the pattern "[METHOD ][HOST]/[PATH]" without its method.
func withoutMethod(pattern string) string {
	if i := strings.IndexAny(pattern, " \t"); i >= 0 {
		return strings.TrimLeft(pattern[i:], " \t")
	}
	return pattern
}
