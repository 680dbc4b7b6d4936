// Package core decides: it has limits and policies, and the in-process store. It knows no request, no framework and no
// Redis, and not what happens when a store fails; those are in the packages around it.
//
// From text to answer:
//
//   - A [Policy] is a named set of limits, read by [Parse] from text such as
//     "login: 3/1m; fail closed", or built by [NewPolicy].
//   - A [Store] counts: [Memory] in the process, or redisstore.Store in Redis. One
//     call of Take is one atomic decision, and returns a [Result].
//   - A [PermitStore] bounds what is under way at the same time, where a Store counts how
//     often. Memory and redisstore.Store implement both.
//   - An enforce.Limiter enforces a policy on a store. It fails over, waits for turns, holds
//     permits, and gives back what was not used.
//   - For HTTP requests, package guard is built on the Limiter, and the adapters
//     (nethttp, ginmw, echomw, fibermw) on guard.
//
// Applications need [Parse], [Result] and package enforce. A program that implements a Store needs [Policy.Spec].
//
// If the store fails, the policy's fail word decides; see [Failure]. Being over a
// limit is a Result and never an error.
//
// Instants (Take.Now, Result.At) are microseconds since the epoch by the store's clock;
// clocks of different machines are never compared.
package core
