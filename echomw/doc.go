// Package echomw limits the rate of requests to an Echo server.
//
//	g := guard.Must("100/1m", keyfunc.Join(keyfunc.IP(), keyfunc.Route()))
//	e.Use(echomw.Limit(g))
//
// That line counts by one constant limit, in the process; guard.New takes a store
// and everything else.
//
// A request's route is Echo's Path, such as "/items/:id". It is known in Use, in
// groups and on routes, but not in Pre: there all requests share one key. A request
// that no route matches has no route, one with a method that the route does not have
// has that route, and within a group with middleware it may be the group's "/*".
//
// The address, of which keyfunc.IP makes the key, is the socket's. Echo's RealIP,
// which believes every client by default, is not asked; behind a proxy, use
// keyfunc.ForwardedIP.
package echomw
