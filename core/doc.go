// Package core decides: it holds limits and policies, the rules around them, the
// Guard that enforces a rule on HTTP requests, and the in-process store. It knows
// no framework and no Redis; those are in the packages around it.
//
// From text to answer:
//
//   - A [Policy] is a named set of limits, read by [Parse] from text such as
//     "login: 3/1m; fail closed", or built by [NewPolicy].
//   - A [Store] counts: [Memory] in the process, or redisstore.Store in Redis. One
//     call of Take is one atomic decision, and a [Result] its answer.
//   - A [Guard] puts policy, key, store and over-limit handler together. An adapter
//     (nethttp, ginmw, echomw, fibermw) shows it each request and carries out the
//     [Verdict].
//   - A [Limiter] is the same without HTTP. It can also wait for its turn, and hold
//     permits.
//   - A [PermitStore] bounds what is under way at the same time, where a Store counts how
//     often. Both stores are both.
//
// Three kinds of readers meet here. Applications need [Parse], [NewGuard] with its
// [Config] and [Rule], [NewLimiter], [Result] and the over-limit handlers. Adapters of
// a framework need [Guard.Check], [Verdict], [Header] and [HandleNative]. Stores need
// [Store], [Policy.Step] and [Policy.StepRefund] or, if they decide in a script,
// [Policy.Params], [Policy.RefundParams] and [Policy.Explain]; for permits [PermitStore],
// [Permit.Params] and [Permit.Explain].
//
// If the store fails, the policy's fail word decides; see [Failure]. Being over a
// limit is a Result and never an error.
//
// Instants (Take.Now, Result.At) are microseconds since the epoch by the store's clock;
// clocks of different machines never meet.
package core
