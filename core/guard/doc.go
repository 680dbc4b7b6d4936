// Package guard deals with requests: it decides who is counted, by which policy, and what becomes of a request over
// its limit. It knows no framework and no store; those are in the packages around it.
//
//   - A [Rule] is a policy and the code around it: who is counted, at what cost, and what happens over the limit.
//   - A [Guard] enforces rules. It is built on the exported methods of enforce.Limiter, so that anybody could write
//     another one.
//   - An adapter (nethttp, ginmw, echomw, fibermw) shows each request to [Guard.Serve] as an [Exchange].
//   - An [OverLimit] handler answers what is refused: [Reject], which is the default, [Degrade], [Break], or one of the
//     program's own.
//
// The smallest program has one limit for all routes:
//
//	http.ListenAndServe(addr, nethttp.Limit(guard.Must("100/1m", keyfunc.IP()))(mux))
package guard
