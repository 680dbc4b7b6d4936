// Package ginmw limits the rate of requests to a Gin engine.
//
//	g := guard.Must("100/1m", keyfunc.Join(keyfunc.IP(), keyfunc.Route()))
//	engine.Use(ginmw.Limit(g))
//
// That line counts by one constant limit, in the process; guard.New takes a store
// and everything else.
//
// A request's route is Gin's FullPath, such as "/items/:id"; all requests that no
// route matches have none, and share one key. Gin does not route HEAD to the
// handlers of GET, and answers redirects to a path's other form before any
// middleware runs: those are not counted.
//
// The address, of which keyfunc.IP makes the key, is the socket's. Gin's ClientIP,
// which believes every client by default, is not asked; behind a proxy, use
// keyfunc.ForwardedIP.
package ginmw
