// Package fiber3mw limits the rate of requests to an app of Fiber 3. For Fiber 2 there is package fibermw of weir itself,
// which does the same.
//
//	g := guard.Must("100/1m", keyfunc.Join(keyfunc.IP(), keyfunc.Route()))
//	app.Use("/*", fiber3mw.Limit(g))
//
// That line counts by one constant limit, in the process; guard.New takes a store
// and everything else.
//
// A path of nothing but slashes, such as "//", reaches no middleware of app.Use(f), but it does reach a route for
// all paths, such as app.Get("/*", static.New("public")). Middleware of app.Use("/*", f) is called for it.
//
// A request's route is the path that was registered, such as "/items/:id", in Use as
// well, where Fiber itself does not know it yet. All requests that no route matches
// have none, and share one key. Routes are matched in their order, so one for many paths whose handler only calls Next,
// such as app.All("/api/*", auth), is taken for their route: mount such handlers by Use.
// Constraints are not looked at: a request for "/items/abc" is counted under the route
// "/items/:id<int>", and routes that differ only in the constraints or the names of
// their parameters are counted together, under the first of them. Where an entry of
// guard.Config.Routes does not hold for that reason, the log says so once: register the
// more special route first.
//
// Routes may be added and removed, and apps mounted, while the app runs, as far as Fiber allows that: not while it
// serves requests. The next request is counted under the routes that there are. Until RebuildTree has been called, that
// may be one that Fiber does not take yet.
//
// Unless fiber.Config.CaseSensitive is set, keyfunc.Path gets a path in lower case, for
// Fiber treats both cases alike.
//
// The address, of which keyfunc.IP makes the key, is the socket's. Fiber's IP, which
// fiber.Config.ProxyHeader can make believe every client, is not asked; behind a proxy, use
// keyfunc.ForwardedIP. Requests of fiber.App.Test, which needs no network, share the
// address 0.0.0.0.
//
// In an application with a custom context, by fiber.NewWithCustomCtx, keyfunc.Request.Native returns that context, and
// the handlers get it.
//
// Fiber does not notice that a client has left, and by default has read a request's body
// before any middleware runs; set fiber.Config.StreamRequestBody where large bodies are
// to be refused unread. Fiber also calls the middleware of Use, but no route, where it could not read a request. What
// has a header is counted as other requests are, such as one whose body is too large; for anything else Limit calls the
// next handler and counts nothing.
//
// A handler that Fiber's timeout has abandoned runs on, with a context that has ended. It keeps its permit until it
// returns if Limit comes after the timeout, as in
//
//	app.Use(timeout.New(func(c fiber.Ctx) error { return c.Next() }, timeout.Config{Timeout: time.Second}))
//	app.Use("/*", fiber3mw.Limit(g))
//
// and no longer than until the timeout if Limit comes before it.
//
// A connection that is hijacked, and a body that a stream writer sends, keep their permit
// by guard.Detach in the handler and Claim in the function that Fiber calls afterwards:
//
//	permit := guard.Detach(c)
//	c.RequestCtx().Hijack(func(conn net.Conn) {
//		held, release := permit.Claim(context.Background())
//		defer release()
//		...
//	})
//
// Claim must not come before: Fiber does not always call that function (not after
// Connection: close, nor when the client has left), and what was claimed would be held
// for a day. What nobody has claimed is given back within a lease.
package fiber3mw
