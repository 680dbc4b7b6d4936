// Package echo5mw limits the rate of requests to a server of Echo v5. For Echo v4, see package echomw.
//
//	g := guard.Must("100/1m", keyfunc.Join(keyfunc.IP(), keyfunc.Route()))
//	e.Use(echo5mw.Limit(g))
//
// That line counts by one constant limit, in the process; guard.New takes a store
// and everything else.
//
// A request's route is Echo's Path, such as "/items/:id". It is known in Use, in
// groups and on routes, but not in Pre: there all requests share one key. A request
// that no route matches has no route, one with a method that the route does not have
// has that route, and within a group with middleware it may be the group's "/*".
//
// The address, of which keyfunc.IP makes the key, is the socket's. Echo's RealIP is
// not asked; behind a proxy, use keyfunc.ForwardedIP.
//
// Echo's own Response, which knows the answer's status, may be below a writer that
// other middleware has put around it, as Gzip does. There Limit puts another Response
// around that writer, so that it sees the answer as the handler sends it, and takes it
// away afterwards: echo.UnwrapResponse finds this one in the handler.
//
// An error has the status that its StatusCode says, also if other errors wrap it, and
// 500 without one, as Echo's own handler of errors answers. What another handler of
// errors makes of it comes too late for a rule's Settle and After: those have
// guard.Final.Err.
package echo5mw
