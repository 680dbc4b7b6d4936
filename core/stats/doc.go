// Package stats has the numbers that stores and Limiters return about themselves, for a page, a log or metrics. It has
// values alone, and imports nothing of weir.
//
// What is going on now:
//
//   - [Limiter] has what waits, is held, is owed and fails: enforce.Limiter.Stats returns one.
//   - [Store] has the servers of a store: redisstore.Store.Stats returns one.
//   - [Flight] and [BreakerChange] describe one event each, for redisstore.Options.Observe and ObserveBreaker.
//   - [Location] is the place in which a store keeps its counts.
//
// What was counted so far:
//
//   - [Usage] has what a process has admitted and refused, by policies and tiers: observe.Observer.Usage returns one.
//   - [Scores] adds what a process has counted of some keys to a board of the fleet, and a [Score] is a line of that.
package stats
