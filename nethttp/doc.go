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
// The peer, of which keyfunc.IP makes the key, is read from Request.RemoteAddr. A
// middleware that overwrites it with an address alone, as chi's RealIP does, takes
// the peer away; leave it out and use keyfunc.ForwardedIP.
package nethttp
