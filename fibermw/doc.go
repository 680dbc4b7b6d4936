// Package fibermw limits the rate of requests to a Fiber app.
//
//	g := guard.Must("100/1m", keyfunc.Join(keyfunc.IP(), keyfunc.Route()))
//	app.Use(fibermw.Limit(g))
//
// That line counts by one constant limit, in the process; guard.New takes a store
// and everything else.
//
// A request's route is the path that was registered, such as "/items/:id", in Use as
// well, where Fiber itself does not know it yet. All requests that no route matches
// have none, and share one key; files of Static are among them. Routes are matched in
// their order, so one for many paths whose handler only calls Next, such as
// app.All("/api/*", auth), is taken for their route: mount such handlers by Use.
// Constraints are not looked at: a request for "/items/abc" is counted under the route
// "/items/:id<int>", and routes that differ only in the constraints or the names of
// their parameters are counted together, under the first of them. Where an entry of
// guard.Config.Routes does not hold for that reason, the log says so once: register the
// more special route first.
//
// Unless fiber.Config.CaseSensitive is set, keyfunc.Path gets a path in lower case, for
// Fiber treats both cases alike.
//
// The address, of which keyfunc.IP makes the key, is the socket's. Fiber's IP, which
// can be made to believe every client, is not asked; behind a proxy, use
// keyfunc.ForwardedIP. Requests of fiber.App.Test, which needs no network, share the
// address 0.0.0.0.
//
// Fiber does not notice that a client has left, and by default has read a request's body
// before any middleware runs; set fiber.Config.StreamRequestBody where large bodies are
// to be refused unread.
//
// A connection that is hijacked, and a body that a stream writer sends, keep their permit
// by guard.Detach in the handler and Claim in the function that Fiber calls afterwards:
//
//	permit := guard.Detach(c.UserContext())
//	c.Context().Hijack(func(conn net.Conn) {
//		held, release := permit.Claim(context.Background())
//		defer release()
//		...
//	})
//
// Claim must not come before: Fiber does not always call that function (not after
// Connection: close, nor when the client has left), and what was claimed would be held
// for a day. What nobody has claimed is given back within a lease.
package fibermw
