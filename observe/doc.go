// Package observe counts what guards and stores decide, for metrics, a page and an alert. It is the one place that
// counts: readers, such as observe/promweir, observe/otelweir and observe/inspect, show what [Observer.Snapshot]
// returns, so that every number exists once. It imports no Redis client and no metrics library.
//
//	o, err := observe.New(observe.Options{})
//	store, err := redisstore.New(rdb, redisstore.Options{Observe: o.ObserveFlight, ObserveBreaker: o.ObserveBreaker})
//	g, err := guard.New(guard.Config{..., Store: store, Observe: o.Observe})
//	o.Watch([]*guard.Guard{g})
//
// Observe takes a few tens of nanoseconds a decision and allocates nothing once a policy was seen. Memory and the number
// of series are bounded, whatever policies, tiers and keys there are: see [Options]. No key, path or address of a client
// is a label; they are in [Observer.Refusals] and [Observer.Worst] alone, which are for people.
package observe
