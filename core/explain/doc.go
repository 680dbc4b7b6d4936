// Package explain has the answers to "what would become of this request, and why?", as values and as text for people.
//
// enforce.Limiter.Explain returns an [Explanation], and guard.Guard.Explain one for each rule: what is used of each
// [Limit], which of them refuses, the [Permits] that are held, and each [Turn] at which such a request would be
// admitted next. Its String can be pasted into a ticket.
package explain
