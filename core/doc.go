// Package core decides whether a caller may go on: it has limits and policies, the answers, and the store in the
// process. It knows no request, and not what happens when a store fails: those are in the packages around it. It never
// talks to Redis; spec_*.go say what its scripts are sent and reply. CONTRIBUTING.md says where what is added.
//
// Most programs need only [Parse] and [Result] of it, beside package enforce for jobs and messages, or package guard and
// an adapter (nethttp, ginmw, echomw, echo5mw, fibermw, fiber3mw) for HTTP, or grpcmw for gRPC.
//
// # Policies
//
// A [Policy] is a named set of limits, all of which must admit a request or none is charged. It is read from text by
// [Parse] and [MustParse], or built by [NewPolicy], and both report each mistake with its remedy:
//
//	login := core.MustParse("login: 5/1m sliding-window, 100/1d; fail closed")
//
// Text has a rate and a period, as in "100/1m", and then, in any order, an algorithm, "burst 20" and what else the
// algorithm has. [Limit] describes each of these, and [Algorithm] each algorithm. After ";" stand the [PolicyOptions].
// A Policy is text in JSON and YAML, too.
//
// # Decisions
//
// A [Store] keeps the counts of each key. A [Take] asks it for one decision, which is atomic, also among many
// processes:
//
//	res, err := store.Take(ctx, core.Take{Policy: login, Key: "alice", Cost: 1})
//	switch {
//	case err != nil: // the store could not decide
//	case res.Outcome == core.Never: // larger than the burst: waiting cannot help, and RetryAfter is 0
//	case !res.Allowed(): // come back in res.RetryAfter
//	}
//
// Being over the limit is a Result and never an error. Its fields are those of the headers that clients know (Limit,
// Remaining, RetryAfter, ResetAfter); [Result.Each] has them for each limit. The whole Result is a receipt: a [Refund]
// with it gives units back that were not used. Keys stand in the store in plain text; see [Take].
//
// # Permits
//
// A limit such as "20 concurrent" bounds how many requests of a key are under way at the same time, where rates bound
// how often they come. A [PermitStore] keeps such permits: each lives for a lease, and is renewed and released by its
// holder. enforce.Limiter does that for you.
//
// # Stores
//
// [Memory] counts in the process, in a bounded number of keys. Package redisstore counts in Redis, for a fleet. Another
// store needs nothing but compare-and-swap: [Spec.Step] is the whole decision as one pure function on text, and package
// storetest tests what is built on it.
//
// # When a store fails
//
// A store that cannot decide returns a [*StoreError]. The policy's fail word then chooses the decision: an in-process
// store decides, everything passes, or nothing does; see [Failure]. enforce.Limiter and guard.Guard act by it.
//
// # Time
//
// Instants (Take.Now, Result.At) are microseconds since the epoch by the store's clock. All else is a duration, so that
// clocks of different machines are never compared.
package core
