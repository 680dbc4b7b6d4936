// Package nethttp limits the rate of requests to a net/http server.
//
//	guard, err := core.NewGuard(core.Config{
//		Policy: core.MustParse("100/1m"),
//		Key:    keyfunc.Join(keyfunc.IP(), keyfunc.Route()),
//	})
//	...
//	http.ListenAndServe(addr, nethttp.Limit(guard)(mux))
//
// It works with every router that takes a func(http.Handler) http.Handler. Who
// wants to count by route tells Limit how to find it before the router does: see
// [Router].
//
// The address, of which keyfunc.IP makes the key, is read from Request.RemoteAddr. What
// a middleware outside has put there, as chi's RealIP does, is taken as the address, and
// where it has no port, the log says so once: it may come from a header that clients can
// write. Leave such a middleware out and use keyfunc.ForwardedIP.
package nethttp
