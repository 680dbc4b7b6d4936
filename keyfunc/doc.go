// Package keyfunc makes the key of a rate limit from a request: the text under which the client is counted.
//
// A key is built from typed parts by values of type [Func]. [IP], [ForwardedIP] and [ForwardedHops] name
// the client by its address; [User] by the identity that authentication has left in the request; [Header]
// by a header; [Route], [Method] and [Path] name what is asked for; [Custom] is anything else. [Join] and
// [FirstOf] combine them:
//
//	keyfunc.Join(keyfunc.IP(), keyfunc.Route())               // each address on each route
//	keyfunc.FirstOf(keyfunc.User("uid"), keyfunc.IP())        // the user; without a login, the address
//	keyfunc.ForwardedIP(netip.MustParsePrefix("10.0.0.0/8"))  // the client behind our own proxies
//
// # What a key promises
//
// No two different lists of parts have the same text, whatever bytes a client sends: parts are typed and
// escaped in one place, [Key.Add]. A user called 10.0.0.1 is never the address 10.0.0.1. The text has
// no bytes but A-Z a-z 0-9 and _ . : / = & % ~ -, so that it can be logged, and cannot place the {} of a
// Redis Cluster tag. A part of more than 128 bytes stands as its SHA-256 sum, so that a key stays short.
//
// A key is never empty by accident: where a part is missing, the error is [ErrNoKey], and the caller
// decides what that means.
//
// # What can be read in a key
//
// A key stands in the store, in logs and in guard.Event.Key as it is: an address, a user's name, a header that holds no
// credential. Credentials of [Header] are hashed. Where those who can read Redis must not learn who the clients are, set
// redisstore.Options.HashKeys, which hashes every key with a secret. [Hash] has no secret: it only makes keys short.
//
// # Whom to trust
//
// Everything but the address of the socket's peer comes from the client, until somebody has checked it.
// A key made of unchecked text is no limit: the client invents a new text for each request and is counted
// anew. So IP reads no header at all, ForwardedIP only believes the proxies that it was given, and Route is
// the pattern that the router found, not the path that the client wrote.
package keyfunc
