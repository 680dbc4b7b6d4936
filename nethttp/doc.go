// Package nethttp limits the rate of requests to a net/http server.
//
//	g := guard.Must("100/1m", keyfunc.Join(keyfunc.IP(), keyfunc.Route()))
//	http.ListenAndServe(addr, nethttp.Limit(g)(mux))
//
// That line counts by one constant limit, in the process; guard.New takes a store
// and everything else.
//
// It works with every router that takes a func(http.Handler) http.Handler. To count by
// route with one that Limit does not know, give it a [Router], which finds the route
// before the router does.
//
// The address, of which keyfunc.IP makes the key, is read from Request.RemoteAddr. What
// a middleware outside has put there, as chi's RealIP does, is taken as the address, and
// where it has no port, the log says so once: it may come from a header that clients can
// write. Leave such a middleware out and use keyfunc.ForwardedIP.
package nethttp
