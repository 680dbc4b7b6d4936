// Package grpcmw limits the rate of calls to a server of gRPC (google.golang.org/grpc).
//
//	g := guard.Must("100/1m", keyfunc.Join(keyfunc.IP(), keyfunc.Route()))
//	srv := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(grpcmw.Unary(g)),
//		grpc.ChainStreamInterceptor(grpcmw.Stream(g)),
//	)
//
// That line counts by one constant limit, in the process; guard.New takes a store and everything else.
//
// # What a guard sees
//
// Route and Path are the full name of the method, so that Config.Routes has entries such as "/pkg.Service/Method" and
// "/pkg.Service/*". The method is POST. Header reads the metadata, in whatever case a name is given, and Peer is the
// socket's other end; behind a proxy, use keyfunc.ForwardedIP. Native returns a [*Call], with the message of a unary
// call, of which a rule's Cost may be made.
//
// gRPC refuses a call of a method that it does not know before any interceptor, uncounted, unless the server has a
// grpc.UnknownServiceHandler: then the client chooses the names of routes.
//
// # What a client gets
//
// The numbers are in the metadata of every answer: in the header of one that succeeds, and in the trailer of an error,
// also of one of the handler. A call that is refused is RESOURCE_EXHAUSTED over the limit, UNAVAILABLE where the store
// failed, and PERMISSION_DENIED without a key. Its details have a google.rpc.RetryInfo with the exact wait, and its
// trailer has grpc-retry-pushback-ms, which the retries of gRPC's own clients obey, if they have been configured: they
// repeat the call after that time, or not at all where waiting cannot help (-1). Nothing of a refusal is in a header,
// because clients take a call with a header for one that has begun, and do not repeat it.
//
// Another status of a refusal, such as RejectOptions.Status, is the code that google.rpc.Code has for it: 403 is
// PERMISSION_DENIED, 429 and all without a code RESOURCE_EXHAUSTED. The message is the body. [Handle] makes an over-limit
// handler of a function that answers otherwise.
//
// # The end of a call
//
// A rule's Settle and After get, as Final.Status, the status of HTTP that stands for the code of the call, such as 404
// for NOT_FOUND, and in Final.Err the error, of which status.Code makes the code.
//
// A stream counts once, when it begins. It holds its permits until the handler returns, also by a panic. If they are
// lost, because Redis could not be reached for longer than their lease, its context ends, and its messages are neither
// sent nor received any more: what waits for a message of the client, or for a client that does not read, goes on
// waiting until it comes or leaves. A client that never does holds its permit for as long as its connection lives, which
// keepalive.ServerParameters bounds.
//
// # Clients
//
// [Obey] returns interceptors by which a client keeps to the limits of the servers that it calls, as package
// nethttp/obey does for HTTP. The program in examples/obey is a service and such a client.
package grpcmw
