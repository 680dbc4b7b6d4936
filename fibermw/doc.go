// Package fibermw limits the rate of requests to a Fiber app.
//
//	guard, err := core.NewGuard(core.Config{
//		Policy: core.MustParse("100/1m"),
//		Key:    keyfunc.Join(keyfunc.IP(), keyfunc.Route()),
//	})
//	...
//	app.Use(fibermw.Limit(guard))
//
// A request's route is the path that was registered, such as "/items/:id", in Use as
// well, where Fiber itself does not know it yet. All requests that no route matches
// have none, and share one key; files of Static are among them. Routes are matched in
// their order, so one for many paths whose handler only calls Next, such as
// app.All("/api/*", auth), is taken for their route: mount such handlers by Use.
// Constraints are not looked at: a request for "/items/abc" is counted under the route
// "/items/:id<int>", and routes that differ only in the constraints or the names of
// their parameters are counted together, under the first of them.
//
// Unless fiber.Config.CaseSensitive is set, keyfunc.Path gets a path in lower case, for
// Fiber does not tell the cases apart either.
//
// The address, of which keyfunc.IP makes the key, is the socket's. Fiber's IP, which
// can be made to believe every client, is not asked; behind a proxy, use
// keyfunc.ForwardedIP. Requests of fiber.App.Test, which needs no network, share the
// address 0.0.0.0.
//
// Fiber cannot tell that a client has left, and by default has read a request's body
// before it asks anyone; set fiber.Config.StreamRequestBody where large bodies are
// to be refused unread.
package fibermw
