// Package redissource brings the policies of a fleet to its programs through Redis: a [policies.Document] for each app,
// in one hash, which the admin writes and the programs read.
//
//	policies, err := redissource.New(rdb, "pay", redissource.Options{Bridge: "/var/lib/pay/policies"})
//	...
//	defer policies.Close()
//	g, err := guard.New(guard.Config{Rule: rule, Store: store, Source: policies})
//
// A change is obeyed within a second, since it is announced on a channel, and within 13 seconds if the announcement is
// lost. Nothing is ever taken back: while Redis is gone, has lost the document, or has one that cannot be used, the last
// good one stays, and [Source.Status] says why. A program that starts meanwhile goes by the file of Options.Bridge, and
// without it by its code. Each process is in the inventory of its app, which [Processes] reads.
//
// In the repository, docs/redis.md has the rights that the user of a service needs, and no others.
package redissource
