// Package enforce stands around a decision: its [Limiter] asks a store, decides by the policy's fail word when the
// store fails, waits for turns, holds permits, and gives back what was not used. It is for jobs, messages and calls to
// other services; for HTTP requests, package guard is built on it. It knows no request and no framework.
//
// # Limiting
//
// A Limiter is built from a store and a policy. A nil store counts in the process; a redisstore.Store counts for a
// fleet:
//
//	limiter, err := enforce.New(store, core.MustParse("mail: 10/1s"), enforce.Options{})
//	...
//	res, err := limiter.AllowN(ctx, "customer-7", 3)
//	switch {
//	case err != nil: // nothing was decided, as under "fail closed"
//	case res.Outcome == core.Never: // larger than the burst: waiting cannot help, and RetryAfter is 0
//	case !res.Allowed(): // over the limit; come back in res.RetryAfter
//	}
//
// [Limiter.AllowN] takes several units, all or none, and [Limiter.UpTo] as many as there are. [Limiter.Refund] gives
// units back that were not used. The [core.Result] has the numbers to show to the caller.
//
// # Waiting
//
// With the word "wait" in its policy, a Limiter lets callers wait for their turn, in the order in which they came,
// across all processes. [Limiter.Wait] fails at once if the turn would come after the context's deadline:
//
//	limiter, err := enforce.New(store, core.MustParse("partner: 10/1s; wait 30s"), enforce.Options{})
//	...
//	if err := limiter.Wait(ctx, "partner", 1); err != nil {
//		return err // an *enforce.OverLimitError, for errors.As, or the context's error
//	}
//
// # Bounding what is under way
//
// With permits in its policy, a Limiter bounds how much is done at the same time. It renews the permits while the work
// runs:
//
//	limiter, err := enforce.New(store, core.MustParse("export: 2 concurrent"), enforce.Options{})
//	...
//	held, release, err := limiter.Acquire(ctx, "tenant-7")
//	if err != nil {
//		return err
//	}
//	defer release()
//	export(held) // held ends if the permit is lost
//
// # Several policies, several numbers
//
// [Limiter.With] makes a Limiter for a further policy on the same store. [Limiter.Variant] makes one for other numbers
// of the same policy, such as those of a tier, which count on with what was counted already.
//
// # Numbers that change
//
// With [Options.Source] a Limiter goes by the numbers of now, and [Limiter.Policy] returns them; package follow has the
// Set and the Source:
//
//	numbers := new(atomic.Pointer[follow.Set])
//	limiter, err := enforce.New(store, core.MustParse("mail: 10/1s"), enforce.Options{Source: numbers})
//	...
//	numbers.Store(&follow.Set{Policies: map[string]string{"mail": "20/1s"}})
//
// A package that is built on a Limiter makes the Limiters of a policy by [Limiter.Variants]: one for the policy of now
// and one for each tier and key, with a [follow.Entry] for each text of the Set. [Limiter.LogMistakes] logs the texts
// that cannot be used. [Fits] and [FitsTier] check a text before it is published.
//
// # What a Limiter returns about itself
//
// [Limiter.Stats] returns what waits, is held, is owed and fails, as a [stats.Limiter], and [Limiter.Explain] what would
// become of a request, and why, as an [explain.Explanation].
//
// # When the store fails
//
// The policy's fail word decides, and Result.Local is set. Under "fail local", the default, an in-process store takes
// over; what it has admitted is charged to the store when that is back. Only under "fail closed" is there an error, a
// [*core.StoreError]. The log receives one line for each class of failure, and one when the store is back.
//
// # The end
//
// [Limiter.Close] ends the waits, releases what is held, and waits until all that is due was given back.
package enforce
